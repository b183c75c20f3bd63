"""Lines of text in, translations out: what the command line, the web page and a program use.

A line is normalised and tokenised as the training's text was, searched, and its best hypotheses are put together
again. Every line has exactly one translation, in order, the empty one included.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from rnnsearch.flows.translate import TranslateError, check_sizes, load, vocabulary
from rnnsearch.model.config import SearchConfig
from rnnsearch.model.search import EOS, UNKNOWN, Hypothesis, beam_search
from rnnsearch.pipeline.clean import normalize
from rnnsearch.pipeline.config import CleanConfig, TokenizeConfig
from rnnsearch.pipeline.encode import ids, index
from rnnsearch.pipeline.schemas import SHORTLIST, sentence, words
from rnnsearch.pipeline.tokenization import detokenize, tokenize

TEXT = "text.json"  # `Described`
SOURCE, TARGET = "source.shortlist", "target.shortlist"  # one word a line, the most frequent first

LINES = 256  # read before they are translated together
MAX_WORDS = 1_000  # of a line; memory and time grow with its square


class TextConfig(BaseModel):
    """All that is done to text before a model reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clean: CleanConfig = CleanConfig()
    tokenize: TokenizeConfig = TokenizeConfig()


class Described(BaseModel):
    """What `text.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: TextConfig
    search: SearchConfig  # as the system was evaluated


class Candidate(NamedTuple):
    """One translation of a line."""

    text: str  # as one would write it
    tokens: tuple[str, ...]  # as the model gave them, unknown words replaced if that was asked for
    unknown: tuple[int, ...]  # positions of the tokens that were [UNK]
    cost: float  # summed -log p in nats
    key: float  # what candidates are ranked by
    finished: bool
    fallback: bool  # [UNK] was forbidden and had to be allowed again
    alignment: Sequence[Sequence[float]] | None  # a row a token and one for `</s>`; columns: source, `</s>`


class Translation(NamedTuple):
    """What became of one line."""

    line: str
    source: tuple[str, ...]  # tokens as given to the model
    cut: int  # words at the end of the line that were left out, since it was too long
    candidates: tuple[Candidate, ...]  # best first; at least one

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


class Translator:
    """A trained model with its shortlists and its rules of text."""

    def __init__(
        self,
        model: Path,
        source: pa.Table,
        target: pa.Table,
        text: TextConfig,
        name: str = "",
        search: SearchConfig = SearchConfig(),  # noqa: B008 - frozen
    ) -> None:
        """Use the folder of a training and its SHORTLIST tables. Raises TranslateError if they do not fit.

        `search` is what the system was evaluated with; whoever translates may use another one.
        """
        check_sizes(load(model, "float32"), source, target)
        self.name = name
        self.search = search
        self.text = text
        self._model = model
        self._source_index = index(source)
        self._target_words = vocabulary(target)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model that `export_model` wrote. Raises TranslateError where the folder is not one."""
        try:
            described = Described.model_validate_json((folder / TEXT).read_bytes())
            source, target = (read_shortlist(folder / file) for file in (SOURCE, TARGET))
        except (OSError, ValueError) as error:
            raise TranslateError(
                f"{folder} is not an exported model ({error}); `rnnsearch export --as model` writes one"
            ) from error
        return cls(folder, source, target, described.text, described.name, described.search)

    @property
    def attends(self) -> bool:
        """Whether the model looks at single source words; RNNencdec does not."""
        return load(self._model, "float32").config.kind != "rnnencdec"

    def translate(
        self,
        lines: Iterable[str],
        search: SearchConfig,
        *,
        replace: Mapping[str, str] | None = None,
        max_words: int = MAX_WORDS,
        together: int = LINES,
        before_step: Callable[[], None] | None = None,
    ) -> Iterator[Translation]:
        """Translate each line, in order, holding at most `together` lines.

        `replace` gives every [UNK] the word of the source that it looks at most: as `replace` translates it, or
        copied where it does not know it (Luong et al. 2015, Jean et al. 2015). Raises TranslateError where that
        is asked of a model without attention. `before_step` as in `beam_search`.
        """
        stream = iter(lines)
        batches = iter(lambda: list(islice(stream, together)), [])
        return self.translate_batches(
            batches, search, replace=replace, max_words=max_words, before_step=before_step
        )

    def translate_batches(
        self,
        batches: Iterable[Sequence[str]],
        search: SearchConfig,
        *,
        replace: Mapping[str, str] | None = None,
        max_words: int = MAX_WORDS,
        before_step: Callable[[], None] | None = None,
    ) -> Iterator[Translation]:
        """As `translate`; the lines of a batch are translated together, before the next batch is asked for."""
        network = load(self._model, search.precision)
        if replace is not None and not self.attends:
            raise TranslateError(
                "RNNencdec looks at no source word, so its unknown words cannot be replaced; "
                "use a model with attention, or leave them"
            )
        for some in batches:
            sources = [words(self._tokens(line)) for line in some]
            given = [source[:max_words] for source in sources]
            found = beam_search(
                network,
                [ids(sentence(source), self._source_index) for source in given],
                search,
                before_step,
            )
            for line, source, kept, hypotheses in zip(some, sources, given, found, strict=True):
                candidates = tuple(self._candidate(one, kept, replace) for one in hypotheses)
                yield Translation(line, tuple(kept), len(source) - len(kept), candidates or (_NOTHING,))

    def _tokens(self, line: str) -> str:
        text, rules = normalize(line, self.text.clean), self.text.tokenize
        if rules.pretokenized or not text:
            return sentence(word for word in words(text) if word)
        return tokenize(text, rules.source_language, rules.escape)

    def _candidate(
        self, hypothesis: Hypothesis, source: Sequence[str], replace: Mapping[str, str] | None
    ) -> Candidate:
        tokens = [self._target_words[word] for word in hypothesis.ids if word != EOS]
        unknown = tuple(i for i, word in enumerate(hypothesis.ids) if word == UNKNOWN)
        if replace is not None and hypothesis.alphas is not None and source:
            for i in unknown:
                word = source[int(hypothesis.alphas[i, :-1].argmax())]  # not the </s>
                tokens[i] = replace.get(word, word)
        rules = self.text.tokenize
        return Candidate(
            text=sentence(tokens)
            if rules.pretokenized
            else detokenize(sentence(tokens), rules.target_language),
            tokens=tuple(tokens),
            unknown=unknown,
            cost=hypothesis.cost,
            key=hypothesis.key,
            finished=hypothesis.finished,
            fallback=hypothesis.fallback,
            alignment=None if hypothesis.alphas is None else hypothesis.alphas.tolist(),
        )


# Where none ended, and the search was not to keep unfinished ones.
_NOTHING = Candidate("", (), (), math.inf, math.inf, finished=False, fallback=False, alignment=None)


def read_shortlist(path: Path) -> pa.Table:
    """The SHORTLIST of a file with one word a line; only U+000A ends a line."""
    text = path.read_bytes().decode()
    return pa.table({"word": text.removesuffix("\n").split("\n") if text else []}, schema=SHORTLIST)


def read_dictionary(path: Path) -> Mapping[str, str]:
    """Translations of single words, `source TAB target` a line; of a word that comes twice the first counts.

    Raises TranslateError for a file that cannot be read, and for a line of another form.
    """
    translations: dict[str, str] = {}
    try:
        lines = path.read_bytes().decode().split("\n")
    except OSError as error:
        raise TranslateError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TranslateError(f"{path} is not UTF-8 at byte {error.start}; convert it first") from error
    for number, line in enumerate(lines, start=1):
        source, tab, target = line.removesuffix("\r").partition("\t")
        if tab and source and target and "\t" not in target:
            translations.setdefault(source, target)
        elif line.strip():
            raise TranslateError(
                f"line {number} of {path} is {line!r}; expected a word, a tab and its translation"
            )
    return translations
