"""Freezes the core's state at a step boundary into one `Snapshot`. Reads everything, changes nothing but its own memo."""

from __future__ import annotations

from dataclasses import replace

from engine.core import Core
from engine.scheduling.forecast import expected_starts
from engine.scheduling.queue import WaitingQueue
from engine.scheduling.request import RequestState
from engine.types import (
    Counters,
    EngineConfig,
    EngineState,
    ErrorInfo,
    KvView,
    ModelView,
    Policy,
    QueueView,
    Rates,
    SeatView,
    Snapshot,
    WaitReason,
)

QUEUE_VIEWS = 64  # a person reads the first places; the count tells the rest


class SnapshotBuilder:
    """Keeps the order of the queue between steps, since it rarely changes."""

    def __init__(self, bytes_per_block: int = 0) -> None:
        self.bytes_per_block = bytes_per_block
        self._order: list[RequestState] = []
        self._memo: tuple[WaitingQueue, int] | None = None  # the queue, and its version, that `_order` was read from

    def build(self, core: Core, state: EngineState, model: ModelView, now: float, error: ErrorInfo | None = None) -> Snapshot:
        scheduler, pool = core.scheduler, core.pool
        kv = KvView(pool.total, pool.free, pool.cached, pool.referenced, pool.block_size, pool.owners(), self.bytes_per_block)
        if pool.slots is not None:
            kv = replace(kv, slots=pool.slots.total, slots_claimed=pool.slots.claimed)
        size = max([scheduler.seats, *(seat + 1 for seat in scheduler.seated)])
        return Snapshot(
            step=core.totals.steps,
            time=now,
            state=state,
            policy=scheduler.policy,
            token_budget=scheduler.token_budget,
            seats=tuple(self._seat(scheduler.seated.get(seat), now) for seat in range(size)),
            queue=self._queue(core, state, now),
            waiting=len(scheduler.queue),
            kv=kv,
            counters=core.counters,
            rates=core.measures.rates(now, idle=not core.busy),
            model=model,
            error=error,
            alone=core.company.alone,
        )

    @staticmethod
    def _seat(rider: RequestState | None, now: float) -> SeatView | None:
        if rider is None:
            return None
        assert rider.seat is not None
        spent = rider.ledger.spent("decode", rider.stands_in, now)
        return SeatView(
            seat=rider.seat,
            request_id=rider.id,
            chat_id=rider.chat_id,
            title=rider.title,
            phase=rider.phase,
            priority=rider.priority,
            prompt_tokens=rider.prompt_len,
            computed_tokens=rider.computed,
            known_tokens=rider.known,
            output_tokens=rider.output_len,
            max_output_tokens=rider.max_output,
            cached_tokens=rider.cached_tokens,
            blocks=len(rider.held),
            preemptions=rider.preemptions,
            boarded_step=rider.boarded_step,
            tok_s=(rider.output_len - 1) / spent if spent > 0 and rider.output_len > 1 else 0.0,
        )

    def _queue(self, core: Core, state: EngineState, now: float) -> tuple[QueueView, ...]:
        scheduler = core.scheduler
        if not scheduler.queue:
            self._order = []
            return ()
        if self._memo != (scheduler.queue, scheduler.queue.version):
            self._order = scheduler.queue.in_order(QUEUE_VIEWS)
            self._memo = scheduler.queue, scheduler.queue.version
        starts = expected_starts(scheduler, self._order, core.measures.itl_s, core.tuner.prefill_rate)
        views, higher = [], dict[int, int]()
        for place, (request, start) in enumerate(zip(self._order, starts, strict=True), 1):
            before = higher.setdefault(request.level, place - 1)  # the queue stands by class, so those before its class's first
            reason, detail = self._reason(core, state, place, before, request)
            need = request.needed_blocks or core.pool.blocks_for(request.known)
            waited = max(0.0, now - request.ledger.start)
            views.append(
                QueueView(
                    place,
                    request.id,
                    request.chat_id,
                    request.title,
                    request.priority,
                    reason,
                    detail,
                    request.prompt_len,
                    need,
                    waited,
                    start,
                )
            )
        return tuple(views)

    def _reason(self, core: Core, state: EngineState, place: int, higher: int, request: RequestState) -> tuple[WaitReason, str]:
        """The reason that the last plan gave; for those it did not reach, why it did not."""
        scheduler = core.scheduler
        if state is EngineState.PAUSED:
            return WaitReason.PAUSED, "the engine is paused"
        if core.company.alone and scheduler.seated:
            return WaitReason.SEATS, "answers are to be reproducible: with this model one rides at a time"
        if request.reason_step == scheduler.step:
            return request.wait_reason, request.wait_detail
        if scheduler.policy is Policy.STATIC and scheduler.seated:
            return WaitReason.GROUP, "the present group is still riding"
        if higher:
            return WaitReason.PRIORITY, f"behind {higher} of a higher class"
        if len(scheduler.seated) >= scheduler.seats:
            return WaitReason.SEATS, f"{len(scheduler.seated)} of {scheduler.seats} seats are taken"
        return WaitReason.TURN, f"behind {place - 1}" if place > 1 else "boards at the next step"


def empty_snapshot(
    config: EngineConfig, state: EngineState, model: ModelView, now: float, error: ErrorInfo | None = None, counters: Counters | None = None
) -> Snapshot:
    """What there is to see while no model is loaded. Waiting requests are added by the engine."""
    counters = counters or Counters()
    return Snapshot(
        step=counters.steps,
        time=now,
        state=state,
        policy=config.policy,
        token_budget=config.token_budget,
        seats=(None,) * config.seats,
        queue=(),
        waiting=0,
        kv=KvView(0, 0, 0, 0, config.block_size or 0, b""),
        counters=counters,
        rates=Rates(),
        model=model,
        error=error,
    )
