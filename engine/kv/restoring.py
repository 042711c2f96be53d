"""Is it worth bringing blocks back from the second tier, or are they computed again sooner? Decided by what both were measured to cost.

Memory is nearly always faster than computing, a disk often is not. Pure arithmetic over what it is told; knows no clock.
"""

from __future__ import annotations

WEIGHT = 0.25  # of a new measurement
FORGIVES = 0.97  # a tier that was once too slow is tried again after some refusals: files are cached, disks wake up


class RestoreCost:
    """Attributes: block_s (seconds that bringing one block back takes; None before it was measured)."""

    def __init__(self) -> None:
        self.block_s: float | None = None

    def observe(self, blocks: int, seconds: float) -> None:
        if blocks:
            cost = max(0.0, seconds) / blocks
            self.block_s = cost if self.block_s is None else self.block_s + WEIGHT * (cost - self.block_s)

    def worth(self, blocks: int, computing_s: float | None, patience_s: float | None) -> int:
        """Of `blocks` that could be brought back, as many as should be.

        Args:
            computing_s: what computing them all again takes; None is not known yet.
            patience_s: how long others who ride may be held up; None where nobody else rides.
        """
        if self.block_s is None or computing_s is None:
            return blocks  # the way to find out
        if self.block_s * blocks >= computing_s:
            return 0
        if patience_s is None or not self.block_s:
            return blocks
        return min(blocks, max(1, int(patience_s / self.block_s)))

    def refused(self) -> None:
        """It was not worth it this time."""
        if self.block_s is not None:
            self.block_s *= FORGIVES
