"""Numbers as a reader wants them."""

import math

from rnnsearch.flows.report.data import Aligned, Estimate


def count(value: float | None) -> str:
    """A whole number with separators."""
    return "–" if value is None else f"{value:,.0f}"


def decimal(value: float | None, digits: int) -> str:
    """A number with so many decimals."""
    return "–" if value is None else f"{value:.{digits}f}"


def bleu(value: Estimate | float | None) -> str:
    """A score with two decimals, as the paper prints it."""
    if value is None:
        return "–"
    return f"{value.value if isinstance(value, Estimate) else value:.2f}"


def interval(value: Estimate | None) -> str:
    """The interval of a score, empty where there is none."""
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{value.low:.1f}–{value.high:.1f}"


def signed(value: float) -> str:
    """A difference of scores with its sign."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # without a negative zero


def probability(value: float, samples: int | None) -> str:
    """A p-value with its relation: a resampling test of n samples gives no value below 1 / (n + 1)."""
    if samples is not None and value <= (1 + 1e-3) / (samples + 1):  # the value may be rounded
        return f"≤ {max(math.ceil(1_000 / (samples + 1)), 1) / 1_000:.3f}"
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """A duration in the unit that a person would use."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def hours(value: float | None) -> str:
    """Hours, finer where they are few."""
    return (
        "–"
        if value is None
        else f"{value:.0f}"
        if value >= 100
        else f"{value:.2f}"
        if value >= 1
        else f"{value:.3f}"
    )


def size(value: int | None) -> str:
    """A number of bytes."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def hard_alignment(aligned: Aligned) -> list[tuple[str, str, float, int]]:
    """For each target word the strongest source word: (target, source, weight, source position)."""
    found = []
    for word, row in zip(aligned.target, aligned.weights, strict=True):
        strongest = max(range(len(row)), key=row.__getitem__)
        found.append((word, aligned.source[strongest], row[strongest], strongest))
    return found
