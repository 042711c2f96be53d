"""An engine behind an address: the interface of `engine.Engine`, carried out by any server with an OpenAI-compatible API.

This is what callers see, from any thread; the work is done in engine/remote/thread.py. Commands that only an engine in this process can
carry out are refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from engine.handle import RequestHandle
from engine.remote import wire
from engine.remote.ride import Ride
from engine.remote.thread import RemoteConfig, RemoteThread
from engine.types import (
    Chat,
    EngineConfig,
    EngineError,
    EngineState,
    FinishReason,
    Message,
    Policy,
    Priority,
    RequestRefused,
    SamplingParams,
    Sentence,
    StepRecord,
)

__all__ = ["RemoteConfig", "RemoteEngine"]


class RemoteEngine(RemoteThread):
    """See the module. Safe to use from any thread.

    Raises (constructor): EngineError("bad_url" | "bad_config").
    """

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def config(self) -> EngineConfig:
        return self._config

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        """A server does not tell its steps."""
        return ()

    def tokenize(self, prompt: Any, salt: bytes = b"") -> list[int] | None:
        """The tokenizer is the server's own."""
        return None

    def count_tokens(self, prompt: Any) -> int | None:
        return None

    # ------------------------------------------------------------------------------------------------------ requests

    def submit(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        chat_id: str = "",
        title: str = "",
        priority: Priority | None = None,
        continue_final: bool = False,
        model: str = "",
        on_ready: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """As `Engine.submit`; a prompt must be the messages of a chat, or one text."""
        params = params or SamplingParams()
        params.check()
        if not prompt:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something first.")
        if isinstance(prompt, str):
            prompt = [Message("user", prompt)]
        if not isinstance(prompt, Chat) and not all(isinstance(item, Message) for item in prompt):
            raise RequestRefused("no_tokens", "A remote engine takes messages, not token ids.", "Send the chat as messages.")
        if self._stopped:
            reason = self._error.message if self._error else "The engine is closed."
            raise RequestRefused(
                "engine_stopped", Sentence("The engine is not running. {0}", reason), "Try again, or choose another engine."
            )
        if params.grammar is not None or params.logprobs is not None or params.pooling is not None:
            sentence = "Forms, log-probabilities and embeddings are not asked of remote engines."
            raise RequestRefused("not_remote", sentence, "Leave them out.")
        number = next(self._ids)
        name = f"{self._prefix}{number}"
        handle = RequestHandle(name, chat_id or name, self.cancel, on_ready)
        if priority is None:
            priority = self._chat_priority.get(handle.chat_id, Priority.FOREGROUND)
        body = wire.body_of(self._model, prompt, params, continue_final, self._remote.whole)
        ride = Ride(handle, body, title, priority, number, self._clock())
        with self._lock:
            if self._stopped:
                raise RequestRefused("engine_stopped", "The engine has just stopped.", "Try again, or choose another engine.")
            if len(self._waiting) >= self._config.max_waiting:
                raise RequestRefused("queue_full", Sentence("{0:,} requests are waiting already.", len(self._waiting)), "Try again later.")
            self._rides[handle.id] = ride
            self._waiting.append(ride)
            self._counters = self._counters._replace(submitted=self._counters.submitted + 1)
        self._post(self._board)
        return handle

    def cancel(self, request_id: str) -> None:
        self._post(lambda: self._cancel_now(request_id))

    def set_priority(self, request_id: str, priority: Priority) -> None:
        ride = self._rides.get(request_id)
        if ride is not None:
            ride.priority = priority

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        self._chat_priority[chat_id] = priority
        for ride in list(self._rides.values()):
            if ride.handle.chat_id == chat_id:
                ride.priority = priority

    # ------------------------------------------------------------------------------------------------------ steering

    def configure(
        self, *, seats: int | None = None, token_budget: int | None = None, policy: Policy | None = None, chunk: int | None = None
    ) -> None:
        """How many requests may be with the server at once; all else is the server's own. Raises EngineError("not_remote")."""
        if policy is Policy.STATIC or token_budget is not None or chunk is not None:
            raise EngineError("not_remote", "The server keeps its own policy and budgets.", "Change them where it was started.")
        if seats is not None:
            config = replace(self._config, seats=seats)
            config.check()
            self._config = config
            self._post(self._board)

    def pause(self) -> None:
        """Send nothing more; what is with the server goes on."""
        self._post(lambda: self._set_paused(True))

    def resume(self) -> None:
        self._post(lambda: self._set_paused(False))

    def clear_cache(self) -> None:
        self._not_here("The cache is the server's.")

    def resize_pool(self, num_blocks: int) -> None:
        self._not_here("The KV pool is the server's.")

    def start_recording(self) -> Future[None]:
        return _refused("A server's scheduling cannot be recorded from here.")

    def stop_recording(self) -> Future[Any]:
        return _refused("Nothing is being recorded.")

    def load(self, model: str) -> None:
        """Another model of the same server, for requests from now on."""
        self._model = model

    def unload(self) -> None:
        self._not_here("The model is loaded on the server.")

    def cancel_load(self) -> None:
        """There is no load to give up."""

    def let_go_after(self, seconds: float | None) -> None:
        """The model takes no memory here."""

    def restart(self) -> None:
        """Look for the server again."""
        self._post(lambda: self._again.set() if self._again is not None else None)

    # ---------------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Start the thread; it looks for the server. Twice is once."""
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="omnibus-remote", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 2.0) -> bool:
        """End every request, join the thread. Returns whether it ended in time."""
        with self._lock:
            self._closing = True
        ended = True
        if self._thread is not None:
            self._post(self._stop_all)
            self._thread.join(timeout)
            ended = not self._thread.is_alive()
        for ride in list(self._rides.values()):
            self._end(ride, FinishReason.CANCELLED)
        self._state = EngineState.CLOSED
        self._publish()
        return ended

    def __enter__(self) -> RemoteEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _not_here(self, why: str) -> None:
        raise EngineError("not_remote", why, "Change it where the server was started.")


def _refused(why: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(EngineError("not_recording", why, "Record on an engine of this machine."))
    return future
