"""The paper's claims, one by one, against what a run found."""

import itertools
from collections.abc import Iterable, Sequence

from rnnsearch.flows.report.data import Aligned, Bin, Claim, ReportData, System
from rnnsearch.flows.report.formats import hard_alignment, probability, signed
from rnnsearch.flows.report.paper import TABLE_1
from rnnsearch.flows.report.tables import comparison

REPRODUCED, CLOSE = 1.0, 3.0  # BLEU from the paper's number; other reproductions lie within 1 (protocol 4)
ENOUGH = 20  # sentences in a bin: BLEU of fewer says little
LONG_BIN = 30  # source words: bins that begin above are long
LEAD = 1.0  # BLEU
NOT_RUN = "not run"


def check_claims(report: ReportData) -> tuple[Claim, ...]:
    """Every claim of Tables 1 and Figures 2 and 3, with the band within which it counts as found."""
    return (
        _beats(report, "RNNsearch-30", "RNNencdec-30"),
        _beats(report, "RNNsearch-50", "RNNencdec-50"),
        _beats(report, "RNNsearch-30", "RNNencdec-50"),
        _beats(report, "RNNsearch-50★", "RNNsearch-50"),
        _search_wins(report),
        _falls(report),
        _keeps(report),
        _lead_grows(report),
        _unknown_words_cost(report),
        _reaches_moses(report),
        _monotone(report.aligned),
        *_numbers(report),
    )


def _beats(report: ReportData, first: str, second: str) -> Claim:
    numbers = {row.name: row.all for row in TABLE_1}
    ours = _at(report, first), _at(report, second)
    found, verdict = _compared(report, *ours)
    return Claim(
        claim=f"{first} beats {second}",
        paper=f"{numbers[first]:.2f} over {numbers[second]:.2f}",
        found=found,
        verdict=verdict,
        band="higher BLEU on all sentences with p < 0.05; higher alone is near",
        evidence=_evidence(*ours),
    )


def _search_wins(report: ReportData) -> Claim:
    """The first claim for any profile: its best systems, whatever rows they stand for."""
    ours = _best(report, "rnnsearch"), _best(report, "rnnencdec")
    found, verdict = _compared(report, *ours)
    if ours[0] and ours[1]:
        found = f"{ours[0].name} over {ours[1].name}: {found}"
    return Claim(
        claim="The search beats the fixed vector",
        paper="+7.57 at 30 words, +8.93 at 50",
        found=found,
        verdict=verdict,
        band="the best RNNsearch of this run has a higher BLEU than the best RNNencdec with p < 0.05; higher alone is "
        "near",
        evidence=_evidence(*ours),
    )


def _evidence(*systems: System | None) -> tuple[str, ...]:
    """The stages that the scores of these systems come from."""
    scores = [score for system in systems if system and (score := system.score("all"))]
    return tuple(dict.fromkeys(score.evidence for score in scores if score.evidence))


def _compared(report: ReportData, first: System | None, second: System | None) -> tuple[str, str]:
    """What was found of two systems, and whether the first is better."""
    scores = [system.score("all") if system else None for system in (first, second)]
    if first is None or second is None or scores[0] is None or scores[1] is None:
        return "", NOT_RUN
    test = comparison(report, "all", first.name, second.name)
    found = f"{scores[0].bleu.value:.2f} over {scores[1].bleu.value:.2f}"
    found += f", p {probability(test.p_value, test.samples)}" if test else ", not tested"
    if scores[0].bleu.value <= scores[1].bleu.value:
        return found, "differs"
    return found, "holds" if test is not None and test.p_value < 0.05 else "near"


def _falls(report: ReportData) -> Claim:
    system = _best(report, "rnnencdec")
    found, kept = _kept(system)
    verdict = NOT_RUN
    if kept is not None:
        verdict = "holds" if kept <= 0.5 else "near" if kept <= 0.8 else "differs"
    return Claim(
        claim="The fixed-vector model falls sharply with length",
        paper="Figure 2: both RNNencdec fall",
        found=found,
        verdict=verdict,
        band=f"the longest range with {ENOUGH} sentences has at most half the BLEU of the best; up to 80 % is near",
        evidence=_evidence(system),
    )


def _keeps(report: ReportData) -> Claim:
    system = _at(report, "RNNsearch-50★") or _at(report, "RNNsearch-50") or _best(report, "rnnsearch")
    found, kept = _kept(system)
    verdict = NOT_RUN
    if kept is not None:
        verdict = "holds" if kept >= 0.9 else "near" if kept >= 0.75 else "differs"
    return Claim(
        claim="The search does not fall on long sentences",
        paper="Figure 2: RNNsearch-50 does not fall at 50 words and more",
        found=found,
        verdict=verdict,
        band=f"the longest range with {ENOUGH} sentences keeps 90 % of the best; 75 % is near",
        evidence=_evidence(system),
    )


def _lead_grows(report: ReportData) -> Claim:
    """Figure 2 for any profile: between the shortest and the longest sentences that it has."""
    search, fixed = _best(report, "rnnsearch"), _best(report, "rnnencdec")
    found, verdict = "", NOT_RUN
    if search and fixed:
        others = {(cell.low, cell.high): cell for cell in _full(fixed.by_length)}
        leads = [
            (cell, cell.bleu.value - others[cell.low, cell.high].bleu.value)
            for cell in _full(search.by_length)
            if (cell.low, cell.high) in others
        ]
        if len(leads) > 1:
            (short, first), (long, last) = leads[0], leads[-1]
            found = f"{search.name} over {fixed.name}: {signed(first)} at {short.label} words, "
            found += f"{signed(last)} at {long.label}"
            verdict = "holds" if last - first >= LEAD else "near" if last > first else "differs"
    return Claim(
        claim="The lead of the search grows with length",
        paper="Figure 2: the curves part as sentences grow",
        found=found,
        verdict=verdict,
        band=f"at least {LEAD:g} BLEU more in the longest range with {ENOUGH} sentences than in the shortest; more at "
        "all is near",
        evidence=_evidence(search, fixed),
    )


def _unknown_words_cost(report: ReportData) -> Claim:
    gains = []
    for system in report.systems:
        every, free = system.score("all"), system.score("no-unk")
        if every and free and not system.external:
            gains.append((system.name, free.bleu.value - every.bleu.value))
    verdict = NOT_RUN
    if gains:
        right = sum(gain > 0 for _, gain in gains)
        verdict = "holds" if right == len(gains) else "near" if right else "differs"
    return Claim(
        claim="Every system scores higher without unknown words",
        paper="+7.41 to +10.26, RNNsearch-50★ +7.70",
        found=", ".join(f"{name} {signed(gain)}" for name, gain in gains),
        verdict=verdict,
        band="higher for all systems; for some is near",
        evidence=_evidence(*(system for system in report.systems if not system.external)),
    )


def _reaches_moses(report: ReportData) -> Claim:
    ours, moses = _at(report, "RNNsearch-50★"), _at(report, "Moses")
    scores = [system.score("no-unk") if system else None for system in (ours, moses)]
    found, verdict = "", NOT_RUN
    if scores[0] and scores[1]:
        difference = scores[0].bleu.value - scores[1].bleu.value
        found = f"{scores[0].bleu.value:.2f} beside {scores[1].bleu.value:.2f}"
        verdict = "holds" if difference >= 0 else "near" if difference >= -REPRODUCED else "differs"
    return Claim(
        claim="Without unknown words RNNsearch-50★ reaches Moses",
        paper="36.15 beside 35.63",
        found=found,
        verdict=verdict,
        band="at least as high; up to 1 BLEU below is near",
        evidence=_evidence(ours, moses),
    )


def _monotone(aligned: Sequence[Aligned]) -> Claim:
    """Steps from one word's source word to the next word's, without those that stay and those at `</s>`."""
    forward = steps = 0
    for sentence in aligned:
        end = len(sentence.source) - 1
        places = [place for _, _, _, place in hard_alignment(sentence)]
        moves = [(a, b) for a, b in itertools.pairwise(places) if a != b and end not in {a, b}]
        forward += sum(after > before for before, after in moves)
        steps += len(moves)
    found, verdict = "", NOT_RUN
    if steps >= ENOUGH:
        share = forward / steps
        found = f"{100 * share:.0f} % of {steps:,} moves go forward"
        verdict = "holds" if share >= 0.75 else "near" if share >= 0.6 else "differs"
    elif aligned:
        found = f"{steps} moves in {len(aligned)} sentences: too few to tell"
    return Claim(
        claim="The alignment is largely monotone",
        paper="Figure 3: weights along the diagonal, with local changes of order",
        found=found,
        verdict=verdict,
        band="75 % of the moves of the hard alignment go forward; 60 % is near",
        evidence=tuple(dict.fromkeys(f"translate/{sentence.system}/all" for sentence in aligned)),
    )


def _numbers(report: ReportData) -> Iterable[Claim]:
    """Table 1 itself, for systems with the paper's settings; others were not asked the same question."""
    for row in TABLE_1:
        system = _at(report, row.name)
        score = system.score("all") if system else None
        if system is None or score is None or system.external:
            continue
        if system.settings:
            found, verdict = (
                f"{score.bleu.value:.2f}, with {len(system.settings)} settings that differ",
                NOT_RUN,
            )
        else:
            distance = abs(score.bleu.value - row.all)
            found = f"{score.bleu.value:.2f}"
            verdict = "holds" if distance <= REPRODUCED else "near" if distance <= CLOSE else "differs"
        yield Claim(
            claim=f"{row.name} reaches its BLEU",
            paper=f"{row.all:.2f}",
            found=found,
            verdict=verdict,
            band="within 1 BLEU, with the paper's settings; within 3 is near",
            evidence=_evidence(system),
        )


def _kept(system: System | None) -> tuple[str, float | None]:
    """The best range and the longest in words, and the share of BLEU that is kept; None without long sentences."""
    full = _full(system.by_length) if system else []
    if system is None or len(full) < 2:
        return "", None
    best, longest = max(full, key=lambda cell: cell.bleu.value), full[-1]
    found = f"{system.name}: {_said(best)}, {_said(longest)}"
    if longest.low <= LONG_BIN:
        return f"{found}; too few sentences above {LONG_BIN} words to tell", None
    return found, longest.bleu.value / best.bleu.value if best.bleu.value > 0 else None


def _full(bins: Iterable[Bin]) -> list[Bin]:
    """The ranges with enough sentences."""
    return [cell for cell in bins if cell.sentences >= ENOUGH]


def _said(cell: Bin) -> str:
    return f"{cell.bleu.value:.2f} at {cell.label} words"


def _at(report: ReportData, row: str) -> System | None:
    return next((system for system in report.systems if system.paper_row == row), None)


def _best(report: ReportData, kind: str) -> System | None:
    scored = [(score.bleu.value, s) for s in report.systems if s.kind == kind and (score := s.score("all"))]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None
