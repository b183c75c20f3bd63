"""One file of lines that go beside the test sentences: another system's output, links made by people."""

from pathlib import Path

from rnnsearch.pipeline.formats.members import opened
from rnnsearch.pipeline.formats.plain import decoded


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines of the file `name` in `folder`, also gzipped, split on U+000A only.

    A carriage return before it belongs to the end of the line. Raises FormatError on bad UTF-8.
    """
    with opened(folder, name) as file:
        lines: list[str] = decoded(list(file), folder, name, 0).to_pylist()
    return [line.removesuffix("\r") for line in lines]
