"""The contracts between stages: Arrow schemas, commented by unit.

A sentence of tokens is one string whose tokens are separated by U+0020 only; `words` is the one function that
takes it apart, `sentence` the one that puts it together.
"""

from collections.abc import Iterable

import pyarrow as pa

_CORPUS = pa.field("corpus", pa.dictionary(pa.int32(), pa.string()), nullable=False)
_LINE = pa.field("line", pa.int64(), nullable=False)  # position in the corpus as ingested, from 0
_IDS = pa.list_(pa.field("element", pa.int32(), nullable=False))

PAIRS = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field(
            "key", pa.string()
        ),  # what two corpora may share, such as book:chapter:verse; null where none
        pa.field("source", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
    ],
    metadata={"schema": "pairs", "version": "1"},
)

DROPPED = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field("reason", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # the row that this one was dropped for, as corpus:line: the first copy of a duplicate, the dev or test row
        # of a leak, the chosen row of a held-out text; null for reasons that look at one row only
        pa.field("partner", pa.string()),
        pa.field(
            "threshold", pa.int64()
        ),  # micro-bits: the last difference within the budget; null elsewhere
    ],
    metadata={"schema": "dropped", "version": "2"},
)

SCORES = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field(
            "in_source", pa.int64(), nullable=False
        ),  # cross-entropies in micro-bits a token, </s> counted
        pa.field("general_source", pa.int64(), nullable=False),
        pa.field("in_target", pa.int64(), nullable=False),
        pa.field("general_target", pa.int64(), nullable=False),
        pa.field("difference", pa.int64(), nullable=False),  # Axelrod's; lower is more in-domain
        pa.field("source_words", pa.int32(), nullable=False),  # </s> not counted
        pa.field("target_words", pa.int32(), nullable=False),
    ],
    metadata={"schema": "scores", "version": "1"},
)

SHORTLIST = pa.schema(
    [pa.field("word", pa.string(), nullable=False)],  # row r has id r + len(SPECIALS)
    metadata={"schema": "shortlist", "version": "1"},
)

COUNTS = pa.schema(
    [pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)],
    metadata={"schema": "counts", "version": "1"},
)

EXAMPLES = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field("order", pa.uint64(), nullable=False),  # seeded hash of (corpus, line): training goes by it
        pa.field("source", _IDS, nullable=False),  # </s> not included: batches append it
        pa.field("target", _IDS, nullable=False),
    ],
    metadata={"schema": "examples", "version": "1"},
)

CURVE = pa.schema(
    [
        pa.field(
            "update", pa.int64(), nullable=False
        ),  # updates done; a row tells of those since the row before
        pa.field("loss_per_token", pa.float64()),  # nats, </s> counted; null where every update was skipped
        pa.field("loss_per_sentence", pa.float64()),
        pa.field("gradient_norm", pa.float64()),  # mean of the norms before clipping
        pa.field("clipped_share", pa.float64()),  # of the updates that were not skipped
        pa.field("skipped", pa.int64(), nullable=False),  # updates whose gradient was not finite
        pa.field("padding_share", pa.float64(), nullable=False),  # of the positions of the global batches
        pa.field("tokens", pa.int64(), nullable=False),  # target tokens, </s> counted
        pa.field("sentences", pa.int64(), nullable=False),
        # nats, mean over the target tokens in the training's own forward passes; null for a system without attention
        pa.field("attention_entropy", pa.float64()),
        pa.field("dev_loss_per_token", pa.float64()),  # null where dev was not looked at
        pa.field("dev_loss_per_sentence", pa.float64()),
        pa.field("dev_bleu", pa.float64()),  # tokenised, 0 to 100; of the first sentences, searched greedily
    ],
    metadata={"schema": "curve", "version": "2"},
)

HYPOTHESES = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field("source", pa.string(), nullable=False),  # tokens as given to the model, real words
        pa.field("hypothesis", pa.string(), nullable=False),  # tokens without </s>; an unknown word is [UNK]
        pa.field("cost", pa.float64(), nullable=False),  # summed -log p in nats, </s> included
        pa.field(
            "finished", pa.bool_(), nullable=False
        ),  # false: no hypothesis ended, the best unfinished one
        pa.field(
            "fallback", pa.bool_(), nullable=False
        ),  # true: UNK was forbidden and had to be allowed again
        # row t: weights over the source words and </s> when target word t was emitted, then a row for the </s>
        # that ended it, if one did; null for models without
        pa.field("alignment", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.float32()))))),
    ],
    metadata={"schema": "hypotheses", "version": "1"},
)

_BLEU_STATISTICS = pa.list_(pa.field("element", pa.int32(), nullable=False), 10)  # as `bleu` orders them

SENTENCES = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field("source", pa.string(), nullable=False),  # tokens, as all sentences below but the three texts
        pa.field("reference", pa.string(), nullable=False),
        pa.field("hypothesis", pa.string(), nullable=False),  # UNK allowed
        pa.field("hypothesis_no_unk", pa.string(), nullable=False),  # UNK forbidden
        pa.field("reference_text", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # the hypothesis, detokenised
        pa.field("text_no_unk", pa.string(), nullable=False),
        pa.field("source_words", pa.int32(), nullable=False),
        pa.field("source_unknown", pa.int32(), nullable=False),  # words outside the shortlist
        pa.field("source_rarest", pa.int32(), nullable=False),  # rank of the rarest word: see `subsets.Words`
        pa.field("reference_unknown", pa.int32(), nullable=False),
        pa.field("source_in_training", pa.bool_(), nullable=False),  # in the normal form: see `overlap`
        pa.field("reference_in_training", pa.bool_(), nullable=False),
        pa.field("output_unknown", pa.int32(), nullable=False),  # [UNK] in the hypothesis
        pa.field("statistics", _BLEU_STATISTICS, nullable=False),
        pa.field("statistics_no_unk", _BLEU_STATISTICS, nullable=False),
        pa.field("stutters", pa.int32(), nullable=False),  # words that end a phrase said twice in a row
        pa.field("reference_stutters", pa.int32(), nullable=False),
        pa.field("finished", pa.bool_(), nullable=False),
        pa.field("finished_no_unk", pa.bool_(), nullable=False),
        pa.field("fallback", pa.bool_(), nullable=False),  # UNK had to be allowed again
        # of the alignment, null for systems without: entropies in micro-nats a target word; the extreme sums of
        # its rows over the source, in millionths; source words with little attention in all, and with much
        pa.field("entropies", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("least_weight", pa.int32()),
        pa.field("most_weight", pa.int32()),
        pa.field("dropped_words", pa.int32()),
        pa.field("repeated_words", pa.int32()),
    ],
    metadata={"schema": "sentences", "version": "2"},
)

ALIGNMENTS = pa.schema(
    [
        _CORPUS,
        _LINE,
        pa.field("source_words", pa.int32(), nullable=False),
        pa.field("target_words", pa.int32(), nullable=False),  # of the reference
        pa.field("links", pa.string(), nullable=False),  # `i-j`: source word i, target word j, from 0
        pa.field("entropy", pa.int64(), nullable=False),  # micro-nats, summed over the target words
    ],
    metadata={"schema": "alignments", "version": "1"},
)

EOS_ID = 0
UNK_ID = 1
EOS = "</s>"
UNK = "[UNK]"
SPECIALS = (EOS, UNK)  # ids 0 and 1; told from words of the same spelling by id, never by string


def words(sentence: str) -> list[str]:
    """The tokens of a sentence: split on U+0020 only, so that a no-break space stays inside its token."""
    return sentence.split(" ") if sentence else []


def sentence(tokens: Iterable[str]) -> str:
    """The sentence of these tokens."""
    return " ".join(tokens)
