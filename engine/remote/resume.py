"""A stream that goes on after its connection broke, where the server keeps what it said: llama.cpp's, and no other that we know.

A request that carries a name of its own in `X-Conversation-Id` is answered to its end whether anybody listens or not, and the bytes of its
stream can be had again from any place (llama.cpp, tools/server/README-dev.md, "Resumable streaming"). Owns the count of the bytes that
came. What it gives is the stream without a seam: no byte twice, none left out. Such a request must be stopped by name, since a closed
connection no longer does that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from engine.remote.presets import origin

log = logging.getLogger(__name__)

HEADER = "X-Conversation-Id"
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # before each try without a byte; then it is given up
STOP_TIMEOUT_S = 1.0
END = b"data: [DONE]"


class Resumable:
    """The bytes of one stream.

    Args:
        url: the API's address.
        name: what the request carries as its conversation.
        broken: called each time the connection breaks.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        name: str,
        broken: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._address = f"{origin(url)}/v1/stream"
        self._name = name
        self._broken = broken
        self._sleep = sleep
        self._got = 0
        self._tail = b""

    async def pieces(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        """To the stream's end. Raises the HTTP client's error of a break that could not be mended."""
        trouble: Exception | None = None
        try:
            async for piece in answer.aiter_bytes():
                yield self._take(piece)
        except httpx2.HTTPError as error:
            trouble = error
        pauses = iter(PAUSES_S)
        while not self._ended and (pause := next(pauses, None)) is not None:
            self._broken()
            await self._sleep(pause)
            before = self._got
            try:
                async with self._client.stream("GET", self._address, params={"conv_id": self._name, "from": str(self._got)}) as rest:
                    if rest.status_code == 200:
                        async for piece in rest.aiter_bytes():
                            yield self._take(piece)
                    elif rest.status_code != 503:  # it has no such stream: none was kept, or it was started anew
                        break
            except httpx2.HTTPError as error:
                trouble = error
            if self._got > before:
                pauses = iter(PAUSES_S)
        if trouble is not None and not self._ended:
            raise trouble

    @property
    def _ended(self) -> bool:
        return END in self._tail

    def _take(self, piece: bytes) -> bytes:
        self._got += len(piece)
        self._tail = (self._tail + piece)[-2 * len(END) :]
        return piece


async def stop_by_name(client: httpx2.AsyncClient, url: str, name: str) -> None:
    """Tell the server that nobody wants the rest. Raises nothing: it may be what broke."""
    with contextlib.suppress(httpx2.HTTPError):
        answer = await client.delete(f"{origin(url)}/v1/stream", params={"conv_id": name}, timeout=STOP_TIMEOUT_S)
        log.debug("a stream was stopped by its name: status %d", answer.status_code)
