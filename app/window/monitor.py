"""Looks at the engine's snapshot ten times a second while something happens, and not at all while nothing does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine import Snapshot

INTERVAL_MS = 100
QUIET_TICKS = 3  # ticks without a new snapshot before the timer stops


class Watched(Protocol):
    """The part of an engine that watching needs."""

    @property
    def snapshot(self) -> Snapshot: ...

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]: ...


class EngineMonitor(QObject):
    """Emits `sampled(Snapshot)` on the window's thread, at most every INTERVAL_MS, only for snapshots that are new."""

    sampled = Signal(object)
    _rung = Signal()

    def __init__(self, engine: Watched, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._seen: Snapshot | None = None
        self._quiet = 0
        self._awake = False  # read and set from the engine's thread too; a lost race costs one more wake-up
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._tick)
        self._rung.connect(self.wake, Qt.ConnectionType.QueuedConnection)
        self._remove = engine.add_listener(self._on_published)

    @property
    def active(self) -> bool:
        return self._timer.isActive()

    def close(self) -> None:
        self._awake = True
        self._remove()
        self._timer.stop()

    @Slot()
    def wake(self) -> None:
        """Sample now, and go on while there is news."""
        self._awake = True
        self._quiet = 0
        if not self._timer.isActive():
            self._timer.start()
            self._sample()

    def _on_published(self) -> None:
        if not self._awake:
            self._awake = True
            self._rung.emit()

    @Slot()
    def _tick(self) -> None:
        if self._sample():
            self._quiet = 0
            return
        self._quiet += 1
        if self._quiet >= QUIET_TICKS:
            self._timer.stop()
            self._awake = False
            # A snapshot published between the sample and the line above rang no bell.
            if self._engine.snapshot is not self._seen:
                self.wake()

    def _sample(self) -> bool:
        snapshot = self._engine.snapshot
        if snapshot is self._seen:
            return False
        self._seen = snapshot
        self.sampled.emit(snapshot)
        return True
