"""The snapshot of a remote engine: our own requests as we see them, everything else as the server tells it, nothing made up."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.remote.metrics import Told
from engine.remote.ride import Ride
from engine.remote.slots import Slot, of_others
from engine.types import (
    Counters,
    EngineConfig,
    EngineState,
    ErrorInfo,
    KvView,
    ModelView,
    Phase,
    Priority,
    QueueView,
    Rates,
    SeatView,
    Sentence,
    Snapshot,
    WaitReason,
)

MOST_SEATS = 1024
OTHERS = "another client"


def build_snapshot(
    config: EngineConfig,
    state: EngineState,
    model: ModelView,
    told: Told,
    riding: Sequence[Ride],
    waiting: Sequence[Ride],
    counters: Counters,
    tok_s: float,
    now: float,
    error: ErrorInfo | None,
) -> Snapshot:
    others = max(0, int(told.running or 0) - len(riding))
    busy = [slot for slot in told.slots if slot.busy]
    mine = busy[0] if len(busy) == len(riding) == 1 else Slot(True)  # of several, which is whose is not told
    foreign = of_others(told.slots, [ride.tokens for ride in riding])[:others]
    foreign += [Slot(True)] * (others - len(foreign))
    seats: list[SeatView | None] = [_seat(place, ride, mine, now) for place, ride in enumerate(riding)]
    seats += [_other(place, slot) for place, slot in enumerate(foreign[: MOST_SEATS - len(seats)], len(seats))]
    known = int(told.seats or 0)
    seats += [None] * (min(MOST_SEATS, known or config.seats) - len(seats))
    queue = tuple(_waiting(place, ride, state, now) for place, ride in enumerate(waiting, 1))
    return Snapshot(
        step=0,
        time=now,
        state=state,
        policy=config.policy,
        token_budget=config.token_budget,
        seats=tuple(seats),
        queue=queue,
        waiting=max(len(queue), int(told.waiting or 0) + len(queue)),
        kv=_kv(told),
        counters=counters,
        rates=Rates(tok_s=told.tok_s if told.tok_s is not None else tok_s, batch=len(riding) + others),
        model=model,
        error=error,
    )


def _seat(place: int, ride: Ride, slot: Slot, now: float) -> SeatView:
    started = ride.first is not None
    held = max(ride.tokens, slot.held)
    spent = (ride.last or now) - (ride.first or now)
    return SeatView(
        seat=place,
        request_id=ride.handle.id,
        chat_id=ride.handle.chat_id,
        title=ride.title,
        phase=Phase.DECODE if started else Phase.PREFILL,
        priority=ride.priority,
        prompt_tokens=max(0, slot.held - slot.decoded),
        computed_tokens=held,
        known_tokens=held,
        output_tokens=ride.tokens,
        max_output_tokens=int(ride.body.get("max_tokens") or 0),
        cached_tokens=slot.cached,
        blocks=0,
        preemptions=0,
        boarded_step=0,
        tok_s=(ride.tokens - 1) / spent if ride.tokens > 1 and spent > 0 else 0.0,
    )


def _other(place: int, slot: Slot) -> SeatView:
    """Somebody else's; an empty slot stands for what the server does not tell."""
    return SeatView(
        seat=place,
        request_id="",
        chat_id="",
        title=OTHERS,
        phase=Phase.PREFILL if slot.held and not slot.decoded else Phase.DECODE,
        priority=Priority.API,
        prompt_tokens=max(0, slot.held - slot.decoded),
        computed_tokens=slot.held,
        known_tokens=slot.held,
        output_tokens=slot.decoded,
        max_output_tokens=slot.decoded + slot.left if slot.left else 0,
        cached_tokens=slot.cached,
        blocks=0,
        preemptions=0,
        boarded_step=0,
        tok_s=0.0,
    )


def _waiting(place: int, ride: Ride, state: EngineState, now: float) -> QueueView:
    handle = ride.handle
    reason, detail = WaitReason.SEATS, Sentence("as many as allowed are with the server")
    if state is EngineState.LOADING:
        reason, detail = WaitReason.LOADING, Sentence("the server cannot be reached just now")
    elif state is EngineState.PAUSED:
        reason, detail = WaitReason.PAUSED, Sentence("paused")
    return QueueView(place, handle.id, handle.chat_id, ride.title, ride.priority, reason, detail, 0, 0, max(0.0, now - ride.asked), None)


def _kv(told: Told) -> KvView:
    """Counts, where the server tells a size and a use; which block is whose it never tells."""
    total, size = told.blocks or 0, told.block_size or 0
    if not total and told.most_tokens:
        total, size = int(told.most_tokens), 1
    if not total or told.usage is None:
        return KvView(0, 0, 0, 0, size, b"")
    used = min(total, math.ceil(round(told.usage * total, 6)))
    cached = min(total - used, sum(slot.held for slot in told.slots if not slot.busy))
    return KvView(total, total - used - cached, cached, used, size, b"")
