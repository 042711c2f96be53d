"""The hand-off from the engine's thread to Qt: one coalesced wake-up a frame, the first token of an answer at once.

`Mailbox` knows nothing of Qt: a locked dict and one pending wake-up. `EngineBridge` is the adapter that turns wake-ups into one queued
signal and decides when to drain. A signal per token would cost more than the tokens; a signal per frame costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine import RequestHandle

T = TypeVar("T")
FRAME_S = 0.016


class Mailbox(Generic[T]):
    """Things with something to say, each at most once, in the order in which they first spoke.

    `ring` is called, from the thread that puts, when the box stops being empty, and once more if something urgent joins;
    not again until `take`.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._items: dict[Hashable, T] = {}
        self._urgent = False

    def put(self, key: Hashable, item: T, urgent: bool = False) -> None:
        with self._lock:
            ring = not self._items or (urgent and not self._urgent)
            self._items[key] = item
            self._urgent = self._urgent or urgent
        if ring:
            self._ring()

    @property
    def urgent(self) -> bool:
        with self._lock:
            return self._urgent

    def take(self) -> list[T]:
        """Everything in the box; it is empty afterwards and will ring again."""
        with self._lock:
            items, self._items = list(self._items.values()), {}
            self._urgent = False
        return items


class EngineBridge(QObject):
    """Hands ready requests to `deliver` on the window's thread, at most once a frame.

    `ready` is safe to call from any thread; it is what `Engine.submit` is given as `on_ready`.
    """

    _rung = Signal()

    def __init__(
        self,
        deliver: Callable[[list[RequestHandle]], None],
        clock: Callable[[], float] = time.monotonic,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._deliver = deliver
        self._clock = clock
        self._last = float("-inf")
        self._open = True
        self._greeted: set[str] = set()  # requests whose first event was delivered
        self._box: Mailbox[RequestHandle] = Mailbox(self._rung.emit)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.drain)
        self._rung.connect(self._on_rung, Qt.ConnectionType.QueuedConnection)

    def ready(self, handle: RequestHandle) -> None:
        """This request has something to poll. Called from the engine's thread."""
        if self._open:
            self._box.put(handle.id, handle, urgent=handle.id not in self._greeted)

    @property
    def waiting(self) -> bool:
        """Whether something waits for its frame to come."""
        return self._timer.isActive()

    def forget(self, request_id: str) -> None:
        """The request ended."""
        self._greeted.discard(request_id)

    def close(self) -> None:
        """Nothing is delivered any more; engine threads may still call `ready`."""
        self._open = False
        self._timer.stop()

    @Slot()
    def drain(self) -> None:
        """Deliver now what is in the box."""
        self._timer.stop()
        handles = self._box.take()
        self._last = self._clock()
        self._greeted.update(handle.id for handle in handles)
        if handles:
            self._deliver(handles)

    @Slot()
    def _on_rung(self) -> None:
        if not self._open:
            return  # rung before the bridge was closed
        wait = FRAME_S - (self._clock() - self._last)
        if wait <= 0 or self._box.urgent:
            self.drain()
        elif not self._timer.isActive():
            self._timer.start(max(1, round(wait * 1000)))
