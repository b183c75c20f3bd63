"""A whole report of two systems, with foreign text in it: what the tests of the report draw."""

import dataclasses
import json
import math

from rnnsearch.flows.report.data import (
    Aligned,
    Attention,
    BeamPoint,
    Behaviour,
    Bin,
    Claim,
    Comparison,
    CorpusFlow,
    CurvePoint,
    Dataset,
    Departure,
    Dropped,
    Estimate,
    Evidence,
    Example,
    Finding,
    FlowStep,
    Input,
    Lengths,
    Links,
    LongSentence,
    Metric,
    NearCopy,
    Output,
    Overlap,
    Packed,
    Rendering,
    ReportData,
    Setting,
    Spread,
    StageCost,
    SubsetScore,
    System,
    Training,
)

HOSTILE = '<script>alert("x")</script> \u202egnihtyna\u202c & "quotes" | `ticks`'
EDGES = [(1, 10), (11, 20), (21, 30), (31, 40), (41, 50), (51, 60), (61, None)]
SIGNATURE = "BLEU|tok:moses|smooth:none|beam:12|norm:yes|subset:{subset}|unk:{unk}|test:2f0c11aa94de"


def a_system(name: str, kind: str, level: float, falls: float, *, seed: int) -> System:
    """A system whose scores start at `level` and lose `falls` BLEU a bin."""

    def score(subset: str, value: float, sentences: int, unk: str) -> SubsetScore:
        return SubsetScore(
            subset=subset,
            sentences=sentences,
            bleu=Estimate(value=value, low=value - 0.7, high=value + 0.7),
            signature=SIGNATURE.format(subset=subset, unk=unk),
            brevity=0.97,
            ratio=0.981,
            metrics=(
                Metric(name="BLEU, detokenised", value=value - 1, signature="nrefs:1|case:mixed|tok:13a"),
                Metric(name="chrF", value=value + 21, signature="nrefs:1|case:mixed|nc:6"),
            ),
            evidence=f"evaluate/{name}",
        )

    bins = tuple(
        Bin(
            low=low,
            high=high,
            sentences=240 - 33 * k,
            bleu=Estimate(
                value=max(level - falls * k, 0.4),
                low=max(level - falls * k - 1 - k / 3, 0),
                high=level - falls * k + 1 + k / 3,
            ),
        )
        for k, (low, high) in enumerate(EDGES)
    )
    curve = tuple(
        CurvePoint(
            update=50 * k,
            train_loss=3 + 4.5 * math.exp(-k / 14) + 0.12 * math.sin(k * 2.3 + seed),
            dev_loss=3.2 + 4.4 * math.exp(-k / 15) + 0.1 * seed if k % 8 == 0 else None,
            gradient_norm=3 + 20 * math.exp(-k / 6) + math.cos(k * 1.7 + seed),
            clipped_share=min(1.0, 0.35 + math.exp(-k / 12)),
            entropy=3 - k / 56 if kind == "rnnsearch" else None,
            dev_bleu=20 * (1 - math.exp(-k / 20)) if k % 8 == 0 else None,
        )
        for k in range(1, 57)
    )
    return System(
        name=name,
        kind=kind,
        max_words=30,
        paper_row={"rnnsearch": "RNNsearch-30", "rnnencdec": "RNNencdec-30"}[kind],
        scores=(
            score("all", level, 1000, "allow"),
            score("no-unk", level + 2.4, 412, "forbid"),
            score("not-in-training", level - 0.3, 985, "allow"),
        ),
        by_length=bins,
        by_unknown=tuple(
            Bin(low=k, high=k if k < 3 else None, sentences=300 - 90 * k, bleu=Estimate(value=level - k))
            for k in range(4)
        ),
        at_most_length=tuple(dataclasses.replace(cell, low=1) for cell in bins),
        behaviour=Behaviour(
            unknown_output=0.031 + seed / 100,
            unknown_source=0.018,
            unknown_reference=0.027,
            repetition=0.083,
            fallbacks=0,
            unfinished=2,
            evidence=f"evaluate/{name}",
        ),
        attention=Attention(
            entropy=1.2,
            entropy_by_position=tuple(1.0 + 0.02 * k for k in range(60)),
            entropy_by_length=(
                Spread(low=1, high=10, sentences=300, entropy=1.1),
                Spread(low=11, high=None, sentences=700, entropy=1.4),
            ),
            least_weight=0.9999,
            most_weight=1.0,
            dropped=0.07,
            repeated=0.012,
        )
        if kind == "rnnsearch"
        else None,
        links=Links(
            sentences=1000,
            links=2410,
            entropy=1.1,
            gold_sentences=100,
            error_rate=0.312,
            evidence=f"evaluate/{name}",
        )
        if kind == "rnnsearch"
        else None,
        beams=tuple(
            BeamPoint(
                beam=beam,
                sentences=200,
                bleu=Estimate(value=level - 2 + k, low=level - 3 + k, high=level - 1 + k),
                unfinished=2 - k,
                seconds=0.004 + 0.017 * k,
            )
            for k, beam in enumerate((1, 8))
        )
        if kind == "rnnsearch"
        else (),
        training=Training(
            updates=2800,
            epochs=7.2,
            hours=0.087,
            device="2 × cpu",
            train_nll=61.2,
            dev_nll=74.9,
            tokens_per_second=5210.0,
            evidence=f"train/{name}",
        ),
        curve=curve,
        settings=(
            Setting(name="network.units", paper="1000", ours="256"),
            Setting(name="train.optimizer", paper="adadelta", ours="adam"),
        ),
    )


def an_alignment(k: int, source: str, target: str) -> Aligned:
    """A soft diagonal."""
    source_words, target_words = (*source.split(" "), "</s>"), target.split(" ")
    rows = []
    for t in range(len(target_words)):
        centre = t * (len(source_words) - 1) / max(len(target_words) - 1, 1)
        raw = [math.exp(-abs(s - centre) * (0.8 + 0.3 * (k % 3))) for s in range(len(source_words))]
        rows.append(tuple(round(w / sum(raw), 4) for w in raw))
    return Aligned(
        system="rnnsearch",
        corpus="bible",
        line=100 + k,
        source=source_words,
        target=tuple(target_words),
        reference=target,
        weights=tuple(rows),
        unknown_free=k % 2 == 0,
    )


def packed(aligned: Aligned) -> Packed:
    """The same, as the page holds every test sentence."""
    rows = []
    for row in aligned.weights:
        percent = [round(100 * weight) for weight in row]
        order = sorted(range(len(row)), key=lambda place: -row[place])
        rows.append(" ".join(f"{place}:{percent[place]}" for place in order))
    return Packed(
        corpus=aligned.corpus,
        line=aligned.line,
        source=" ".join(aligned.source[:-1]),
        target=" ".join(aligned.target),
        reference=aligned.reference,
        weights=";".join(rows),
    )


def some_evidence() -> tuple[Evidence, ...]:
    chain = [
        "download/bible",
        "ingest/bible",
        "clean/train",
        "tokenize/train",
        "select",
        "shortlist",
        "train/rnnsearch",
        "train/rnnencdec",
        "evaluate/rnnsearch",
        "evaluate/rnnencdec",
    ]
    parents = {
        "evaluate/rnnsearch": "train/rnnsearch",
        "evaluate/rnnencdec": "train/rnnencdec",
        "train/rnnencdec": "shortlist",
    }
    entries = []
    for k, stage in enumerate(chain):
        parent = parents.get(stage, chain[k - 1] if k else "")
        entries.append(
            Evidence(
                id=stage,
                stage=stage,
                key=f"{k:02x}" * 32,
                code="c0de" * 16,
                attempt=1,
                cached=k < 5,
                outputs=(
                    Output(name="kept", digest=f"{k + 16:02x}" * 32, files=8, rows=31_102, size=2_412_345),
                ),
                inputs=(Input(name="pairs", digest=f"{k + 15:02x}" * 32, made_by=parent),) if parent else (),
                config=json.dumps({"normalize": True, "note": HOSTILE}, indent=1),
                versions="Python 3.11, pyarrow 26.0.1",
                placement=json.dumps({"workers": 2}),
                observations=json.dumps({"seconds": 4.2}),
            )
        )
    return tuple(entries)


def a_report() -> ReportData:
    """A whole report of two systems, with foreign text in it."""
    short = [
        (
            "The small ship sailed to the island before the night",
            "Le petit bateau navigua vers l' île avant la nuit",
        ),
        (
            "My neighbour sells bread and cheese at the market every day",
            "Mon voisin vend du pain et du fromage au marché chaque jour",
        ),
        (HOSTILE, HOSTILE),
        (
            "We read the letter that you wrote to us from the mountain village in the winter of that quiet year",
            "Nous avons lu la lettre que vous nous avez écrite du village de montagne pendant l' hiver de cette année",
        ),
    ]
    long_source = " ".join(["and the river that runs past the mill carries the leaves of the old trees"] * 3)
    long_target = " ".join(
        ["et la rivière qui passe devant le moulin emporte les feuilles des vieux arbres"] * 3
    )
    steps = [
        ("raw", 0),
        ("not held out", 2000),
        ("clean", 640),
        ("no leakage", 31),
        ("selected", 4100),
        ("≤ 30 words", 7010),
    ]
    reasons = ["", "held out", "duplicate", "in the test set", "not selected", "too long"]

    def flow(corpus: str, raw: int, share: float) -> CorpusFlow:
        left, made = raw, []
        for (name, lost), reason in zip(steps, reasons, strict=True):
            gone = int(lost * share)
            left -= gone
            dropped = (Dropped(reason=reason, pairs=gone),) if gone else ()
            made.append(FlowStep(name=name, pairs=left, dropped=dropped, evidence="clean/train"))
        return CorpusFlow(corpus=corpus, steps=tuple(made))

    return ReportData(
        profile="demo",
        run="run-000007",
        state="finished",
        warnings=(f"12 of the test sentences {HOSTILE}.",),
        findings=(
            Finding(
                corpus="bible-web",
                check="slipped",
                pairs=60,
                of=31_102,
                evidence="select",
                examples=(Example(line=40, last=99, source=HOSTILE, target=HOSTILE),),
            ),
        ),
        overlap=Overlap(
            sentences=1000,
            sources=12,
            references=9,
            either=15,
            one_word=3,
            near_sources=1,
            near=(NearCopy(side="source", text=HOSTILE, corpus="bible-web", line=7, pairs=2),),
            evidence="select",
        ),
        datasets=(
            Dataset(role="train", corpora=("bible-web", "bible-basic"), pairs=41_210, evidence="select"),
            Dataset(role="dev", corpora=("bible-web",), pairs=1000, evidence="clean/train"),
            Dataset(role="test", corpora=("bible-web",), pairs=1000, evidence="clean/train"),
        ),
        systems=(
            a_system("rnnsearch", "rnnsearch", 11.2, 0.5, seed=0),
            a_system("rnnencdec", "rnnencdec", 7.9, 1.3, seed=1),
        ),
        comparisons=(
            Comparison(
                subset="all",
                first="rnnsearch",
                second="rnnencdec",
                difference=3.3,
                p_value=0.0002,
                samples=1000,
            ),
        ),
        flows=(flow("bible-web", 31_102, 1.0), flow("bible-basic", 31_102, 0.9), flow("icd10", 12_467, 0.4)),
        lengths=tuple(
            Lengths(
                side=side,
                label=label,
                counts=tuple(int(900 * math.exp(-((k - centre) ** 2) / 160)) for k in range(81)),
                mean=float(centre),
            )
            for side, label, centre in (
                ("source", "train", 24),
                ("target", "train", 27),
                ("target", "rnnsearch", 25),
            )
        ),
        aligned=tuple(an_alignment(k, *pair) for k, pair in enumerate(short)),
        every_aligned=(
            *(packed(an_alignment(k, *pair)) for k, pair in enumerate(short)),
            Packed(
                corpus="bible",
                line=7,
                source=f"Nobody {HOSTILE} drew this </script>",
                target="Personne ne <b>dessina</b>",
                reference="Personne \u202egnihtyna\u202c",
                weights="0:61 1:39;0:40 1:30 2:30;10:100",
            ),
            Packed(corpus="bible", line=8, source="Nothing came", target="", reference="Rien", weights=""),
        ),
        long_sentences=(
            LongSentence(
                corpus="bible-web",
                line=77,
                words=45,
                source=long_source,
                reference=long_target,
                translations=(
                    Rendering(system="rnnsearch", text=long_target),
                    Rendering(system="rnnencdec", text=f"{long_target[:60]} [UNK] {HOSTILE}"),
                ),
            ),
        ),
        costs=tuple(
            StageCost(
                stage=entry.stage,
                seconds=3.0 + 40 * k,
                cached=entry.cached,
                device="2 × cpu",
                evidence=entry.id,
            )
            for k, entry in enumerate(some_evidence())
        ),
        claims=(
            Claim(
                claim="Attention beats the fixed vector",
                paper="26.75 over 17.82",
                found="11.20 over 7.90",
                verdict="holds",
                band="higher BLEU on all sentences, p < 0.05",
            ),
            Claim(
                claim="The fixed-vector model falls with length",
                paper="yes",
                found="7.9 at ≤ 10 words, 0.4 at > 60",
                verdict="near",
                band="less than half",
            ),
            Claim(
                claim="RNNsearch-30 beats RNNencdec-50",
                paper="21.50 over 17.82",
                found="",
                verdict="not run",
                band="",
            ),
            Claim(
                claim="Longer training helps", paper="+1.70", found="−0.20", verdict="differs", band="above 0"
            ),
        ),
        departures=(Departure(where="pipeline/config.py", text="the paper sets no limit on the ratio"),),
        evidence=some_evidence(),
        missing=("translate/rnnencdec/no-unk: not in this run",),
    )
