"""Reads what a server sends, no more of it than is sound: whole bodies up to a bound, streams of server-sent events line by line.

A server that is hostile, or no API at all, may send a line without an end or a body without a limit; none of it is kept beyond the bounds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from engine.types import EngineError, Sentence

MOST_LINE = 4 << 20  # bytes of one event
MOST_ANSWER = 64 << 20  # bytes of one stream
MOST_BODY = 4 << 20  # bytes of anything else


async def body_of_answer(answer: httpx2.Response, most: int | None = None) -> bytes:
    """The body of a streamed response, cut at `most` bytes, or at `MOST_BODY`."""
    most = MOST_BODY if most is None else most
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size >= most:
            break
    return b"".join(pieces)[:most]


async def event_texts(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of each event in a stream's bytes. Comments and other fields are passed over; the last need not be closed by an empty line.

    Raises EngineError("remote_nonsense") beyond the bounds.
    """
    data: list[str] = []
    async for line in _lines(pieces):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
    if data:
        yield "\n".join(data)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Lines without their ends, which may be LF, CRLF or CR. What is no UTF-8 shows as replaced."""
    pending = b""
    total = 0
    async for piece in pieces:
        total += len(piece)
        pending += piece
        held = pending.endswith(b"\r")  # its LF may still come
        lines = (pending[:-1] if held else pending).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        pending = lines.pop() + (b"\r" if held else b"")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if total > MOST_ANSWER:
            raise too_much(f"more than {MOST_ANSWER >> 20} MB")
        if len(pending) > MOST_LINE:
            raise too_much(f"a line of more than {MOST_LINE >> 20} MB")
    if pending:
        yield pending.rstrip(b"\r").decode("utf-8", "replace")


def too_much(what: str) -> EngineError:
    return EngineError(
        "remote_nonsense", Sentence("The server sent {0}, which is no answer.", what), "Check that the address is that of an AI server."
    )
