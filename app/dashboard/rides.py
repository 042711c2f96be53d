"""Step records as stretches of time: who sat in which seat from when to when, and when it stood empty. Pure values, no Qt.

For pictures whose axis is the clock; those whose axis is the step use `steps`, with the same states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED
from engine import DecisionKind, Phase, StepRecord

SAME_MOMENT_S = 1e-6


@dataclass(frozen=True, slots=True)
class Ride:
    """One seat in one state for one request, over `steps` steps; `start` and `stop` in seconds since the first record.

    `shade` is 0 and 1 in turn from one request of a seat to the next.
    """

    seat: int
    state: int
    start: float
    stop: float
    steps: int
    request_id: str
    title: str
    shade: int


def rides(history: Iterable[StepRecord]) -> tuple[Ride, ...]:
    """The stretches of all seats, in the order in which they end. Where the engine stood still there is none."""
    ended: list[Ride] = []
    open_rides: dict[int, Ride] = {}
    titles: dict[str, str] = {}
    sitting: dict[int, str] = {}
    shades: dict[int, int] = {}
    begin: float | None = None
    for record in history:
        begin = record.time if begin is None else begin
        start, stop = record.time - begin, record.time + record.duration - begin
        for decision in record.decisions:
            if decision.kind in (DecisionKind.SUBMIT, DecisionKind.ADMIT):
                titles[decision.request_id] = " ".join(decision.title.split())
        now = {row.seat: (PREFILL if row.phase is Phase.PREFILL else DECODE, row.request_id) for row in record.rows}
        now |= {seat: (HELD, sitting.get(seat, "")) for seat in record.held}
        free = max(0, record.seats_total - len(now))
        empty = [seat for seat in range(record.seats_total) if seat not in now][:free]
        now |= {seat: (WASTED if record.waiting else EMPTY, "") for seat in empty}
        for seat in [seat for seat in open_rides if seat not in now]:
            ended.append(open_rides.pop(seat))
        for seat, (state, request_id) in now.items():
            if request_id and sitting.get(seat) != request_id:
                sitting[seat] = request_id
                shades[seat] = 1 - shades.get(seat, 1)
            ride = open_rides.get(seat)
            if ride and (ride.state, ride.request_id) == (state, request_id) and start - ride.stop <= SAME_MOMENT_S:
                open_rides[seat] = replace(ride, stop=stop, steps=ride.steps + 1)
                continue
            if ride:
                ended.append(ride)
            open_rides[seat] = Ride(seat, state, start, stop, 1, request_id, titles.get(request_id, ""), shades.get(seat, 0))
    return (*ended, *open_rides.values())
