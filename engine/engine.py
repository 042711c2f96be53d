"""The engine: one thread that owns the model, the KV blocks and the batch; everyone else sends commands and reads events.

Commands go in through a queue and are drained between steps; events come out through each request's handle; one immutable
snapshot is published after every step by swapping a reference. The thread sleeps when there is nothing to do. It imports torch
itself, so that a window can be on the screen first. A failure of a step is survived: requests are recomputed; three in a row
stop the engine with every request told why, until `restart`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from engine.exits import end_at_exit
from engine.handle import RequestHandle
from engine.opened import Opener, Prompt, check_asked, check_ids, compile_form, encode, thinks
from engine.orders import Order
from engine.text.tools import ToolForm
from engine.thread import EngineThread
from engine.trace.recorder import Recorder
from engine.trace.trace import Trace
from engine.types import (
    EngineConfig,
    EngineError,
    EngineState,
    FinishReason,
    ModelView,
    Policy,
    Pooling,
    Priority,
    RequestRefused,
    SamplingParams,
    Sentence,
    StepRecord,
)


class Engine(EngineThread):
    """Continuous batching in this process.

    Safe to use from any thread. `start` returns at once; requests may be submitted while the model loads.

    Raises (constructor): EngineError("bad_config").
    """

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def config(self) -> EngineConfig:
        return self._config

    @property
    def serving(self) -> tuple[Engine, ...]:
        """The engines of this machine that have a model, the present one first: this one, by itself."""
        return (self,)

    @property
    def started(self) -> bool:
        return self._thread is not None

    @property
    def busy(self) -> bool:
        """Whether any request is riding or waiting."""
        return bool(self._orders)

    @property
    def occupied(self) -> bool:
        """Whether a model takes memory here, or is about to."""
        loading = self.started and self._state in (EngineState.STARTING, EngineState.LOADING)
        return loading or self._state in (EngineState.READY, EngineState.PAUSED)

    def serves(self, model: str) -> bool:
        """Whether requests for this model belong here: it is the one that is loaded, or failed to, or somebody waits for it already."""
        with self._lock:
            if model in self._elsewhere.models:
                return True
        return self._config.model == model and (self.occupied or self._state is EngineState.FAILED)

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        """Records of the last steps after `since_step`, oldest first (at most 2,048)."""
        core = self._core
        return () if core is None else core.books.records_after(since_step)

    def tokenize(self, prompt: Prompt, salt: bytes = b"") -> list[int] | None:
        """The ids of a prompt with the loaded model's tokenizer, as a request under this salt would have them; None without a model."""
        opened = self._open
        return None if opened is None else encode(opened.codec, prompt, False, salt)

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

    @property
    def embedding_size(self) -> int:
        """Numbers in the vector of a prompt; 0 for a model that gives none, and without a model."""
        opened = self._open
        return 0 if opened is None else opened.embedding_size

    @property
    def pooling(self) -> Pooling:
        """How the loaded model's vectors are meant to be made."""
        opened = self._open
        return Pooling.MEAN if opened is None else opened.pooling

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
            raise RequestRefused(
                "engine_stopped", Sentence("The engine is not running. {0}", reason), "Restart the engine, or load another model."
            )
        if not prompt:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something first.")
        number = next(self._ids)
        request_id = f"r{number}"
        chat_id = chat_id or request_id
        tokens = None
        opened, core = (None, None) if elsewhere else (self._open, self._core)
        if opened is not None and core is not None:
            tokens = encode(opened.codec, prompt, continue_final, salt)
            check_asked(opened, tokens, params)
            core.check(tokens, params)
        with self._lock:
            self._check_room()  # before its form is compiled for nothing
        if priority is None:
            priority = self._chat_priority.get(chat_id, Priority.FOREGROUND)
        seed = params.seed if params.seed is not None else random.getrandbits(63)
        handle = RequestHandle(request_id, chat_id, self.cancel, on_ready)
        handle.prompt_ids = tokens or ()
        handle.thinking = opened is not None and tokens is not None and thinks(opened.codec, tokens)
        order = Order(handle, prompt, tokens, params, title, priority, seed, continue_final, self._now(), salt, model=model)
        if opened is not None:
            order.codec = opened.codec
            order.form = compile_form(opened, params)  # here, on the caller's thread: it may take a while
        with self._lock:
            if self._stopped and not (elsewhere and not self._closing):
                raise RequestRefused("engine_stopped", "The engine has just stopped.", "Restart the engine, or load another model.")
            self._check_room()
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

    def _check_room(self) -> None:
        """Raise RequestRefused when enough requests wait. Counted here and now, under `_lock`: a snapshot may be a step old."""
        core = self._core
        if len(self._orders) - (len(core.scheduler.seated) if core is not None else 0) >= self._config.max_waiting:
            raise RequestRefused(
                "queue_full",
                Sentence("{0:,} requests are waiting already.", self._config.max_waiting),
                "Try again when some have finished.",
            )

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
        self,
        *,
        seats: int | None = None,
        token_budget: int | None = None,
        policy: Policy | None = None,
        chunk: int | None = None,
        reproducible: bool | None = None,
    ) -> None:
        """Change the batch's rules from the next step on; `reproducible` holds for what is asked from then on.

        Raises EngineError("bad_config" | "rides_alone") and then nothing has changed.
        """
        given = {"seats": seats, "token_budget": token_budget, "policy": policy, "chunk": chunk, "reproducible": reproducible}
        changes = {name: value for name, value in given.items() if value is not None}
        config = replace(self._config, **changes)  # type: ignore[arg-type]
        config.check()
        if config.reproducible and self.snapshot.alone and (seats is not None or policy is not None):
            sentence = "Answers are to be reproducible, and with this model that takes one seat: its sums depend on who rides along."
            raise EngineError(
                "rides_alone", sentence, "Switch “Reproducible answers” off in the settings, or start without --reproducible."
            )
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
            raise EngineError("bad_config", Sentence("The pool needs at least one block, not {0}.", num_blocks))
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

    def use_form(self, key: str) -> None:
        """Put chats to the loaded model in this safe form (see engine/text/forms.py) from the next request on, and at every later load.

        Of no effect for a model with a template of its own, or whose vocabulary does not know the form.
        """
        self._post(lambda: self._use_form(key))

    def set_model(self, model: str) -> None:
        """Which model `start` will load. Of no effect once it is started."""
        if self._thread is None:
            self._config = replace(self._config, model=model)
            self._view = ModelView(name=model, source=model)
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

    def unload_if_idle(self) -> None:
        """The same, unless anything is asked of it when the engine comes to it."""
        self._post(self._unload_if_idle)

    def restart(self) -> None:
        """After a failure: load the model again and go on. Requests are accepted from now on."""
        with self._lock:
            self._loads_asked += 1
        self._post(self._load)

    # ---------------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Start the thread; it loads the model. Twice is once. A program that ends without `close` ends the thread, too."""
        if self._thread is None:
            end_at_exit(self)
            self._thread = threading.Thread(target=self._main, name="omnibus-engine", daemon=True)
            self._thread.start()

    def begin_to_close(self) -> None:
        """Have the thread end, and do not wait for it: `close` does."""
        with self._lock:
            self._closing = True
        self._wake.set()

    def close(self, timeout: float = 2.0) -> bool:
        """End every request, join the thread. Returns whether the thread ended within `timeout` seconds."""
        self.begin_to_close()
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

    def sibling(self, model: str, opener: Opener) -> Engine:
        """Another engine of this process for another model, with the same rules; not started. The ids of their requests never meet."""
        other = Engine(replace(self._config, model=model), opener=opener, clock=self._clock)
        other._ids, other._chat_priority = self._ids, self._chat_priority
        return other

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
