"""One file of lines that go beside the test sentences: another system's output, links made by people."""

from pathlib import Path

from rnnsearch.pipeline.config import LONGEST
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.plain import bounded_lines, decoded


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines of the file `name` in `folder`, also compressed, split on U+000A only.

    A carriage return before it belongs to the end of the line. Raises FormatError on bad UTF-8.
    """
    with opened(Place(folder, name)) as stream:
        raw = list(bounded_lines(stream, LONGEST))
    if None in raw:
        raise FormatError(f"{folder}: line {raw.index(None) + 1:,} of {name!r} is above {LONGEST:,} bytes")
    lines: list[str] = decoded(raw, folder, name, 0).to_pylist()
    return [line.removesuffix("\r") for line in lines]
