"""The report as one HTML page that needs no network, no server and no script."""

import base64
import gzip
import hashlib
import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rnnsearch.flows.report.charts import draw
from rnnsearch.flows.report.data import ReportData
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
    size,
)
from rnnsearch.flows.report.tables import (
    comparison,
    cost_summary,
    flow_table,
    reason_rows,
    table_1,
    table_2,
    upstream,
)
from rnnsearch.flows.report.text import CONTROLS, breaks, html_text
from rnnsearch.pipeline.figures import page_svg

_TEMPLATES = Path(__file__).parent / "templates"
_RISKY = frozenset("<>&") | frozenset(
    CONTROLS
)  # inside JSON they stand in strings only, where an escape means the same


def to_html(report: ReportData) -> str:
    """The whole page. Equal reports give equal text."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "corpus": html_text,
        "count": count,
        "bleu": bleu,
        "breaks": breaks,
        "decimal": decimal,
        "interval": interval,
        "percent": percent,
        "probability": probability,
        "duration": duration,
        "hours": hours,
        "hard": hard_alignment,
        "size": size,
        "signed": signed,
    }
    # Our own files, not text from a corpus.
    style = Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704
    script = Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8"))  # noqa: S704
    charts = draw(report)
    drawn = {name: Markup(page_svg(chart.figure(), name)) for name, chart in charts.items()}  # noqa: S704
    spent, saved = cost_summary(report)
    return environment.get_template("report.html.j2").render(
        report=report,
        style=style,
        script=script,
        # The page may run this one script and nothing else, whatever a corpus holds.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sentences=_embedded(report),
        charts=charts,
        drawn=drawn,
        table_1=table_1(report),
        table_2=table_2(report),
        flow=flow_table(report.flows),
        reasons=reason_rows(report.flows),
        comparison=lambda subset, first, second: comparison(report, subset, first, second),
        spent=spent,
        saved=saved,
        upstream=lambda start: upstream(report, start),
        evidence={entry.id: entry for entry in report.evidence},
    )


def _embedded(report: ReportData) -> str:
    """Every test sentence as JSON, packed into letters: a third of its size, and no HTML in it."""
    if not report.every_aligned:
        return ""
    rows = [[s.corpus, s.line, s.source, s.target, s.reference, s.weights] for s in report.every_aligned]
    text = json.dumps({"marks": CONTROLS, "rows": rows}, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
