"""`rnnsearch init`: a commented profile for a corpus of one's own."""

import json
import os
import string
import sys
from pathlib import Path

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import PROFILES, SettingsError, load_settings
from rnnsearch.flows.terminal import emit
from rnnsearch.pipeline.config import PlainFormat
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.members import Place, opened
from rnnsearch.pipeline.formats.reader import check_files, read_pairs
from rnnsearch.storage.errors import explained

BATCH, EPOCHS = 80, 10
MOST_UPDATES = 20_000  # of a suggestion: a night on two processors
_FEWEST = 3  # pairs: one each for dev, test and training; so many are shown too
PAIRS = 100_000  # where no text is given


def write_profile(
    path: Path,
    text: tuple[Path, Path] | None,
    languages: tuple[str, str],
    title: str | None,
    *,
    as_json: bool = False,
) -> None:
    """Write a profile to a new file, sized for `text` (two files of lines that correspond), and print its path.

    Raises UsageError where the file is there, or the two files are no parallel text.
    """
    if path.suffix != ".toml":
        raise UsageError(f"a profile is a .toml file; name it {path.with_suffix('.toml')}")
    pairs = PAIRS if text is None else _pairs(*text)
    source, target = text or (path.with_name(f"train.{language}") for language in languages)
    held = max(1, min(1_000, pairs // 20))
    training = pairs - 2 * held
    updates = max(100, min(MOST_UPDATES, int(round(training * EPOCHS / BATCH, -2))))
    template = string.Template((PROFILES / "own.toml.in").read_text(encoding="utf-8"))
    written = template.substitute(
        title=_quoted(title or path.stem),
        source_url=_quoted(_from(path, source)),
        target_url=_quoted(_from(path, target)),
        source_language=_quoted(languages[0]),
        target_language=_quoted(languages[1]),
        held=held,
        updates=updates,
        epochs=f"{updates * BATCH / training:.1f} times through {training:,} pairs"
        if text
        else f"{EPOCHS} times through {PAIRS:,} pairs",
        every=max(50, updates // 5),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(written)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already; name a file that is not, or remove it") from error
    except OSError as error:
        raise explained(error, f"write {path}") from error
    try:
        load_settings(str(path))
    except SettingsError:
        path.unlink()  # a language that is none, for instance: the same command, mended, works again
        raise
    found = (
        f"{pairs:,} pairs; {held:,} each are held out as dev and test"
        if text
        else "no text was given; set the two urls"
    )
    sys.stderr.write(f"{found}\nlook through the file, then: rnnsearch plan --profile {path}\n")
    if as_json:
        emit({"profile": path, "pairs": pairs if text else None, "held_out": held, "updates": updates})
    else:
        sys.stdout.write(f"{path}\n")


def _pairs(source: Path, target: Path) -> int:
    """Number of lines that correspond; three of them are shown."""
    try:
        check_files([source, target], PlainFormat())
        lines = [_lines(path) for path in (source, target)]
    except FormatError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise explained(error, f"read {source} and {target}") from error
    if lines[0] != lines[1]:
        raise UsageError(
            f"{source} has {lines[0]:,} lines and {target} {lines[1]:,}; "
            "line n of one must translate line n of the other"
        )
    if lines[0] < _FEWEST:
        raise UsageError(
            f"{source} has {lines[0]} lines; a dev, a test and a training sentence are the least"
        )
    first = next(read_pairs([source, target], "text", PlainFormat(), _FEWEST)).pairs
    for row in first.to_pylist():
        sys.stderr.write(f"  {row['source']}\n    = {row['target']}\n")
    return lines[0]


def _lines(path: Path) -> int:
    """Lines as ingest counts them: split on U+000A only, a last one without it counts."""
    count, last = 0, b"\n"
    with opened(Place(path, alone=True)) as file:
        while block := file.read(1 << 20):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def _from(profile: Path, path: Path) -> str:
    """The path as the profile names it: from its folder."""
    return Path(os.path.relpath(path, profile.parent)).as_posix()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # a basic string of TOML
