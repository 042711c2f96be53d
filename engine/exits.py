"""Engines that still run when the interpreter ends: they are told to stop, and waited for.

A script may end, or fail, without closing its engine. The interpreter then stops daemon threads by force as they come back for its lock,
and one that comes back from inside torch takes the process down with it: "terminate called without an active exception", and an exit code
that says the script failed. Owns who was started, and how long an end may wait for them. Must never keep a process from ending.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from typing import Protocol

log = logging.getLogger(__name__)

PATIENCE_S = 5.0  # for all of them together: a step takes less than a second, and a load hears of it within a tenth of one


class Closable(Protocol):
    def begin_to_close(self) -> None: ...

    def close(self, timeout: float) -> bool: ...


_started: weakref.WeakSet[Closable] = weakref.WeakSet()
_lock = threading.Lock()


def end_at_exit(engine: Closable) -> None:
    """Have this engine end before the interpreter does. One that was closed by then, or is gone, costs nothing."""
    with _lock:
        _started.add(engine)
        atexit.unregister(_end_all)  # once, and as the last one asked for, hence the first one called: logging works until then
        atexit.register(_end_all)


def _end_all() -> None:
    with _lock:
        engines = list(_started)
    until = time.monotonic() + PATIENCE_S
    for engine in engines:
        engine.begin_to_close()
    late = [engine for engine in engines if not engine.close(max(0.0, until - time.monotonic()))]
    if late:
        log.warning("the program ends although %d engine(s) did not: a call takes too long", len(late))
