"""Vectors of texts: OpenAI's embeddings, made by the model that is loaded, in the same steps as everybody's answers.

Each input is a request of its own in the class of the API. Of one HTTP request no more than half of the seats' worth are with the engine at
once, and the others follow: thousands of inputs hold up no stream for longer than one short prompt would. Owns the reading of the request
and the shape of the answer.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from engine.server.asks import Ask, read_prompts, session_of, title_of
from engine.server.errors import ApiError, bad_request, cancelled, from_end
from engine.server.fields import Fields
from engine.server.metrics import Metrics
from engine.server.replies import COMMON, patiently, to_json
from engine.server.rides import Ride, Rides, ServedEngine, check_ready, room_of
from engine.types import FinishedEvent, FinishReason, Pooling, SamplingParams

MOST_INPUTS = 2048  # of one request, as OpenAI has it
PATIENCE_S = 10.0
NONE_MADE = "The model that is loaded gives no embeddings."


@dataclass(frozen=True, slots=True)
class Wish:
    """One request for vectors. `dimensions` is how many numbers of each are told; `packed` tells them as base64 of 32-bit numbers."""

    ask: Ask
    dimensions: int
    packed: bool


def read_embeddings(fields: Fields, engine: ServedEngine) -> Wish:
    """The body of /v1/embeddings. Raises ApiError."""
    snapshot = engine.snapshot
    check_ready(snapshot)
    size = engine.embedding_size
    if not size:
        raise bad_request(NONE_MADE, "model", "no_embeddings")
    inputs = read_prompts(fields, "input", MOST_INPUTS)
    form = fields.raw("encoding_format")
    if form not in (None, "float", "base64"):
        raise fields.wrong("encoding_format", '"float" or "base64"')
    pooling = fields.raw("pooling")
    if pooling not in (None, *Pooling):
        raise fields.wrong("pooling", '"mean" or "last"')
    title = inputs[0] if isinstance(inputs[0], str) else ""
    params = SamplingParams(max_tokens=1, temperature=0.0, pooling=engine.pooling if pooling is None else Pooling(pooling))
    ask = Ask(
        inputs,
        params,
        n=1,
        stream=False,
        usage=False,
        session=session_of(fields),
        title=title_of(title),
        salt=fields.text("cache_salt", 256) or "",
        places=max(1, len(snapshot.seats) // 2),
    )
    return Wish(ask, fields.integer("dimensions", 1, size) or size, form == "base64")


class Embedding:
    """An ASGI response. `name` is what the model is called; `key` stands for the client."""

    def __init__(self, engine: ServedEngine, rides: Rides, metrics: Metrics, wish: Wish, name: str, key: bytes = b"") -> None:
        self._engine = engine
        self._rides = rides
        self._metrics = metrics
        self._wish = wish
        self._name = name
        self._key = key
        self._vectors: dict[int, array[float]] = {}
        self._tokens = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask, engine = self._wish.ask, self._engine
        model = engine.snapshot.model.name
        await self._rides.aside(check_lengths, engine, ask)
        async with self._rides.board(engine, ask, receive, self._key) as ride:
            while len(self._vectors) < ask.choices:
                await self._take(ride)
                if ride.gone:
                    return
                if ride.waits_for_places:
                    await self._rides.submit(ride)
            if engine.snapshot.model.name != model:
                raise ApiError(503, "The model was changed meanwhile.", "model_changed", headers={"Retry-After": "2"})
            self._metrics.note_embeddings(ask.choices, self._tokens)
        await self._send(send)

    async def _take(self, ride: Ride) -> None:
        for choice, event in await ride.events(PATIENCE_S):
            if not isinstance(event, FinishedEvent):
                continue
            if event.reason is FinishReason.ERROR:
                raise from_end(event.error)
            if event.reason is FinishReason.CANCELLED:
                raise cancelled()
            if not all(map(math.isfinite, event.embedding)):
                raise ApiError(500, "The model's numbers ran over for one of the inputs.", "nan_logits")
            self._tokens += event.usage.prompt_tokens
            self._vectors[choice] = unit(event.embedding[: self._wish.dimensions])
        if ride.dropped and not ride.gone:
            raise cancelled()

    async def _send(self, send: Send) -> None:
        """Vector by vector: many of them at once would be hundreds of megabytes of text, and seconds in which nothing else runs."""
        usage = {"prompt_tokens": self._tokens, "total_tokens": self._tokens}
        headers = [(b"content-type", b"application/json"), *COMMON]
        await patiently(send, {"type": "http.response.start", "status": 200, "headers": headers})
        before = b'{"object":"list","data":['
        for index in range(len(self._vectors)):
            vector = self._vectors.pop(index)
            told = packed(vector) if self._wish.packed else vector.tolist()
            item = {"object": "embedding", "index": index, "embedding": told}
            await patiently(send, {"type": "http.response.body", "body": before + to_json(item), "more_body": True})
            before = b","
        ending: dict[str, Any] = {"model": self._name, "usage": usage}
        await patiently(send, {"type": "http.response.body", "body": b"]," + to_json(ending)[1:]})


def check_lengths(engine: ServedEngine, ask: Ask) -> None:
    """Before any is computed. Raises ApiError for the first that is too long."""
    room = room_of(engine.snapshot)
    for place, given in enumerate(ask.prompts):
        if ask.bytes_of(given) >= room and (count := len(engine.tokenize(given) or ())) >= room:
            message = f"Input {place} has {count:,} tokens; this model takes fewer than {room:,}. Cut it into parts."
            raise bad_request(message, "input", "context_length_exceeded")


def unit(vector: Sequence[float]) -> array[float]:
    """The same direction at length 1, in 32 bits a number."""
    length = math.sqrt(math.fsum(value * value for value in vector))
    return array("f", [value / length for value in vector] if length else vector)


def packed(vector: array[float]) -> str:
    """Base64 of the numbers, least byte first."""
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return base64.b64encode(vector.tobytes()).decode()
