"""How much of a prompt rides beside decodes: a chunk that adapts so that a step takes about its target time.

No decode is ever delayed by more than one chunk; the chunk's length follows the measured cost of steps.
"""

from __future__ import annotations


class ChunkTuner:
    """Proposes the next chunk from the last step's cost.

    A step costs about base + per_token x prefill positions. Both are learned: `base` from steps that only decode, `per_token`
    from steps with prefill. Durations in seconds, lengths in tokens.
    """

    SMALLEST = 16
    WEIGHT = 0.25

    def __init__(self, chunk: int, target_s: float, most: int, adapt: bool = True) -> None:
        self.chunk = chunk
        self.target_s = target_s
        self.most = most
        self.adapt = adapt
        self._base: float | None = None
        self._per_token: float | None = None

    def observe(self, duration: float, decodes: int, prefill: int) -> int:
        """Learn from one step; returns the chunk to use next."""
        if duration <= 0:
            return self.chunk
        if prefill == 0:
            self._base = _blend(self._base, duration, self.WEIGHT)
        else:
            self._per_token = _blend(self._per_token, max(0.0, duration - (self._base or 0.0)) / prefill, self.WEIGHT)
        if self.adapt and self._per_token:
            wanted = (self.target_s - (self._base or 0.0)) / self._per_token
            self.chunk = int(min(self.most, max(self.SMALLEST, wanted)))
        return self.chunk

    @property
    def prefill_rate(self) -> float | None:
        """Prefill positions a second, None before any was measured."""
        return 1 / self._per_token if self._per_token else None

    @property
    def decode_step_s(self) -> float | None:
        return self._base


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
