"""Two files of one sentence a line (architecture 5).

Lines end at U+000A and nowhere else: U+2028, U+0085 and a lone carriage return are text, or else the two
sides lose step (protocol trap 25). Bytes are decoded strictly.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa

from rnnsearch.pipeline.config import PlainFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import opened


class Sides(NamedTuple):
    """Some pairs: as many sources as targets, and keys where the file has them."""

    source: pa.Array
    target: pa.Array
    key: pa.Array | None = None


def read_plain(path: Path, config: PlainFormat, rows: int) -> Iterator[Sides]:
    """At most `rows` pairs at a time. Raises FormatError on bad UTF-8 and on files of unequal length."""
    names = [config.source, config.target, *([config.key] if config.key else [])]
    with ExitStack() as stack:
        files = [stack.enter_context(opened(path, name)) for name in names]
        line = 0
        while True:
            parts = [list(islice(file, rows)) for file in files]
            if len({len(part) for part in parts}) > 1:
                counts = [line + len(part) + _rest(file) for part, file in zip(parts, files, strict=True)]
                found = ", ".join(f"{name!r} has {n:,}" for name, n in zip(names, counts, strict=True))
                raise FormatError(f"{path}: unequal numbers of lines, so they cannot be pairs: {found}")
            if not parts[0]:
                return
            yield Sides(*(decoded(part, path, name, line) for part, name in zip(parts, names, strict=True)))
            line += len(parts[0])


def decoded(lines: list[bytes], path: Path, name: str, first: int) -> pa.Array:
    """The lines as text, without U+000A. Raises FormatError naming the line (from 1) that is not UTF-8."""
    array = pa.array([line.removesuffix(b"\n") for line in lines], pa.binary())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        for number, line in enumerate(lines, first + 1):
            try:
                line.decode()
            except UnicodeDecodeError as bad:
                raise FormatError(
                    f"{path}: line {number:,} of {name!r} is not UTF-8 at byte {bad.start}: {bad.reason}; "
                    "convert the file to UTF-8 first"
                ) from error
        raise


def _rest(stream: IO[bytes]) -> int:
    return sum(1 for _ in stream)
