"""The report as Markdown: the same numbers, for a terminal, a mail or a repository."""

from collections.abc import Iterable, Sequence
from functools import partial

from rnnsearch.flows.report.chart import Chart
from rnnsearch.flows.report.charts import draw
from rnnsearch.flows.report.data import ReportData, System
from rnnsearch.flows.report.formats import (
    bleu,
    count,
    decimal,
    duration,
    hard_alignment,
    hours,
    interval,
    percent,
    probability,
    signed,
)
from rnnsearch.flows.report.tables import (
    ScoreRow,
    comparison,
    cost_summary,
    reason_rows,
    table_1,
    table_2,
)
from rnnsearch.flows.report.text import markdown_text

NOT_RUN = "not run"


def to_markdown(report: ReportData, *, figures: bool = True) -> str:
    """The whole report. Links lead to the lineage section at its end; figures are the files beside it.

    Without `figures` there are no such files: their titles, captions and tables are shown.
    """
    charts = draw(report)
    beside = partial(_figures, charts, images=figures)
    parts = [
        *_head(report),
        "## Scores\n",
        _scores(report),
        _signatures(report),
        "## Training\n",
        _training(report),
        *beside(("loss", "dev-bleu", "gradient-norm", "clipped-share", "training-entropy")),
        "## Sentence length\n",
        *(beside(("bleu-by-length", "bleu-cumulative")) or [f"{NOT_RUN}\n"]),
        "## Alignment\n",
        *_alignment(report),
        _attention(report),
        *beside(("attention-entropy", "attention-by-length")),
        _links(report),
        "## Beam width\n",
        *(beside(("beam-bleu", "beam-seconds")) or [f"{NOT_RUN}\n"]),
        "## Long sentences\n",
        *_long(report),
        "## The paper's claims\n",
        _claims(report),
        "## Significance\n",
        *_significance(report),
        "## Words and lengths\n",
        _words(report),
        *beside(("bleu-by-unknown", "bleu-by-rarest", "unknown", "source-lengths", "target-lengths")),
        "## Data\n",
        *beside(("waterfall",)),
        *_data(report),
        "## Cost\n",
        *_cost(report),
        "## Departures from the paper\n",
        *_departures(report),
        "## Lineage\n",
        _lineage(report),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table whose first `left` columns are text and whose others are numbers; "not run" where it has no rows."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return f"{NOT_RUN}\n"
    rule = "|".join("---" if k < left else "--:" for k in range(len(header)))
    return "\n".join([f"| {' | '.join(header)} |", f"|{rule}|", *body]) + "\n"


def _head(report: ReportData) -> list[str]:
    title = f"# rnnsearch: {report.profile}, {report.source_language} to {report.target_language}\n"
    best = report.best
    score = best.score("all") if best else None
    if best is None or score is None:
        return [title, "No system has been scored yet.\n"]
    band = f" (95 % interval {interval(score.bleu)})" if interval(score.bleu) else ""
    found = f"**{best.name} reaches {bleu(score.bleu)} BLEU**{band} on all {count(score.sentences)} test sentences."
    lines = [
        title,
        found + "\n",
        *(f"> **Warning:** {markdown_text(warning)}\n" for warning in report.warnings),
    ]
    if score.signature:
        lines.append(f"Signature: `{score.signature}`\n")
    return lines


def _who(row: str, system: System | None) -> str:
    return (
        markdown_text(row)
        if system is None or system.name == row
        else markdown_text(f"{row} ({system.name})")
    )


def _scores(report: ReportData) -> str:
    def ours(row: ScoreRow) -> tuple[str, str]:
        cells = []
        for score in (row.all, row.no_unk):
            if score is None:
                cells.append(NOT_RUN)
                continue
            band = f" [{interval(score.bleu)}]" if interval(score.bleu) else ""
            cells.append(f"{bleu(score.bleu)}{band}")
        return cells[0], cells[1]

    return _table(
        ("system", "All, ours", "All, paper", "No UNK, ours", "sentences", "No UNK, paper"),
        [
            (
                _who(row.name, row.ours),
                ours(row)[0],
                bleu(row.paper.all) if row.paper else "–",
                ours(row)[1],
                count(row.no_unk.sentences) if row.no_unk else "–",
                bleu(row.paper.no_unk) if row.paper else "–",
            )
            for row in table_1(report)
        ],
    )


def _signatures(report: ReportData) -> str:
    rows = []
    for system in report.systems:
        for s in system.scores:
            every = (
                ("BLEU, tokenised", s.bleu.value, s.signature),
                *((m.name, m.value, m.signature) for m in s.metrics),
            )
            for metric, value, signature in every:
                cells = (markdown_text(system.name), s.subset, metric, bleu(value), count(s.sentences))
                rows.append((*cells, "`" + signature.replace("|", r"\|") + "`" if signature else "–"))
    return _table(("system", "subset", "metric", "value", "sentences", "signature"), rows, left=3)


def _training(report: ReportData) -> str:
    rows = []
    for row in table_2(report):
        o, p = row.ours, row.paper
        mine = (
            (
                count(o.updates),
                decimal(o.epochs, 2),
                hours(o.hours),
                o.device or "–",
                decimal(o.train_nll, 1),
                decimal(o.dev_nll, 1),
            )
            if o
            else (NOT_RUN, "", "", "", "", "")
        )
        rows.append((_who(row.name, row.system), *mine))
        if p:
            rows.append(
                (
                    "paper",
                    count(p.updates),
                    str(p.epochs),
                    count(p.hours),
                    p.device,
                    str(p.train_nll),
                    str(p.dev_nll),
                )
            )
    return _table(("system", "updates", "epochs", "hours", "device", "train NLL", "dev NLL"), rows)


def _figures(charts: dict[str, Chart], names: Sequence[str], *, images: bool) -> list[str]:
    return [
        (f"![{charts[name].title}](figures/{name}.png)\n\n" if images else "")
        + f"*{charts[name].title}.* {charts[name].caption}\n\n"
        + _table(
            [markdown_text(cell) for cell in charts[name].header],
            [[markdown_text(c) for c in row] for row in charts[name].rows],
        )
        for name in names
        if name in charts
    ]


def _alignment(report: ReportData) -> list[str]:
    if not report.aligned:
        return [f"{NOT_RUN}\n"]
    lines = ["For each word of the translation the source word with the largest weight.\n"]
    for number, aligned in enumerate(report.aligned[:3], 1):
        lines.append(f"{number}. Source: {markdown_text(' '.join(aligned.source[:-1]))}\n")
        pairs = (
            f"{markdown_text(target)} ← {markdown_text(source)} ({weight:.2f})"
            for target, source, weight, _ in hard_alignment(aligned)
        )
        lines.append(f"   {aligned.system}: {', '.join(pairs)}\n")
    return lines


def _attention(report: ReportData) -> str:
    return _table(
        ("system", "entropy", "row sums", "on padding", "little seen", "much seen"),
        [
            (
                markdown_text(system.name),
                decimal(a.entropy, 3),
                f"{decimal(a.least_weight, 4)}–{decimal(a.most_weight, 4)}",
                decimal(a.padding, 4),
                percent(a.dropped),
                percent(a.repeated),
            )
            for system in report.systems
            if (a := system.attention)
        ],
    )


def _links(report: ReportData) -> str:
    return _table(
        ("against other links", "error rate", "linked sentences", "agreement", "links", "entropy"),
        [
            (
                markdown_text(system.name),
                NOT_RUN if a.error_rate is None else percent(a.error_rate),
                count(a.gold_sentences),
                percent(a.agreement) if a.agreement is not None else NOT_RUN if a.links else "no links",
                count(a.links),
                decimal(a.entropy, 3),
            )
            for system in report.systems
            if (a := system.links)
        ],
    )


def _long(report: ReportData) -> list[str]:
    if not report.long_sentences:
        return [f"{NOT_RUN}\n"]
    return [
        _table(
            (f"{s.words} words", f"{markdown_text(s.corpus)}, line {s.line}"),
            [
                ("source", markdown_text(s.source)),
                ("reference", markdown_text(s.reference)),
                *((markdown_text(t.system), markdown_text(t.text)) for t in s.translations),
            ],
            left=2,
        )
        for s in report.long_sentences
    ]


def _claims(report: ReportData) -> str:
    return _table(
        ("claim", "counts as found when", "paper", "found here", "verdict"),
        [
            (c.claim, c.band or "–", c.paper, markdown_text(c.found) or "–", f"**{c.verdict}**")
            for c in report.claims
        ],
        left=5,
    )


def _significance(report: ReportData) -> list[str]:
    names = [system.name for system in report.systems if system.scores]
    blocks = []
    for subset in dict.fromkeys(test.subset for test in report.comparisons):
        rows = []
        for first in names:
            cells = [markdown_text(first)]
            for second in names:
                found = comparison(report, subset, first, second)
                blank = "·" if first == second else NOT_RUN
                cells.append(
                    f"{signed(found.difference)} (p {probability(found.p_value, found.samples)})"
                    if found
                    else blank
                )
            rows.append(cells)
        blocks.append(f"Subset {subset}: BLEU of the row's system less that of the column's.\n")
        blocks.append(_table(("", *(markdown_text(name) for name in names)), rows))
    return blocks or [f"{NOT_RUN}\n"]


def _words(report: ReportData) -> str:
    rows = []
    for system in report.systems:
        score, b = system.score("all"), system.behaviour
        if score:
            rows.append(
                (
                    markdown_text(system.name),
                    percent(b.unknown_output, 2),
                    percent(b.unknown_source, 2),
                    percent(b.unknown_reference, 2),
                    "–" if score.ratio is None else f"{score.ratio:.3f}",
                    "–" if score.brevity is None else f"{score.brevity:.3f}",
                    percent(b.repetition),
                    count(b.empty),
                    count(b.fallbacks),
                    count(b.unfinished),
                )
            )
    return _table(
        (
            "system",
            r"\[UNK\] in output",
            "in source",
            "in reference",
            "length ratio",
            "brevity",
            "repetition",
            "empty",
            "fallback",
            "unfinished",
        ),
        rows,
    )


def _data(report: ReportData) -> list[str]:
    if not report.flows:
        return [f"{NOT_RUN}\n"]
    reasons = _table(
        ("step", "reason", *(markdown_text(flow.corpus) for flow in report.flows)),
        [
            (row.step, markdown_text(row.reason), *(count(n) for n in row.pairs))
            for row in reason_rows(report.flows)
        ],
        left=2,
    )
    sets = _table(
        ("set", "pairs", "from"),
        [(d.role, count(d.pairs), ", ".join(markdown_text(c) for c in d.corpora)) for d in report.datasets],
    )
    return [reasons, sets, *_survey(report), *_overlap(report)]


def _survey(report: ReportData) -> list[str]:
    rows = [
        (markdown_text(f.corpus), markdown_text(f.check), count(f.pairs), percent(f.share, 2))
        for f in report.findings
    ]
    return (
        ["### Survey of the text\n", _table(("corpus", "check", "pairs", "share"), rows, left=2)]
        if rows
        else []
    )


def _overlap(report: ReportData) -> list[str]:
    o = report.overlap
    if o is None:
        return []
    found = (
        f"Of {count(o.sentences)} test sentences, {count(o.sources)} have a source and {count(o.references)} "
        f"a reference that stands in training ({percent(o.share)} in all; {count(o.one_word)} of these texts have one "
        "word).\n"
    )
    rows = [
        (markdown_text(system.name), bleu(score.bleu), bleu(fresh.bleu), count(fresh.sentences))
        for system in report.systems
        if (score := system.score("all")) and (fresh := system.score("not-in-training"))
    ]
    near = [
        f"- near copy: {n.side} “{markdown_text(n.text)}”, {markdown_text(n.corpus)} line {n.line}"
        for n in o.near
    ]
    table = [_table(("system", "BLEU, all", "not in training", "sentences"), rows)] if rows else []
    return ["### Test sentences in the training data\n", found, *table, *near, ""]


def _cost(report: ReportData) -> list[str]:
    spent, saved = cost_summary(report)
    if not report.costs:
        return [f"{NOT_RUN}\n"]
    return [
        f"Computed for {duration(spent)}; cached stages would have taken {duration(saved)}.\n",
        _table(
            ("stage", "time", "in this run"),
            [(c.stage, duration(c.seconds), "cached" if c.cached else "computed") for c in report.costs],
        ),
    ]


def _departures(report: ReportData) -> list[str]:
    lines = []
    for system in report.systems:
        if system.settings:
            lines.append(f"Settings of {markdown_text(system.name)}:\n")
            rows = [(f"`{s.name}`", markdown_text(s.paper), markdown_text(s.ours)) for s in system.settings]
            lines.append(_table(("setting", "paper", "here"), rows, left=3))
    lines += [f"- `{d.where}`: {markdown_text(d.text)}" for d in report.departures]
    return [*lines, ""] if lines else ["None recorded.\n"]


def _lineage(report: ReportData) -> str:
    return _table(
        ("stage", "recipe", "outputs", "inputs"),
        [
            (
                entry.stage,
                f"`{entry.key[:16]}`",
                "<br>".join(f"{o.name} `{o.digest[:16]}`" for o in entry.outputs) or "–",
                "<br>".join(f"{i.name} `{i.digest[:16]}`" for i in entry.inputs) or "–",
            )
            for entry in report.evidence
        ],
        left=4,
    )
