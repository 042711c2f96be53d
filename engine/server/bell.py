"""From the engine's thread to the event loop: which handles have something to read, told in one call a step.

Knows neither requests nor connections; what is told is taken to them by whoever was rung for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Protocol

from engine.handle import RequestHandle


class Rung(Protocol):
    """Who a bell is rung for. Both are called on the event loop."""

    def note(self, choice: int, handle: RequestHandle) -> bool:
        """A choice has something to read. Returns whether `hand_over` is to be called when all is noted."""
        ...

    def hand_over(self, now: float) -> None:
        """Take what was noted on; `now` is the loop's time. Must not raise: others wait behind."""
        ...


class Bell:
    """Carries the news that handles have something to read from the engine's thread to the event loop: one call for all that have some by
    then, which are those of one step as a rule."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung: deque[tuple[Rung, int, RequestHandle]] = deque()
        self._called = False

    def ring(self, ride: Rung, choice: int, handle: RequestHandle) -> None:
        """From any thread."""
        self._rung.append((ride, choice, handle))
        if not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._called = False  # before the first is taken: whoever rings from now on calls again
        noted = []
        while self._rung:
            ride, choice, handle = self._rung.popleft()
            if ride.note(choice, handle):
                noted.append(ride)
        now = self._loop.time()
        for ride in noted:
            ride.hand_over(now)
