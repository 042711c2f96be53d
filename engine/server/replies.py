"""Bytes for the wire: JSON answers, error objects, server-sent events.

Knows ASGI and nothing of chats.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from engine.server.errors import ApiError

STALL_PATIENCE_S = 60.0  # for a client that does not read what it asked for
DONE = b"data: [DONE]\n\n"
STILL_HERE = b": still here\n\n"  # a comment, which clients of server-sent events skip
WRITE = "omnibus.write"  # under this ASGI extension a connection offers to write a piece of a streamed body without a message around it
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


class EventStream:
    """One stream of server-sent events; its header goes out with the first of them.

    Args:
        write: writes a piece at once where that is possible, and says whether it was; see `WRITE`.
    """

    def __init__(self, send: Send, write: Callable[[bytes], bool] | None = None) -> None:
        self._send = send
        self._write = write
        self.started = False

    async def data(self, *values: Chunk) -> None:
        """One event a value, in one write. Values that are typed events are named by their type."""
        await self.raw(b"".join([value if isinstance(value, bytes) else to_event(value) for value in values]))

    async def raw(self, text: bytes) -> None:
        if self.started and self._write is not None and self._write(text):
            return
        if not self.started:
            self.started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *COMMON, (b"x-accel-buffering", b"no")]
            await patiently(self._send, {"type": "http.response.start", "status": 200, "headers": headers})
        await patiently(self._send, {"type": "http.response.body", "body": text, "more_body": True})

    async def end(self) -> None:
        await patiently(self._send, {"type": "http.response.body", "body": b""})


def to_event(value: dict[str, Any]) -> bytes:
    return _name_of(value) + b"data: " + to_json(value) + b"\n\n"


class Template:
    """Events that are the same but for one text in them, which is nearly all of a stream: the rest is written once.

    Args:
        make: the value of such an event with a given text.
    """

    def __init__(self, make: Callable[[str], dict[str, Any]]) -> None:
        mark = secrets.token_hex(16)
        self._before, self._after = to_event(make(mark)).split(to_json(mark))

    def fill(self, text: str) -> bytes:
        return self._before + to_json(text) + self._after


def _name_of(value: dict[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" if "type" in value else b""


async def patiently(send: Send, message: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(STALL_PATIENCE_S):
            await send(message)
    except TimeoutError:
        raise ClientGone from None
