"""Every kind of stage, declared once: its function, outputs, libraries and data files. Light, as `shapes` is.

To add a kind, write its function, declare it here and wire it in `dag.build`.
"""

from dataclasses import replace

from rnnsearch.flows.shapes import EXECUTE_PROCESS, TEXT, Fold, Kind, Map, Process

_KERNELS = ("model/kernels/kernels.cpp",)  # sums in another order differ in their last bits
_PIPELINE = "rnnsearch.pipeline"
_FLOWS = "rnnsearch.flows"

# Sources.

_ONE_FILE = (f"{_FLOWS}.download:as_file", "rnnsearch.storage.artifacts:write_artifact")
DOWNLOAD = Kind(
    name="download",
    # The digest or the address decides, not the transport.
    work=Process(f"{_FLOWS}.download:download", on_cluster=False, decided_by=_ONE_FILE),
    outputs=("file",),
    libraries=(),
)
DOWNLOAD_MEMBER = replace(
    DOWNLOAD,
    work=Process(
        f"{_FLOWS}.download:download",
        on_cluster=False,
        decided_by=(*_ONE_FILE, f"{_FLOWS}.sources.archive:extract"),
    ),
)
INGEST = Kind(
    name="ingest",
    work=Process(f"{_FLOWS}.run_stages:ingest"),
    outputs=("pairs", "dropped"),
    libraries=(*TEXT, "polib"),
)
HOLDOUT_KEYS = Kind(
    name="holdout-keys",
    work=Fold(f"{_PIPELINE}.holdout:candidate_keys", f"{_PIPELINE}.holdout:choose_keys"),
    outputs=("keys",),
    libraries=(*TEXT, "ftfy"),
)
HOLDOUT = Kind(
    name="holdout",
    work=Map(f"{_PIPELINE}.holdout:hold_out"),
    outputs=("train", "dev", "test", "dropped"),
    libraries=(*TEXT, "ftfy"),
)

# Text.

SURVEY = Kind(
    name="survey",
    work=Fold(f"{_PIPELINE}.survey:survey_shard", f"{_PIPELINE}.survey:sum_survey"),
    outputs=("survey",),
    libraries=(*TEXT, "ftfy", "langcodes"),
)
CLEAN = Kind(
    name="clean",
    work=Map(f"{_PIPELINE}.clean:clean_shard"),
    outputs=("kept", "dropped"),
    libraries=(*TEXT, "ftfy", "langcodes"),
)
NORMALIZE = Kind(
    name="normalize",
    work=Map(f"{_PIPELINE}.clean:normalize_shard"),
    outputs=("kept",),
    libraries=(*TEXT, "ftfy"),
)
DUPLICATES = Kind(
    name="duplicates",
    work=Fold(f"{_PIPELINE}.duplicates:pair_hashes", f"{_PIPELINE}.duplicates:find_duplicates"),
    outputs=("rows",),
)
LEAKAGE = Kind(
    name="leakage",
    work=Fold(f"{_PIPELINE}.leakage:evaluation_sentences", f"{_PIPELINE}.leakage:gather_sentences"),
    outputs=("sentences",),
)
GATE_DEV = Kind(name="gate-dev", work=Map(f"{_PIPELINE}.leakage:gate_dev"), outputs=("kept", "dropped"))
GATE = Kind(name="gate", work=Map(f"{_PIPELINE}.leakage:gate_shard"), outputs=("kept", "dropped", "leaks"))
TOKENIZE = Kind(
    name="tokenize",
    work=Map(f"{_PIPELINE}.tokenization:tokenize_shard"),
    outputs=("pairs",),
    libraries=(*TEXT, "sacremoses", "regex"),
)

# Selection.

SELECTION_VOCABULARY = Kind(
    name="selection-vocabulary",
    work=Fold(f"{_PIPELINE}.selection:in_domain_text", f"{_PIPELINE}.selection:in_domain_vocabulary"),
    outputs=("source", "target", "text"),
)
SELECTION_SAMPLE = Kind(
    name="selection-sample",
    work=Fold(f"{_PIPELINE}.selection:pool_sample", f"{_PIPELINE}.selection:cut_sample"),
    outputs=("sample",),
)
LANGUAGE_MODELS = Kind(
    name="language-models",
    work=Process(f"{_FLOWS}.run_stages:language_models"),
    outputs=("models",),
)
SCORE = Kind(
    name="score",
    work=Map(f"{_PIPELINE}.selection:score_shard"),
    outputs=("scores",),
    libraries=(*TEXT, "ufal-kenlm"),
)
THRESHOLD = Kind(
    name="threshold",
    work=Fold(f"{_PIPELINE}.selection:ranking", f"{_PIPELINE}.selection:choose_rows"),
    outputs=("rows", "summary"),
)
SELECT = Kind(name="select", work=Map(f"{_PIPELINE}.selection:select_shard"), outputs=("kept", "dropped"))

# Vocabulary and examples.

OVERLAP = Kind(
    name="overlap",
    work=Fold(f"{_PIPELINE}.overlap:find_overlap", f"{_PIPELINE}.overlap:sum_overlap"),
    outputs=("overlap",),
)
SHORTLIST = Kind(
    name="shortlist",
    work=Fold(f"{_PIPELINE}.shortlist:count_words", f"{_PIPELINE}.shortlist:choose_words"),
    outputs=("source", "target", "source_counts", "target_counts"),
)
TURN = Kind(name="turn", work=Map(f"{_PIPELINE}.turn:turn_shard"), outputs=("pairs",))
ENCODE = Kind(name="encode", work=Map(f"{_PIPELINE}.encode:encode_shard"), outputs=("kept", "dropped"))
ORDER = Kind(name="order", work=Process(f"{_FLOWS}.run_stages:order"), outputs=("examples",))

# Training and search.

TRAIN = Kind(
    name="train",
    work=Process(
        f"{_FLOWS}.train_stage:train",
        on_cluster=False,
        needs_cluster=True,
        # Ray Train stands between the two and is not counted.
        decided_by=(f"{_FLOWS}.train_stage:train", f"{_FLOWS}.training:train_worker", EXECUTE_PROCESS),
    ),
    outputs=("model", "state", "curve"),
    files=_KERNELS,
    libraries=(*TEXT, "torch", "safetensors"),
)
TRANSLATE = Kind(
    name="translate",
    work=Map(f"{_FLOWS}.translate:translate_shard"),
    outputs=("hypotheses",),
    files=_KERNELS,
    libraries=(*TEXT, "torch"),
)
ALIGN = Kind(
    name="align",
    work=Map(f"{_FLOWS}.align:align_shard"),
    outputs=("alignments",),
    files=_KERNELS,
    libraries=(*TEXT, "torch"),
)
SWEEP = Kind(
    name="sweep",
    work=Process(f"{_FLOWS}.sweep:sweep"),
    outputs=("scores",),
    files=_KERNELS,
    libraries=(*TEXT, "torch"),
)

# Evaluation.

EXTERNAL = Kind(
    name="external",
    work=Process(f"{_FLOWS}.beside:external"),
    outputs=("hypotheses",),
    libraries=(*TEXT, "ftfy", "sacremoses", "regex"),
)
EVALUATE = Kind(
    name="evaluate",
    work=Fold(f"{_PIPELINE}.evaluation:sentence_statistics", f"{_PIPELINE}.evaluation:evaluate"),
    outputs=("sentences", "scores"),
    libraries=(*TEXT, "sacrebleu", "sacremoses"),
)
EVALUATE_ALIGNMENT = Kind(
    name="evaluate-alignment",
    work=Process(f"{_FLOWS}.beside:evaluate_alignment"),
    outputs=("scores",),
    libraries=(*TEXT, "ftfy"),
)
