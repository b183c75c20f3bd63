"""`rnnsearch translate`: from standard input or a file to standard output, one line for each line, in order."""

import json
import math
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from select import select

import torch

from rnnsearch.flows import attention
from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.cpus import usable_cpus
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import apply_overrides, preset
from rnnsearch.flows.systems import choose_system
from rnnsearch.flows.translator import LINES, Translation, Translator, read_dictionary
from rnnsearch.model.config import SearchConfig
from rnnsearch.storage.store import Store

_ENDING = re.compile(r"[^.]\.[A-Za-z]\w*$")  # of a file's name
_LONGEST_LINE = 10**7  # bytes; a thousand words of it are translated


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for, as the command line gives it."""

    store: str
    run: str | None = None
    system: str | None = None
    model: Path | None = None  # an exported folder instead of a run's system
    file: Path | None = None
    sentence: str | None = None  # instead of a file
    search: tuple[str, ...] = ()  # key=value
    n_best: int = 1
    scores: bool = False
    attention: str | None = None  # `terminal`, or a file to write
    replace_unknown: str | None = None  # `copy`, or a dictionary file
    as_json: bool = False


def named(text: str | None) -> tuple[Path | None, str | None]:
    """The file or the sentence that an argument is: a sentence has several words and does not end as a file does.

    Raises UsageError for an empty one.
    """
    if text is None:
        return None, None
    if not text.strip():
        raise UsageError("there is nothing to translate: name a file or give a sentence")
    words = text.split()
    with suppress(OSError):  # too long for a path
        if os.path.lexists(text) or len(words) < 2 or _ENDING.search(words[-1]):
            return Path(text), None
    return None, text


def translate_lines(wish: Wish) -> None:
    """Translate every line. What the user gave is checked before the model is loaded."""
    picture = None if wish.attention in (None, "terminal") else Path(wish.attention or "")
    if picture is not None:
        attention.check_path(picture)
    replace = _replacement(wish.replace_unknown)
    shown: list[Translation] = []
    with ExitStack() as stack:
        batches = _batches(wish, stack)
        translator, search = load(wish)
        if picture is not None:
            attention.check_model(translator)
        for translation in translator.translate_batches(batches, search, replace=replace):
            _print(translation, wish)
            if picture is not None and translation.source:
                shown.append(translation)
                attention.check_count(picture, shown)
    if picture is not None:
        attention.write(picture, shown)


def load(wish: Wish) -> tuple[Translator, SearchConfig]:
    """The translator asked for, and the search: as it was evaluated, or a preset, with the user's changes.

    Says on standard error which system it is.
    """
    torch.set_num_threads(min(torch.get_num_threads(), usable_cpus().usable))
    translator, search = _found(wish)
    changes = [*wish.search, f"n_best={wish.n_best}"]
    for change in wish.search:
        key, _, name = change.partition("=")
        if key.strip() == "preset":
            search = preset(name.strip())
            changes.remove(change)
    return translator, apply_overrides(search, changes, "the search")


def _found(wish: Wish) -> tuple[Translator, SearchConfig]:
    if wish.model is not None:
        translator = Translator.load(wish.model)
        sys.stderr.write(f"system {translator.name} of {wish.model}\n")
        return translator, translator.search
    store = Store.open(wish.store, create=False)
    run = last_finished(store) if wish.run is None else store.runs.find(wish.run)
    system = choose_system(store, run, wish.system)
    score = "" if system.bleu is None else f", {system.bleu:.2f} BLEU on its test set"
    sys.stderr.write(f"system {system.name} of run {system.run}{score}\n")
    return system.translator(store), system.settings.search


def _batches(wish: Wish, stack: ExitStack) -> Iterator[list[str]]:
    """The lines of the input, some at a time; only U+000A ends a line. Raises UsageError."""
    if wish.sentence is not None:
        return iter([[wish.sentence]])
    if wish.file is not None:
        try:
            descriptor = stack.enter_context(wish.file.open("rb", buffering=0)).fileno()
        except OSError as error:
            hint = "" if "/" in str(wish.file) else f"; to translate the word: echo {wish.file} | rnnsearch …"
            raise UsageError(f"{wish.file} cannot be read: {error.strerror}{hint}") from error
        return _decoded(_as_they_come(descriptor, LINES))
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file")
    return _decoded(_as_they_come(sys.stdin.fileno(), 1 if sys.stdin.isatty() else LINES))


def _as_they_come(descriptor: int, most: int) -> Iterator[list[bytes]]:
    """Lines as soon as they are whole: all that are there, `most` at most; it waits only while there is none."""
    lines: deque[bytes] = deque()
    parts: list[bytes] = []  # of a line that has not ended
    size, ended = 0, False
    while not ended or lines:
        while not ended and len(lines) < most and (not lines or select([descriptor], [], [], 0)[0]):
            block = os.read(descriptor, 1 << 16)
            ended = not block
            first, *rest = block.split(b"\n")
            parts.append(first)
            size += len(first)
            if rest:
                lines.extend((b"".join(parts), *rest[:-1]))
                parts, size = [rest[-1]], len(rest[-1])
            if size > _LONGEST_LINE:
                raise UsageError(
                    f"a line of the input has more than {_LONGEST_LINE / 1e6:.0f} MB; a sentence a line is expected"
                )
            if ended and size:
                lines.append(b"".join(parts))
        if lines:
            yield [lines.popleft() for _ in range(min(most, len(lines)))]


def _decoded(batches: Iterable[list[bytes]]) -> Iterator[list[str]]:
    """The lines as text; those before one that is not UTF-8 come first, then UsageError."""
    number = 0
    for batch in batches:
        texts = []
        for line in batch:
            number += 1
            try:
                texts.append(line.removesuffix(b"\r").decode("utf-8"))
            except UnicodeDecodeError as error:
                if texts:
                    yield texts
                raise UsageError(
                    f"line {number} of the input is not UTF-8 at byte {error.start}; convert it first"
                ) from error
        yield texts


def _replacement(wanted: str | None) -> dict[str, str] | None:
    if wanted is None:
        return None
    return {} if wanted == "copy" else dict(read_dictionary(Path(wanted)))


def _print(translation: Translation, wish: Wish) -> None:
    if translation.cut:
        sys.stderr.write(f"rnnsearch: a line was cut by {translation.cut} words at its end\n")
    if wish.as_json:
        candidates = [
            {**one._asdict(), "cost": _finite(one.cost), "key": _finite(one.key)}
            for one in translation.candidates[: wish.n_best]
        ]
        shown = {**translation._asdict(), "candidates": candidates}
        sys.stdout.write(json.dumps(shown, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
        return
    for candidate in translation.candidates[: wish.n_best]:
        score = f"{candidate.key:.4f}\t" if wish.scores else ""
        sys.stdout.write(f"{score}{candidate.text}\n")
    if wish.attention == "terminal":
        sys.stdout.write(attention.terminal(translation, shutil.get_terminal_size().columns))
    sys.stdout.flush()


def _finite(number: float) -> float | None:
    """JSON has no infinity, which is the cost of a candidate that never ended."""
    return number if math.isfinite(number) else None
