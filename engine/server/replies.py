"""Bytes for the wire: JSON answers, error objects, server-sent events.

Knows ASGI and nothing of chats.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from engine.server.errors import ApiError

STALL_PATIENCE_S = 60.0  # for a client that does not read what it asked for
DONE = b"data: [DONE]\n\n"
STILL_HERE = b": still here\n\n"  # a comment, which clients of server-sent events skip
WRITE = "omnibus.write"  # under this ASGI extension a connection offers a `Body`
COMMON = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class ClientGone(Exception):
    """The client has not read for `STALL_PATIENCE_S`."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)  # made once: json.dumps makes one a call


def to_json(value: Any) -> bytes:
    """UTF-8; half of a surrogate pair, which a client may have sent us, becomes "?"."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


class Reply:
    """A whole response."""

    def __init__(self, body: bytes, *, status: int = 200, kind: str = "application/json", headers: dict[str, str] | None = None) -> None:
        self._body = body
        self._status = status
        self._headers = [
            (b"content-type", kind.encode("latin-1")),
            (b"content-length", str(len(body)).encode()),
            *COMMON,
            *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.send(send)

    async def send(self, send: Send) -> None:
        await patiently(send, {"type": "http.response.start", "status": self._status, "headers": self._headers})
        await patiently(send, {"type": "http.response.body", "body": self._body})


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(to_json(value), status=status)


async def send_error(error: ApiError, send: Send) -> None:
    await Reply(to_json(error.body()), status=error.status, headers=error.headers).send(send)


Chunk = dict[str, Any] | bytes  # the value of one event, or the event as it is written


class Body(Protocol):
    """Of a streamed response: takes pieces without a message around them."""

    @property
    def open(self) -> bool:
        """Whether it has begun, and a piece can be written now, without waiting for the client to read."""
        ...

    def write(self, piece: bytes) -> None: ...


class EventStream:
    """One stream of server-sent events; its header goes out with the first of them.

    Attributes:
        body: takes them without a wait, while it is open.
    """

    def __init__(self, send: Send, body: Body | None = None) -> None:
        self._send = send
        self.body = body
        self.started = False

    async def data(self, *values: Chunk) -> None:
        """One event a value, in one write."""
        await self.raw(to_events(values))

    async def raw(self, text: bytes) -> None:
        if self.body is not None and self.body.open:
            self.body.write(text)
            return
        if not self.started:
            self.started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *COMMON, (b"x-accel-buffering", b"no")]
            await patiently(self._send, {"type": "http.response.start", "status": 200, "headers": headers})
        await patiently(self._send, {"type": "http.response.body", "body": text, "more_body": True})

    async def end(self) -> None:
        await patiently(self._send, {"type": "http.response.body", "body": b""})


def to_events(values: Sequence[Chunk]) -> bytes:
    """One event a value. Values that are typed events are named by their type."""
    if len(values) == 1 and isinstance(values[0], bytes):
        return values[0]  # a token of a stream, nearly always
    return b"".join([value if isinstance(value, bytes) else to_event(value) for value in values])


def to_event(value: dict[str, Any]) -> bytes:
    return _name_of(value) + b"data: " + to_json(value) + b"\n\n"


class Template:
    """Events that are the same but for one text in them, which is nearly all of a stream: the rest is written once.

    Args:
        make: the value of such an event with a given text.
    """

    def __init__(self, make: Callable[[str], dict[str, Any]]) -> None:
        mark = secrets.token_hex(16)
        self._before, self._after = to_event(make(mark)).decode().split(encode_basestring(mark))

    def fill(self, text: str) -> bytes:
        return f"{self._before}{encode_basestring(text)}{self._after}".encode("utf-8", "replace")


class NumberedTemplate:
    """The same for events that are numbered behind their text.

    Args:
        make: the value of such an event with a given text and number.
    """

    def __init__(self, make: Callable[[str, int], dict[str, Any]]) -> None:
        mark, number = secrets.token_hex(16), 2**99 + secrets.randbits(99)
        self._before, rest = to_event(make(mark, number)).decode().split(encode_basestring(mark))
        self._between, self._after = rest.split(str(number))

    def fill(self, text: str, number: int) -> bytes:
        return f"{self._before}{encode_basestring(text)}{self._between}{number}{self._after}".encode("utf-8", "replace")


def _name_of(value: dict[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" if "type" in value else b""


async def patiently(send: Send, message: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(STALL_PATIENCE_S):
            await send(message)
    except TimeoutError:
        raise ClientGone from None
