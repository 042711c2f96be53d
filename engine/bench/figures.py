"""From the outcomes of a workload to figures, and from several runs to their medians and one table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.bench.player import Outcome
from engine.bench.workloads import Work

Figures = dict[str, Any]
WIDTHS = (8, 7, 6, 7, 7, 7, 7, 7)  # of the table's figures; the whole line fits 80 columns


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Interpolated; None of nothing."""
    return float(np.percentile(values, percent)) if values else None


def figures(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """One run's figures.

    tok_s: output tokens over the time from the first request sent to the last token. ttft: request sent to first token. itl: between two
    pieces of news of one answer, at the client. whole: [answers of exactly the wanted length, requests].
    """
    sent = [outcome.sent for outcome in outcomes if outcome.sent is not None]
    last = [outcome.times[-1] for outcome in outcomes if outcome.times]
    span = max(last) - min(sent) if last else 0.0
    ttft = [outcome.ttft for outcome in outcomes if outcome.ttft is not None]
    gaps = [1000 * gap for outcome in outcomes for gap in outcome.gaps]
    made: Figures = {
        "whole": [sum(outcome.whole for outcome in outcomes), len(outcomes)],
        "tok_s": sum(outcome.tokens for outcome in outcomes) / span if span else 0.0,
        "span_s": span,
        "ttft_p50_s": percentile(ttft, 50),
        "ttft_p95_s": percentile(ttft, 95),
        "itl_p50_ms": percentile(gaps, 50),
        "itl_p95_ms": percentile(gaps, 95),
        "itl_max_ms": max(gaps, default=None),
    }
    for name in work.get("report", ()):
        if name in EXTRA:
            made[name] = EXTRA[name](work, outcomes)
    return made


def median_of(runs: Sequence[Figures]) -> Figures:
    """Medians over repeats; `whole` is summed; what is no number comes from the last run."""
    made: Figures = {}
    for key, last in runs[-1].items():
        values = [run[key] for run in runs if run.get(key) is not None]
        if key == "whole":
            made[key] = [sum(value[part] for value in values) for part in (0, 1)]
        elif isinstance(last, Mapping):
            made[key] = median_of([run[key] for run in runs if isinstance(run.get(key), Mapping)])
        elif values and all(isinstance(value, (int, float)) for value in values):
            made[key] = statistics.median(values)
        else:
            made[key] = last
    return made


# ---------------------------------------------------------------------------------------------------------------- extras


def _finish(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """Seconds after the first was sent at which each got its last token."""
    start = min((outcome.sent for outcome in outcomes if outcome.sent is not None), default=0.0)
    return {outcome.id: outcome.times[-1] - start if outcome.times else None for outcome in outcomes}


def _goodput(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """The share of requests whose first token and own p95 gap were both within the goal."""
    goal = work.get("goal") or work["slo"]
    good = [
        outcome
        for outcome in outcomes
        if outcome.whole and (outcome.ttft or 0.0) <= goal["ttft_s"] and (percentile(outcome.gaps, 95) or 0.0) <= goal["itl_p95_s"]
    ]
    return {"share": len(good) / len(outcomes)}


def _stall(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """The longest silence in any other answer while the long prompt was read, and the long prompt's own first token."""
    long = next(outcome for outcome in outcomes if outcome.id == work["long"])
    if long.ttft is None or long.sent is None:
        return {"long_ttft_s": None, "worst_gap_s": None}
    begin, end = long.sent, long.times[0]
    worst, during = 0.0, 0
    for outcome in outcomes:
        if outcome is long:
            continue
        for before, after, count in zip(outcome.times, outcome.times[1:], outcome.counts[1:], strict=False):
            if after > begin and before < end:
                worst = max(worst, after - before)
            during += count if begin < after <= end else 0
    return {"long_ttft_s": long.ttft, "worst_gap_s": worst, "others_tok_s": during / (end - begin)}


def _turns(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """Time to the first token in a chat's first turn, and in its later ones."""
    first = [outcome.ttft for outcome in outcomes if outcome.ttft is not None and outcome.turn == 1]
    later = [outcome.ttft for outcome in outcomes if outcome.ttft is not None and outcome.turn > 1]
    return {"first_p50_s": percentile(first, 50), "later_p50_s": percentile(later, 50), "later_p95_s": percentile(later, 95)}


def _decode(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """Speed of a single answer without its prefill."""
    outcome = outcomes[0]
    if len(outcome.times) < 2:
        return {"tok_s": None}
    return {"tok_s": (outcome.tokens - outcome.counts[0]) / (outcome.times[-1] - outcome.times[0])}


def _lost(work: Work, outcomes: Sequence[Outcome]) -> Figures:
    """Why answers were not whole."""
    return {
        "why": sorted({outcome.error or f"{outcome.tokens} of {outcome.wanted} tokens" for outcome in outcomes if not outcome.whole})[:3]
    }


EXTRA: dict[str, Callable[[Work, Sequence[Outcome]], Figures]] = {
    "finish": _finish,
    "goodput": _goodput,
    "stall": _stall,
    "turns": _turns,
    "decode": _decode,
    "lost": _lost,
}


# ----------------------------------------------------------------------------------------------------------------- table


def table(results: Sequence[Figures], us: str) -> list[str]:
    """Lines of text: one engine a line, and how many times our tok/s is its, within the same class of precision."""
    lines = [_line(("engine", "class", "whole", "tok/s", "x", "TTFT", "p95", "ITL", "max", "MiB"))]
    ours = {result["class"]: result["tok_s"] for result in results if result["engine"] == us and not result.get("error")}
    for result in results:
        if result.get("error"):
            lines.append(f" {result['engine']:<14}{result['class']:<7}{result['error']}")
            continue
        base = ours.get(result["class"])
        ratio = f"{base / result['tok_s']:.2f}" if base and result["tok_s"] else "-"
        whole = f"{result['whole'][0]}/{result['whole'][1]}"
        digits = {"tok_s": 1, "ttft_p50_s": 2, "ttft_p95_s": 2, "itl_p50_ms": 1, "itl_max_ms": 0, "rss_mib": 0}
        speed, *times = (_cell(result.get(key), places) for key, places in digits.items())
        lines.append(_line((result["engine"], result["class"], whole, speed, ratio, *times)))
    return [*lines, f" x: {us} over this one. TTFT in s: median, p95. ITL in ms: median, longest."]


def _line(cells: Sequence[str]) -> str:
    return f" {cells[0]:<14}{cells[1]:<7}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells[2:], WIDTHS, strict=True))


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
