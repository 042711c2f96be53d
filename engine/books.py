"""What a core has done, kept for whoever looks: totals, the records of the last steps, and what was decided since the last of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from operator import attrgetter

from engine.kv.pool import BlockPool
from engine.scheduling.plan import Row, StepPlan
from engine.scheduling.request import RequestState
from engine.scheduling.scheduler import Scheduler
from engine.types import Counters, Decision, DecisionKind, FinishReason, Phase, SeatStep, Sentence, StepRecord

HISTORY = 2048


@dataclass(slots=True)
class Totals:
    """`Counters`, growing."""

    steps: int = 0
    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    seat_steps: int = 0
    idle_seat_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def counters(self) -> Counters:
        return Counters._make(_counts(self))


_counts = attrgetter(*Counters._fields)


class Books:
    """One core's. Given totals are counted on.

    Attributes:
        totals: what `counters` freezes.
        history: the last steps' records, oldest first.
        pending: what was decided since the last record.
    """

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self.history: deque[StepRecord] = deque(maxlen=HISTORY)
        self.pending: list[Decision] = []

    def decide(self, kind: DecisionKind, request: RequestState | None, detail: str) -> None:
        step = self.totals.steps + 1
        if request is None:
            self.pending.append(Decision(step, kind, detail=detail))
        else:
            self.pending.append(Decision(step, kind, request.id, request.chat_id, request.title, request.seat, detail))

    def plan(self, plan: StepPlan, evicted: int) -> None:
        """A step was planned; `evicted` cached blocks gave way for it."""
        self.pending += plan.decisions
        self.totals.cached_tokens += sum(request.computed for request in plan.boarded)
        self.totals.preemptions += len(plan.preempted)
        self.totals.evictions += evicted
        if evicted:
            self.decide(
                DecisionKind.EVICT,
                None,
                Sentence("1 cached block gave way") if evicted == 1 else Sentence("{0} cached blocks gave way", evicted),
            )

    def end(self, reason: FinishReason) -> None:
        if reason is FinishReason.CANCELLED:
            self.totals.cancelled += 1
        elif reason is FinishReason.ERROR:
            self.totals.failed += 1
        else:
            self.totals.finished += 1

    def record(
        self, scheduler: Scheduler, pool: BlockPool, rows: tuple[SeatStep, ...], held: tuple[int, ...], started: float, now: float
    ) -> StepRecord:
        """Book a step that was carried out."""
        taken = len(rows) + len(held)
        self.totals.steps += 1
        record = StepRecord(
            step=self.totals.steps,
            time=started,
            duration=max(0.0, now - started),
            seats_total=scheduler.seats,
            rows=rows,
            held=held,
            waiting=len(scheduler.queue),
            free_blocks=pool.free,
            decisions=tuple(self.pending),
        )
        self.pending = []
        self.totals.seat_steps += taken
        self.totals.idle_seat_steps += max(0, scheduler.seats - taken)
        self.history.append(record)
        return record

    def records_after(self, step: int) -> tuple[StepRecord, ...]:
        """Records of the steps after `step` that are still here, oldest first. Safe from any thread.

        Whoever watches asks some times a second for the last few of two thousand: only those are touched.
        """
        if step > 0:
            newest: list[StepRecord] = []
            try:
                for record in reversed(self.history):
                    if record.step <= step:
                        break
                    newest.append(record)
            except RuntimeError:  # another step was written down meanwhile
                return tuple(record for record in tuple(self.history) if record.step > step)
            return tuple(reversed(newest))
        return tuple(self.history)


def seat_steps(plan: StepPlan, seated: dict[int, RequestState]) -> tuple[tuple[SeatStep, ...], tuple[int, ...]]:
    """What each seat does in a step, and the taken seats that do nothing in it."""
    seats = tuple(
        [(None if row.draft else row.request.decode_step) or seat_step(row) for row in plan.decodes]
        + [seat_step(row) for row in plan.prefills]
    )
    idle = seated.keys() - {step.seat for step in seats} if len(seats) < len(seated) else ()
    return seats, tuple(sorted(idle))


def seat_step(row: Row) -> SeatStep:
    """One that only decodes does the same in every step: it is told by the same object, which spares time and the history's memory."""
    request, phase = row.request, phase_of(row)
    if phase is Phase.DECODE and request.decode_step is not None and not row.draft:
        return request.decode_step
    assert request.seat is not None
    step = SeatStep(request.seat, request.id, request.chat_id, phase, row.count)
    if phase is Phase.DECODE and not row.draft:
        request.decode_step = step
    return step


def phase_of(row: Row) -> Phase:
    """What a row does: a decode, or part of a prefill (recomputation included)."""
    return Phase.DECODE if (row.count == 1 or row.draft) and row.start >= row.request.prompt_len else Phase.PREFILL
