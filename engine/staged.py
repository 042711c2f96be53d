"""An engine on a stage: the real scheduler, pool and snapshots over made-up tokens, stepped by hand, with the real engine's public calls.

Pictures, measurements of the window and its tests are made with it: what they show is what the real engine would publish, alike at every
run and without a model. A chat's answer is the text it was given, a word a token. One thread only.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from engine.handle import RequestHandle
from engine.sim import CostModel, Sim
from engine.snapshot import SnapshotBuilder
from engine.trace.recorder import Recorder
from engine.trace.trace import Trace
from engine.types import (
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    FinishedEvent,
    FinishReason,
    Message,
    ModelView,
    Policy,
    Priority,
    SamplingParams,
    Snapshot,
    StepRecord,
    TokensEvent,
)
from engine.watched import Listeners

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
DEFAULT_TEXT = "A short answer, made up for the stage."


class StagedEngine:
    """Attributes: sim (the simulator), calls (every command it was given), state, error, model; texts (answers of chats still to come,
    in order; one without gets a default).
    """

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
        self._listeners = Listeners()
        self._count = 0
        self.texts: deque[str] = deque()
        self._told: dict[str, _Answer] = {}
        self.snapshot: Snapshot
        self.publish()

    # ------------------------------------------------------------------------------------------------- the public face

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        return self.sim.core.books.records_after(since_step)

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

    def keep_two(self, wanted: bool) -> None:
        """There is one model on a stage, whatever is wanted."""
        self.calls.append(("keep_two", wanted))

    def reproduce(self, wanted: bool) -> None:
        if self.sim.core.config.reproducible != wanted:
            self.configure(reproducible=wanted)

    def cancel(self, request_id: str) -> None:
        self.calls.append(("cancel", request_id))
        self.sim.core.cancel(request_id)
        self._tell()
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
        return self._listeners.add(listener)

    def start(self) -> None:
        self.calls.append(("start",))

    def close(self, timeout: float = 2.0) -> bool:
        self.state = EngineState.CLOSED
        self.publish()
        return True

    def count_tokens(self, prompt: object) -> int | None:
        """There is no tokenizer on a stage."""
        return None

    def submit(
        self,
        prompt: str | Sequence[int] | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        chat_id: str = "",
        title: str = "",
        priority: Priority | None = None,
        continue_final: bool = False,
        model: str = "",
        on_ready: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """A chat of the window's: it is answered with the next of `texts`."""
        pieces = words_of(self.texts.popleft() if self.texts else DEFAULT_TEXT)
        said = sum(len(message.content) // 4 for message in prompt if isinstance(message, Message))
        asked = priority or Priority.FOREGROUND
        name = self.board(max(8, said), len(pieces), title=title, priority=asked, chat_id=chat_id)
        handle = RequestHandle(name, chat_id, self.cancel, on_ready)
        self._told[name] = _Answer(handle, pieces)
        return handle

    # --------------------------------------------------------------------------------------------------------- driving

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def publish(self) -> None:
        self.snapshot = self._builder.build(self.sim.core, self.state, self.model, self.sim.clock.now, self.error)
        self._listeners()

    def board(
        self,
        prompt: int,
        answer: int,
        *,
        title: str = "",
        priority: Priority = Priority.BACKGROUND,
        shared: bool = True,
        chat_id: str = "",
    ) -> str:
        """Submit a chat with `prompt` tokens of its own after the common beginning, and an answer of exactly `answer` tokens."""
        self._count += 1
        name = f"r{self._count}"
        own = [100 + (self._count * 7 + position) % 400 for position in range(prompt)]
        params = SamplingParams(max_tokens=answer)  # the simulator has no end-of-text, so the engine cannot know how long it will be
        self.sim.core.submit(
            name,
            (SYSTEM if shared else []) + own,
            params,
            chat_id=chat_id or f"chat-{self._count}",
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
            self._tell()
            self.publish()

    def load(self, riders: int, seed: int = 1, *, long: int = 120) -> None:
        """A mixed crowd."""
        dice = random.Random(seed)
        for _ in range(riders):
            self.board(dice.randint(8, 160), dice.randint(6, long), priority=dice.choice((Priority.FOREGROUND, *[Priority.BACKGROUND] * 4)))

    # --------------------------------------------------------------------------------------------------------- private

    def _tell(self) -> None:
        """Hand what the simulator said to the chats that wait for it, as words."""
        for name, answer in list(self._told.items()):
            events = self.sim.events.get(name, [])
            fresh, answer.read = events[answer.read :], len(events)
            for event in fresh:
                if isinstance(event, TokensEvent):
                    words = [answer.pieces.popleft() for _ in event.token_ids if answer.pieces]
                    answer.handle.put(event._replace(text="".join(words)))
                elif isinstance(event, FinishedEvent):
                    done = event.reason is FinishReason.LENGTH  # the simulator knows no end of text; the script has one
                    answer.handle.put(replace(event, reason=FinishReason.STOP) if done else event)
                    del self._told[name]


class _Answer:
    """A handle, what is still to be said through it, and how many of the simulator's events it has seen."""

    def __init__(self, handle: RequestHandle, pieces: deque[str]) -> None:
        self.handle = handle
        self.pieces = pieces
        self.read = 0


def words_of(text: str) -> deque[str]:
    """Pieces of about a token each; together they are the text."""
    return deque(re.findall(r"\S{1,9}\s*|\s+", text))
