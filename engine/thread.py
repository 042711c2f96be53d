"""What runs on the engine's own thread: the loop, its supervision, and the model's coming and going.

Owns the model, the core and all their state; the requests' way in and out is `orders.py`'s. Everything here is called on that thread only.
Supervises: a failure of a step is survived, three in a row stop the engine with every request told why, until `restart`.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from engine.core import Core
from engine.heap import give_back
from engine.kv.pool import BlockPool
from engine.lost_device import lost_device
from engine.opened import Declined, Opener, open_real_model
from engine.orders import Orders
from engine.snapshot import SnapshotBuilder
from engine.text.forms import form_named
from engine.text.panics import panics_caught
from engine.types import EngineConfig, EngineError, EngineState, ErrorInfo, FinishReason, ModelView, Sentence

log = logging.getLogger(__name__)

FAILURES_IN_A_ROW = 3
SWITCH_INTERVAL_S = 0.001  # the GIL: long Python stretches of one thread cost the other at most this


class EngineThread(Orders):
    """The engine as its thread sees it; `engine.engine.Engine` is what everybody else sees."""

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        opener: Opener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, clock)
        self.opener = opener or open_real_model  # may be wrapped before the start
        self._thread: threading.Thread | None = None
        self._paused = False
        self._failures = 0
        self._loads_asked = 1  # the first is start's own
        self._loads_done = 0
        self._load_cancelled = False
        self._idle_since = clock()

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
            info = error.info() if isinstance(error, EngineError) else ErrorInfo("step_failed", Sentence("A step failed: {0}", error))
            if self._failures >= FAILURES_IN_A_ROW or lost_device(error):
                self._stop(info)
            else:
                core.rebuild()
        else:
            self._failures = core.blame.failures_in_row
            if self._failures >= FAILURES_IN_A_ROW:
                self._stop(ErrorInfo("step_failed", Sentence("{0} steps failed in a row.", self._failures), "Restart the engine."))
        self._publish()

    def _stop(self, error: ErrorInfo) -> None:
        """Give up until `restart`: every request is told why."""
        with self._lock:
            self._state = EngineState.FAILED
        self._error = ErrorInfo(error.code, error.message, error.hint or "Restart the engine; your chats are safe.")
        self._end_all(FinishReason.ERROR, self._error, self._config.model)

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
            with panics_caught():
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
                self._stop(ErrorInfo("load_failed", Sentence("The model could not be loaded: {0}", error), hint))
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

    def _settled(self) -> bool:
        return self._snapshot.state is EngineState.CLOSED or (super()._settled() and self._loads_done >= self._loads_asked)
