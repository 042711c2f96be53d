"""One load under one policy on a running engine, and what came of it.

Owns the driving of the run: it waits until the engine is at rest, lets everyone who comes at the start arrive in one and the same
step, submits the rest at their times, and collects answers and step records. All figures are the engine's own step records and time
splits; nothing is estimated here. Steps are counted from 1 at the run's first step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.bench.load import Arrival, Load, arrivals
from engine.engine import Engine
from engine.handle import RequestHandle
from engine.measures import percentile
from engine.types import DecisionKind, EngineError, EngineState, FinishedEvent, Policy, Snapshot, StepRecord, TokensEvent

VIEW_HZ = 10
SETTLE_S = 60.0  # a step of a large model on a slow machine takes seconds


@dataclass(slots=True)
class Progress:
    """A run so far, for whoever watches. `records` grows; steps in it carry the engine's own numbers, `first_step` is the run's first."""

    load: Load
    policy: Policy
    snapshot: Snapshot
    first_step: int
    names: dict[str, str] = field(default_factory=dict)  # the load's request ids by the engine's
    records: list[StepRecord] = field(default_factory=list)
    elapsed_s: float = 0.0
    finished: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What one policy made of a load. Times in seconds; steps count from 1 at the run's first step.

    Attributes:
        names: the load's request ids by the engine's.
        records: every step, with the engine's own step numbers; `first_step` is the first one's.
        ttft: time from submit to first token, by request id.
    """

    load: Load
    policy: Policy
    first_step: int
    records: tuple[StepRecord, ...]
    names: dict[str, str]
    makespan_s: float
    ttft: dict[str, float]
    text: dict[str, str]
    token_ids: dict[str, tuple[int, ...]]

    @property
    def steps(self) -> int:
        return len(self.records)

    @property
    def output_tokens(self) -> int:
        return sum(len(ids) for ids in self.token_ids.values())

    @property
    def tok_s(self) -> float:
        return self.output_tokens / self.makespan_s if self.makespan_s else 0.0

    def ttft_percentile(self, share: float) -> float:
        return percentile(sorted(self.ttft.values()), share)

    @property
    def idle_seat_steps(self) -> int:
        """Empty seats, summed over the steps that ran."""
        return sum(max(0, record.seats_total - len(record.rows) - len(record.held)) for record in self.records)

    @property
    def boarded_step(self) -> dict[str, int]:
        """The step in which each request first took a seat."""
        return self._first(DecisionKind.ADMIT)

    @property
    def finished_step(self) -> dict[str, int]:
        """The step that computed each request's last token."""
        return self._first(DecisionKind.FINISH)

    def _first(self, kind: DecisionKind) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in self.records:
            for decision in record.decisions:
                if decision.kind is kind and decision.request_id in self.names:
                    found.setdefault(self.names[decision.request_id], record.step - self.first_step + 1)
        return {name: found[name] for name in self.names.values() if name in found}

    def as_json(self, trace: bool) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "steps": self.steps,
            "makespan_s": round(self.makespan_s, 4),
            "tok_s": round(self.tok_s, 2),
            "ttft_p50_s": round(self.ttft_percentile(0.50), 4),
            "ttft_p95_s": round(self.ttft_percentile(0.95), 4),
            "idle_seat_steps": self.idle_seat_steps,
            "boarded_step": self.boarded_step,
            "finished_step": self.finished_step,
            "text": self.text,
        }
        if trace:
            figures["trace"] = [self._step_json(record) for record in self.records]
        return figures

    def _step_json(self, record: StepRecord) -> dict[str, Any]:
        return {
            "step": record.step - self.first_step + 1,
            "time_s": round(record.time - self.records[0].time, 4),
            "duration_s": round(record.duration, 4),
            "seats": record.seats_total,
            "rows": [
                {"seat": row.seat, "request": self.names[row.request_id], "phase": str(row.phase), "tokens": row.tokens}
                for row in record.rows
            ],
            "held": list(record.held),
            "waiting": record.waiting,
            "free_blocks": record.free_blocks,
            "decisions": [
                {
                    "kind": str(decision.kind),
                    "request": self.names.get(decision.request_id),
                    "seat": decision.seat,
                    "detail": decision.detail,
                }
                for decision in record.decisions
            ],
        }


def run_policy(
    engine: Engine,
    load: Load,
    policy: Policy,
    *,
    pace: float = 1.0,
    watch: Callable[[Progress], None] = lambda progress: None,
    clock: Callable[[], float] = time.monotonic,
) -> PolicyRun:
    """Play `load` on a ready engine that has nothing else to do, and leave it paused.

    Args:
        watch: called from this thread about `VIEW_HZ` times a second, and once at the end.
        clock: the engine's own.

    Raises RequestRefused when the engine does not take a request, EngineError when an answer fails or the engine is not at rest.
    """
    return _Run(engine, load, policy, pace, watch, clock).play()


class _Run:
    def __init__(
        self, engine: Engine, load: Load, policy: Policy, pace: float, watch: Callable[[Progress], None], clock: Callable[[], float]
    ) -> None:
        self.engine, self.load, self.policy, self.pace, self.watch, self.clock = engine, load, policy, pace, watch, clock
        self.published = threading.Event()
        self.handles: dict[str, RequestHandle] = {}
        self.ends: dict[str, FinishedEvent] = {}
        self.text: dict[str, list[str]] = {}
        self.ids: dict[str, list[int]] = {}
        self.last_step = 0

    def play(self) -> PolicyRun:
        engine, load = self.engine, self.load
        remove = engine.add_listener(self.published.set)
        try:
            engine.pause()
            engine.configure(policy=self.policy, seats=load.seats)
            engine.clear_cache()
            rest = self._at_rest()
            if rest.seated or rest.waiting:
                raise EngineError("engine_busy", f"The engine is busy: {rest.seated} requests ride and {rest.waiting} wait.")
            self.last_step = rest.counters.steps
            progress = Progress(load, self.policy, rest, self.last_step + 1)
            run = f"{self.policy}-{progress.first_step}"  # new chats in every run: served ones would board behind the others
            start = self.clock()
            self._drive(progress, arrivals(load, pace=self.pace, run=run), start)
            engine.pause()
            progress.snapshot = self._at_rest()
            self._collect(progress)
            self.watch(progress)
            return self._outcome(progress, start)
        finally:
            remove()
            for handle in self.handles.values():
                handle.cancel()

    def _drive(self, progress: Progress, due: Iterator[Arrival], start: float) -> None:
        """Submit at the times of arrival and listen until the last answer is done."""
        upcoming = next(due, None)
        paused, shown = True, 0.0
        while upcoming is not None or len(self.ends) < len(self.handles):
            now = self.clock() - start
            while upcoming is not None and upcoming.at_s <= now:
                handle = self.handles[upcoming.request.id] = self.engine.submit(**upcoming.keywords)
                progress.names[handle.id] = upcoming.request.id
                upcoming = next(due, None)
            if paused:  # all that come at the start were taken in while no step ran, so they meet the same step
                self.engine.resume()
                paused = False
            self.published.wait(min(1 / VIEW_HZ, max(0.0, upcoming.at_s - now) if upcoming else 1.0))
            self.published.clear()
            self._listen()
            if self.clock() - start - shown >= 1 / VIEW_HZ:
                shown = self.clock() - start
                progress.snapshot = self.engine.snapshot
                progress.elapsed_s = shown
                self._collect(progress)
                self.watch(progress)
        progress.elapsed_s = self.clock() - start

    def _listen(self) -> None:
        for name, handle in self.handles.items():
            for event in handle.poll():
                if isinstance(event, TokensEvent):
                    self.text.setdefault(name, []).append(event.text)
                    self.ids.setdefault(name, []).extend(event.token_ids)
                    continue
                self._check_end(name, event)
                self.ends[name] = event

    def _check_end(self, name: str, event: FinishedEvent) -> None:
        """A comparison of policies is worth nothing when an answer is not the whole answer."""
        if event.error is not None:
            raise EngineError(event.error.code, f"{name}: {event.error.message}", event.error.hint)
        wanted = next(request.tokens for request in self.load.requests if request.id == name)
        if event.usage.completion_tokens != wanted:
            numbers = f"{name}'s answer ended after {event.usage.completion_tokens} of {wanted} tokens ({event.reason})."
            raise EngineError("answer_cut", numbers, "Use a model with a longer context, or a larger KV pool.")

    def _collect(self, progress: Progress) -> None:
        fresh = self.engine.history(self.last_step) if self.last_step else self.engine.history()
        if fresh:
            self.last_step = fresh[-1].step
            progress.records.extend(fresh)
        progress.finished = len(self.ends)
        progress.tokens = sum(map(len, self.ids.values()))

    def _at_rest(self) -> Snapshot:
        """Wait until no step is under way and every command sent so far has been carried out."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.published.clear()
            snapshot = self.engine.snapshot
            if snapshot.error is not None:
                raise EngineError(snapshot.error.code, snapshot.error.message, snapshot.error.hint)
            settled = snapshot.state is EngineState.PAUSED and len(snapshot.seats) == self.load.seats
            if settled and snapshot.policy is self.policy:
                return snapshot
            if time.monotonic() > deadline:
                raise EngineError("engine_stuck", f"The engine did not come to rest within {SETTLE_S:.0f} s.", "Try a smaller model.")
            self.published.wait(0.1)

    def _outcome(self, progress: Progress, start: float) -> PolicyRun:
        records = tuple(progress.records)
        end = records[-1].time + records[-1].duration if records else start
        order = [request.id for request in self.load.requests]
        return PolicyRun(
            load=self.load,
            policy=self.policy,
            first_step=progress.first_step,
            records=records,
            names={self.handles[name].id: name for name in order},
            makespan_s=max(0.0, end - start),
            ttft={name: self.ends[name].time.ttft or 0.0 for name in order},
            text={name: "".join(self.text.get(name, ())) for name in order},
            token_ids={name: tuple(self.ids.get(name, ())) for name in order},
        )
