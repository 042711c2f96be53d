"""How much of a prompt rides beside decodes: a chunk that adapts so that a step takes about its target time.

No decode is ever delayed by more than one chunk; the chunk's length follows the measured cost of steps. A position far into a prompt
costs more than one at its beginning, since it attends to all before it; so a chunk is counted in weight: a position at the very
beginning weighs 1, one after `context` others 1 + slope * context.
"""

from __future__ import annotations

import math

WEIGHT = 0.25  # of a new measurement
WILD = 3.0  # a step may count as so many times what was foreseen: another program took the processor, not the chunk
TRUSTED = 4  # prefill steps, after which costs are foreseen
SPREAD = 0.05  # variance of positions' contexts, as a share of their mean square, below which no slope can be told


class ChunkTuner:
    """Proposes the next chunk from the last step's cost.

    A step costs about base + per_weight x the weight of its prefill positions. `base` is learned from steps that only decode, the
    other two from steps with prefill, by least squares over the recent ones. Durations in seconds, lengths in tokens.

    Attributes:
        chunk: weight of the prefill positions that may ride beside decodes.
        slope: what one more position of context adds to a position's weight.
    """

    SMALLEST = 16
    STEEPEST = 0.01

    def __init__(self, chunk: int, target_s: float, most: int, adapt: bool = True) -> None:
        self.chunk = chunk
        self.target_s = target_s
        self.most = most
        self.adapt = adapt
        self.slope = 0.0
        self._base: float | None = None
        self._per_weight: float | None = None
        self._seen = 0
        # Decaying means of x = mean context of a step's positions and y = cost of each: of x, xx, y and xy.
        self._means = (0.0, 0.0, 0.0, 0.0)

    def observe(self, duration: float, decodes: int, prefill: int, pairs: float = 0.0) -> int:
        """Learn from one step; returns the chunk to use next. `pairs` sums over the prefill positions how many came before each."""
        if duration <= 0:
            return self.chunk
        if prefill == 0:
            self._base = _blend(self._base, duration)
        else:
            self._learn(max(0.0, duration - (self._base or 0.0)) / prefill, pairs / prefill)
        if self.adapt and self._per_weight:
            wanted = (self.target_s - (self._base or 0.0)) / self._per_weight
            self.chunk = int(min(self.most, max(self.SMALLEST, wanted)))
        return self.chunk

    def _learn(self, cost: float, context: float) -> None:
        """One step's cost a position at a mean context."""
        if self._per_weight and self._seen >= TRUSTED:
            cost = min(cost, WILD * self._per_weight * (1 + self.slope * context))
        self._seen += 1
        news = (context, context * context, cost, context * cost)
        share = max(WEIGHT, 1 / self._seen)  # the first few count alike
        self._means = tuple(old + share * (new - old) for old, new in zip(self._means, news, strict=True))  # type: ignore[assignment]
        x, xx, y, xy = self._means
        variance = xx - x * x
        if variance > SPREAD * xx:
            rise = max(0.0, (xy - x * y) / variance)
            level = y - rise * x
            if level > 0 and self.adapt:
                self.slope = min(rise / level, self.STEEPEST)
        self._per_weight = y / (1 + self.slope * x)

    @property
    def prefill_rate(self) -> float | None:
        """Prefill positions a second at the beginning of a prompt, None before any was measured."""
        return 1 / self._per_weight if self._per_weight else None

    def seconds_for(self, start: int, count: int) -> float | None:
        """What reading `count` positions that follow `start` others takes, None before any was measured."""
        return self._per_weight * weight_of(start, count, self.slope) if self._per_weight else None

    @property
    def decode_step_s(self) -> float | None:
        return self._base


def weight_of(start: int, count: int, slope: float) -> float:
    """Weight of `count` positions that follow `start` others."""
    return count * (1 + slope * (start + (count - 1) / 2))


def count_within(weight: float, start: int, slope: float) -> int:
    """The most positions after `start` others that weigh no more than `weight`."""
    if slope <= 0:
        return max(0, int(weight))
    first = 1 + slope * (start - 0.5)
    count = max(0, int((math.sqrt(first * first + 2 * slope * max(0.0, weight)) - first) / slope + 1e-9))
    return count


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
