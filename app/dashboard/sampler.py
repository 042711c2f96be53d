"""Looks at the engine ten times a second, and only while someone is looking at the dashboard.

The one timer of the dashboard. It runs while its owner is visible and the engine publishes; when the engine falls still it slows
down until the sparklines are flat, then stops, and the engine's own listener wakes it. Hidden, nothing of it is left: no timer, no
listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.dashboard.port import SnapshotSource
from engine import Snapshot

INTERVAL_MS = 100  # 10 Hz: enough to see everyone get on and off
STILL_MS = 500
STILL_AFTER = 8  # samples without news


class Sampler(QObject):
    """Turns the engine's snapshots into a calm stream for the views.

    Attributes:
        latest: the snapshot that was last handed out.
    Signals:
        sampled(Snapshot, float): a new snapshot, and the engine's time by our reckoning.
        aged(Snapshot, float): no news, but time goes on.
    """

    sampled = Signal(object, float)
    aged = Signal(object, float)
    _published = Signal()

    def __init__(
        self,
        engine: SnapshotSource,
        parent: QObject | None = None,
        *,
        interval_ms: int = INTERVAL_MS,
        clock: Callable[[], float] = time.monotonic,
        settled: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._interval = interval_ms
        self._clock = clock
        self._settled = settled
        self._seen_at = 0.0
        self._quiet = 0
        self._armed = False
        self._unsubscribe: Callable[[], None] | None = None
        self.latest: Snapshot | None = None
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.sample)
        self._published.connect(self._wake)

    @property
    def running(self) -> bool:
        return self._timer.isActive()

    @property
    def watching(self) -> bool:
        return self._unsubscribe is not None

    def start(self) -> None:
        """Begin to look: one sample at once, then at the pace of the engine."""
        if self._unsubscribe is not None:
            return
        self._unsubscribe = self._engine.add_listener(self._on_publish)
        self.latest = None
        self._quiet = 0
        self._timer.start(self._interval)
        self.sample()

    def stop(self) -> None:
        """Stop looking; nothing is left running."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._armed = False
        self._timer.stop()

    def look_at(self, source: SnapshotSource) -> None:
        """Look at something else from now on: a playback, or the engine again."""
        watching = self.watching
        self.stop()
        self._engine = source
        if watching:
            self.start()

    @Slot()
    def sample(self) -> None:
        snapshot = self._engine.snapshot
        now = self._clock()
        if snapshot is not self.latest:
            self.latest, self._seen_at, self._quiet = snapshot, now, 0
            if self._timer.isActive() and self._timer.interval() != self._interval:
                self._timer.setInterval(self._interval)
            self.sampled.emit(snapshot, snapshot.time)
            return
        self._quiet += 1
        if self._quiet > 1:
            self.aged.emit(snapshot, snapshot.time + now - self._seen_at)
        if self._quiet >= STILL_AFTER:
            self._slow_down()

    def _slow_down(self) -> None:
        self._armed = True
        if self._engine.snapshot is not self.latest:  # published between the sample and the arming
            self._armed = False
            return
        if self._settled():
            self._timer.stop()
        elif self._timer.interval() != STILL_MS:
            self._timer.setInterval(STILL_MS)

    def _on_publish(self, *_: object) -> None:
        """On the engine's thread, after every step: a flag test, and one signal when we were asleep."""
        if not self._armed:
            return
        self._armed = False
        try:
            self._published.emit()
        except RuntimeError:  # our C++ half is gone: the window is closing
            return

    @Slot()
    def _wake(self) -> None:
        if self._unsubscribe is None:
            return
        if not self._timer.isActive() or self._timer.interval() != self._interval:
            self._timer.start(self._interval)
        self.sample()
