"""The engine: one thread that owns the model, the KV blocks and the batch; everyone else sends commands and reads events.

Commands go in through a queue and are drained between steps; events come out through each request's handle; one immutable
snapshot is published after every step by swapping a reference. The thread sleeps when there is nothing to do. It imports torch
itself, so that a window can be on the screen first. A failure of a step is survived: requests are recomputed; three in a row
stop the engine with every request told why, until `restart`.
"""

from __future__ import annotations

import gc
import itertools
import logging
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.core import Core, Totals
from engine.elsewhere import Elsewhere
from engine.handle import RequestHandle
from engine.heap import give_back
from engine.kv.pool import BlockPool
from engine.opened import Codec, Opener, OpenModel, Prompt, check_ids, compile_form, encode, open_real_model, thinks
from engine.scheduling.request import Form
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder, empty_snapshot
from engine.steady import SteadyClock
from engine.text.tools import ToolForm
from engine.trace.recorder import Recorder
from engine.trace.trace import Trace
from engine.types import (
    Chat,
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    Event,
    FinishedEvent,
    FinishReason,
    ModelView,
    Policy,
    Priority,
    QueueView,
    RequestRefused,
    SamplingParams,
    Snapshot,
    StepRecord,
    TimeSplit,
    Usage,
    WaitReason,
)

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW = 3
SWITCH_INTERVAL_S = 0.001  # the GIL: long Python stretches of one thread cost the other at most this

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Order:
    """One submitted request, kept until its end."""

    handle: RequestHandle
    prompt: Prompt
    tokens: list[int] | None
    params: SamplingParams
    title: str
    priority: Priority
    seed: int
    continue_final: bool
    since: float
    salt: bytes = b""
    form: Form | None = None
    codec: Codec | None = None  # the one that made `tokens`
    model: str = ""  # the one it asks for


class Engine:
    """Continuous batching in this process.

    Safe to use from any thread. `start` returns at once; requests may be submitted while the model loads.

    Raises (constructor): EngineError("bad_config").
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        opener: Opener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config or EngineConfig()
        self._config.check()
        self._opener = opener or open_real_model
        self._clock = clock
        self._now = SteadyClock(clock)  # for all that is measured; idleness is a matter of real time
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._paused = False
        self._failures = 0
        self._lock = threading.Lock()  # guards _orders and _early, and that nothing is added to them once the engine stops
        self._loads_asked = 1  # the first is start's own
        self._loads_done = 0
        self._orders: dict[str, _Order] = {}
        self._early: dict[str, _Order] = {}  # submitted before there was a model
        self._elsewhere: Elsewhere[_Order] = Elsewhere()  # those that ask for another model
        self._load_cancelled = False
        self._idle_since = clock()
        self._chat_priority: dict[str, Priority] = {}
        self._ids = itertools.count(1)
        self._listeners: list[Callable[[], None]] = []
        self._ready = threading.Condition()
        self._core: Core | None = None
        self._open: OpenModel | None = None
        self._totals = Totals()
        self._builder = SnapshotBuilder()
        self._state = EngineState.STARTING
        self._error: ErrorInfo | None = None
        self._view = ModelView(name=self._config.model)
        self._view_of = self._config.model  # what was loaded last
        self._snapshot = empty_snapshot(self._config, self._state, self._view, clock())

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def config(self) -> EngineConfig:
        return self._config

    @property
    def snapshot(self) -> Snapshot:
        """The engine at its last step boundary."""
        return self._snapshot

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        """Records of the last steps after `since_step`, oldest first (at most 2,048)."""
        core = self._core
        if core is None:
            return ()
        records = tuple(core.history)
        if since_step and records:
            records = records[max(0, since_step - records[0].step + 1) :]
        return records

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called from the engine thread after each published snapshot. Returns the call that removes it."""
        self._listeners = [*self._listeners, listener]

        def remove() -> None:
            self._listeners = [kept for kept in self._listeners if kept is not listener]

        return remove

    def wait_ready(self, timeout: float | None = None) -> Snapshot:
        """Block until the model asked for last is loaded. Raises the EngineError that stopped it, or TimeoutError."""
        settled = (EngineState.READY, EngineState.PAUSED, EngineState.FAILED, EngineState.EMPTY)

        def answered() -> bool:
            state = self._snapshot.state
            return state is EngineState.CLOSED or (state in settled and self._loads_done >= self._loads_asked)

        with self._ready:
            if not self._ready.wait_for(answered, timeout):
                raise TimeoutError(f"the model was not ready after {timeout} s")
        snapshot = self._snapshot
        if snapshot.state is EngineState.FAILED and snapshot.error is not None:
            raise EngineError(snapshot.error.code, snapshot.error.message, snapshot.error.hint)
        return snapshot

    def tokenize(self, prompt: Prompt) -> list[int] | None:
        """The ids of a prompt with the loaded model's tokenizer, as a request would have them; None while there is no model."""
        opened = self._open
        return None if opened is None else encode(opened.codec, prompt, False)

    def detokenize(self, token_ids: Sequence[int]) -> str | None:
        """The text of ids, control tokens left out; None while there is no model. Raises RequestRefused("bad_token")."""
        opened = self._open
        if opened is None:
            return None
        check_ids(opened, token_ids)
        return opened.codec.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text, which may be a part of a character; control tokens show their name. Empty without a model."""
        opened = self._open
        return b"" if opened is None else opened.codec.token_bytes(token_id)

    @property
    def tool_form(self) -> ToolForm:
        """How the loaded model calls tools (see engine/text/tools.py); NONE without a model."""
        opened = self._open
        return ToolForm.NONE if opened is None else opened.codec.tool_form

    def count_tokens(self, prompt: Prompt) -> int | None:
        """Tokens of a prompt with the loaded model's tokenizer; None while there is none."""
        tokens = self.tokenize(prompt)
        return None if tokens is None else len(tokens)

    # ------------------------------------------------------------------------------------------------------ requests

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        chat_id: str = "",
        title: str = "",
        priority: Priority | None = None,
        continue_final: bool = False,
        model: str = "",
        salt: bytes = b"",
        on_ready: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """Queue one answer.

        Args:
            prompt: messages of a chat, plain text, or token ids.
            priority: None takes the chat's class (see `set_chat_priority`), FOREGROUND at first.
            continue_final: go on writing the last assistant message.
            model: which model it asks for, as `EngineConfig.model` names it; "" takes the present one. For another one it waits until
                nothing rides, then that model is loaded.
            salt: requests share cached prefixes with those of the same salt only, so that what others asked cannot be found out by timing.
            on_ready: called from the engine thread when the handle has something to poll.

        Raises RequestRefused when it can never run as asked; then nothing has changed. While a model is loading only the
        parameters can be judged; what is found later comes as a FinishedEvent with an error.
        """
        params = params or SamplingParams()
        params.check()
        model = model or self._config.model
        elsewhere = model != self._config.model
        if self._stopped and not (elsewhere and not self._closing):
            reason = self._error.message if self._error else "The engine is closed."
            raise RequestRefused("engine_stopped", f"The engine is not running. {reason}", "Restart the engine, or load another model.")
        if not prompt:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something first.")
        number = next(self._ids)
        request_id = f"r{number}"
        chat_id = chat_id or request_id
        tokens = None
        opened, core = (None, None) if elsewhere else (self._open, self._core)
        if opened is not None and core is not None:
            tokens = encode(opened.codec, prompt, continue_final)
            check_ids(opened, tokens, params)
            core.check(tokens, params)
        if self._snapshot.waiting + self._inbox.qsize() >= self._config.max_waiting or len(self._early) >= self._config.max_waiting:
            raise RequestRefused(
                "queue_full", f"{self._config.max_waiting:,} requests are waiting already.", "Try again when some have finished."
            )
        if priority is None:
            priority = self._chat_priority.get(chat_id, Priority.FOREGROUND)
        seed = params.seed if params.seed is not None else random.getrandbits(63)
        handle = RequestHandle(request_id, chat_id, self.cancel, on_ready)
        handle.thinking = opened is not None and tokens is not None and thinks(opened.codec, tokens)
        order = _Order(handle, prompt, tokens, params, title, priority, seed, continue_final, self._now(), salt, model=model)
        if opened is not None:
            order.codec = opened.codec
            order.form = compile_form(opened, params)  # here, on the caller's thread: it may take a while
        with self._lock:
            if self._stopped and not (elsewhere and not self._closing):
                raise RequestRefused("engine_stopped", "The engine has just stopped.", "Restart the engine, or load another model.")
            self._orders[request_id] = order
            if elsewhere or self._elsewhere or self._state is EngineState.EMPTY:
                self._elsewhere.add(request_id, order)
                self._wake.set()
                return handle
            if self._core is None:
                self._early[request_id] = order
                return handle
        self._post(lambda: self._take_in(order))
        return handle

    def submit_several(
        self, prompt: Prompt, count: int, params: SamplingParams | None = None, *, chat_id: str = "", **options: Any
    ) -> list[RequestHandle]:
        """Queue several answers to one prompt, all or none; the i-th is what the seed + i gives alone.

        They share the prompt's blocks and are computed on from there: the first reads the prompt, the others wait for it (if it is
        long enough to be worth that) and find its blocks. Options as in `submit`.
        """
        params = params or SamplingParams()
        seed = params.seed if params.seed is not None else random.getrandbits(63)
        chat_id = chat_id or f"several-{next(self._ids)}"
        handles: list[RequestHandle] = []
        try:
            for place in range(count):
                mine = replace(params, seed=(seed + place) % 2**63)
                handles.append(self.submit(prompt, mine, chat_id=chat_id, **options))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return handles

    def cancel(self, request_id: str) -> None:
        """End a request in any state. Unknown and ended ones are left alone."""
        with self._lock:
            early = self._early.pop(request_id, None) or self._elsewhere.take(request_id)
        if early is not None:  # nothing runs yet: no need to wait for the thread, which may be deep in loading
            self._end_order(early, FinishReason.CANCELLED)
            return
        self._post(lambda: self._cancel_now(request_id))

    def set_priority(self, request_id: str, priority: Priority) -> None:
        def change() -> None:
            order = self._orders.get(request_id)
            if order is not None:
                order.priority = priority
            if self._core is not None:
                self._core.set_priority(request_id, priority)

        self._post(change)

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        """The class of all of a chat's requests, present and future."""
        self._chat_priority[chat_id] = priority

        def change() -> None:
            for order in list(self._orders.values()):
                if order.handle.chat_id == chat_id:
                    order.priority = priority
                    if self._core is not None:
                        self._core.set_priority(order.handle.id, priority)

        self._post(change)

    # ------------------------------------------------------------------------------------------------------ steering

    def configure(
        self, *, seats: int | None = None, token_budget: int | None = None, policy: Policy | None = None, chunk: int | None = None
    ) -> None:
        """Change the batch's rules from the next step on. Raises EngineError("bad_config") and then nothing has changed."""
        given = {"seats": seats, "token_budget": token_budget, "policy": policy, "chunk": chunk}
        changes = {name: value for name, value in given.items() if value is not None}
        config = replace(self._config, **changes)  # type: ignore[arg-type]
        config.check()
        self._config = config
        self._post(lambda: self._core.configure(**changes) if self._core is not None else None)  # type: ignore[arg-type]

    def pause(self) -> None:
        """Hold steps back; requests keep queueing."""
        self._post(lambda: self._set_paused(True))

    def resume(self) -> None:
        self._post(lambda: self._set_paused(False))

    def clear_cache(self) -> None:
        """Forget the prefix cache; blocks in use stay."""
        self._post(lambda: self._core.clear_cache() if self._core is not None else None)

    def resize_pool(self, num_blocks: int) -> None:
        """Grow or shrink the KV pool at run time; blocks in use are not taken away."""
        if num_blocks < 1:
            raise EngineError("bad_config", f"The pool needs at least one block, not {num_blocks}.")
        self._post(lambda: self._core.resize(num_blocks) if self._core is not None else None)

    def start_recording(self) -> Future[None]:
        """Record all scheduling from now on. Live requests are recomputed once, so that a replay starts from a known state.

        The future fails with EngineError("no_model") when there is nothing to record yet; starting twice goes on with the first.
        """

        def begin() -> None:
            if self._core is None:
                raise EngineError("no_model", "There is nothing to record before a model is loaded.", "Wait until the model is ready.")
            if self._core.recorder is None:
                Recorder(self._core, self._view.name)

        return self._ask(begin)

    def stop_recording(self) -> Future[Trace]:
        """End the recording and hand it over. The future fails with EngineError("not_recording") when there is none."""

        def end() -> Trace:
            if self._core is None or self._core.recorder is None:
                raise EngineError("not_recording", "Nothing is being recorded.", "Start a recording first.")
            return self._core.recorder.stop()

        return self._ask(end)

    def set_model(self, model: str) -> None:
        """Which model `start` will load. Of no effect once it is started."""
        if self._thread is None:
            self._config = replace(self._config, model=model)
            self._view = ModelView(name=model)
            self._publish()

    def load(self, model: str) -> None:
        """Load another model. Waiting requests wait on for it; seated ones end with an error that says so."""
        self._config = replace(self._config, model=model)
        self.restart()

    def cancel_load(self) -> None:
        """Give up the load that is going on, if there is one; requests that waited for it end. Heard within a tenth of a second or so."""
        self._load_cancelled = self._state is EngineState.LOADING

    def let_go_after(self, seconds: float | None) -> None:
        """Let the model go after so many seconds without a request; None keeps it. Raises EngineError("bad_config")."""
        config = replace(self._config, idle_unload_s=seconds)
        config.check()
        self._post(lambda: self._set_idle_limit(seconds))

    def unload(self) -> None:
        """Let the model go and give its memory back. What is being answered ends; what waits, or comes later, brings the model back."""
        self._post(self._unload)

    def restart(self) -> None:
        """After a failure: load the model again and go on. Requests are accepted from now on."""
        with self._lock:
            self._loads_asked += 1
        self._post(self._load)

    # ---------------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Start the thread; it loads the model. Twice is once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="omnibus-engine", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 2.0) -> bool:
        """End every request, join the thread. Returns whether the thread ended within `timeout` seconds."""
        with self._lock:
            self._closing = True
        self._wake.set()
        ended = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            ended = not self._thread.is_alive()
        for order in list(self._orders.values()):  # the thread never came up, or sits in one long call
            self._end_order(order, FinishReason.CANCELLED)
        if self._thread is None and self._state is not EngineState.CLOSED:
            self._state = EngineState.CLOSED
            self._publish()
        return ended

    @property
    def _stopped(self) -> bool:
        """Nothing more is accepted: closed, or failed with no restart under way."""
        return self._closing or (self._state is EngineState.FAILED and self._loads_done >= self._loads_asked)

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------------- engine thread

    def _main(self) -> None:
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        try:
            self._load()
            while not self._closing:
                self._drain()
                if self._closing:
                    break
                if self._core is not None and self._core.busy and self._state is EngineState.READY:
                    self._step(self._core)
                    self._idle_since = self._clock()
                elif not self._turn_elsewhere():
                    self._publish()
                    self._rest()
        except BaseException:
            log.exception("the engine thread died")
            self._state = EngineState.FAILED
            self._error = ErrorInfo("engine_died", "The engine stopped unexpectedly.", "Restart the program; your chats are safe.")
            raise
        finally:
            died = self._state is EngineState.FAILED and not self._closing
            self._loads_done = self._loads_asked
            self._end_all(FinishReason.ERROR if died else FinishReason.CANCELLED, self._error if died else None)
            self._drop_model()
            if not died:
                self._state = EngineState.CLOSED
                self._drain()  # whoever asked something gets an answer
            self._publish()

    def _turn_elsewhere(self) -> bool:
        """Nothing rides: change the model if somebody waits for another one. Returns whether it did."""
        with self._lock:
            model = self._elsewhere.next_model
            if model is None or self._state is EngineState.PAUSED or (self._core is not None and self._core.busy):
                return False
            self._config = replace(self._config, model=model)
            self._loads_asked += 1
            again = self._core is not None and self._view_of == model
        if again:
            self._loads_done += 1
            self._take_in_elsewhere()
        else:
            self._load()
        return True

    def _take_in_elsewhere(self) -> None:
        with self._lock:
            orders = self._elsewhere.take_all_for(self._config.model)
        for order in orders:
            self._take_in(order)

    def _rest(self) -> None:
        """Sleep until something is asked, or it is time to let an idle model go."""
        limit = self._config.idle_unload_s
        if limit is None or self._core is None or self._core.busy:  # busy, yet not riding: paused or stopped
            self._wake.wait()
            return
        left = self._idle_since + limit - self._clock()
        if left > 0:
            self._wake.wait(left)
        else:
            self._unload()

    def _step(self, core: Core) -> None:
        """One trip round the loop: the core plans, runs and commits; here only failures are met."""
        try:
            core.step()
        except Exception as error:
            self._failures += 1
            log.exception("step failed, %d in a row", self._failures)
            info = error.info() if isinstance(error, EngineError) else ErrorInfo("step_failed", f"A step failed: {error}")
            if self._failures >= FAILURES_IN_A_ROW:
                self._stop(info)
            else:
                core.rebuild()
        else:
            self._failures = core.failures_in_row
            if self._failures >= FAILURES_IN_A_ROW:
                self._stop(ErrorInfo("step_failed", f"{self._failures} steps failed in a row.", "Restart the engine."))
        self._publish()

    def _stop(self, error: ErrorInfo) -> None:
        """Give up until `restart`: every request is told why."""
        with self._lock:
            self._state = EngineState.FAILED
        self._error = ErrorInfo(error.code, error.message, error.hint or "Restart the engine; your chats are safe.")
        self._end_all(FinishReason.ERROR, self._error, self._config.model)

    def _drain(self) -> None:
        """Carry out what was asked since the last step."""
        self._wake.clear()
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            try:
                command()
            except EngineError as error:
                log.warning("command refused: %s", error.message)
            except Exception:
                log.exception("command failed")

    def _post(self, command: Callable[[], object]) -> None:
        self._inbox.put(command)
        self._wake.set()

    def _ask(self, question: Callable[[], Answer]) -> Future[Answer]:
        """Have the engine thread answer between two steps."""
        future: Future[Answer] = Future()
        if self._closing:
            future.set_exception(EngineError("engine_stopped", "The engine is closed."))
            return future

        def answer() -> None:
            try:
                future.set_result(question())
            except Exception as error:
                future.set_exception(error)

        self._post(answer)
        return future

    def _take_in(self, order: _Order) -> None:
        """A submit reaches the engine thread."""
        handle = order.handle
        if handle.id not in self._orders:
            return  # ended meanwhile
        if self._core is None or self._open is None:  # the model was changed or lost between submit and now
            if self._state is EngineState.FAILED:
                self._end_order(order, FinishReason.ERROR, self._error)
                return
            if self._state is EngineState.EMPTY:
                with self._lock:
                    self._elsewhere.add(handle.id, order)
                return
            order.tokens = None
            with self._lock:
                self._early[handle.id] = order
            return
        try:
            if order.tokens is None or order.codec is not self._open.codec:  # the model was changed since it was submitted
                order.codec = self._open.codec
                order.tokens = encode(self._open.codec, order.prompt, order.continue_final)
                check_ids(self._open, order.tokens, order.params)
                handle.thinking = thinks(order.codec, order.tokens)
                order.form = compile_form(self._open, order.params)
            self._core.submit(
                handle.id,
                order.tokens,
                order.params,
                chat_id=handle.chat_id,
                title=order.title,
                priority=order.priority,
                seed=order.seed,
                form=order.form,
                salt=order.salt,
                since=order.since,
            )
        except EngineError as error:
            self._end_order(order, FinishReason.ERROR, error.info())
        except Exception as error:  # a tokenizer or template that fails on this text
            log.exception("request %s could not be prepared", handle.id)
            self._end_order(order, FinishReason.ERROR, ErrorInfo("bad_prompt", f"The prompt could not be prepared: {error}"))

    def _cancel_now(self, request_id: str) -> None:
        if self._core is not None and self._core.cancel(request_id):
            return
        with self._lock:
            order = self._early.pop(request_id, None) or self._elsewhere.take(request_id) or self._orders.get(request_id)
        if order is not None:
            self._end_order(order, FinishReason.CANCELLED)

    def _emit(self, event: Event) -> None:
        order = self._orders.get(event.request_id)
        if order is None:
            return
        order.handle.put(event)
        if isinstance(event, FinishedEvent):
            with self._lock:
                self._orders.pop(event.request_id, None)

    def _end_order(self, order: _Order, reason: FinishReason, error: ErrorInfo | None = None) -> None:
        """End a request that the core does not hold."""
        waited = max(0.0, self._now() - order.since)
        with self._lock:
            self._orders.pop(order.handle.id, None)
            self._early.pop(order.handle.id, None)
            self._elsewhere.take(order.handle.id)
        usage = Usage(len(order.tokens or ()), 0)
        order.handle.put(FinishedEvent(order.handle.id, reason, usage, TimeSplit(waited, 0.0, 0.0, 0.0), error))

    def _end_all(self, reason: FinishReason, error: ErrorInfo | None = None, model: str = "") -> None:
        """End every request; with `model`, those alone that ride on it or wait for it."""
        core = self._core
        if core is not None:
            for request in list(core.requests.values()):
                try:
                    if reason is FinishReason.CANCELLED:
                        core.cancel(request.id)
                    elif error is not None:
                        core.fail(request.id, error)
                except Exception:  # the core may be the very thing that broke
                    log.exception("request %s could not be ended in order", request.id)
        for order in list(self._orders.values()):
            if not model or order.model == model or order.handle.id not in self._elsewhere:
                self._end_order(order, reason, error)

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._state in (EngineState.READY, EngineState.PAUSED):
            self._state = EngineState.PAUSED if paused else EngineState.READY

    # --------------------------------------------------------------------------------------------------------- model

    def _load(self) -> None:
        """Replace the model by the configured one. On failure the engine says why and waits for another command."""
        try:
            self._replace_model()
        finally:
            self._loads_done += 1

    def _replace_model(self) -> None:
        if self._closing:
            return
        self._set_aside()
        self._drop_model()
        self._load_cancelled = False
        self._state, self._error, self._failures = EngineState.LOADING, None, 0
        self._progress(0.0, "starting")
        self._view_of = self._config.model
        try:
            opened = self._opener(self._config, self._progress, lambda: self._closing or self._load_cancelled)
        except EngineError as error:
            if self._load_cancelled and not self._closing:
                self._leave_empty(error.info())
            elif not self._closing:  # else it was the closing that stopped it
                log.warning("the model could not be loaded: %s", error.message)
                self._stop(error.info())
            return
        except Exception as error:
            log.exception("the model could not be loaded")
            if not self._closing:
                hint = "Choose another model; the log has the details."
                self._stop(ErrorInfo("load_failed", f"The model could not be loaded: {error}", hint))
            return
        pool = BlockPool(opened.num_blocks, opened.block_size)
        self._builder = SnapshotBuilder(opened.bytes_per_block)
        self._view = opened.view
        core = Core(
            opened.runner,
            pool,
            self._config,
            clock=self._now,
            emit=self._emit,
            make_stream=lambda params: opened.codec.stream(params.stop),
            eos_ids=opened.codec.eos_ids,
            totals=self._totals,
        )
        give_back()
        gc.freeze()  # the model's hundred thousands of objects are never looked at again: a full collection costs 190 ms otherwise
        with self._lock:
            self._core, self._open = core, opened
            self._state = EngineState.PAUSED if self._paused else EngineState.READY
            early, self._early = list(self._early.values()), {}
        self._idle_since = self._clock()
        for order in early:
            order.model = self._config.model  # they were asked to wait for it
            self._take_in(order)
        self._take_in_elsewhere()

    def _leave_empty(self, why: ErrorInfo) -> None:
        """A load was given up: those who waited for it are told, and there is no model."""
        self._end_all(FinishReason.ERROR, why, self._config.model)
        self._view = ModelView(name=self._config.model)
        self._state = EngineState.EMPTY

    def _set_idle_limit(self, seconds: float | None) -> None:
        self._config = replace(self._config, idle_unload_s=seconds)
        self._idle_since = self._clock()

    def _unload(self) -> None:
        if self._core is None or self._closing:
            return
        self._set_aside()
        with self._lock:
            for request_id, order in self._early.items():
                order.model = self._config.model
                self._elsewhere.add(request_id, order)
            self._early = {}
        name = self._view.name
        self._drop_model()
        with self._lock:
            self._view = ModelView(name=name)
            self._state = EngineState.EMPTY

    def _set_aside(self) -> None:
        """Before a change of model: what waits will wait on, what is being answered ends."""
        core = self._core
        if core is None:
            return
        why = ErrorInfo("model_changed", "Another model was loaded while this answer was being written.", "Send the message again.")
        for request in list(core.requests.values()):
            order = self._orders.get(request.id)
            if order is None or request.output_len or request.seat is not None or not isinstance(order.prompt, (str, list, tuple, Chat)):
                core.fail(request.id, why)
                continue
            core.forget(request.id)
            order.tokens = None
            with self._lock:
                self._early[request.id] = order

    def _drop_model(self) -> None:
        with self._lock:
            opened, self._open, self._core = self._open, None, None
        if opened is not None:
            try:
                opened.close()
            except Exception:
                log.exception("the model did not close in order")
            del opened
            gc.unfreeze()
            give_back()

    def _progress(self, share: float, stage: str) -> None:
        """Called while loading: tells the window, and lets cancels and closing through."""
        self._view = ModelView(name=self._config.model, progress=min(1.0, max(0.0, share)), stage=stage)
        self._publish()

    # ---------------------------------------------------------------------------------------------------- publishing

    def _publish(self) -> None:
        now = self._now()
        if self._core is not None:
            snapshot = self._builder.build(self._core, self._state, self._view, now, self._error)
        else:
            snapshot = empty_snapshot(self._config, self._state, self._view, now, self._error, self._totals.counters())
            with self._lock:
                early = list(self._early.values())
            queue_views = tuple(self._early_view(place, order, now) for place, order in enumerate(early, 1))
            snapshot = replace(snapshot, queue=queue_views, waiting=len(early))
        if self._elsewhere:
            with self._lock:
                others = list(self._elsewhere)
            places = range(snapshot.waiting + 1, snapshot.waiting + 1 + len(others))
            views = tuple(self._elsewhere_view(place, order, now) for place, order in zip(places, others, strict=True))
            snapshot = replace(snapshot, queue=(*snapshot.queue, *views[:QUEUE_VIEWS]), waiting=snapshot.waiting + len(others))
        with self._ready:
            self._snapshot = snapshot
            self._ready.notify_all()
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                log.exception("a listener failed")

    def _elsewhere_view(self, place: int, order: _Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        name = order.model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        detail = f"waits for {name}: {self._view.name} still answers" if order.model != self._view_of else f"waits for {name}"
        return QueueView(place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.MODEL, detail, 0, 0, waited, None)

    @staticmethod
    def _early_view(place: int, order: _Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        return QueueView(
            place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.LOADING, "the model is loading", 0, 0, waited, None
        )
