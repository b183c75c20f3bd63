"""A run as the report reads it: which attempt stands for each stage, and what is in its outputs.

The only place of the report that reads a store. What is missing or damaged is noted in words and is None.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.ledger import Attempt
from rnnsearch.storage.runs import Run, StageUse
from rnnsearch.storage.store import Store


class RunView:
    """One run of a store. `missing` collects what could not be read."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Look the run and its attempts up; MissingError if there is no such run."""
        self.store = store
        self.run: Run = store.runs.get(run_id)
        self.missing: list[str] = []
        self.uses: dict[str, StageUse] = {use.stage: use for use in self.run.uses}  # the last of each
        self.attempts: dict[str, Attempt] = {}
        for stage, use in self.uses.items():
            attempt = store.ledger.attempt(use.key, use.attempt, stage)
            if attempt is None:
                self.missing.append(f"{stage}: its record in the ledger is gone or damaged")
            else:
                self.attempts[stage] = attempt

    @property
    def request(self) -> Mapping[str, Any]:
        """What was asked for: profile, settings, stages."""
        return self.run.request

    def settings(self, *path: str) -> Any:
        """A value of the settings of the run, None where it has none."""
        value: Any = self.request.get("settings")
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def planned(self, stage: str) -> bool:
        """Whether the run wanted this stage, done or not."""
        return stage in self.uses or stage in self.request.get("stages", ())

    def names(self, kind: str) -> list[str]:
        """What follows `kind/` in the stages that are done, in order."""
        return [stage.partition("/")[2] for stage in self.attempts if stage.startswith(f"{kind}/")]

    def rows(self, stage: str, output: str) -> int | None:
        """Rows of an output."""
        attempt = self.attempts.get(stage)
        if attempt is None:
            return None
        if output in attempt.rows:
            return attempt.rows[output]
        counts = [file.rows for file in self.files(stage, output)]
        return sum(count for count in counts if count is not None) if counts and None not in counts else None

    def files(self, stage: str, output: str) -> Sequence[FileEntry]:
        """The files of an output, none where it is not there."""
        attempt = self.attempts.get(stage)
        if attempt is None or output not in attempt.outputs:
            return ()
        try:
            return self.store.read_artifact(attempt.outputs[output]).files
        except StoreError as error:
            self._note(stage, error)
            return ()

    def json(self, stage: str, output: str) -> Mapping[str, Any] | None:
        """An output of one JSON file that holds an object."""
        found = self._json(stage, output)
        return found if isinstance(found, Mapping) else None

    def rows_of_json(self, stage: str, output: str) -> Sequence[Mapping[str, Any]]:
        """An output of one JSON file that holds a list of objects."""
        found = self._json(stage, output)
        return found if isinstance(found, list) else ()

    def _json(self, stage: str, output: str) -> Any:
        for file in self.files(stage, output):
            try:
                return json.loads(self.store.get_bytes(file.digest))
            except (StoreError, ValueError) as error:
                self._note(stage, error)
        return None

    def tables(self, stage: str, output: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The tables of an output, shard by shard; only some columns, if they are given."""
        yield from self.tables_of(stage, self.files(stage, output), columns)

    def tables_of(
        self, stage: str, files: Sequence[FileEntry], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """These files of a stage's output as tables."""
        for file in files:
            try:
                data = pa.BufferReader(self.store.get_bytes(file.digest))
                yield pq.read_table(data, columns=None if columns is None else list(columns))
            except (StoreError, pa.ArrowException, OSError) as error:
                self._note(stage, error)

    def table(self, stage: str, output: str) -> pa.Table | None:
        """All of an output as one table."""
        parts = list(self.tables(stage, output))
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks() if parts else None

    def evidence(self, stage: str) -> str:
        """The name under which the report shows the stage, "" where it is not done."""
        return stage if stage in self.attempts else ""

    def _note(self, stage: str, error: Exception) -> None:
        note = f"{stage}: {error}"
        if note not in self.missing:
            self.missing.append(note)
