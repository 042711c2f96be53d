"""A clock for durations that a sleeping machine or a clock set back cannot spoil."""

from __future__ import annotations

import threading
from collections.abc import Callable

LEAP_S = 600.0  # no step and no pause between two readings of a running engine takes so long: the machine slept


class SteadyClock:
    """Seconds of `source`, without the leaps: a reading that is more than LEAP_S after the one before, or before it, counts as the same
    moment. So rates, expected starts, aging and time splits go on from where they were. Safe from any thread.

    Attributes:
        leaps: how many were left out.
    """

    def __init__(self, source: Callable[[], float], leap_s: float = LEAP_S) -> None:
        self._source = source
        self._leap_s = leap_s
        self._last: float | None = None
        self._left_out = 0.0
        self._lock = threading.Lock()
        self.leaps = 0

    def __call__(self) -> float:
        with self._lock:
            now = self._source()
            gap = 0.0 if self._last is None else now - self._last
            self._last = now
            if gap < 0 or gap > self._leap_s:
                self._left_out += gap
                self.leaps += 1
            return now - self._left_out
