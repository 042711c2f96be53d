"""The second tier at work: blocks that are brought back before a step, what that took, and whether it is worth it the next time.

Owns the measurement alone; which block lies where is `kv/tier.py`'s, and when one is wanted `scheduling/prefix.py` finds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.kv.copies import restores
from engine.kv.restoring import RestoreCost
from engine.scheduling.prefix import Prefixes

if TYPE_CHECKING:
    from engine.core import Core


class Swapping:
    """Of one core; a new one knows of no measurement."""

    def __init__(self, core: Core) -> None:
        self.cost = RestoreCost()
        self._core = core

    def advise(self, prefixes: Prefixes) -> None:
        prefixes.worth_restoring, prefixes.refused = self._worth, self.cost.refused

    def carry_out(self) -> float:
        """Make the copies that planning ordered; returns the seconds that bringing blocks back took."""
        core = self._core
        copies = core.scheduler.prefixes.take_copies()
        if not copies:
            return 0.0
        back = restores(copies)
        if not back:
            core.runner.copy(copies)
            return 0.0
        began = core.clock()
        core.runner.copy(copies)
        took = core.clock() - began
        self.cost.observe(back, took)
        return took

    def _worth(self, start: int, blocks: int) -> int:
        """Nobody else who rides is held up for longer than a step should take."""
        core = self._core
        again_s = core.tuner.seconds_for(start, blocks * core.pool.block_size)
        return self.cost.worth(blocks, again_s, core.config.target_step_s if len(core.scheduler.seated) > 1 else None)
