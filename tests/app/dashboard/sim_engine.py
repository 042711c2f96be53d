"""An engine for the dashboard's tests: the real scheduler and pool over the simulator, stepped by the test, with the page's public calls.

Its snapshots are built by the engine's own builder, so what the views are compared with is what the real engine would publish.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from engine import (
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    ModelView,
    Policy,
    Priority,
    SamplingParams,
    Snapshot,
    StepRecord,
    Trace,
)
from engine.sim import CostModel, Sim
from engine.snapshot import SnapshotBuilder
from engine.trace.recorder import Recorder

TITLES = (
    "Trip to Lisbon in May",
    "Refactor the parser",
    "Why is the sky blue?",
    "Letter to the landlord",
    "SQL for monthly totals",
    "Bedtime story with a fox",
    "Proof that √2 is irrational",
    "Dinner for six, no nuts",
    "Rust lifetimes, gently",
    "Names for a small boat",
    "Summary of the meeting",
    "Haiku about rain",
)
SYSTEM = list(range(64))  # what every chat's prompt begins with
MODEL = ModelView("SmolLM2-135M-Instruct", "cpu", "float32", "traced", 8192, 1.0, "", 538 << 20, 768 << 20)


class SimEngine:
    """Attributes: sim (the simulator), calls (every command it was given), state, error."""

    def __init__(
        self,
        *,
        seats: int = 8,
        blocks: int = 512,
        block_size: int = 16,
        policy: Policy = Policy.IN_FLIGHT,
        cost: CostModel | None = None,
        token_budget: int = 256,
    ) -> None:
        config = EngineConfig(seats=seats, policy=policy, token_budget=token_budget, chunk=64, adapt_chunk=False)
        cost = cost or CostModel(step=0.05, decode_row=0.004, prefill_token=0.0006)
        self.sim = Sim(config, blocks=blocks, block_size=block_size, vocab=512, cost=cost)
        self.calls: list[tuple[object, ...]] = []
        self.state = EngineState.READY
        self.error: ErrorInfo | None = None
        self.model = MODEL
        self._builder = SnapshotBuilder(bytes_per_block=1 << 16)
        self._listeners: list[Callable[[], None]] = []
        self._count = 0
        self.snapshot: Snapshot
        self.publish()

    # ------------------------------------------------------------------------------------------------- the public face

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        return tuple(record for record in self.sim.core.history if record.step > since_step)

    def configure(self, **changes: object) -> None:
        replace(self.sim.core.config, **changes).check()  # type: ignore[arg-type]
        self.calls.append(("configure", changes))
        self.sim.core.configure(**changes)  # type: ignore[arg-type]
        self.publish()

    def set_priority(self, request_id: str, priority: Priority) -> None:
        self.calls.append(("set_priority", request_id, priority))
        self.sim.core.set_priority(request_id, priority)
        self.publish()

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        self.calls.append(("set_chat_priority", chat_id, priority))

    def cancel(self, request_id: str) -> None:
        self.calls.append(("cancel", request_id))
        self.sim.core.cancel(request_id)
        self.publish()

    def pause(self) -> None:
        self.calls.append(("pause",))
        self.state = EngineState.PAUSED
        self.publish()

    def resume(self) -> None:
        self.calls.append(("resume",))
        self.state = EngineState.READY
        self.publish()

    def clear_cache(self) -> None:
        self.calls.append(("clear_cache",))
        self.sim.core.clear_cache()
        self.publish()

    def restart(self) -> None:
        self.calls.append(("restart",))
        self.state, self.error = EngineState.READY, None
        self.publish()

    def start_recording(self) -> Future[None]:
        self.calls.append(("start_recording",))
        future: Future[None] = Future()
        if self.sim.core.recorder is None:
            Recorder(self.sim.core, self.model.name)
            self.publish()
        future.set_result(None)
        return future

    def stop_recording(self) -> Future[Trace]:
        self.calls.append(("stop_recording",))
        future: Future[Trace] = Future()
        recorder = self.sim.core.recorder
        if recorder is None:
            future.set_exception(EngineError("not_recording", "Nothing is being recorded.", "Start a recording first."))
        else:
            future.set_result(recorder.stop())
        return future

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --------------------------------------------------------------------------------------------------------- driving

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def publish(self) -> None:
        self.snapshot = self._builder.build(self.sim.core, self.state, self.model, self.sim.clock.now, self.error)
        for listener in list(self._listeners):
            listener()

    def board(self, prompt: int, answer: int, *, title: str = "", priority: Priority = Priority.BACKGROUND, shared: bool = True) -> str:
        """Submit a chat with `prompt` tokens of its own after the common beginning, and an answer of exactly `answer` tokens."""
        self._count += 1
        name = f"r{self._count}"
        own = [100 + (self._count * 7 + position) % 400 for position in range(prompt)]
        params = SamplingParams(max_tokens=answer)  # the simulator has no end-of-text, so the engine cannot know how long it will be
        self.sim.core.submit(
            name,
            (SYSTEM if shared else []) + own,
            params,
            chat_id=f"chat-{self._count}",
            title=title or TITLES[(self._count - 1) % len(TITLES)],
            priority=priority,
            seed=self._count,
        )
        self.publish()
        return name

    def step(self, count: int = 1) -> None:
        """Steps, each published, as the engine's thread would."""
        for _ in range(count):
            if self.state is EngineState.READY:
                self.sim.core.step()
            self.publish()

    def load(self, riders: int, seed: int = 1, *, long: int = 120) -> None:
        """A mixed crowd."""
        dice = random.Random(seed)
        for _ in range(riders):
            self.board(dice.randint(8, 160), dice.randint(6, long), priority=dice.choice((Priority.FOREGROUND, *[Priority.BACKGROUND] * 4)))
