"""Runs: one request each, which attempts it used and why, and how it ended. Append-only.

`runs/<id>/00000.json` is the request; every later record adds one event: a stage, the end, a tag.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from rnnsearch.storage.backends import Backend
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.errors import DamagedError, MissingError, StoreError
from rnnsearch.storage.processes import ProcessIdentity, current_process, life_of
from rnnsearch.storage.records import is_sealed, seal, unseal

FOLDER = "runs"

_TICK = timedelta(milliseconds=1)  # of ids

RunState = Literal["running", "finished", "failed", "cancelled", "died"]
"""`died` is never written: a run without an end whose process is known to be gone."""


class StageUse(NamedTuple):
    """What one run did about one stage."""

    stage: str
    key: Digest
    attempt: int  # number of the attempt that was used
    hit: bool
    reason: str  # why it was computed; "" for a hit
    seconds: float
    shards_total: int | None = None
    shards_computed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One request and what became of it."""

    id: str
    request: Mapping[str, Any]
    process: ProcessIdentity
    started: float  # seconds since 1970 by the driver's clock
    uses: tuple[StageUse, ...] = ()
    state: RunState = "running"
    note: str = ""  # why it failed
    ended: float | None = None
    tags: frozenset[str] = field(default_factory=frozenset)

    def use(self, stage: str) -> StageUse | None:
        """What the run did last about a stage."""
        return next((use for use in reversed(self.uses) if use.stage == stage), None)


class Runs:
    """The runs of one store."""

    def __init__(self, backend: Backend) -> None:
        """Keep records in `backend`."""
        self._backend = backend

    def start(self, request: Mapping[str, Any]) -> Run:
        """Begin a run of this process."""
        process, now = current_process(), time.time()
        body = {"kind": "request", "request": request, "process": process.to_json(), "at": now}
        moment = datetime.fromtimestamp(now, UTC)
        if ids := self.ids():
            # Ids tell the order of runs, also after the clock was set back.
            moment = max(moment, _moment_of(ids[-1]) + _TICK)
        while not self._backend.create_exclusive(_name(_id_of(moment), 0), seal(body)):
            moment += _TICK
        return Run(id=_id_of(moment), request=request, process=process, started=now)

    def bring(self, run: Run) -> None:
        """Write a run of another store that has ended, under its id. StoreError if another run has that id.

        Its request is written last: until then there is no run.
        """
        with contextlib.suppress(MissingError):
            known = self.get(run.id)
            if (known.request, known.process, known.started) == (run.request, run.process, run.started):
                return
            raise StoreError(f"another run is called {run.id}; the run cannot come beside it into this store")
        for name in self._backend.children(f"{FOLDER}/{run.id}"):  # of a transfer that was killed
            self._backend.delete(f"{FOLDER}/{run.id}/{name}")
        bodies: list[dict[str, Any]] = [
            {"kind": "request", "request": run.request, "process": run.process.to_json(), "at": run.started},
            *({"kind": "stage", "use": use._asdict(), "at": run.ended} for use in run.uses),
            {"kind": "end", "state": run.state, "note": run.note, "at": run.ended},
            *({"kind": "tag", "tag": tag, "at": run.ended} for tag in sorted(run.tags)),
        ]
        for number, body in reversed(list(enumerate(bodies))):
            self._backend.create_exclusive(_name(run.id, number), seal(body))

    def record_stage(self, run_id: str, use: StageUse) -> None:
        """Add what the run did about a stage."""
        self._append(run_id, {"kind": "stage", "use": use._asdict()})

    def finish(self, run_id: str, state: RunState, note: str = "") -> None:
        """End a run."""
        self._append(run_id, {"kind": "end", "state": state, "note": note})

    def tag(self, run_id: str, tag: str) -> None:
        """Give a run a tag: gc keeps tagged runs."""
        self._append(run_id, {"kind": "tag", "tag": tag})

    def untag(self, run_id: str, tag: str) -> None:
        """Take a tag from a run; StoreError if it has none such."""
        if tag not in self.get(run_id).tags:
            raise StoreError(f"run {run_id} has no tag {tag!r}; `rnnsearch runs {run_id}` shows its tags")
        self._append(run_id, {"kind": "untag", "tag": tag})

    def get(self, run_id: str) -> Run:
        """The run of this id; MissingError if there is none."""
        folder = f"{FOLDER}/{run_id}"
        names = [f"{folder}/{name}" for name in self._backend.children(folder)]
        run: Run | None = None
        for name, data in zip(names, self._backend.read_many(names), strict=True):
            try:
                run = _apply(run, run_id, unseal(data or b"", name))
            except DamagedError:
                continue  # `verify` names it
        if run is None:
            raise MissingError(f"there is no run {run_id}; `rnnsearch runs` lists them")
        if run.state == "running" and life_of(run.process) == "dead":
            return replace(run, state="died")
        return run

    def find(self, text: str) -> Run:
        """The run of an id, of the beginning of one, or with this tag (the newest); MissingError if there is none."""
        ids = self.ids()
        if text in ids:
            return self.get(text)
        if tagged := [run for run in self.list() if text in run.tags]:
            return tagged[-1]
        begun = [run_id for run_id in ids if text and run_id.startswith(text)]
        if len(begun) > 1:
            raise StoreError(
                f"{text} begins {len(begun)} runs, from {begun[0]} to {begun[-1]}; give more of it"
            )
        if not begun:
            raise MissingError(f"there is no run {text}; `rnnsearch runs` lists them")
        return self.get(begun[0])

    def ids(self) -> tuple[str, ...]:
        """The ids of all runs, oldest first."""
        return tuple(self._backend.children(FOLDER))

    def list(self) -> tuple[Run, ...]:
        """All runs, oldest first; one whose request is damaged is left out."""
        found = []
        for run_id in self.ids():
            try:
                found.append(self.get(run_id))
            except MissingError:
                continue
        return tuple(found)

    def damaged(self) -> tuple[str, ...]:
        """Names of records that are not as they were written."""
        names = self._backend.names(FOLDER)
        return tuple(
            name
            for name, data in zip(names, self._backend.read_many(names), strict=True)
            if data is not None and not is_sealed(data, name)
        )

    def _append(self, run_id: str, body: Mapping[str, Any]) -> None:
        names = self._backend.children(f"{FOLDER}/{run_id}")
        if not names:
            raise MissingError(f"there is no run {run_id}; `rnnsearch runs` lists them")
        data = seal({**body, "at": time.time()})
        number = int(names[-1].removesuffix(".json")) + 1
        while not self._backend.create_exclusive(_name(run_id, number), data):
            number += 1


def _id_of(moment: datetime) -> str:
    return f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 1000:03}"


def _moment_of(run_id: str) -> datetime:
    try:
        return datetime.strptime(run_id, "%Y%m%d-%H%M%S-%f").replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _name(run_id: str, number: int) -> str:
    return f"{FOLDER}/{run_id}/{number:05}.json"


def _apply(run: Run | None, run_id: str, body: Mapping[str, Any]) -> Run | None:
    """The run after one more record."""
    if body["kind"] == "request":
        process = ProcessIdentity(**body["process"])
        return Run(id=run_id, request=body["request"], process=process, started=body["at"])
    if run is None:
        return None
    match body["kind"]:
        case "stage":
            return replace(run, uses=(*run.uses, StageUse(**body["use"])))
        case "end":
            return replace(run, state=body["state"], note=body["note"], ended=body["at"])
        case "tag":
            return replace(run, tags=run.tags | {body["tag"]})
        case "untag":
            return replace(run, tags=run.tags - {body["tag"]})
    return run
