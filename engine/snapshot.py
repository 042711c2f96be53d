"""Freezes the core's state at a step boundary into one `Snapshot`. Reads everything, changes nothing but its own memo."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from engine.core import Core
from engine.line import Line, Told, Why, before_each_class
from engine.scheduling.forecast import forecast
from engine.scheduling.plan import seats_taken
from engine.scheduling.policy import Static
from engine.scheduling.queue import WaitingQueue
from engine.scheduling.request import RequestState
from engine.types import (
    Counters,
    EngineConfig,
    EngineState,
    ErrorInfo,
    KvView,
    ModelView,
    Phase,
    Policy,
    QueueView,
    Rates,
    SeatView,
    Sentence,
    Snapshot,
    WaitReason,
)

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
QUEUE_VIEWS = 64  # made at every step; those behind them when somebody looks


class SnapshotBuilder:
    """Keeps the order of the queue between steps, since it rarely changes."""

    def __init__(self, bytes_per_block: int = 0, first: int = QUEUE_VIEWS) -> None:
        self.bytes_per_block = bytes_per_block
        self.first = first
        self._order: list[RequestState] = []
        self._memo: tuple[WaitingQueue, int] | None = None  # the queue, and its version, that `_order` was read from

    def build(self, core: Core, state: EngineState, model: ModelView, now: float, error: ErrorInfo | None = None) -> Snapshot:
        scheduler, pool = core.scheduler, core.pool
        kv = KvView(pool.total, pool.free, pool.cached, pool.referenced, pool.block_size, pool.owners(), self.bytes_per_block)
        if pool.slots is not None:
            kv = replace(kv, slots=pool.slots.total, slots_claimed=pool.slots.claimed)
        queue, line = self._queue(core, state, now)
        size = max([scheduler.seats, *(seat + 1 for seat in scheduler.seated)])
        return Snapshot(
            step=core.totals.steps,
            time=now,
            state=state,
            policy=scheduler.policy,
            token_budget=scheduler.token_budget,
            seats=tuple(self._seat(scheduler.seated.get(seat), now) for seat in range(size)),
            queue=queue,
            waiting=len(scheduler.queue),
            kv=kv,
            counters=core.counters,
            rates=core.measures.rates(now, idle=not core.busy),
            model=model,
            error=error,
            alone=core.company.alone,
            whole_queue=line,
        )

    @staticmethod
    def _seat(rider: RequestState | None, now: float) -> SeatView | None:
        """There are hundreds a step: every figure is read once, and none through a property."""
        if rider is None:
            return None
        assert rider.seat is not None
        known, prompt, computed = len(rider.tokens), rider.prompt_len, rider.computed
        output = known - prompt
        decodes = output > 0 and known - computed == 1
        spent = rider.ledger.spent("decode", "decode" if decodes else "", now) if output > 1 else 0.0
        view = (
            rider.seat,
            rider.id,
            rider.chat_id,
            rider.title,
            DECODE if decodes else PREFILL,
            rider.priority,
            prompt,
            computed,
            known,
            output,
            rider.limit - prompt,
            rider.cached_tokens,
            len(rider.blocks) - rider.gone,
            rider.preemptions,
            rider.boarded_step,
            (output - 1) / spent if spent > 0 else 0.0,
        )
        return tuple.__new__(SeatView, view)

    def _queue(self, core: Core, state: EngineState, now: float) -> tuple[tuple[QueueView, ...], Line | None]:
        """The first places, and, where there are more, all of them for whoever looks."""
        scheduler = core.scheduler
        queue = scheduler.queue
        if not queue:
            self._order = []
            return (), None
        if self._memo != (queue, queue.version):
            self._order = queue.in_order(self.first)
            self._memo = queue, queue.version
        told = self._told(core, state, now)
        line = [queue.standing(request) for request in self._order]
        starts, before = told.starts(line), before_each_class(line)
        views = tuple(told.view(at, one, before[one.level], start) for at, (one, start) in enumerate(zip(line, starts, strict=True), 1))
        whole = Line(told, queue.standings, scheduler.fairness.now(), views) if len(queue) > len(views) else None
        return views, whole

    @staticmethod
    def _told(core: Core, state: EngineState, now: float) -> Told:
        scheduler = core.scheduler
        future = forecast(scheduler, core.measures.itl_s, core.tuner.prefill_rate)
        held = _held(core, state)
        if held is not None:
            return Told({}, lambda place, before: held, future, core.pool.block_size, now)
        noted = {
            request.id: (request.wait_reason, request.wait_detail, request.needed_blocks)
            for request in scheduler.noted
            if request.reason_step == scheduler.step
        }
        return Told(noted, _why(core), future, core.pool.block_size, now)


def _held(core: Core, state: EngineState) -> tuple[WaitReason, str] | None:
    """Why nobody boards at all, whatever the last plan found."""
    if state is EngineState.PAUSED:
        return WaitReason.PAUSED, Sentence("the engine is paused")
    if core.company.alone and core.scheduler.seated:
        return WaitReason.SEATS, Sentence("answers are to be reproducible: with this model one rides at a time")
    return None


def _why(core: Core) -> Why:
    """Why those wait whom the last plan did not reach."""
    scheduler = core.scheduler
    seated, seats, static = len(scheduler.seated), scheduler.seats, scheduler.policy is Policy.STATIC

    def why(place: int, before: int) -> tuple[WaitReason, str]:
        if static and seated:
            return Static.closed, Static.words
        if before:
            return WaitReason.PRIORITY, _behind_higher(before)
        if seated >= seats:
            return WaitReason.SEATS, seats_taken(seated, seats)
        return WaitReason.TURN, _behind(place - 1)

    return why


# Made once and kept: they are the same for most of those who wait, and are asked for in every step.


@lru_cache(maxsize=256)
def _behind(count: int) -> Sentence:
    return Sentence("behind {0}", count) if count else Sentence("boards at the next step")


@lru_cache(maxsize=256)
def _behind_higher(count: int) -> Sentence:
    return Sentence("behind {0} of a higher class", count)


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
