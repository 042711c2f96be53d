"""When will a waiting request probably board? From what is measured: the time between tokens and the speed of prefill.

An estimate for a person, never used for a decision. Seconds from now.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from engine.scheduling.growth import expected_rest
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.standing import Standing
from engine.types import Policy


@dataclass(frozen=True, slots=True)
class Forecast:
    """All that the future is told from, at one step boundary.

    Attributes:
        leaves: seconds after which each rider is expected to leave its seat, the first to leave first; 0 for an empty seat.
        seats: on offer.
        typical: tokens of an answer.
    """

    leaves: tuple[float, ...]
    seats: int
    policy: Policy
    typical: float
    itl_s: float
    prefill_rate: float | None

    def starts(self, line: Iterable[Standing]) -> list[float]:
        """One estimate a waiting request, in the order of `line`.

        Plays the seats forward: each rider leaves after its expected remaining tokens, the next in the line takes the seat.
        """
        starts: list[float] = []
        if self.policy is Policy.STATIC:
            leaves, group = self.leaves[-1], list[float]()
            for standing in line:
                if len(group) == self.seats:
                    leaves += max(group)
                    group = []
                starts.append(leaves)
                group.append(self._stay(standing))
            return starts
        seats = list(self.leaves[max(0, len(self.leaves) - self.seats) :])  # of more riders than seats, the first to leave are not replaced
        for standing in line:  # a sorted list is a heap
            start = seats[0]
            starts.append(start)
            heapq.heapreplace(seats, start + self._stay(standing))
        return starts

    def _stay(self, standing: Standing) -> float:
        known = standing.known
        rest = expected_rest(self.typical, known - standing.prompt_tokens, standing.bound, standing.goes_on, standing.least)
        return stay_s(known, rest, self.itl_s, self.prefill_rate)


def stay_s(remaining: int, rest: float, itl_s: float, prefill_rate: float | None) -> float:
    """Seconds in a seat: `remaining` positions are to be read, `rest` tokens to be said."""
    reading = remaining / prefill_rate if prefill_rate and remaining > 1 else 0.0
    return reading + max(1.0, rest) * itl_s


def forecast(scheduler: Scheduler, itl_s: float | None, prefill_rate: float | None) -> Forecast | None:
    """None while nothing is measured."""
    if itl_s is None:
        return None
    growth, riders = scheduler.growth, scheduler.seated.values()
    leaves = [stay_s(len(rider.tokens) - rider.computed, growth.expected(rider), itl_s, prefill_rate) for rider in riders]
    leaves += [0.0] * max(0, scheduler.seats - len(leaves))
    return Forecast(tuple(sorted(leaves)), scheduler.seats, scheduler.policy, growth.typical, itl_s, prefill_rate)
