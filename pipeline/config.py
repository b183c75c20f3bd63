"""What can be set about text: one frozen section a stage. Light: `plan` reads it."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from rnnsearch.pipeline.languages import resolve

_MOST = 2**63 - 1  # of a signed integer of 64 bits, as Parquet, NumPy and PyTorch have it
_WORDS = 2**31 - 3  # of a shortlist: ids are of 32 bits, and two are special
_ROWS = 10_000_000  # of a shard: it is in memory as a whole

Seed = Annotated[int, Field(ge=0, le=_MOST)]  # NumPy refuses a negative one


class Section(BaseModel):
    """A part of the configuration: frozen and strict. It refuses unknown names, other types, infinity and NaN.

    An integer is accepted where a real number is expected, and a list where a tuple is: TOML and JSON have no tuples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {name: _tuples(value) for name, value in values.items()}

    @field_validator("*")
    @classmethod
    def _fits(cls, value: object) -> object:
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            raise ValueError(f"an integer of at most 64 bits is expected, found one of {value.bit_length()}")
        return value


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


LONGEST = 65_536
"""Bytes of a side, by default: the lines of the largest corpora of WMT have fewer."""


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is not a name inside a source; write folder/file as the archive lists it")
    return name


Member = Annotated[str, AfterValidator(_inside)]
"""The name of a file in an archive."""

Column = Annotated[int, Field(gt=0)] | Annotated[str, Field(min_length=1)]


class SqliteFormat(Section):
    """Pairs from a query on an SQLite file; its columns are `source`, `target` and, if it has one, `key`."""

    format: Literal["sqlite"] = "sqlite"
    query: str
    replace: tuple[tuple[Literal["source", "target"], str, str], ...] = ()
    """(side, regular expression, replacement), side `source` or `target`, applied in order to that side."""

    @field_validator("replace")
    @classmethod
    def _compiles(cls, rules: tuple[tuple[str, str, str], ...]) -> tuple[tuple[str, str, str], ...]:
        for _, pattern, replacement in rules:
            try:
                re.compile(pattern).sub(replacement, "")  # reads the replacement too
            except (re.error, IndexError) as error:
                raise ValueError(
                    f"replace: {pattern!r} by {replacement!r} is not a rule of re.sub: {error}"
                ) from error
        return rules


class GettextFormat(Section):
    """Translated messages of a `.po` or `.mo` file: no fuzzy ones, no context prefix, no header."""

    format: Literal["gettext"] = "gettext"
    member: Member = ""


class PlainFormat(Section):
    """Files of one sentence a line, split on U+000A only: two sides and, if rows have keys, one of keys.

    Of one source, an archive, the three are members. Where each is a source of its own, in this order, a name is
    that of its member if it is an archive, and else only a label.
    """

    format: Literal["plain"] = "plain"
    source: Member = ""
    target: Member = ""
    key: Member = ""


class SgmlFormat(Section):
    """NIST SGML: the text of every `<seg>`, in order, empty segments kept. The sides are named as in PlainFormat."""

    format: Literal["sgml"] = "sgml"
    source: Member = ""
    target: Member = ""


class TmxFormat(Section):
    """TMX: the segments of two languages of each unit, in any order of the two.

    `en` also takes `en-GB` where a unit has no plain `en`.
    """

    format: Literal["tmx"] = "tmx"
    source: str = Field(min_length=1)  # a language as `xml:lang` has it, in any case
    target: str = Field(min_length=1)
    member: Member = ""


class XliffFormat(Section):
    """XLIFF 1.2 and 2.0: source and target of each unit or segment."""

    format: Literal["xliff"] = "xliff"
    member: Member = ""


class WmtFormat(Section):
    """XML of WMT since 2021: the source and one reference of each document, by segment id."""

    format: Literal["wmt"] = "wmt"
    reference: str = ""  # the translator's name; needed where there are several
    member: Member = ""


class TableFormat(Section):
    """TSV or CSV: columns by number, from 1, or by the names in the first line. TSV knows no quotes."""

    format: Literal["tsv", "csv"]
    source: Column = 1
    target: Column = 2
    key: Column | None = None
    member: Member = ""


class JsonLinesFormat(Section):
    """A JSON object a line; `translation.en` is the key `en` in the object `translation`."""

    format: Literal["jsonl"] = "jsonl"
    source: str = "source"
    target: str = "target"
    key: str = ""
    member: Member = ""


class ParquetFormat(Section):
    """Columns of a Parquet file; `translation.en` is the field `en` of the column `translation`."""

    format: Literal["parquet"] = "parquet"
    source: str = "source"
    target: str = "target"
    key: str = ""


Format = Annotated[
    SqliteFormat
    | GettextFormat
    | PlainFormat
    | SgmlFormat
    | TmxFormat
    | XliffFormat
    | WmtFormat
    | TableFormat
    | JsonLinesFormat
    | ParquetFormat,
    Field(discriminator="format"),
]


class IngestConfig(Section):
    """How a downloaded file becomes Parquet shards of pairs."""

    rows_per_shard: int = Field(default=4_096, gt=0, le=_ROWS)
    longest: int = Field(
        default=LONGEST, gt=0, le=2**30
    )  # bytes of a side; a pair with a longer one is dropped
    declared_pairs: int | None = Field(default=None, ge=0)  # known beforehand: checked, and shown by `plan`


class HoldoutConfig(Section):
    """Dev and test: rows of `corpus` chosen by a seeded hash of their key, or corpora of their own.

    A chosen key leaves the training data in every corpus that has keys.
    """

    seed: Seed = 0
    corpus: str | None = None
    dev: int = Field(default=0, ge=0)
    test: int = Field(default=0, ge=0)
    dev_corpora: tuple[str, ...] = ()
    test_corpora: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.dev or self.test) and self.corpus is None:
            raise ValueError(
                "dev and test rows are wanted, but no corpus to take them from; set holdout.corpus"
            )
        if both := sorted({*self.dev_corpora} & {*self.test_corpora}):
            raise ValueError(f"{both[0]!r} cannot be both dev and test; remove it from one")
        if self.corpus in (*self.dev_corpora, *self.test_corpora):
            raise ValueError(
                f"{self.corpus!r} gives some rows to dev and test, so it cannot be one of them whole"
            )
        return self


class CleanConfig(Section):
    """Repair and normalisation of both sides, of all text and of what a user translates.

    Order: the repairs; then quotes, control characters, NFC, runs of spaces, empty sides.
    """

    normalize: bool = True
    repair_mojibake: bool = False  # UTF-8 that was read as another encoding: `l’Ã©tÃ©`
    repair_controls: bool = False  # U+0080 … U+009F are meant as in cp1252: U+0092 is an apostrophe
    unescape: int = Field(default=0, ge=0, le=2)  # how often HTML entities are replaced; 2 for `&amp;quot;`
    straight_quotes: bool = False  # ours: ‘ ’ “ ” become ' and "; the paper normalised nothing


class FilterConfig(Section):
    """Training pairs to drop, each filter by name; all are off, since the paper dropped empty sides only.

    A pair is dropped under the first filter that holds. Words are what stands between spaces in the clean text.
    """

    min_words: int | None = Field(default=None, gt=0)  # of the shorter side: `too_few_words`
    max_words: int | None = Field(default=None, gt=0)  # of the longer side: `too_many_words`
    max_characters: int | None = Field(default=None, gt=0)  # of the longer side: `too_long`
    max_word_characters: int | None = Field(default=None, gt=0)  # of the longest word: `long_word`
    max_word_ratio: float | None = Field(default=None, ge=1, le=1_000)  # longer to shorter side: `word_ratio`
    max_character_ratio: float | None = Field(default=None, ge=1, le=1_000)  # `character_ratio`
    identical: bool = False  # both sides are the same text, in the normal form
    min_letters: float | None = Field(
        default=None, ge=0, le=1
    )  # share of the characters but spaces: `few_letters`
    min_script: float | None = Field(default=None, ge=0, le=1)
    """Share of the letters of each side that are in the script of its language: `wrong_script`."""
    min_digits: float | None = Field(default=None, ge=0, le=1)
    """Similarity of the digits but 0 of both sides, from 0 to 1 (all the same): `digits_differ`."""
    max_repeats: int | None = Field(default=None, gt=0)  # of a phrase of up to 4 words on end: `repeated`
    html: bool = False  # tags or entities are left
    mojibake: bool = False  # text in a wrong encoding, where it is not repaired
    slipped: bool = False  # in a window of lines the sides belong to lines some places off
    swapped: bool = (
        False  # the sides have changed places, by the words that the other pairs of the shard have
    )
    languages: bool = False  # a side is of the other language, `wrong_language`: needs the extra `langid`


class DuplicatesConfig(Section):
    """Training pairs that repeat an earlier one, and sides that stand in many pairs."""

    action: Literal["drop", "keep"] = "drop"
    compare: Literal["text", "normal_form"] = "text"  # normal_form: also copies in other case or punctuation
    max_partners: int | None = Field(default=None, gt=0, le=_ROWS)
    """Pairs are dropped as `boilerplate_source` or `boilerplate_target` if that side stands beside more different
    texts than this: headings, `Read more`, a page that was aligned with many."""


class LanguagesConfig(Section):
    """The languages of both sides, as a filter needs them."""

    source: str
    target: str


class LeakageConfig(Section):
    """What happens when a dev or test sentence stands in training, or a test sentence in dev.

    `drop` the pair, only `report` it, or `stop`.
    """

    action: Literal["drop", "report", "stop"] = "drop"
    minimum_words: int = Field(default=4, gt=0)  # shorter ones ("Amen.") stand everywhere: no leak
    near_copy_words: int = Field(default=8, ge=0)
    """Training sentences of at least so many words that differ from a test sentence in one are counted in the report
    as near copies; they are never dropped. 0: not looked for."""


class TokenizeConfig(Section):
    """Moses tokenisation by sacremoses; no lowercasing."""

    source_language: str = "en"
    target_language: str = "fr"
    escape: bool = False  # protocol 3.3: the paper's data was escaped (&apos;)
    pretokenized: bool = False  # the text is tokenised already: only spaces are normalised
    pretokenized_corpora: tuple[str, ...] = ()  # the same for the text of these corpora only

    @field_validator("source_language", "target_language")
    @classmethod
    def _is_a_language(cls, code: str) -> str:
        return resolve(code)

    def given(self, corpus: str) -> bool:
        """Whether the text of this corpus is tokens already."""
        return self.pretokenized or corpus in self.pretokenized_corpora


class LanguageModelConfig(Section):
    """Interpolated modified Kneser-Ney for the selection (protocol 3.2)."""

    order: int = Field(default=4, ge=2, le=6)  # KenLM's bounds
    minimum_count: int = Field(default=2, ge=1)  # in-domain words seen at least so often are the vocabulary
    seed: Seed = 0  # of the sample of the pool
    pool_share: float = Field(default=1.0, gt=0, le=1)
    """Part of the pool, by hash, that the sample is drawn from. It never changes the sample, only the memory that
    drawing it takes: a pool of tens of millions of pairs wants about 0.01. One too small is an error."""


class Budget(Section):
    """How much is kept: exactly one of the three, or nothing (then all is kept)."""

    words: int | None = Field(default=None, gt=0)  # of the target language, as the paper counts
    pairs: int | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=1)  # of the pairs

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(value is not None for value in (self.words, self.pairs, self.share)) > 1:
            raise ValueError("a budget is in words, in pairs or a share, not two of them; remove one")
        return self


class SelectConfig(Section):
    """Axelrod's selection: one budget over all corpora, or one for each corpus named (others are kept whole)."""

    budget: Budget = Budget()
    per_corpus: dict[str, Budget] = {}

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.per_corpus and self.budget != Budget():
            raise ValueError("there is a budget over all corpora and one for single corpora; remove one")
        return self


class ShortlistConfig(Section):
    """The most frequent words of each language; `</s>` and `[UNK]` come on top."""

    source_words: int = Field(default=30_000, gt=0, le=_WORDS)
    target_words: int = Field(default=30_000, gt=0, le=_WORDS)


class EncodeConfig(Section):
    """Length filter (words, the end of sentence not counted) and the order of training examples."""

    max_words: int = Field(default=50, gt=0)
    seed: Seed = 0
    rows_per_shard: int = Field(default=1_600 * 16, gt=0, le=_ROWS)


_Bounds = Annotated[tuple[Annotated[int, Field(ge=0, le=_MOST)], ...], Field(min_length=1)]


class EvaluateConfig(Section):
    """Scores of one system."""

    # Upper bounds of bins by source words, by the rank of the rarest source word, and by the number of unknown source
    # words; one bin more lies above each.
    length_bins: _Bounds = (10, 20, 30, 40, 50, 60)
    rank_bins: _Bounds = (100, 1_000, 5_000)
    unknown_bins: _Bounds = (0, 1, 2)
    bootstrap_samples: int = Field(default=1_000, gt=0, le=1_000_000)
    seed: Seed = 0
    translation_edit_rate: bool = True  # the slowest of the scores
    least_coverage: float = Field(
        default=0.2, ge=0, le=1_000
    )  # a source word with less attention counts as dropped
    most_coverage: float = Field(default=2.0, gt=0, le=1_000)  # one with more counts as repeated

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        for name in ("length_bins", "rank_bins", "unknown_bins"):
            bounds = getattr(self, name)
            if list(bounds) != sorted(set(bounds)):
                raise ValueError(f"{name} are upper bounds and must ascend, not {bounds}")
        return self


class SearchConfig(BaseModel):
    """The search as an evaluation sees it: settings to print in signatures. `model/config.py` declares them."""

    model_config = ConfigDict(frozen=True, extra="allow")
