"""A report as a folder of files: page, Markdown, JSON and figures."""

from pathlib import Path

from rnnsearch.flows.report.charts import alignments, draw
from rnnsearch.flows.report.data import ReportData, to_json
from rnnsearch.flows.report.gather import gather
from rnnsearch.flows.report.html import to_html
from rnnsearch.flows.report.markdown import to_markdown
from rnnsearch.pipeline.figures import Format, picture
from rnnsearch.storage.errors import explained
from rnnsearch.storage.store import Store

FORMATS: tuple[Format, ...] = ("svg", "png", "pdf")


def write_report(store: Store, run_id: str, folder: Path, *, figures: bool = True) -> Path:
    """Draw the report of a run into a folder and return its page; `figures` for those of a paper too.

    Raises MissingError if the store has no such run, and StoreError where the folder cannot be written. All else that
    is missing is shown as "not run".
    """
    try:
        return write_files(gather(store, run_id), folder, figures=figures)
    except OSError as error:
        raise explained(error, f"write the report into {folder}") from error


def write_files(report: ReportData, folder: Path, *, figures: bool = True) -> Path:
    """Write `report.html`, `report.md`, `report.json` and `figures/` into `folder`; return the page.

    Equal reports give equal bytes. Files of an earlier report that this one lacks are left alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(to_markdown(report, figures=figures), encoding="utf-8")
    (folder / "report.json").write_text(to_json(report), encoding="utf-8")
    if figures:
        (folder / "figures").mkdir(exist_ok=True)
        drawn = {name: chart.figure() for name, chart in draw(report).items()} | alignments(report)
        for name, figure in drawn.items():
            for form in FORMATS:
                (folder / "figures" / f"{name}.{form}").write_bytes(picture(figure, form))
    page = folder / "report.html"
    page.write_text(to_html(report), encoding="utf-8")
    return page
