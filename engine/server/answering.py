"""One request for answers, from boarding to its last byte: whole, or streamed as server-sent events.

Before the first token an error is an HTTP status; after it, an event in the stream, which then ends without a finish reason and without
[DONE], so that no client can take it for a whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from starlette.types import Receive, Scope, Send

from engine.server.asks import Ask
from engine.server.errors import ApiError, cancelled, from_end
from engine.server.metrics import Metrics
from engine.server.replies import STILL_HERE, WRITE, Body, Chunk, EventStream, json_reply, to_events
from engine.server.rides import Ride, Rides, ServedEngine
from engine.server.shapes import Said, Shape, usage_of
from engine.types import Event, FinishedEvent, FinishReason, TokensEvent

STILL_HERE_S = 10.0  # of silence, after which a comment tells the client and whatever stands between that the request lives


class Answering:
    """An ASGI response. `key` stands for the client, whose prompts nobody else finds in the prefix cache."""

    def __init__(self, engine: ServedEngine, rides: Rides, metrics: Metrics, ask: Ask, shape: Shape, key: bytes = b"") -> None:
        self._engine = engine
        self._key = key
        self._rides = rides
        self._metrics = metrics
        self._ask = ask
        self._shape = shape
        self._ends: dict[int, FinishedEvent] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._rides.board(self._engine, self._ask, receive, self._key) as ride:
            for choice, handle in enumerate(ride.begun):
                self._shape.begin(choice, handle.thinking, handle.prompt_ids)
            try:
                await (self._stream(ride, EventStream(send, body_of(scope))) if self._ask.stream else self._whole(ride, send))
            finally:
                if ride.gone:
                    self._metrics.note_gone(self._ask.choices - len(self._ends))

    async def _whole(self, ride: Ride, send: Send) -> None:
        said = [Said() for _ in range(self._ask.choices)]
        while not self._complete:
            events = await ride.events(STILL_HERE_S)
            if ride.gone:
                return
            for choice, event in events:
                if isinstance(event, TokensEvent):
                    said[choice].add(event)
                elif wrong := self._note_end(choice, event):
                    raise wrong
        await json_reply(self._shape.whole(said, self._ends, usage_of(self._ask, self._ends))).send(send)

    async def _stream(self, ride: Ride, stream: EventStream) -> None:
        telling = ride.teller = _Telling(self._shape, stream)
        try:
            while not self._complete:
                events = await ride.events(STILL_HERE_S)
                if ride.gone:
                    return
                if not events and not ride.dropped:
                    await stream.raw(STILL_HERE)
                chunks, wrong = self._tell(telling, events)
                if chunks:
                    await stream.data(*chunks)
                if wrong is not None:
                    raise wrong
        except ApiError as error:
            if not stream.started:
                raise
            await stream.data(self._shape.failure(error))
        else:
            if endings := self._shape.ending(self._ends, usage_of(self._ask, self._ends)):
                await stream.data(*endings)
            if self._shape.last_line:
                await stream.raw(self._shape.last_line)
        await stream.end()

    def _tell(self, telling: _Telling, events: Sequence[tuple[int, Event]]) -> tuple[list[Chunk], ApiError | None]:
        """Chunks of all choices that said something by now, for one write; and what went wrong after them."""
        shape, chunks = self._shape, list[Chunk]()
        for choice, event in events:
            if isinstance(event, TokensEvent):
                chunks += [*telling.opening(choice), *shape.pieces(choice, event, False)]
            elif wrong := self._note_end(choice, event):
                return chunks, wrong
            else:
                chunks += [*telling.opening(choice), *shape.pieces(choice, Said(), True), *shape.closing(choice, event.reason)]
        return chunks, None

    @property
    def _complete(self) -> bool:
        return len(self._ends) == self._ask.choices

    def _note_end(self, choice: int, end: FinishedEvent) -> ApiError | None:
        """What went wrong, for an end that is no answer's."""
        self._ends[choice] = end
        self._metrics.note_end(end)
        self._rides.note_end(end)
        if end.reason is FinishReason.ERROR:
            return from_end(end.error)
        return cancelled() if end.reason is FinishReason.CANCELLED else None


class _Telling:
    """A streamed response while it is under way: what came of the choices that have begun is written as it comes."""

    def __init__(self, shape: Shape, stream: EventStream) -> None:
        self._shape = shape
        self._body = stream.body
        self._opened: set[int] = set()

    def opening(self, choice: int) -> Sequence[Chunk]:
        """What comes before anything of a choice; nothing from the second call on."""
        if choice in self._opened:
            return ()
        self._opened.add(choice)
        return self._shape.opening(choice)

    @property
    def ready(self) -> bool:
        return self._body is not None and self._body.open

    def tell(self, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
        shape, chunks, left = self._shape, list[Chunk](), list[tuple[int, Event]]()
        for place, (choice, event) in enumerate(events):
            if not isinstance(event, TokensEvent) or choice not in self._opened:
                left = events[place:]
                break
            chunks += shape.pieces(choice, event, False)
        if chunks and self._body is not None:
            self._body.write(to_events(chunks))
        return left


def body_of(scope: Scope) -> Body | None:
    """How this connection takes the pieces of a body, if it does so without messages."""
    offered = (scope.get("extensions") or {}).get(WRITE, {})
    return cast("Body | None", offered.get("body"))
