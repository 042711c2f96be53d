"""Whose fault it is when the model fails on a step: one request's, where halving the step finds one, else no one's.

Owns how often in a row it was no one's. Commits nothing: a step that failed is run again in parts, which a runner must allow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.explain import explain
from engine.lost_device import device_lost, lost_device
from engine.relief import OutOfMemory, ran_out_of_memory
from engine.scheduling.plan import Row, Sampled
from engine.types import EngineError, ErrorInfo

if TYPE_CHECKING:  # the core owns this, so only the name is needed here
    from engine.core import Core

log = logging.getLogger(__name__)


class StepFailed(EngineError):
    """Every row of a step failed, also alone: the fault is not one request's."""


class Blame:
    """One core's.

    Attributes:
        failures_in_row: steps in which the model raised for every row.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.failures_in_row = 0
        self._raised: list[ErrorInfo] = []  # what the model raised for rows of this step, also alone, told as the whole step's

    def run(self, rows: Sequence[Row]) -> list[Sampled | None]:
        """Run a step; a row on which the model raises even by itself gets an error. Raises OutOfMemory, and whatever no row is to blame
        for."""
        self._raised = []
        return self._run(rows)

    def _run(self, rows: Sequence[Row]) -> list[Sampled | None]:
        core = self._core
        try:
            results = core.runner.forward(rows)
        except Exception as error:
            if lost_device(error):  # every further call fails, too
                raise device_lost(error) from error
            if ran_out_of_memory(error) and core.relief.possible(rows):
                raise OutOfMemory from error
            if len(rows) == 1:
                log.exception("request %s failed in the model", rows[0].request.id)
                self._raised.append(explain(error, alone=False))
                return [Sampled(-1, explain(error), raised=True)]
            log.warning("a step of %d rows failed (%s), halving it", len(rows), error)
            middle = len(rows) // 2
            return self._run(rows[:middle]) + self._run(rows[middle:])
        return results

    def verdict(self, rows: Sequence[Row]) -> StepFailed | None:
        """Of the step that was just run: one row that fails alone is its request's fault; when all of several do, it is no one's."""
        whole = len(self._raised) == len(rows)
        self.failures_in_row = self.failures_in_row + 1 if whole else 0
        if whole and len(rows) > 1:
            return StepFailed("step_failed", self._raised[0].message, self._raised[0].hint)
        return None
