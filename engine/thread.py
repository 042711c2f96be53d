"""What runs on the engine's own thread: the loop, the requests' way in and out, the model's coming and going, and what is published.

Owns the model, the core and all their state. Everything here but `_post` and `_ask` is called on that thread only; what other threads
read is swapped by reference or guarded by `_lock`. Supervises: a failure of a step is survived, three in a row stop the engine with every
request told why, until `restart`.
"""

from __future__ import annotations

import gc
import itertools
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.books import Totals
from engine.core import Core
from engine.elsewhere import Elsewhere
from engine.handle import RequestHandle
from engine.heap import give_back
from engine.kv.pool import BlockPool
from engine.lost_device import lost_device
from engine.opened import Codec, Declined, Opener, OpenModel, Prompt, check_asked, compile_form, encode, open_real_model, thinks
from engine.scheduling.request import Form
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder, empty_snapshot
from engine.steady import SteadyClock
from engine.text.forms import form_named
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
    Priority,
    QueueView,
    SamplingParams,
    TimeSplit,
    Usage,
    WaitReason,
)
from engine.watched import Watched

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW = 3
SWITCH_INTERVAL_S = 0.001  # the GIL: long Python stretches of one thread cost the other at most this

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Order:
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


class EngineThread(Watched):
    """The engine as its thread sees it; `engine.engine.Engine` is what everybody else sees."""

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        opener: Opener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config or EngineConfig()
        self._config.check()
        self.opener = opener or open_real_model  # may be wrapped before the start
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
        self._orders: dict[str, Order] = {}
        self._early: dict[str, Order] = {}  # submitted before there was a model
        self._elsewhere: Elsewhere[Order] = Elsewhere()  # those that ask for another model
        self._load_cancelled = False
        self._idle_since = clock()
        self._chat_priority: dict[str, Priority] = {}
        self._ids = itertools.count(1)
        self._core: Core | None = None
        self._open: OpenModel | None = None
        self._totals = Totals()
        self._builder = SnapshotBuilder()
        self._state = EngineState.STARTING
        self._error: ErrorInfo | None = None
        self._view = ModelView(name=self._config.model, source=self._config.model)
        self._view_of = self._config.model  # what was loaded last
        super().__init__(empty_snapshot(self._config, self._state, self._view, clock()))

    @property
    def _stopped(self) -> bool:
        """Nothing more is accepted: closed, or failed with no restart under way."""
        return self._closing or (self._state is EngineState.FAILED and self._loads_done >= self._loads_asked)

    # ---------------------------------------------------------------------------------------------------------- loop

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
            if self._failures >= FAILURES_IN_A_ROW or lost_device(error):
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

    def _take_in(self, order: Order) -> None:
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
                check_asked(self._open, order.tokens, order.params)
                handle.prompt_ids = order.tokens
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

    def _end_order(self, order: Order, reason: FinishReason, error: ErrorInfo | None = None) -> None:
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
        if self._core is None and not self._closing:
            self._publish()  # whoever waits for it hears first
            give_back()  # what a load that failed, or was given up, had brought in

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
            opened = self.opener(self._config, self._progress, lambda: self._closing or self._load_cancelled)
        except Declined as declined:
            self._leave_to(declined.to)
            return
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
        self._view = replace(opened.view, source=self._config.model)
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
        self._view = ModelView(name=self._config.model, source=self._config.model)
        self._state = EngineState.EMPTY

    def _leave_to(self, other: EngineThread) -> None:
        """This model is not loaded here: whoever waits for it waits with the other engine from now on."""
        with self._lock:
            orders = [*self._early.values(), *self._elsewhere.take_all_for(self._config.model)]
            self._early = {}
            for order in orders:
                order.model, order.tokens = self._config.model, None
                self._orders.pop(order.handle.id, None)
            self._view = ModelView(name=self._config.model, source=self._config.model)
            self._state = EngineState.EMPTY
        other.adopt(orders)

    def adopt(self, orders: Sequence[Order]) -> None:
        """Take over requests that wait for another model than this engine's. Called from another engine's thread."""
        with self._lock:
            for order in orders:
                self._orders[order.handle.id] = order
                self._elsewhere.add(order.handle.id, order)
        for order in orders:
            order.handle.move_to(self.cancel)
        self._wake.set()
        if self._state is EngineState.CLOSED:
            for order in orders:
                self._end_order(order, FinishReason.CANCELLED)

    def cancel(self, request_id: str) -> None:
        """End a request in any state. Unknown and ended ones are left alone."""
        with self._lock:
            early = self._early.pop(request_id, None) or self._elsewhere.take(request_id)
        if early is not None:  # nothing runs yet: no need to wait for the thread, which may be deep in loading
            self._end_order(early, FinishReason.CANCELLED)
            return
        self._post(lambda: self._cancel_now(request_id))

    def _unload_if_idle(self) -> None:
        with self._lock:
            idle = not self._orders
        if idle:
            self._unload()

    def _use_form(self, key: str) -> None:
        """Raises ModelError when the choice cannot be written down; it holds until the model is let go."""
        opened, form = self._open, form_named(key)
        if opened is None or form is None or key not in self._view.forms or self._view.template == "model":
            return
        opened.codec.use_form(form)
        self._view = replace(self._view, template=key, form_chosen=True)
        self._publish()
        from engine.catalog.registry import Registry  # needs packages that this module must do without

        Registry().set_form(self._view.source, key)

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
        name, source = self._view.name, self._view.source
        self._drop_model()
        with self._lock:
            self._view = ModelView(name=name, source=source)
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
        self._view = ModelView(name=self._config.model, progress=min(1.0, max(0.0, share)), stage=stage, source=self._config.model)
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
        self._show(snapshot)

    def _settled(self) -> bool:
        return self._snapshot.state is EngineState.CLOSED or (super()._settled() and self._loads_done >= self._loads_asked)

    def _elsewhere_view(self, place: int, order: Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        name = order.model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        detail = f"waits for {name}: {self._view.name} still answers" if order.model != self._view_of else f"waits for {name}"
        return QueueView(place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.MODEL, detail, 0, 0, waited, None)

    @staticmethod
    def _early_view(place: int, order: Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        return QueueView(
            place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.LOADING, "the model is loading", 0, 0, waited, None
        )
