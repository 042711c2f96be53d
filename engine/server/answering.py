"""One request for answers, from boarding to its last byte: whole, or streamed as server-sent events.

Before the first token an error is an HTTP status; after it, an event in the stream, which then ends without a finish reason and without
[DONE], so that no client can take it for a whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from starlette.types import Receive, Scope, Send

from engine.server.asks import Ask
from engine.server.errors import ApiError, cancelled, from_end
from engine.server.metrics import Metrics
from engine.server.replies import STILL_HERE, WRITE, Chunk, EventStream, json_reply
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
                await (self._stream(ride, EventStream(send, writer_of(scope))) if self._ask.stream else self._whole(ride, send))
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
        opened: set[int] = set()
        try:
            while not self._complete:
                events = await ride.events(STILL_HERE_S)
                if ride.gone:
                    return
                if not events and not ride.dropped:
                    await stream.raw(STILL_HERE)
                chunks, wrong = self._tell(opened, events)
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

    def _tell(self, opened: set[int], events: Sequence[tuple[int, Event]]) -> tuple[list[Chunk], ApiError | None]:
        """Chunks of all choices that said something by now, for one write; and what went wrong after them."""
        shape, chunks = self._shape, list[Chunk]()
        for choice, event in events:
            end = event if isinstance(event, FinishedEvent) else None
            said = Said()
            if end is None:
                said.add(cast(TokensEvent, event))
            elif wrong := self._note_end(choice, end):
                return chunks, wrong
            if choice not in opened:
                opened.add(choice)
                chunks += shape.opening(choice)
            chunks += shape.pieces(choice, said, end is not None)
            if end is not None:
                chunks += shape.closing(choice, end.reason)
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


def writer_of(scope: Scope) -> Callable[[bytes], bool] | None:
    """How this connection writes a piece at once, if it does."""
    offered = (scope.get("extensions") or {}).get(WRITE, {})
    return cast("Callable[[bytes], bool] | None", offered.get("write"))
