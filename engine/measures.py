"""What was measured lately: tokens a second, time to first token, time between tokens. Feeds the snapshot.

Owns short windows only; totals are the core's. Times come in, no clock here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque

from engine.types import Rates

WINDOW_S = 5.0
KEPT = 256  # first-token times and gaps that percentiles are taken over
ORDINARY = 0.95  # of the times between tokens; the longest tell of a preemption or of a machine that was busy


class Latest:
    """The last `KEPT` times, in the order of their size all along: a percentile of them is looked up at every step, between which sorting
    hundreds of numbers that left the processor's caches costs more than planning.

    Attributes:
        ordered: the least first.
    """

    def __init__(self) -> None:
        self.ordered: list[float] = []
        self._runs: deque[tuple[float, int]] = deque()  # as they came

    def append(self, value: float, times: int = 1) -> None:
        """`times`: so many came to the same, as those of all riders of a step do."""
        ordered, runs, times = self.ordered, self._runs, min(times, KEPT)
        at = bisect_left(ordered, value)
        ordered[at:at] = [value] * times
        runs.append((value, times))
        while (over := len(ordered) - KEPT) > 0:
            oldest, count = runs.popleft()
            if count > over:
                runs.appendleft((oldest, count - over))
            at = bisect_left(ordered, oldest)
            del ordered[at : at + min(count, over)]


class Measures:
    """Rates over the last `WINDOW_S` seconds and percentiles over the last `KEPT` samples.

    Attributes:
        first_tokens: times to the first token, in seconds; added to by the core.
        gaps: times between two tokens of one answer, in seconds; added to by the core.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int, int]] = deque()  # (time, prefill positions, tokens)
        self._prefill = 0
        self._tokens = 0
        self.first_tokens = Latest()
        self.gaps = Latest()
        self._step_s = 0.0
        self._batch = 0

    def step(self, now: float, duration: float, batch: int, prefill: int, tokens: int) -> None:
        """A step of `batch` rows is over: it computed `prefill` positions of prompts and gave `tokens`."""
        self._step_s = duration
        self._batch = batch
        self._steps.append((now, prefill, tokens))
        self._prefill += prefill
        self._tokens += tokens
        self._forget_before(now - WINDOW_S)

    def rates(self, now: float, idle: bool = False) -> Rates:
        """Speeds are 0 when idle; percentiles stay."""
        self._forget_before(now - WINDOW_S)
        ttft, itl = self.first_tokens.ordered, self.gaps.ordered
        span = 0.0
        if self._steps and not idle:
            # The first entry was computed before its time stamp, so the window reaches back one step more.
            span = max(now - self._steps[0][0] + self._step_s, 1e-9)
        return Rates(
            tok_s=self._tokens / span if span else 0.0,
            prefill_tok_s=self._prefill / span if span else 0.0,
            ttft_p50_s=percentile(ttft, 0.50),
            ttft_p95_s=percentile(ttft, 0.95),
            itl_p50_s=percentile(itl, 0.50),
            itl_p95_s=percentile(itl, 0.95),
            step_s=self._step_s,
            batch=0 if idle else self._batch,
        )

    @property
    def itl_s(self) -> float | None:
        """Mean time between two tokens of one answer, without the longest; None before any was measured.

        Not the median: of an answer that is written several tokens a step most come at once, and the others take most of the time.
        """
        ordered = self.gaps.ordered
        if not ordered:
            return None
        kept = ordered[bisect_left(ordered, 0.0) : max(1, int(len(ordered) * ORDINARY))]  # a clock that jumped back gives some below zero
        return math.fsum(kept) / len(kept) if kept else 0.0

    def _forget_before(self, horizon: float) -> None:
        while self._steps and self._steps[0][0] < horizon:
            _, prefill, tokens = self._steps.popleft()
            self._prefill -= prefill
            self._tokens -= tokens


def percentile(ordered: list[float], share: float) -> float:
    """The nearest-rank percentile of an ordered list of times; 0 when it is empty, and where a clock that jumped back made it less."""
    if not ordered:
        return 0.0
    return max(0.0, ordered[max(0, math.ceil(share * len(ordered)) - 1)])
