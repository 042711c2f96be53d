"""What a core does when a step runs out of memory: a smaller step, then a smaller pool, and the same work again. No request pays for it.

Owns how far the core has had to give way, and when it may take back what it gave: after a while of good steps the step grows, then the
pool, a little at a time, up to what was asked. Memory that runs out after that makes the next while twice as long, so that a machine that
is too small is not tried for ever. Nothing of a step that ran out of memory was committed, so its rows are simply planned again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.heap import give_back
from engine.scheduling.plan import Row, Sampled
from engine.types import DecisionKind, EngineError, ErrorInfo, Sentence

if TYPE_CHECKING:  # the core owns this, so only the name is needed here
    from engine.core import Core

log = logging.getLogger(__name__)

CALM_STEPS, CALM_S = 64, 2.0  # after so many good steps and so many seconds the next larger size is tried again
MOST_PATIENCE = 64  # times as long, after one attempt after another was too early
LONG_CALM = 8  # times as long with everything as it was asked: patience is halved again
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
    """One core's way of giving way, and back.

    Attributes:
        cap: most positions a step may have for now; None is what the configuration says.
        blocks: what the pool was asked to have; it may be smaller for now.
        patience: by how much a while is longer than at first.
        times: steps that ran out of memory, ever.
        no_room: the pool could not be given the size it was to have in this step; for the record.
    """

    def __init__(self, core: Core, blocks: int | None = None) -> None:
        self._core = core
        self.cap: int | None = None
        self.blocks = core.pool.total if blocks is None else blocks
        self.patience = 1
        self.times = 0
        self.no_room = False
        self._shrunk = 0  # pools in a row, with nothing computed between
        self._regrown = False  # since memory ran out last
        self._pool_before: int | None = None  # the growth that came last was the pool's, from so many blocks
        self._good = 0  # steps
        self._since: float | None = None  # when the first of them ended

    def budget(self, configured: int) -> int:
        return configured if self.cap is None else min(configured, self.cap)

    @property
    def whole(self) -> bool:
        """Nothing is smaller than it was asked to be."""
        return self.cap is None and self._core.pool.total >= self.blocks

    def possible(self, rows: Sequence[Row]) -> bool:
        """Is there something left to give?"""
        return _positions(rows) > 1 or self._shrunk < SHRINKS

    def calm(self, now: float) -> None:
        """A step went well; perhaps something may grow back."""
        self._shrunk = 0
        self.no_room = False
        if self.whole and self.patience == 1:
            return
        self._good += 1
        if self._since is None:
            self._since = now
        long = self.patience * (LONG_CALM if self.whole else 1)
        if self._good < CALM_STEPS * long or now - self._since < CALM_S * long:
            return
        self._good, self._since = 0, now
        if self.whole:
            self.patience //= 2
            return
        self._regrown = True
        if self.cap is not None:
            self._grow_step()
        else:
            self._grow_pool()

    def give_way(self, rows: Sequence[Row]) -> list[Sampled | None]:
        """Make the next step smaller, or the pool. Returns what to write down as the results of this one."""
        core, positions = self._core, _positions(rows)
        self.times += 1
        self.no_room = False
        self._good, self._since = 0, None
        if self._regrown:  # that was too early
            self._regrown = False
            self.patience = min(MOST_PATIENCE, 2 * self.patience)
        before, back = core.pool.total, self._pool_before
        self._pool_before = None
        if back is not None and self._shrink_pool(back):
            words = Sentence("out of memory: the pool goes back from {0} to {1} blocks", before, core.pool.total)
        elif positions > 1:
            self.cap = max(1, positions // 2)
            words = Sentence("out of memory: steps of at most {0} positions for now", self.cap)
        else:
            self._shrunk += 1
            self._shrink_pool(int(core.pool.total * POOL_LEFT))
            words = Sentence("out of memory: the pool went from {0} to {1} blocks", before, core.pool.total)
        core.set_budget()
        core.decide(DecisionKind.CONFIG, words)
        log.warning("a step of %d positions ran %s", positions, words)
        told = ErrorInfo("out_of_memory", "There was not enough memory for this step.")
        return [Sampled(-1, told, raised=True) for _ in rows]

    def _grow_step(self) -> None:
        core = self._core
        assert self.cap is not None
        self.cap = None if 2 * self.cap >= core.most_positions else 2 * self.cap
        self._pool_before = None
        core.set_budget()
        size = self.budget(core.most_positions)
        core.decide(DecisionKind.CONFIG, Sentence("memory was enough for a while: steps of up to {0} positions again", size))

    def _grow_pool(self) -> None:
        core, before = self._core, self._core.pool.total
        wanted = min(self.blocks, -int(-before // POOL_LEFT))
        if self._resize(wanted):
            self._pool_before = before
            core.decide(
                DecisionKind.CONFIG,
                Sentence("memory was enough for a while: the pool went from {0} to {1} blocks", before, core.pool.total),
            )
        else:
            self._regrown = False
            self.patience = min(MOST_PATIENCE, 2 * self.patience)

    def _shrink_pool(self, wanted: int) -> bool:
        """Hold fewer blocks, but as many as every live request needs by itself, so that none ends for it. Returns whether it did."""
        core, before = self._core, self._core.pool.total
        least = max((core.pool.blocks_for(request.known + 1) for request in core.requests.values()), default=1)
        wanted = max(least, wanted)
        if wanted < before:
            self._resize(wanted)
            give_back()
        return core.pool.total < before

    def _resize(self, wanted: int) -> bool:
        """Making room may itself need room: then the blocks that are there go on to serve."""
        core = self._core
        try:
            core.resize(wanted, asked=False)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            self.no_room = True
            log.warning("the pool could not be given %d blocks: %s", wanted, error)
            with suppress(Exception):  # some layers may have got their room before it was too much
                core.runner.resize(core.pool.total)
        return not self.no_room


def _positions(rows: Sequence[Row]) -> int:
    return sum(row.count for row in rows)
