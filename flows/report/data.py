"""All that a report shows, as plain values: what `gather` fills in and the renderers draw.

Everything here can be written as JSON. `None` and empty tuples mean "not run" or "not known"; a renderer
shows that and never fails. BLEU is on a scale of 0 to 100, likelihoods are in nats, durations in seconds,
shares between 0 and 1. `evidence` fields hold the `id` of an `Evidence`, or "" where there is none.
"""

import dataclasses
import json
from dataclasses import dataclass

from rnnsearch.flows.report.text import CONTROLS

JSON_SCHEMA = 1  # raised where a field of report.json goes or changes its meaning, not where one is added


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its bootstrap interval of 95 %, where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A further score of a subset, with its signature."""

    name: str
    value: float
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class SubsetScore:
    """The scores of one system on one subset of the test set."""

    subset: str  # "all", "no-unk" (UNK forbidden), "no-unk-allowed" (same sentences, UNK allowed)
    sentences: int
    bleu: Estimate  # tokenised, as multi-bleu.perl
    signature: str = ""
    brevity: float | None = None  # brevity penalty
    ratio: float | None = None  # hypothesis tokens per reference token
    metrics: tuple[Metric, ...] = ()
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """BLEU of the sentences for which some number lies from `low` to `high` (None: no limit)."""

    low: int
    high: int | None
    sentences: int
    bleu: Estimate
    signature: str = ""

    @property
    def label(self) -> str:
        """The range, such as `11–20`, `3` or `> 60`."""
        return range_label(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How a system's translations look, apart from their score. Rates are between 0 and 1."""

    unknown_output: float | None = None  # share of [UNK] among output tokens
    unknown_source: float | None = None
    unknown_reference: float | None = None
    repetition: float | None = None  # share of sentences that say a phrase twice in a row
    empty: int | None = None  # sentences without a word
    fallbacks: int | None = None  # sentences where UNK was forbidden and had to be allowed again
    unfinished: int | None = None  # sentences where no hypothesis ended
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """What the soft alignments of the test set look like."""

    entropy: float | None = None  # nats, mean over target words
    entropy_by_position: tuple[float, ...] = ()  # the same at the first, second, … target word
    entropy_by_length: tuple["Spread", ...] = ()  # the same by source words
    least_weight: float | None = (
        None  # the extreme sums of a row over the source: 1, unless weight is on padding
    )
    most_weight: float | None = None
    dropped: float | None = None  # share of source words with little attention in all
    repeated: float | None = None  # with much

    @property
    def padding(self) -> float | None:
        """The most weight that a row has elsewhere than on its source words and `</s>`."""
        return None if self.least_weight is None else max(0.0, 1 - self.least_weight)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean entropy in nats of the attention in sentences of `low` to `high` source words (None: no limit)."""

    low: int
    high: int | None
    sentences: int
    entropy: float

    @property
    def label(self) -> str:
        """The range, as that of a Bin."""
        return range_label(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Links:
    """The hard alignment of the references under teacher forcing, held against links from elsewhere."""

    sentences: int
    links: int
    entropy: float  # nats, mean over the words of the references
    gold_sentences: int | None = None  # those that people linked
    error_rate: float | None = None  # on these
    agreement: float | None = None  # with the other direction: twice the common links over all links
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class BeamPoint:
    """What a beam of this width makes of the first sentences of dev, and what it takes."""

    beam: int
    sentences: int
    bleu: Estimate
    ratio: float | None = None  # hypothesis tokens per reference token
    unfinished: int | None = None
    seconds: float | None = None  # a sentence
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training in the columns of Table 2."""

    updates: int | None = None
    epochs: float | None = None
    hours: float | None = None
    device: str = ""
    train_nll: float | None = None  # nats per sentence
    dev_nll: float | None = None  # nats per sentence, the lowest
    tokens_per_second: float | None = None  # target tokens
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One row of a learning curve; losses in nats per target token."""

    update: int
    train_loss: float | None = None
    dev_loss: float | None = None
    gradient_norm: float | None = None  # before clipping
    clipped_share: float | None = None  # of the updates since the row before
    entropy: float | None = None  # of the attention, nats a target token
    dev_bleu: float | None = None  # of some dev sentences, searched greedily


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting in which a system differs from the paper."""

    name: str
    paper: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class System:
    """One trained model, or an external one whose output was scored."""

    name: str
    kind: str = ""  # rnnsearch, rnnencdec, luong; "" for an external one
    max_words: int | None = None  # length limit of its training pairs
    paper_row: str | None = None  # the row of the paper's Table 1 that it reproduces
    external: bool = False
    scores: tuple[SubsetScore, ...] = ()
    by_length: tuple[Bin, ...] = ()  # source words
    at_most_length: tuple[Bin, ...] = ()
    by_unknown: tuple[Bin, ...] = ()  # unknown source words
    by_rarest: tuple[Bin, ...] = ()  # rank of the rarest source word, sentences without unknown ones
    behaviour: Behaviour = Behaviour()
    attention: Attention | None = None
    links: Links | None = None
    beams: tuple[BeamPoint, ...] = ()
    training: Training | None = None
    curve: tuple[CurvePoint, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def attends(self) -> bool:
        """Whether it has an attention; unknown of an external one."""
        return self.kind not in ("", "rnnencdec")

    def score(self, subset: str) -> SubsetScore | None:
        """The scores on this subset, None where it was not run."""
        return next((s for s in self.scores if s.subset == subset), None)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A paired test of two systems on the same sentences."""

    subset: str
    first: str
    second: str
    difference: float  # BLEU of the first less that of the second
    low: float | None = None  # bootstrap interval of the difference, 95 %
    high: float | None = None
    p_value: float  # two-sided, approximate randomisation
    samples: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """So many pairs left for this reason."""

    reason: str
    pairs: int


@dataclass(frozen=True, kw_only=True)
class FlowStep:
    """What was left after one step, and why the others went."""

    name: str
    pairs: int | None  # None: not run
    dropped: tuple[Dropped, ...] = ()
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class CorpusFlow:
    """The way of one corpus from raw to training pairs."""

    corpus: str
    steps: tuple[FlowStep, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A pair of a corpus as ingested, or a stretch of lines that begins with it."""

    line: int
    last: int
    source: str
    target: str

    @property
    def place(self) -> str:
        """The line, or the range of lines, counted from 0 as everywhere."""
        return f"{self.line}" if self.line == self.last else f"{self.line}–{self.last}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """So many pairs of a corpus to which a check of the survey applies (see `pipeline/survey.py`)."""

    corpus: str
    check: str
    pairs: int
    of: int  # pairs of the corpus
    examples: tuple[Example, ...] = ()
    evidence: str = ""

    @property
    def share(self) -> float:
        """The share of the corpus."""
        return self.pairs / self.of if self.of else 0.0


@dataclass(frozen=True, kw_only=True)
class NearCopy:
    """A training pair a side of which differs from a test sentence in one word."""

    side: str  # source or target
    text: str  # of the test sentence, in the normal form
    corpus: str
    line: int
    pairs: int  # training pairs like this one, it included


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """How much of the test set stands in the training data, in the normal form (see `pipeline/overlap.py`)."""

    sentences: int  # of the test set
    sources: int  # test sentences whose source is a training source
    references: int
    either: int
    one_word: int  # texts of one word among the copies
    near_sources: int = 0  # test sources that differ from a training source in one word
    near_references: int = 0
    near: tuple[NearCopy, ...] = ()  # the first of them
    evidence: str = ""

    @property
    def share(self) -> float:
        """The share of the test sentences of which a side stands in training."""
        return self.either / self.sentences if self.sentences else 0.0


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Sentence lengths: `counts[k]` sentences have k words; the last entry counts all longer ones too."""

    side: str  # source or target
    label: str  # train, test, reference, or the system that wrote it
    counts: tuple[int, ...]
    mean: float
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """A translated test sentence with its soft alignment. `weights[t][s]`: target down, source across."""

    system: str
    corpus: str
    line: int
    source: tuple[str, ...]  # with </s> at the end
    target: tuple[str, ...]
    reference: str
    weights: tuple[tuple[float, ...], ...]  # rows sum to 1
    unknown_free: bool = False  # source and reference without unknown words


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Any test sentence with its alignment, in few bytes: what the page draws when a reader asks for it."""

    corpus: str
    line: int
    source: str  # tokens
    target: str
    reference: str
    weights: str
    """For each target word `source position:percent` where that is not 0, the strongest first; `;` between words."""


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """One system's translation of a sentence."""

    system: str
    text: str


@dataclass(frozen=True, kw_only=True)
class LongSentence:
    """A long test sentence beside its translations, as Table 3."""

    corpus: str
    line: int
    words: int
    source: str
    reference: str
    translations: tuple[Rendering, ...]


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What a stage cost in this run, or would have cost."""

    stage: str
    seconds: float | None
    cached: bool
    device: str = ""
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper, checked. `verdict`: holds, near, differs or not run."""

    claim: str
    paper: str
    found: str
    verdict: str
    band: str  # what would count as holding
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Output:
    """An artifact: one named output of a stage."""

    name: str
    digest: str
    files: int | None = None
    rows: int | None = None
    size: int | None = None  # bytes


@dataclass(frozen=True, kw_only=True)
class Input:
    """A named input of a stage and the stage that made it (its evidence `id`)."""

    name: str
    digest: str
    made_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One stage of the run, with all that decided its output and what was seen."""

    id: str
    stage: str
    key: str  # of the recipe
    code: str
    attempt: int | None = None
    cached: bool = False
    outputs: tuple[Output, ...] = ()
    inputs: tuple[Input, ...] = ()
    config: str = ""  # JSON, indented
    versions: str = ""  # Python and the libraries of the recipe
    placement: str = ""  # JSON
    observations: str = ""  # JSON
    adopted: str = ""  # why an older attempt stands for this key


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A place where we do other than the paper, as its comment says."""

    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A set of pairs that was used: train, dev or test."""

    role: str
    corpora: tuple[str, ...]
    pairs: int | None
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """A whole report."""

    profile: str
    title: str = ""
    run: str
    state: str = ""
    source_language: str = "en"
    target_language: str = "fr"
    datasets: tuple[Dataset, ...] = ()
    systems: tuple[System, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    flows: tuple[CorpusFlow, ...] = ()
    lengths: tuple[Lengths, ...] = ()
    aligned: tuple[Aligned, ...] = ()
    every_aligned: tuple[Packed, ...] = ()  # all test sentences, of the same system
    long_sentences: tuple[LongSentence, ...] = ()
    costs: tuple[StageCost, ...] = ()
    claims: tuple[Claim, ...] = ()
    departures: tuple[Departure, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()  # of the survey, by corpus and check
    overlap: Overlap | None = None
    warnings: tuple[str, ...] = ()  # what a reader should know before the numbers
    missing: tuple[str, ...] = ()  # what could not be read, in words

    @property
    def best(self) -> System | None:
        """Our system with the highest BLEU on all test sentences; of equal ones, one that attends."""
        ours = [s for s in self.systems if not s.external and s.score("all") is not None]
        return max(ours, key=lambda system: (_bleu_on_all(system), system.attends), default=None)

    def dataset(self, role: str) -> Dataset | None:
        """The set with this role."""
        return next((d for d in self.datasets if d.role == role), None)


def range_label(low: int, high: int | None) -> str:
    """A range of whole numbers as a reader wants it."""
    if high is None:
        return f"> {low - 1}"
    return f"{low}–{high}" if high > low else f"{low}"


def _bleu_on_all(system: System) -> float:
    score = system.score("all")
    return score.bleu.value if score else float("-inf")


def to_json(report: ReportData) -> str:
    """The report as JSON (docs/report.md): keys sorted, French readable, direction marks and their like as \\u escapes.

    Without the alignments of all test sentences, which the stage `translate` has as a table.
    """
    rest = dataclasses.replace(report, every_aligned=())
    shown = {"schema": JSON_SCHEMA, **dataclasses.asdict(rest)}
    text = json.dumps(shown, ensure_ascii=False, sort_keys=True, indent=1)
    # Such a character can only stand inside a string, where the escape means the same.
    return "".join(f"\\u{ord(c):04x}" if c in CONTROLS else c for c in text) + "\n"
