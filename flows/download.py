"""The download stage: stores a source as an artifact of one file and checks the stored bytes."""

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from rnnsearch.flows.job import Finished, Job
from rnnsearch.flows.shapes import Stage
from rnnsearch.flows.sources.checks import ChangedError, SourceError
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.flows.sources.fetch import fetch
from rnnsearch.flows.sources.known import forget
from rnnsearch.flows.steps import Step
from rnnsearch.storage.artifacts import FileEntry
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.recipes import Recipe
from rnnsearch.storage.store import Store


def download(job: Job, progress: Callable[[Step], None]) -> Finished:
    """Fetch one source, or reuse an earlier attempt that stored the same bytes from another address.

    What an interrupted download has on disk is kept and continued. Raises SourceError.
    """
    source = SourceConfig.model_validate(job.unkeyed["source"])
    content = job.config.get("content")  # of the file as fetched, where it is known beforehand
    again = job.unkeyed.get("again", False)
    if content is not None and not again and (earlier := _earlier(job, content)) is not None:
        return earlier
    workdir = job.workdir()
    for folder in job.earlier():
        _inherit(folder, workdir)
        shutil.rmtree(folder, ignore_errors=True)

    def show(done: int, total: int | None) -> None:
        of = f" of {total / 1e6:.1f}" if total else ""
        progress(Step(f"{done / 1e6:.1f}{of} MB", done, total or 0))

    try:
        fetched = fetch(source.model_copy(update={"sha256": content}), workdir, show)
        blob = job.store.put_file(fetched.path)
        if source.member is None and blob.digest != fetched.sha256:
            raise SourceError(f"{fetched.path} changed while it was stored; run again")
    except ChangedError as error:
        name = job.stage.partition("/")[2]
        raise SourceError(
            f"{error}\nIf the publisher changed the file and you want it as it is now: "
            f"`rnnsearch lock --update {name}`, or correct the digest in the profile if it is there"
        ) from error
    except SourceError as error:
        if source.local is None or source.sha256 is not None:
            raise
        forget(source.local)
        raise SourceError(
            f"{error}\nThe digest is that of {source.local} when this stage began: if the file was written meanwhile, "
            "run again when nothing writes to it"
        ) from error
    return Finished(
        {"file": [as_file(blob.digest, blob.size)]},
        {
            "sha256": fetched.sha256,
            "bytes": fetched.size,
            "origin": fetched.origin,
            "name": source.name,
        },
    )


def as_file(digest: Digest, size: int) -> FileEntry:
    """The file entry of a download's artifact; its name does not depend on the source."""
    return FileEntry("file", digest, size, None)


def doubt_downloads(store: Store, stage: Stage, recipe: Recipe, why: str) -> None:
    """Mark the unpinned downloads that a failed stage read, so that the next run fetches them again."""
    for name, ref in stage.inputs():
        if not ref.stage.startswith("download/"):
            continue
        for attempt in store.ledger.history(ref.stage):
            pinned = "url" not in attempt.recipe.config or attempt.recipe.config.get("md5") is not None
            same = attempt.outputs.get(ref.output) == recipe.inputs[name]
            if same and not pinned and attempt.withdrawn is None:
                store.ledger.withdraw_doubted(attempt, f"{stage.name}: {why}")


def name_sources(message: str, store: Store, stage: Stage, recipe: Recipe) -> str:
    """Replace the paths of downloaded blobs in an error message by the names of their sources."""
    for name, ref in stage.inputs():
        kind, _, source = ref.stage.partition("/")
        if kind != "download":
            continue
        for file in store.read_artifact(recipe.inputs[name]).files:
            message = re.sub(rf"[^\s'\"]*{file.digest}", f"source {source}", message)
    return message


def _earlier(job: Job, content: str) -> Finished | None:
    """The result of an earlier attempt with the same bytes and member, under any key."""
    for attempt in reversed(job.store.ledger.history(job.stage)):
        seen, config = attempt.observations, attempt.recipe.config
        same = seen.get("sha256") == content and config.get("member") == job.config.get("member")
        usable = attempt.withdrawn in (None, "doubted")  # the digest says that these are the bytes
        if not same or not usable or attempt.recipe.code != job.code:
            continue
        if all(job.store.keep(digest) for digest in attempt.outputs.values()):
            files = {name: job.store.read_artifact(digest).files for name, digest in attempt.outputs.items()}
            return Finished(files, seen)
    return None


def _inherit(old: Path, new: Path) -> None:
    """Copy what an earlier epoch fetched: should its writer have slept, it goes on in files of its own."""
    fetched, copy = new / "fetched", new / "copying"
    if (old / "fetched").is_dir():
        shutil.copytree(old / "fetched", copy, copy_function=_copy)
        shutil.rmtree(fetched, ignore_errors=True)
        copy.rename(fetched)  # whole: a kill in the midst loses nothing of the old one


def _copy(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # that writer renamed it just now
        shutil.copyfile(source, target)
