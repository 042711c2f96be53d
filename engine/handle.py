"""The caller's end of one request: events in order, text coalesced, the end exactly once.

Owns a small locked box. The engine thread puts, anyone polls, waits or awaits. A slow reader costs nothing: unread tokens join
into one event. Never calls back into the engine but to cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from engine.types import ErrorInfo, Event, FinishedEvent, FinishReason, TimeSplit, TokenLogprob, TokensEvent, Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer."""

    text: str
    token_ids: tuple[int, ...]
    reason: FinishReason
    usage: Usage
    time: TimeSplit
    error: ErrorInfo | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    embedding: tuple[float, ...] = ()


class RequestHandle:
    """One request.

    Attributes:
        id: unique within the engine.
        chat_id: the chat that it belongs to.
        thinking: the prompt ends within the model's reasoning, so that the answer begins in it; set by the engine before any text comes.
        prompt_ids: the prompt's tokens, set by the engine as soon as it knows them.
    """

    def __init__(
        self, request_id: str, chat_id: str, cancel: Callable[[str], None], on_ready: Callable[[RequestHandle], None] | None = None
    ) -> None:
        self.id = request_id
        self.chat_id = chat_id
        self.thinking = False
        self.prompt_ids: Sequence[int] = ()
        self._cancel = cancel
        self._on_ready = on_ready
        self._wakers: tuple[Callable[[], None], ...] = ()  # swapped, never changed in place
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        self._waiting = 0  # threads that sleep until something is ready
        self._only: TokensEvent | None = None  # what came since the last poll, if that was one event; a second one joins it in the lists
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: tuple[TokenLogprob, ...] = ()
        self._end: FinishedEvent | None = None
        self._ended = False  # the end was put, read or not
        self._muted = False
        self._told = False  # on_ready was called and nothing was read since

    def __repr__(self) -> str:
        return f"<RequestHandle {self.id} of chat {self.chat_id}>"

    # -------------------------------------------------------------------------------------------------------- reader

    @property
    def ended(self) -> bool:
        """Whether the last event has been put (it may not have been polled yet)."""
        return self._ended

    def poll(self) -> list[Event]:
        """All that came since the last poll: at most one TokensEvent, then the FinishedEvent if it is over. Never blocks."""
        with self._lock:
            if self._only is None or self._ended:
                return self._take()
            event, self._only, self._told = self._only, None, False  # nearly always so, where the reader keeps up
            return [event]

    def wait(self, timeout: float | None = None) -> list[Event]:
        """Like poll, but waits until there is something; [] after `timeout` seconds, or at once when the end was read already."""
        with self._ready:
            self._waiting += 1
            try:
                self._ready.wait_for(lambda: self._unread or self._ended, timeout)
            finally:
                self._waiting -= 1
            return self._take()

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no one is left to wake
                loop.call_soon_threadsafe(ready.set)

        with self._lock:
            self._wakers = (*self._wakers, wake)
        try:
            while True:
                ready.clear()
                for event in self.poll():
                    yield event
                if self._ended and self._end is None:  # read here, or by someone else
                    return
                await ready.wait()
        finally:
            with self._lock:
                self._wakers = tuple(kept for kept in self._wakers if kept is not wake)

    def result(self, timeout: float | None = None) -> Result:
        """Collect to the end.

        Raises TimeoutError when nothing at all comes for `timeout` seconds (the request goes on), RuntimeError when the end was read
        already.
        """
        text: list[str] = []
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        prompt_logprobs: tuple[TokenLogprob, ...] = ()
        while True:
            events = self.wait(timeout)
            if not events and self._ended:
                raise RuntimeError(f"the end of request {self.id} was read already")
            if not events:
                raise TimeoutError(f"request {self.id} gave nothing for {timeout} s")
            for event in events:
                if isinstance(event, TokensEvent):
                    text.append(event.text)
                    tokens += event.token_ids
                    logprobs += event.logprobs
                    prompt_logprobs = event.prompt_logprobs or prompt_logprobs
                else:
                    said = "".join(text), tuple(tokens), event.reason, event.usage, event.time, event.error
                    return Result(*said, tuple(logprobs), prompt_logprobs, event.embedding)

    def cancel(self) -> None:
        """Stop in any state; twice is once. No TokensEvent is delivered after this returns, only the FinishedEvent."""
        with self._lock:
            if self._ended or self._muted:
                return
            self._muted = True
            self._clear()
        self._cancel(self.id)

    # -------------------------------------------------------------------------------------------------------- engine

    def move_to(self, cancel: Callable[[str], None]) -> None:
        """Another engine has the request from now on. A cancel that the old one may have missed is said again."""
        with self._lock:
            self._cancel = cancel
            again = self._muted and not self._ended
        if again:
            cancel(self.id)

    def put(self, event: Event) -> None:
        """Called by the engine. After the end nothing more is taken. Never raises: a reader's fault is not the engine's."""
        with self._lock:  # the condition's own, without its detour: this is done once a token
            if self._ended:
                return
            if isinstance(event, TokensEvent):
                if self._muted:
                    return
                if self._only is None and event.token_ids and not (self._tokens or self._text):
                    self._only = event
                else:
                    self._join(event)
            else:
                if self._muted and event.error is None:  # it came to its own end meanwhile; its reader was cut off all the same
                    event = replace(event, reason=FinishReason.CANCELLED)
                self._end = event
                self._ended = True
            if self._waiting:
                self._ready.notify_all()
            wakers = self._wakers
            tell, self._told = not self._told, True
        if tell and self._on_ready is not None:
            try:
                self._on_ready(self)
            except Exception:
                log.exception("on_ready of request %s failed", self.id)
        for wake in wakers:
            wake()

    def _take(self) -> list[Event]:
        events: list[Event] = []
        self._told = False
        if self._only is not None:
            events.append(self._only)
            self._only = None
        elif self._text or self._tokens:
            text, tokens = "".join(self._text), tuple(self._tokens)
            events.append(TokensEvent(self.id, text, tokens, tuple(self._logprobs), self._prompt_logprobs))
            self._clear()
        if self._end is not None:
            events.append(self._end)
            self._end = None
        return events

    @property
    def _unread(self) -> bool:
        return bool(self._only or self._tokens or self._text)

    def _join(self, event: TokensEvent) -> None:
        """Add to what is unread: a reader that is slower than the engine gets it in one piece."""
        first, self._only = self._only, None
        for more in (event,) if first is None else (first, event):
            if more.text:
                self._text.append(more.text)
            self._tokens += more.token_ids
            self._logprobs += more.logprobs
            self._prompt_logprobs = more.prompt_logprobs or self._prompt_logprobs

    def _clear(self) -> None:
        self._only = None
        self._text.clear()
        self._tokens.clear()
        self._logprobs.clear()
        self._prompt_logprobs = ()
