"""How a step's room for prompts is shared among those who read: arithmetic over requests that have their blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from engine.scheduling.chunk import ChunkTuner, count_within, weight_of
from engine.scheduling.plan import MOST_SCORED, Row, scored, within_scores
from engine.scheduling.request import RequestState
from engine.scheduling.slotting import Slotting

FLOOR_SHARE = 4  # a prompt that waits longest gets at least 1/4 of a step's prefill


def entitlement(request: RequestState) -> tuple[int, int]:
    """Smaller is more entitled: by class, then by boarding."""
    return request.level, request.boarding


def _turn(request: RequestState) -> tuple[int, int, int]:
    return request.level, request.remaining, request.boarding


def room_for_first(readers: Iterable[RequestState], slope: float) -> int:
    """The weight with which the prompt that is finished first is finished in one step, beside the floor of the oldest."""
    first = min(readers, key=_turn)
    return math.ceil(weight_of(first.computed, first.remaining, slope) * FLOOR_SHARE / (FLOOR_SHARE - 1))


def plan_prefills(readers: Sequence[RequestState], budget: int, slope: float, slotting: Slotting | None = None) -> list[Row]:
    """Chunks of prompts, of a weight of `budget` together (see chunk.py).

    Prompts are finished one after another, shortest remaining first within a class, with a floor for the oldest: filling all together
    would give a whole cohort its first token at the same late moment. Of the positions whose logits score a prompt, only so many may
    ride as the step's memory is planned for; and no more positions than there are window slots for, where a model has those.
    """
    reading = sorted(readers, key=_turn)
    oldest = min(reading, key=entitlement)
    floor = 0.0 if oldest is reading[0] else max(1.0, budget // FLOOR_SHARE)
    floor = min(floor, weight_of(oldest.computed, oldest.remaining, slope))
    left = budget - floor  # a weight; positions never weigh less than 1
    scores, kept = MOST_SCORED, MOST_SCORED // FLOOR_SHARE if oldest.reads_all else 0
    rows = []
    for request in reading:
        mine = request is oldest
        own = left + (floor if mine else 0.0)
        count = count_within(own, request.computed, slope)
        if mine:  # however far into its prompt it is
            count = max(count, min(ChunkTuner.SMALLEST, int(own)))
        count = min(count, request.remaining)
        if slotting is not None:
            count = min(count, slotting.room(request))
        if request.reads_all:
            count = within_scores(request, request.computed, count, scores if mine else max(0, scores - kept))
        if mine:
            kept = 0
        if count <= 0:
            continue
        if request.reads_all:
            scores -= len(scored(request, request.computed, count))
        if slotting is not None:
            slotting.cover(request, request.computed + count)
        left = own - weight_of(request.computed, count, slope)
        rows.append(Row(request, request.computed, count, count == request.remaining))
    return rows
