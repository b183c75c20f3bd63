"""`rnnsearch export --as text`: what a stage made as files for other tools, a line for each row."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.places import check_new_folder, new_folder
from rnnsearch.flows.terminal import emit
from rnnsearch.storage.digests import Digest
from rnnsearch.storage.runs import Run
from rnnsearch.storage.store import Store


def export_text(
    location: str, run: str | None, of: str | None, folder: Path, *, as_json: bool = False
) -> None:
    """Write an output of a run into a new folder, whole or not at all, and print its path.

    Each column of text of a table becomes a file, such as `source.txt` and `target.txt` of pairs; other files are
    copied. Raises UsageError for an output that the run has not, and for text that does not fit on lines.
    """
    check_new_folder(folder)
    store = Store.open(location, create=False)
    found = last_finished(store) if run is None else store.runs.find(run)
    digest = _found(store, found, of)
    with new_folder(folder, store.backend) as building:
        _write(store, digest, building)
    sys.stderr.write(f"{of}, artifact {digest}\n")
    if as_json:
        emit({"folder": folder, "run": found.id, "output": of, "artifact": digest})
    else:
        sys.stdout.write(f"{folder}\n")


def outputs_of(store: Store, run: Run) -> Mapping[str, Digest]:
    """Everything that the stages of a run made, as STAGE:OUTPUT."""
    return {
        f"{use.stage}:{name}": digest
        for use in run.uses
        if (attempt := store.ledger.attempt(use.key, use.attempt, use.stage)) is not None
        for name, digest in attempt.outputs.items()
    }


def _found(store: Store, run: Run, of: str | None) -> Digest:
    outputs = outputs_of(store, run)
    if of is None:
        raise UsageError("--as text wants --of STAGE:OUTPUT, such as --of tokenize/test:pairs")
    if of not in outputs:
        made = [name for name in outputs if name.startswith(of.partition(":")[0] + ":")] or list(outputs)
        raise UsageError(f"run {run.id} made no {of}; it made {', '.join(made)}")
    return outputs[of]


def _write(store: Store, digest: Digest, folder: Path) -> None:
    for file in store.read_artifact(digest).files:
        if not file.path.endswith(".parquet"):
            (folder / Path(file.path).name).write_bytes(store.get_bytes(file.digest))
            continue
        table = store.get_table(file.digest)
        texts = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
        if not texts:
            raise UsageError(f"the tables have no column of text, only {', '.join(table.column_names)}")
        for name in texts:
            lines = [text or "" for text in table[name].to_pylist()]
            if any("\n" in line for line in lines):
                raise UsageError(f"a text of {name!r} has several lines: it would not be one line a row")
            with (folder / f"{name}.txt").open("a", encoding="utf-8", newline="\n") as out:
                out.writelines(f"{line}\n" for line in lines)
