"""One click to the lesson of the two buses, for somebody who has recorded nothing: the demo is recorded, then both policies are compared.

Owns the button, which the deck shows beside "Nothing is recorded yet", and the watch for the demo's end. Records and compares by the
deck's own methods.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from app.dashboard.wording import translate
from engine import EngineState, Snapshot, rush_hour

LOOK_MS = 250
QUIET = 40  # looks with nobody aboard or waiting, after which nobody else will come: a tab of the demo was closed before it was sent
COMING = (EngineState.STARTING, EngineState.LOADING, EngineState.EMPTY)  # the crowd waits for the model, some of it not in the queue yet


class Lesson(QPushButton):
    """Signals: run_demo(): the scripted crowd is to come; over(): all of it got off, or nobody came for ten seconds."""

    run_demo = Signal()
    over = Signal()

    def __init__(self, snapshot: Callable[[], Snapshot], parent: QWidget) -> None:
        super().__init__(translate("Dashboard", "Record the demo and compare"), parent)
        tip = translate("Dashboard", "Twenty scripted chats ride through the real engine; then the same arrivals under both policies")
        self.setToolTip(tip)
        self.setAccessibleDescription(tip)
        self.setProperty("kind", "primary")
        self.hide()
        self._snapshot = snapshot
        self._until = 0
        self._quiet = 0
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_MS)
        self._timer.timeout.connect(self.look)

    @property
    def running(self) -> bool:
        return self._timer.isActive()

    def begin(self) -> None:
        """The recording is under way: let the crowd come."""
        self._until = _ended(self._snapshot()) + len(rush_hour().requests)
        self._quiet = 0
        self._timer.start()
        self.run_demo.emit()

    def stop(self) -> None:
        """The recording was ended by somebody else, or the page is gone."""
        self._timer.stop()

    def look(self) -> None:
        """Whether the last one has got off."""
        snapshot = self._snapshot()
        alone = not snapshot.seated and not snapshot.waiting
        self._quiet = self._quiet + 1 if alone and snapshot.state not in COMING else 0
        if alone and (_ended(snapshot) >= self._until or self._quiet >= QUIET):
            self._timer.stop()
            self.over.emit()


def _ended(snapshot: Snapshot) -> int:
    counters = snapshot.counters
    return counters.finished + counters.cancelled + counters.failed
