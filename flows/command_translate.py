"""`rnnsearch translate`: from standard input or a file to standard output, one line for each line, in order."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rnnsearch.flows import attention
from rnnsearch.flows.command_inspect import last_finished
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import apply_overrides, preset
from rnnsearch.flows.systems import choose_system
from rnnsearch.flows.translator import Translation, Translator, read_dictionary
from rnnsearch.model.config import SearchConfig
from rnnsearch.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for, as the command line gives it."""

    store: str
    run: str | None = None
    system: str | None = None
    model: Path | None = None  # an exported folder instead of a run's system
    file: Path | None = None
    search: tuple[str, ...] = ()  # key=value
    n_best: int = 1
    scores: bool = False
    attention: str | None = None  # `terminal`, or a file to write
    replace_unknown: str | None = None  # `copy`, or a dictionary file


def translate_lines(wish: Wish) -> None:
    """Translate every line."""
    translator, search = load(wish)
    replace = _replacement(wish.replace_unknown)
    shown: list[Translation] = []
    with ExitStack() as stack:
        lines = _lines(wish.file, stack)
        together = 1 if sys.stdin.isatty() and wish.file is None else 256
        for translation in translator.translate(lines, search, replace=replace, together=together):
            _print(translation, wish)
            if wish.attention not in (None, "terminal"):
                shown.append(translation)
    if wish.attention not in (None, "terminal"):
        attention.write(Path(wish.attention), shown)


def load(wish: Wish) -> tuple[Translator, SearchConfig]:
    """The translator asked for, and the search: as it was evaluated, or a preset, with the user's changes.

    Says on standard error which system it is.
    """
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


def _lines(file: Path | None, stack: ExitStack) -> Iterator[str]:
    """The lines of the input; only U+000A ends one."""
    stream: IO[bytes] = sys.stdin.buffer
    if file is not None:
        try:
            stream = stack.enter_context(file.open("rb"))
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    return _decoded(stream)


def _decoded(stream: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"line {number} of the input is not UTF-8 at byte {error.start}; convert it first"
            ) from error


def _replacement(wanted: str | None) -> dict[str, str] | None:
    if wanted is None:
        return None
    return {} if wanted == "copy" else dict(read_dictionary(Path(wanted)))


def _print(translation: Translation, wish: Wish) -> None:
    if translation.cut:
        sys.stderr.write(f"rnnsearch: a line was cut by {translation.cut} words at its end\n")
    for candidate in translation.candidates[: wish.n_best]:
        score = f"{candidate.key:.4f}\t" if wish.scores else ""
        sys.stdout.write(f"{score}{candidate.text}\n")
    if wish.attention == "terminal":
        sys.stdout.write(attention.terminal(translation, shutil.get_terminal_size().columns))
    sys.stdout.flush()
