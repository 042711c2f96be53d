"""From an ask to the engine's events: submits its answers, hands their events on as they come, and lets go of all when the client does.

Owns the handles of one HTTP request, and the bound on how many there are in all. The event loop's side; the engine's side is a handle's
`on_ready`, which only leaves a note here. Must never leave a request running whose client has gone, also if it left while it was waiting
or while its prompt was being encoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from hashlib import blake2b
from typing import Protocol

from starlette.types import Receive

from engine.handle import RequestHandle
from engine.server.asks import Ask, Prompt
from engine.server.bell import Bell
from engine.server.errors import ApiError, bad_request, cancelled, from_engine, from_refusal
from engine.text.tools import ToolForm
from engine.types import (
    EngineConfig,
    EngineError,
    EngineState,
    Event,
    FinishedEvent,
    Pooling,
    Priority,
    RequestRefused,
    SamplingParams,
    Snapshot,
)

log = logging.getLogger(__name__)

LONGEST_RETRY_S = 60


class ServedEngine(Protocol):
    """What the server needs of an engine."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def config(self) -> EngineConfig: ...

    def tokenize(self, prompt: Prompt, salt: bytes = b"") -> list[int] | None: ...

    def detokenize(self, token_ids: Sequence[int]) -> str | None: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    @property
    def tool_form(self) -> ToolForm: ...

    @property
    def embedding_size(self) -> int: ...

    @property
    def pooling(self) -> Pooling: ...

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        chat_id: str,
        title: str,
        priority: Priority,
        continue_final: bool,
        salt: bytes,
        on_ready: Callable[[RequestHandle], None],
    ) -> RequestHandle: ...


class ServedModels(Protocol):
    """Where the server finds its engines; an engine is that of itself."""

    @property
    def serving(self) -> Sequence[ServedEngine]:
        """One engine for each model that is loaded, the one that is meant without a name first; never empty."""
        ...


class Teller(Protocol):
    """Tells a client of events as they come, without a task that is woken for them."""

    @property
    def ready(self) -> bool:
        """Whether anything may be told now."""
        ...

    def tell(self, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
        """Returns what it leaves to the task: nothing, as a rule, else all from the first that is more than a piece of text on."""
        ...


class Rides:
    """All HTTP requests that are being answered.

    Attributes:
        open: answers that were promised a place and have not ended.
        most_waiting: how many of them may wait beyond the seats.
    """

    def __init__(self, served: ServedModels, executor: Executor, most_waiting: int) -> None:
        self.served = served
        self.executor = executor
        self.most_waiting = most_waiting
        self.open = 0
        self._rides: set[Ride] = set()
        self._numbers = itertools.count(1)
        self._closing = False
        self._bell: Bell | None = None
        self._mean_s = 1.0  # of the last answers, about

    @contextlib.asynccontextmanager
    async def board(self, engine: ServedEngine, ask: Ask, receive: Receive, key: bytes = b"") -> AsyncIterator[Ride]:
        """An ask, submitted to an engine; when the block is left, whatever of it still runs is cancelled.

        Raises ApiError: 429 beyond the bound, 503 without a model, 400 for what the engine refuses.
        """
        self._check_room(engine, ask)
        self.open += ask.at_once
        if self._bell is None:
            self._bell = Bell(asyncio.get_running_loop())
        ride = Ride(engine, ask, f"api-{ask.session}" if ask.session else f"api-r{next(self._numbers)}", self._bell, key)
        self._rides.add(ride)
        watch = asyncio.create_task(ride.watch(receive))
        try:
            await self.submit(ride)
            if ride.dropped and not ride.gone:  # the server is being closed
                raise cancelled()
            yield ride
        finally:
            ride.drop()
            ride.forget()
            watch.cancel()
            self._rides.discard(ride)
            self.open -= ask.at_once

    async def submit(self, ride: Ride) -> None:
        """Hand over what it has places for now. Raises ApiError; all of it is cancelled then."""
        await self.aside(ride.submit)

    async def aside(self, work: Callable[..., object], *arguments: object) -> None:
        """Do work with prompts on another thread. Raises ApiError for whatever it raises."""
        try:
            await asyncio.get_running_loop().run_in_executor(self.executor, work, *arguments)
        except RequestRefused as error:
            raise from_refusal(error, self.retry_after()) from None
        except EngineError as error:
            raise from_engine(error) from None
        except ApiError:
            raise
        except Exception:  # a tokenizer or template that fails on this text
            log.exception("a prompt could not be prepared")
            raise bad_request("The prompt could not be prepared for this model.", "prompt", "bad_prompt") from None

    def note_end(self, end: FinishedEvent) -> None:
        self._mean_s += 0.1 * (end.time.total - self._mean_s)

    def retry_after(self) -> int:
        """Seconds after which a seat is likely to be free: the time that the queue takes, about."""
        seats = max(1, self._seats)
        wait = self._mean_s * max(1, self.open - seats) / seats
        return min(LONGEST_RETRY_S, max(1, round(wait)))

    def close(self) -> None:
        """End everything and take nothing more. Called on the event loop."""
        self._closing = True
        for ride in list(self._rides):
            ride.drop(gone=False)

    @property
    def _seats(self) -> int:
        return sum(len(engine.snapshot.seats) for engine in self.served.serving)

    def _check_room(self, engine: ServedEngine, ask: Ask) -> None:
        check_ready(engine.snapshot, self._closing)
        if self.open + ask.at_once > self.most_waiting + self._seats:
            retry = {"Retry-After": str(self.retry_after())}
            message = f"{self.open} answers are being made or wait already, as many as this server takes."
            raise ApiError(429, message, "rate_limit_exceeded", headers=retry)


def check_ready(snapshot: Snapshot, closing: bool = False) -> None:
    """Raises ApiError 503 while there is no model that could answer."""
    if snapshot.state in (EngineState.READY, EngineState.PAUSED) and not closing:
        return
    if snapshot.state in (EngineState.STARTING, EngineState.LOADING) and not closing:
        raise ApiError(503, "The model is still being loaded.", "model_loading", headers={"Retry-After": "2"})
    if snapshot.state is EngineState.EMPTY and not closing:
        raise ApiError(503, "No model is loaded; it was let go while nobody asked.", "no_model", headers={"Retry-After": "10"})
    raise ApiError(503, "The engine is not running.", "engine_stopped", headers={"Retry-After": "10"})


def room_of(snapshot: Snapshot) -> int:
    """Most tokens of a request, prompt and answer: the model's context, or the whole KV pool where that is smaller."""
    pool = snapshot.kv.total * snapshot.kv.block_size
    return min(pool, snapshot.model.context) if snapshot.model.context else pool


def salt_of(key: bytes, salt: str = "") -> bytes:
    """What sets apart, wherever prompts are remembered, those of one client from all others: of its key and what it says itself."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest() if key or salt else b""


class Ride:
    """One HTTP request.

    Attributes:
        gone: the client has closed its connection.
        dropped: everything of it was cancelled, for that reason or another.
        teller: gets what comes while somebody waits for events, who then sees what it leaves; None for who wants to see them all.
    """

    def __init__(self, engine: ServedEngine, ask: Ask, chat_id: str, bell: Bell, key: bytes = b"") -> None:
        self.gone = self.dropped = False
        self.teller: Teller | None = None
        self._engine = engine
        self._ask = ask
        self._chat_id = chat_id
        self._salt = salt_of(key, ask.salt)
        self._handles: list[RequestHandle] = []
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._next = self._ended = 0  # the first choice that is not submitted yet; how many have ended
        self._notes: dict[int, RequestHandle] = {}  # by choice: something to poll
        self._left: list[tuple[int, Event]] = []  # taken, and left by the teller
        self._waiter: asyncio.Future[None] | None = None  # of who waits for events
        self._stirred = False  # dropped since then
        self._patience = 0.0
        self._until = 0.0  # on the loop's clock, when the wait has lasted long enough
        self._timer: asyncio.TimerHandle | None = None

    @property
    def begun(self) -> list[RequestHandle]:
        """By choice, what was submitted so far."""
        return self._handles

    # ----------------------------------------------------------------------------------------------- a worker thread

    def submit(self) -> None:
        """Submit every choice that there is a place for, or none. Raises what the engine raises."""
        ask = self._ask
        if ask.reproducible and not self._engine.config.reproducible:
            message = "This server does not promise the same answer in any company: start it with --reproducible, or leave it out."
            raise bad_request(f"{message} In the window it is a setting.", "reproducible", "not_reproducible")
        try:
            while not self.dropped and self._next < ask.choices and self._next - self._ended < ask.at_once:
                prompt = ask.prompts[self._next // ask.n]
                if self._next % ask.n == 0:
                    self._check_length(prompt)
                self._submit_one(self._next, prompt)
                self._next += 1
        except BaseException:
            self._cancel_all()
            raise

    def _submit_one(self, choice: int, prompt: Prompt) -> None:
        ask = self._ask
        handle = self._engine.submit(
            prompt,
            ask.params_of(choice),
            chat_id=self._chat_id,
            title=ask.title or "API",
            priority=ask.priority,
            continue_final=ask.continue_final,
            salt=self._salt,
            on_ready=partial(self._bell.ring, self, choice),
        )
        self._handles.append(handle)
        if self.dropped:  # while it was being submitted: whoever dropped it did not see this handle
            handle.cancel()

    def _check_length(self, prompt: Prompt) -> None:
        """An answer that was asked for in full and cannot fit is refused with the numbers, as OpenAI does, instead of being cut."""
        wanted = self._ask.params.max_tokens
        if wanted is None:
            return
        room = room_of(self._engine.snapshot)
        if self._ask.bytes_of(prompt) + wanted <= room:
            return
        count = len(self._engine.tokenize(prompt, self._salt) or ())
        if count < room < count + wanted:
            message = f"This model takes {room:,} tokens in all; the prompt has {count:,} and {wanted:,} were asked for the answer."
            raise bad_request(f"{message} Shorten the prompt or ask for fewer.", "max_tokens", "context_length_exceeded")

    # ------------------------------------------------------------------------------------------------ the event loop

    async def watch(self, receive: Receive) -> None:
        """Until the client has gone; then drop everything, whatever state it is in."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.drop()

    def drop(self, gone: bool = True) -> None:
        """Cancel what still runs. Twice is once."""
        self.gone = self.gone or gone
        self.dropped = True
        self._cancel_all()
        self._stirred = True
        self._wake()

    def forget(self) -> None:
        """Nobody will wait for events any more."""
        if self._timer is not None:
            self._timer.cancel()

    async def events(self, patience: float) -> list[tuple[int, Event]]:
        """(choice, event) of all that came, in order within each choice; [] after `patience` seconds without any, or when the client
        has gone."""
        if not self._notes and not self._stirred and not self.gone:
            await self._wait(patience)
        self._stirred = False
        if self.gone:
            return []
        left, self._left = self._left, []
        return left + self._take()

    def _take(self) -> list[tuple[int, Event]]:
        """All that was noted."""
        notes, self._notes = self._notes, {}
        told: list[tuple[int, Event]] = []
        for choice, handle in notes.items():
            for event in handle.poll():
                told.append((choice, event))
                if isinstance(event, FinishedEvent):
                    self._ended += 1
        return told

    @property
    def waits_for_places(self) -> bool:
        """There is more to submit, and room for it."""
        return self._next < self._ask.choices and self._next - self._ended < self._ask.at_once

    def note(self, choice: int, handle: RequestHandle) -> bool:
        """A choice has something to read. Returns whether it is the first: then `hand_over` is to be called when all is noted."""
        first = not self._notes
        self._notes[choice] = handle
        return first

    def hand_over(self, now: float) -> None:
        """Tell what was noted, or wake who waits for it. This is done once a step, and a task that runs costs more than a piece of text."""
        waiter, teller = self._waiter, self.teller
        if waiter is None or waiter.done():
            return  # who waited is on the way, and will find it
        if teller is None or not teller.ready:
            waiter.set_result(None)
            return
        try:
            self._left = teller.tell(self._take())
        except Exception as error:  # it is of this request, not of all that the bell was rung for
            waiter.set_exception(error)
            return
        if self._left:
            waiter.set_result(None)
        else:
            self._until = now + self._patience

    async def _wait(self, patience: float) -> None:
        """Until something is noted, it is dropped, or `patience` seconds have passed.

        No timer is set for each thing that comes: the one that was set looks, when it rings, whether it is time yet.
        """
        self._waiter, self._patience = self._loop.create_future(), patience
        self._until = self._loop.time() + patience
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look_up)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _look_up(self) -> None:
        self._timer = None
        if self._waiter is not None and self._loop.time() >= self._until:
            self._wake()
        elif self._waiter is not None:
            self._timer = self._loop.call_at(self._until, self._look_up)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _cancel_all(self) -> None:
        for handle in list(self._handles):
            handle.cancel()
