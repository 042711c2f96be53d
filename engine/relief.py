"""What a core does when a step runs out of memory: a smaller step, then a smaller pool, and the same work again. No request pays for it.

Owns how far the core has had to give way, and when it may take back what it gave. Nothing of a step that ran out of memory was committed,
so its rows are simply planned again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.heap import give_back
from engine.scheduling.plan import Row, Sampled
from engine.types import DecisionKind, EngineError, ErrorInfo

if TYPE_CHECKING:  # the core owns this, so only the name is needed here
    from engine.core import Core

log = logging.getLogger(__name__)

CALM_STEPS = 64  # after so many good steps the next larger size is tried again
POOL_LEFT = 0.75  # of the pool, each time it has to shrink
SHRINKS = 4  # of the pool in a row before a lone row has to take the blame

_WORDS = ("can't allocate memory", "out of memory", "cannot allocate memory")  # of torch's CPU allocator, of drivers, of the system


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether this is memory running out; known by name, so that torch need not be there."""
    if isinstance(error, EngineError):
        return error.code == "out_of_memory"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


class OutOfMemory(Exception):
    """A step ran out of memory, and there is something left to try."""


class Relief:
    """One core's way of giving way.

    Attributes:
        cap: most positions a step may have for now; None is what the configuration says.
        times: steps that ran out of memory, ever.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.cap: int | None = None
        self.times = 0
        self._shrunk = 0  # pools in a row, with nothing computed between
        self._calm = 0

    def budget(self, configured: int) -> int:
        return configured if self.cap is None else min(configured, self.cap)

    def possible(self, rows: Sequence[Row]) -> bool:
        """Is there something left to give?"""
        return _positions(rows) > 1 or self._shrunk < SHRINKS

    def calm(self) -> None:
        """A step went well."""
        self._shrunk = 0
        if self.cap is None:
            return
        self._calm += 1
        if self._calm >= CALM_STEPS:
            self._calm = 0
            self.cap = None if 2 * self.cap >= self._core.most_positions else 2 * self.cap
            self._core.set_budget()

    def give_way(self, rows: Sequence[Row]) -> list[Sampled | None]:
        """Make the next step smaller, or the pool. Returns what to write down as the results of this one."""
        core, positions = self._core, _positions(rows)
        self.times += 1
        self._calm = 0
        before = core.pool.total
        if positions > 1:
            self.cap = max(1, positions // 2)
            words = f"out of memory: steps of at most {self.cap} positions for now"
        else:
            self._shrunk += 1
            self._shrink_pool()
            words = f"out of memory: the pool went from {before} to {core.pool.total} blocks"
        core.set_budget()
        core.decide(DecisionKind.CONFIG, words)
        log.warning("a step of %d positions ran %s", positions, words)
        told = ErrorInfo("out_of_memory", "There was not enough memory for this step.")
        return [Sampled(-1, told, raised=True) for _ in rows]

    def _shrink_pool(self) -> None:
        """Hold fewer blocks, but as many as every live request needs by itself, so that none of them ends for it."""
        core = self._core
        least = max((core.pool.blocks_for(request.known + 1) for request in core.requests.values()), default=1)
        wanted = max(least, int(core.pool.total * POOL_LEFT))
        if wanted >= core.pool.total:
            return
        try:
            core.resize(wanted, taped=False)
        except Exception as error:  # making room may itself need room; the blocks that are there go on to serve
            if not ran_out_of_memory(error):
                raise
            log.warning("the pool could not be made smaller: %s", error)
        give_back()


def _positions(rows: Sequence[Row]) -> int:
    return sum(row.count for row in rows)
