"""Reproducible answers: on what terms requests keep each other company when an answer must not depend on who rides along.

A request's seed and position decide its draws, so the only way for others into an answer is the rounding of sums: torch's kernels add in
another order when more rows ride. Our own do not. Where a runner says that its numbers are the same to the last bit in any company,
nothing changes; where it cannot, requests ride one at a time, in order, each computed from its beginning in the same pieces: nobody boards
beside another or takes a seat away, nothing is shared with what others left in the cache, and nothing is guessed ahead, since that
depends on how many wait. (He, Horace et al., "Defeating Nondeterminism in LLM Inference", Thinking Machines 2025, tell the causes.)

What it cannot promise: the same on another machine, another version or other settings of the model; and an answer whose step failed, or
ran out of memory on the way, goes on from recomputed keys and values, which on torch's kernels may differ in their last bits.
"""

from __future__ import annotations

from engine.scheduling.plan import Runner
from engine.types import EngineConfig, Policy


class Company:
    """Attributes:
    alone: requests ride one at a time.
    """

    def __init__(self, runner: Runner, config: EngineConfig) -> None:
        self._runner = runner
        self.change(config.reproducible)

    def change(self, wanted: bool) -> None:
        self.alone = not self._runner.reproduce(wanted)

    def seats(self, config: EngineConfig) -> int:
        return 1 if self.alone else config.seats

    def policy(self, config: EngineConfig) -> Policy:
        return Policy.STATIC if self.alone else config.policy

    def salt(self, salt: bytes, request_id: str) -> bytes:
        """Each request has one of its own while it must ride alone: it meets nobody's blocks in the cache but its own."""
        return salt + b"\0" + request_id.encode("utf-8", "surrogatepass") if self.alone else salt
