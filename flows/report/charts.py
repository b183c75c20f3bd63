"""The figures of a report, by name."""

from matplotlib.figure import Figure

from rnnsearch.flows.report.chart import Chart
from rnnsearch.flows.report.charts_bleu import (
    bleu_by_length,
    bleu_by_rarest,
    bleu_by_unknown,
    bleu_cumulative,
)
from rnnsearch.flows.report.charts_search import (
    attention_by_length,
    attention_entropy,
    beam_bleu,
    beam_seconds,
)
from rnnsearch.flows.report.charts_text import source_lengths, target_lengths, unknown_rates, waterfall
from rnnsearch.flows.report.charts_training import (
    clipped_shares,
    dev_bleus,
    gradient_norms,
    losses,
    training_entropies,
)
from rnnsearch.flows.report.data import ReportData
from rnnsearch.flows.report.text import plain_text
from rnnsearch.pipeline.figures import heatmap

EXPORTED_ALIGNMENTS = 6


def draw(report: ReportData) -> dict[str, Chart]:
    """Every figure for which there is something to show, by name."""
    makers = (
        bleu_by_length,
        bleu_cumulative,
        bleu_by_unknown,
        bleu_by_rarest,
        attention_entropy,
        attention_by_length,
        beam_bleu,
        beam_seconds,
        losses,
        dev_bleus,
        training_entropies,
        gradient_norms,
        clipped_shares,
        waterfall,
        source_lengths,
        target_lengths,
        unknown_rates,
    )
    made = (make(report) for make in makers)
    return {chart.name: chart for chart in made if chart is not None}


def alignments(report: ReportData) -> dict[str, Figure]:
    """The first alignments as heatmaps for a paper, by file name."""
    return {
        f"attention-{k:02d}": heatmap(
            [plain_text(word) for word in aligned.source],
            [plain_text(word) for word in aligned.target],
            aligned.weights,
        )
        for k, aligned in enumerate(report.aligned[:EXPORTED_ALIGNMENTS], 1)
    }
