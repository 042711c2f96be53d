"""A scripted engine for the window's tests: the public face of the real one, without a model.

Each request answers with the pieces a test scripted (or a default), one piece a `tick`; a request first waits for a seat, then spends
`prefill_ticks` in prefill. Ticks come from the test, or from a thread (`start_thread`) that looks like the real engine's.
"""

from __future__ import annotations

import array
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from engine import (
    Counters,
    EngineState,
    ErrorInfo,
    FinishedEvent,
    FinishReason,
    KvView,
    Message,
    ModelView,
    Phase,
    Policy,
    Priority,
    QueueView,
    Rates,
    RequestRefused,
    SamplingParams,
    SeatView,
    Snapshot,
    StepRecord,
    TimeSplit,
    TokensEvent,
    Usage,
    WaitReason,
)
from engine.line import Line
from engine.types import OWNER_SEAT0

DEFAULT_PIECES = ("Hello", ", ", "world", ".")


class FakeHandle:
    """One scripted request; `poll` is what a real handle's is, a lock included."""

    def __init__(self, number: int, chat_id: str, title: str, priority: Priority, pieces: Sequence[str], on_ready) -> None:
        self.id = f"r{number}"
        self.chat_id = chat_id
        self.title = title
        self.priority = priority
        self.pieces = deque(pieces)
        self.on_ready: Callable[[FakeHandle], None] | None = on_ready
        self.error: ErrorInfo | None = None  # set by a script: the request ends with it
        self.prefill_left = 0
        self.prefill_total = 0
        self.prompt_tokens = 10
        self.out = 0
        self.cancelled = False
        self.finished = False
        self.polls = 0
        self._lock = threading.Lock()
        self._text: list[str] = []
        self._end: FinishedEvent | None = None

    def poll(self) -> list:
        with self._lock:
            self.polls += 1
            events: list = []
            if self._text:
                events.append(TokensEvent(self.id, "".join(self._text), tuple(range(len(self._text)))))
                self._text = []
            if self._end is not None:
                events.append(self._end)
                self._end = None
            return events

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            self._text = []

    def say(self, text: str) -> None:
        with self._lock:
            if self.cancelled:
                return
            quiet = not self._text and self._end is None
            self._text.append(text)
            self.out += 1
        if quiet and self.on_ready:
            self.on_ready(self)

    def end(self, reason: FinishReason, error: ErrorInfo | None = None) -> None:
        with self._lock:
            self.finished = True
            quiet = not self._text and self._end is None
            self._end = FinishedEvent(self.id, reason, Usage(self.prompt_tokens, self.out), TimeSplit(0.2, 0.4, 2.0, 0.0, 0.6), error)
        if quiet and self.on_ready:
            self.on_ready(self)


@dataclass
class Script:
    """What the next request says, and how long its prefill is."""

    pieces: Sequence[str] = DEFAULT_PIECES
    prefill_ticks: int = 1
    error: ErrorInfo | None = None


@dataclass
class FakeEngine:
    """See the module. Attributes a test may read: `submitted` handles in order, `priorities` as (chat, priority) calls."""

    seats: int = 8
    scripts: deque = field(default_factory=deque)
    refuse: RequestRefused | None = None
    state: EngineState = EngineState.READY
    progress: float = 1.0
    first: int = 64  # of those who wait, as many are in a snapshot's `queue`; the others only in its `line`

    @property
    def serving(self) -> tuple[FakeEngine, ...]:
        return (self,)

    def __post_init__(self) -> None:
        self.submitted: list[FakeHandle] = []
        self.prompts: list[list[Message]] = []
        self.params: list[SamplingParams] = []
        self.continued: list[bool] = []
        self.priorities: list[tuple[str, Priority]] = []
        self.config = SimpleNamespace(model="starter")
        self.loads: list[str] = []
        self.idle_limits: list[float | None] = []
        self.two: list[bool] = []
        self.reproducible: list[bool] = []
        self.forms: list[tuple[str, str]] = []
        self.unloaded: list[str] = []
        self.models: list[str] = []
        self.listeners: list[Callable] = []
        self.riding: list[FakeHandle | None] = [None] * self.seats
        self.waiting: list[FakeHandle] = []
        self.step = 0
        self.closed = False
        self.started = False
        self.policy = Policy.IN_FLIGHT
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop = False
        self._records: list[StepRecord] = []
        self.snapshot = self._snap()

    # ------------------------------------------------------------------------------------------- the public face

    def start(self) -> None:
        self.started = True

    def submit(
        self, prompt, params=None, *, chat_id="", title="", priority=None, continue_final=False, model="", on_ready=None
    ) -> FakeHandle:
        if self.refuse:
            raise self.refuse
        with self._lock:
            script = self.scripts.popleft() if self.scripts else Script()
            handle = FakeHandle(next(self._numbers), chat_id, title, priority or Priority.FOREGROUND, script.pieces, on_ready)
            handle.error = script.error
            handle.prefill_left = handle.prefill_total = script.prefill_ticks
            self.submitted.append(handle)
            self.prompts.append(list(prompt))
            self.params.append(params)
            self.continued.append(continue_final)
            self.models.append(model)
            self.waiting.append(handle)
        self._wake.set()
        return handle

    def count_tokens(self, prompt: list[Message]) -> int | None:
        return sum(4 + len(message.content.split()) for message in prompt)

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        self.priorities.append((chat_id, priority))

    def set_priority(self, request_id: str, priority: Priority) -> None:
        self.priorities.append((request_id, priority))

    def cancel(self, request_id: str) -> None:
        for handle in self.submitted:
            if handle.id == request_id:
                handle.cancel()

    def configure(self, **values) -> None:
        with self._lock:
            self.policy = values.get("policy", self.policy)

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        return tuple(record for record in self._records if record.step >= since_step)

    def add_listener(self, listener: Callable) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener) if listener in self.listeners else None

    def clear_cache(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def load(self, model: str) -> None:
        self.config.model = model
        self.loads.append(model)
        self.state = EngineState.READY
        self.publish()

    def let_go_after(self, seconds: float | None) -> None:
        self.idle_limits.append(seconds)

    def use_form(self, source: str, key: str) -> None:
        self.forms.append((source, key))

    def keep_two(self, wanted: bool) -> None:
        self.two.append(wanted)

    def reproduce(self, wanted: bool) -> None:
        self.reproducible.append(wanted)

    def unload(self, source: str = "") -> None:
        self.unloaded.append(source)
        self.state = EngineState.EMPTY
        self.publish()

    def cancel_load(self, source: str = "") -> None:
        self.unload()

    def restart(self) -> None:
        self.state = EngineState.READY
        self.publish()

    def close(self, timeout: float = 2.0) -> None:
        self.stop_thread()
        with self._lock:
            self.closed = True
            for handle in [*self.waiting, *filter(None, self.riding)]:
                handle.cancel()
                handle.end(FinishReason.CANCELLED)
            self.waiting, self.riding = [], [None] * self.seats
            self.state = EngineState.CLOSED
            self.publish()

    # --------------------------------------------------------------------------------------------------- driving

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self.riding)

    def tick(self, count: int = 1) -> None:
        """Run `count` steps."""
        for _ in range(count):
            with self._lock:
                self._tick()

    def run(self) -> None:
        """Tick until nothing is left to do."""
        while self.busy:
            self.tick()

    def start_thread(self, step_s: float = 0.0) -> None:
        """Tick from a thread, `step_s` seconds a step."""

        def loop() -> None:
            while not self._stop:
                if self.busy and self.state is EngineState.READY:
                    self.tick()
                    time.sleep(step_s)
                else:
                    self._wake.wait(0.05)
                    self._wake.clear()

        self._stop = False
        self._thread = threading.Thread(target=loop, name="fake-engine")
        self._thread.start()

    def stop_thread(self) -> None:
        self._stop = True
        self._wake.set()
        if self._thread:
            self._thread.join(60)
            self._thread = None

    def publish(self) -> None:
        self.snapshot = self._snap()
        for listener in list(self.listeners):
            listener()

    # --------------------------------------------------------------------------------------------------- private

    def _tick(self) -> None:
        self.step += 1
        for handle in [h for h in self.waiting if h.cancelled]:
            self.waiting.remove(handle)
            handle.end(FinishReason.CANCELLED)
        for seat, handle in enumerate(self.riding):
            if handle and handle.cancelled:
                self.riding[seat] = None
                handle.end(FinishReason.CANCELLED)
        if self.state is EngineState.READY:
            for seat in range(self.seats):
                if self.riding[seat] is None and self.waiting:
                    self.riding[seat] = self.waiting.pop(0)
            for seat, handle in enumerate(self.riding):
                if handle and self._advance(handle):
                    self.riding[seat] = None
        self.publish()

    def _advance(self, handle: FakeHandle) -> bool:
        if handle.prefill_left > 0:
            handle.prefill_left -= 1
            return False
        if handle.pieces:
            handle.say(handle.pieces.popleft())
        if handle.error and not handle.pieces:
            handle.end(FinishReason.ERROR, handle.error)
            return True
        if not handle.pieces:
            handle.end(FinishReason.STOP)
            return True
        return False

    def _snap(self) -> Snapshot:
        seats: list[SeatView | None] = []
        for seat, handle in enumerate(self.riding):
            if handle is None:
                seats.append(None)
                continue
            done = handle.prefill_total - handle.prefill_left
            prefilling = handle.prefill_left > 0
            computed = handle.prompt_tokens + handle.out
            if prefilling:
                computed = round(handle.prompt_tokens * done / handle.prefill_total)
            seats.append(
                SeatView(
                    seat=seat,
                    request_id=handle.id,
                    chat_id=handle.chat_id,
                    title=handle.title,
                    phase=Phase.PREFILL if prefilling else Phase.DECODE,
                    priority=handle.priority,
                    prompt_tokens=handle.prompt_tokens,
                    computed_tokens=computed,
                    known_tokens=handle.prompt_tokens + handle.out,
                    output_tokens=handle.out,
                    max_output_tokens=1024,
                    cached_tokens=0,
                    blocks=4,
                    preemptions=0,
                    boarded_step=1,
                    tok_s=12.5,
                )
            )
        queue = tuple(
            QueueView(
                place=place,
                request_id=handle.id,
                chat_id=handle.chat_id,
                title=handle.title,
                priority=handle.priority,
                reason=WaitReason.SEATS if self.state is EngineState.READY else WaitReason.LOADING,
                detail="no free seat" if self.state is EngineState.READY else "the model is loading",
                prompt_tokens=handle.prompt_tokens,
                needed_blocks=1,
                waited_s=0.1,
                expected_start_s=2.0,
            )
            for place, handle in enumerate(self.waiting, 1)
        )
        owners = array.array("H", [0] * 64)
        for seat, view in enumerate(seats):
            if view:
                owners[seat * 4 : seat * 4 + 4] = array.array("H", [OWNER_SEAT0 + seat] * 4)
        used = sum(code != 0 for code in owners)
        return Snapshot(
            step=self.step,
            time=float(self.step),
            state=self.state,
            policy=self.policy,
            token_budget=512,
            seats=tuple(seats),
            queue=queue[: self.first],
            whole_queue=Line.of(queue) if len(queue) > self.first else None,
            waiting=len(queue),
            kv=KvView(64, 64 - used, 0, used, 32, owners.tobytes(), 1024),
            counters=Counters(steps=self.step),
            rates=Rates(tok_s=12.5 * sum(view is not None for view in seats), batch=sum(view is not None for view in seats)),
            model=ModelView(name="scripted", device="cpu", progress=self.progress, stage="reading weights"),
            error=ErrorInfo("load", "The model file is damaged.", "Download it again.") if self.state is EngineState.FAILED else None,
        )
