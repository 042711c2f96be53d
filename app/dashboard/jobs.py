"""Work that takes too long for the window's thread: reading, playing and comparing recordings, one at a time, on one named thread.

Owns that thread, from the first job until `close`. Results and failures come back as signals on the window's thread; those of a job
that was called off do not come at all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Event
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

Work = Callable[[Callable[[], bool]], Any]


class Jobs(QObject):
    """Signals: done(name, value); failed(name, exception)."""

    done = Signal(str, object)
    failed = Signal(str, object)
    _landed = Signal(str, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._pool: ThreadPoolExecutor | None = None
        self._called_off = Event()
        # Queued also when the future has ended before anyone asked: whoever starts a job is never called back from within.
        self._landed.connect(self._hand_over, Qt.ConnectionType.QueuedConnection)

    def start(self, name: str, work: Work) -> None:
        """Run `work(cancelled)` on the thread; a job still under way is called off first."""
        self.call_off()
        called_off = self._called_off = Event()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omnibus-recordings")
        self.follow(name, self._pool.submit(work, called_off.is_set), called_off)

    def follow(self, name: str, future: Future[Any], called_off: Event | None = None) -> None:
        """Hand over what a future ends with, the engine's too."""
        ticket = called_off or Event()
        future.add_done_callback(lambda ended: self._land(name, ended, ticket))

    def call_off(self) -> None:
        """The job under way, if any, is no longer wanted."""
        self._called_off.set()

    def close(self) -> None:
        """Call off, and wait until the thread is gone."""
        self.call_off()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _land(self, name: str, future: Future[Any], ticket: Event) -> None:
        """On whatever thread the future ended."""
        try:
            self._landed.emit(name, future, ticket)
        except RuntimeError:  # our C++ half is gone: the window is closing
            return

    @Slot(str, object, object)
    def _hand_over(self, name: str, future: Future[Any], ticket: Event) -> None:
        if ticket.is_set() or future.cancelled():
            return
        error = future.exception()
        if isinstance(error, CancelledError):
            return
        if error is not None:
            self.failed.emit(name, error)
        else:
            self.done.emit(name, future.result())
