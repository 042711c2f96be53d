"""What was measured lately: tokens a second, time to first token, time between tokens. Feeds the snapshot.

Owns short windows only; totals are the core's. Times come in, no clock here.
"""

from __future__ import annotations

import math
from collections import deque

from engine.types import Rates

WINDOW_S = 5.0
KEPT = 256  # first-token times and gaps that percentiles are taken over


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
        self.first_tokens: deque[float] = deque(maxlen=KEPT)
        self.gaps: deque[float] = deque(maxlen=KEPT)
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
        ttft, itl = sorted(self.first_tokens), sorted(self.gaps)
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
        """Median time between two tokens of one answer, None before any was measured."""
        return percentile(sorted(self.gaps), 0.5) if self.gaps else None

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
