"""When will a waiting request probably board? From what is measured: the time between tokens and the speed of prefill.

An estimate for a person, never used for a decision. Seconds from now.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from engine.scheduling.request import RequestState
from engine.scheduling.scheduler import Scheduler
from engine.types import Policy


def expected_starts(
    scheduler: Scheduler, queue: Sequence[RequestState], itl_s: float | None, prefill_rate: float | None
) -> list[float | None]:
    """One estimate a waiting request, in queue order; None while nothing is measured.

    Plays the seats forward: each rider leaves after its expected remaining tokens, the next in the queue takes the seat.
    """
    if itl_s is None:
        return [None] * len(queue)

    def stay(request: RequestState) -> float:
        reading = request.remaining / prefill_rate if prefill_rate and request.remaining > 1 else 0.0
        return reading + max(1.0, scheduler.growth.expected(request)) * itl_s

    seats = sorted(stay(rider) for rider in scheduler.seated.values())
    seats += [0.0] * max(0, scheduler.seats - len(seats))
    starts: list[float | None] = []
    if scheduler.policy is Policy.STATIC:
        leaves, group = max(seats), list[float]()
        for request in queue:
            if len(group) == scheduler.seats:
                leaves += max(group)
                group = []
            starts.append(leaves)
            group.append(stay(request))
        return starts
    seats = seats[max(0, len(seats) - scheduler.seats) :]  # of more riders than seats on offer, the first to leave are not replaced
    heapq.heapify(seats)
    for request in queue:
        start = heapq.heappop(seats)
        starts.append(start)
        heapq.heappush(seats, start + stay(request))
    return starts
