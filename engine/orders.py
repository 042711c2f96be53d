"""The requests' way in and out of the engine thread: its inbox, the orders that are kept until their end, and what is published of them.

Owns every order, those that wait for a model included, and whose events go where. Everything here but `_post`, `_ask`, `adopt` and
`cancel` is called on the engine's thread only; what other threads read is swapped by reference or guarded by `_lock`. Which model there
is, and when a step runs, is `thread.py`'s.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.books import Totals
from engine.core import Core
from engine.elsewhere import Elsewhere
from engine.handle import RequestHandle
from engine.line import Line
from engine.opened import Codec, OpenModel, Prompt, check_asked, compile_form, encode, thinks
from engine.scheduling.request import Form
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder, empty_snapshot
from engine.steady import SteadyClock
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
    Sentence,
    TimeSplit,
    Usage,
    WaitReason,
)
from engine.watched import Watched

log = logging.getLogger(__name__)

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


class Orders(Watched):
    """The part of the engine that knows who asked for what."""

    def __init__(self, config: EngineConfig | None, clock: Callable[[], float]) -> None:
        """Raises EngineError("bad_config")."""
        self._config = config or EngineConfig()
        self._config.check()
        self._clock = clock
        self._now = SteadyClock(clock)  # for all that is measured; idleness is a matter of real time
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._closing = False
        self._lock = threading.Lock()  # guards _orders and _early, and that nothing is added to them once the engine stops
        self._orders: dict[str, Order] = {}
        self._early: dict[str, Order] = {}  # submitted before there was a model
        self._elsewhere: Elsewhere[Order] = Elsewhere()  # those that ask for another model
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

    # --------------------------------------------------------------------------------------------------------- inbox

    def _drain(self) -> None:
        """Carry out what was asked since the last step: nearly always nothing, which a look tells."""
        if not self._wake.is_set() and self._inbox.empty():
            return
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

    # ------------------------------------------------------------------------------------------------------ in and out

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
                order.tokens = encode(self._open.codec, order.prompt, order.continue_final, order.salt)
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
            self._end_order(order, FinishReason.ERROR, ErrorInfo("bad_prompt", Sentence("The prompt could not be prepared: {0}", error)))

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

    # --------------------------------------------------------------------------------------------- when models change

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

    def _take_in_elsewhere(self) -> None:
        with self._lock:
            orders = self._elsewhere.take_all_for(self._config.model)
        for order in orders:
            self._take_in(order)

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
            whole = snapshot.whole_queue
            if isinstance(whole, Line):
                whole = whole.followed_by(views)
            elif len(views) > QUEUE_VIEWS:
                whole = Line.of((*snapshot.queue, *views))
            queue, waiting = (*snapshot.queue, *views[:QUEUE_VIEWS]), snapshot.waiting + len(others)
            snapshot = replace(snapshot, queue=queue, waiting=waiting, whole_queue=whole)
        self._show(snapshot)

    def _elsewhere_view(self, place: int, order: Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        name = order.model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        detail = (
            Sentence("waits for {0}: {1} still answers", name, self._view.name)
            if order.model != self._view_of
            else Sentence("waits for {0}", name)
        )
        return QueueView(place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.MODEL, detail, 0, 0, waited, None)

    @staticmethod
    def _early_view(place: int, order: Order, now: float) -> QueueView:
        handle, waited = order.handle, max(0.0, now - order.since)
        why = Sentence("the model is loading")
        return QueueView(place, handle.id, handle.chat_id, order.title, order.priority, WaitReason.LOADING, why, 0, 0, waited, None)
