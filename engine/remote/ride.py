"""One request on its way through a remote server: tries, the stream, the end; written into the request's handle as the engine does.

Owns the retry rule: before the first token three more tries, after it none, ever: what arrived is kept and the end is an error that says
so. Only a server that keeps its streams is asked for the rest of the same one (resume.py). A stream that ends without a finish reason was
cut, whatever else came. Closing the connection is how a server is told to stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from engine.handle import RequestHandle
from engine.remote import wire
from engine.remote.calls import Calls
from engine.remote.resume import HEADER, Resumable
from engine.types import EngineError, ErrorInfo, FinishedEvent, FinishReason, Priority, Sentence, TimeSplit, TokensEvent, Usage

TRIES = 4
BACKOFF_S = (0.5, 1.0, 2.0)
MOST_WAIT_S = 60.0
NO_ID = (-1,)  # stands for a token whose id the server does not tell
WHOLE = httpx2.Timeout(10.0, read=900.0)  # an answer that is not streamed says nothing before its end
REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "tool_calls": FinishReason.STOP, "content_filter": FinishReason.STOP}


@dataclass(slots=True)
class Ride:
    """A request and where it is.

    Attributes:
        asked, sent, first: clock times of the submit, of the present try, and of the first token.
        tokens: pieces that came so far, which servers send one a token.
        usage: as the server counts at the end.
        note: why it waits before its first token; empty while it does not.
        name: under which the server keeps its stream, so that a break can be mended; "" where it keeps none.
    """

    handle: RequestHandle
    body: dict[str, Any]
    title: str
    priority: Priority
    number: int
    asked: float
    sent: float | None = None
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    usage: Usage | None = None
    note: str = ""
    name: str = ""
    thinking: bool = False
    calls: Calls = field(default_factory=Calls)
    task: asyncio.Task[None] | None = None

    def times(self, now: float) -> TimeSplit:
        sent = now if self.sent is None else self.sent
        first = now if self.first is None else self.first
        waited, prefill = max(0.0, sent - self.asked), max(0.0, first - sent)
        ttft = None if self.first is None else self.first - self.asked
        return TimeSplit(waited, prefill, max(0.0, now - first), 0.0, ttft)

    def end(self, reason: FinishReason, now: float, error: ErrorInfo | None = None) -> None:
        self.handle.put(FinishedEvent(self.handle.id, reason, self.usage or Usage(0, self.tokens), self.times(now), error))


async def carry(
    ride: Ride,
    client: httpx2.AsyncClient,
    url: str,
    host: str,
    clock: Callable[[], float],
    moved: Callable[[], None],
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> EngineError | None:
    """Bring a request to its end, whatever that is. Returns the error it ended with.

    Raises CancelledError when it is cancelled; the end is then not put.
    """
    error: EngineError | None = None
    reason = FinishReason.ERROR
    for number in range(TRIES):
        pause = BACKOFF_S[min(number, len(BACKOFF_S) - 1)] * random.uniform(0.8, 1.2)
        try:
            ride.sent = clock()
            if ride.body["stream"]:
                reason = await _stream(ride, client, url, clock, moved, sleep)
            else:
                reason = await _whole(ride, client, url, clock, moved)
            error = None
            break
        except wire.Later as later:
            error = EngineError("remote_busy", Sentence("{0} refused {1} times: {2}.", host, number + 1, later.words), "Try again later.")
            pause = min(MOST_WAIT_S, later.seconds) or pause
            ride.note = later.words
        except EngineError as refused:
            error = refused
            break
        except httpx2.HTTPError as trouble:
            error = wire.lost(trouble, host)
            ride.note = error.message.rstrip(".")
            if error.code == "remote_tls":
                break
        if ride.tokens:
            break
        if number + 1 < TRIES:
            moved()
            await sleep(pause)
    if error is not None and ride.tokens and error.code in ("remote_cut", "remote_silent", "remote_busy"):
        sentence = Sentence("The answer broke off after {0} pieces: {1}{2}", ride.tokens, error.message[0].lower(), error.message[1:])
        error = EngineError("stream_cut", sentence, "What arrived is kept; continue it, or ask again.")
    if error is not None:
        reason = FinishReason.ERROR
        if rest := ride.calls.broken():
            _take(ride, rest, clock(), ())
    ride.end(reason, clock(), error.info() if error else None)
    return error


async def _stream(
    ride: Ride,
    client: httpx2.AsyncClient,
    url: str,
    clock: Callable[[], float],
    moved: Callable[[], None],
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> FinishReason:
    """One try. Raises EngineError, Later, or what the HTTP client raises."""
    finish: str | None = None

    def broken() -> None:
        ride.note = "the connection broke off; the rest is asked for"
        moved()

    async with client.stream("POST", f"{url}/chat/completions", json=ride.body, headers={HEADER: ride.name} if ride.name else {}) as answer:
        if answer.status_code != 200:
            raise await wire.refusal(answer, ride.body["model"])
        kind = answer.headers.get("Content-Type", "")
        if "text/event-stream" not in kind:
            raise wire.nonsense(kind or "no content type")
        pieces = Resumable(client, url, ride.name, broken, sleep).pieces(answer) if ride.name else answer.aiter_bytes()
        async for event in wire.events(pieces):
            choices = event.get("choices")
            for choice in choices[:1] if isinstance(choices, list) else ():  # one is all that was asked for
                delta = choice.get("delta") if isinstance(choice, dict) else None
                if isinstance(delta, dict):
                    text = _text(ride, delta)
                    if text or delta.get("tool_calls"):
                        _take(ride, text, clock())
                        moved()
                finish = choice.get("finish_reason") or finish if isinstance(choice, dict) else finish
            if isinstance(usage := event.get("usage"), dict):
                ride.usage = _usage(usage)
    if finish is None and not ride.tokens:  # nothing is lost yet
        raise wire.Later("the stream ended before its first word")
    if finish is None:
        sentence = Sentence("The answer broke off after {0} pieces: the server closed it without saying that it was finished.", ride.tokens)
        raise EngineError("stream_cut", sentence, "What arrived is kept; continue it, or ask again.")
    rest = ("\n</think>\n\n" if ride.thinking else "") + ride.calls.end()
    if rest:
        _take(ride, rest, clock(), ())
    return REASONS.get(finish, FinishReason.STOP) if isinstance(finish, str) else FinishReason.STOP


async def _whole(ride: Ride, client: httpx2.AsyncClient, url: str, clock: Callable[[], float], moved: Callable[[], None]) -> FinishReason:
    """One try, not streamed: the answer comes in one piece. Raises as `_stream`."""
    async with client.stream("POST", f"{url}/chat/completions", json=ride.body, timeout=WHOLE) as answer:
        if answer.status_code != 200:
            raise await wire.refusal(answer, ride.body["model"])
        content = await wire.whole(answer)
    choices = content.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise wire.nonsense(str(content)[:80])
    if isinstance(usage := content.get("usage"), dict):
        ride.usage = _usage(usage)
    text = _text(ride, message) + ("\n</think>\n\n" if ride.thinking else "") + ride.calls.end()
    if text:
        _take(ride, text, clock())
        moved()
    return REASONS.get(str(choice.get("finish_reason")), FinishReason.STOP)


def _text(ride: Ride, delta: dict[str, Any]) -> str:
    """What a piece adds to the answer. Reasoning that comes apart from it is put between the marks that models themselves use."""
    reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
    content = delta.get("content") or ""
    if not isinstance(reasoning, str) or not isinstance(content, str):
        raise wire.nonsense("a piece that is no text")
    made = ""
    if reasoning:
        made += reasoning if ride.thinking else f"<think>\n{reasoning}"
        ride.thinking = True
    if content:
        made += f"\n</think>\n\n{content}" if ride.thinking else content
        ride.thinking = False
    if calls := ride.calls.push(delta.get("tool_calls")):
        made += f"\n</think>\n\n{calls}" if ride.thinking else calls
        ride.thinking = False
    return made


def _take(ride: Ride, text: str, now: float, token_ids: tuple[int, ...] = NO_ID) -> None:
    if ride.first is None:
        ride.first = now
    ride.last, ride.note = now, ""
    ride.tokens += len(token_ids)
    ride.handle.put(TokensEvent(ride.handle.id, text, token_ids))


def _usage(usage: dict[str, Any]) -> Usage | None:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    numbers = [usage.get("prompt_tokens"), usage.get("completion_tokens"), cached or 0]
    return Usage(*numbers) if all(type(number) is int and number >= 0 for number in numbers) else None  # type: ignore[arg-type, operator]
