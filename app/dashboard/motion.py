"""Boarding and alighting: for a sixth of a second a rectangle is on its way from one place to another.

Owns the moves in progress and the frame timer, which runs only while there is one. Obeys reduced motion: then nothing is ever on its way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QRectF, QTimer, Signal
from PySide6.QtWidgets import QApplication, QStyle

DURATION_S = 0.18
FRAME_MS = 16


def reduced_motion() -> bool:
    """Does the person, or the desktop, ask for stillness? Qt's styles answer with an animation time of nought; the person's own setting
    is a property of the application."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        return True
    if app.property("reduced_motion"):
        return True
    return app.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration) <= 0


@dataclass(frozen=True, slots=True)
class Move:
    """From `start` to `end`; `leaving` ones fade out and carry what they showed as `ghost`."""

    start: QRectF
    end: QRectF
    begun: float
    leaving: bool = False
    ghost: object = None


class Motion(QObject):
    """The moves in progress, by request id.

    Signals:
        frame(): paint again.
    """

    frame = Signal()

    def __init__(
        self, parent: QObject | None = None, *, clock: Callable[[], float] = time.monotonic, still: Callable[[], bool] = reduced_motion
    ) -> None:
        super().__init__(parent)
        self._clock = clock
        self._still = still
        self.moves: dict[str, Move] = {}
        self._timer = QTimer(self)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def running(self) -> bool:
        return self._timer.isActive()

    def add(self, key: str, start: QRectF, end: QRectF, *, leaving: bool = False, ghost: object = None) -> None:
        if self._still() or (start == end and not leaving):
            return
        self.moves[key] = Move(start, end, self._clock(), leaving, ghost)
        self._timer.start()

    def at(self, key: str, place: QRectF) -> QRectF:
        """Where the rectangle of `key` is drawn now; `place` when it is not on its way."""
        move = self.moves.get(key)
        return place if move is None else self.where(move)

    def where(self, move: Move) -> QRectF:
        done = self.progress(move)
        eased = 1 - (1 - done) ** 3
        a, b = move.start, move.end
        return QRectF(
            a.x() + (b.x() - a.x()) * eased,
            a.y() + (b.y() - a.y()) * eased,
            a.width() + (b.width() - a.width()) * eased,
            a.height() + (b.height() - a.height()) * eased,
        )

    def progress(self, move: Move) -> float:
        return min(1.0, max(0.0, (self._clock() - move.begun) / DURATION_S))

    def stop(self) -> None:
        self.moves.clear()
        self._timer.stop()

    def _tick(self) -> None:
        self.moves = {key: move for key, move in self.moves.items() if self.progress(move) < 1.0}
        if not self.moves:
            self._timer.stop()
        self.frame.emit()
