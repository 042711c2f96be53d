"""Sixty seconds of one number: a ring of one-second buckets, and the line drawn from it.

The ring is Qt-free in spirit: numbers in, numbers out. The polygon is kept until a bucket changes.
"""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPen, QPolygonF

from app.dashboard.ink import faded

BUCKETS = 60
BUCKET_S = 1.0  # a chart is drawn anew once a bucket, on four cards: finer ones cost more than they show


class Ring:
    """The last 60 s of a value, one bucket a second.

    A value stands until the next one comes; a time in which nobody looked is None, and shows as a gap.

    Attributes:
        version: goes up when a bucket begins and the line is another than it was; until then it need not be drawn again.
    """

    def __init__(self) -> None:
        self.values: deque[float | None] = deque([None] * BUCKETS, maxlen=BUCKETS)
        self.version = 0
        self._last: int | None = None
        self._unseen = False
        self._moved = False  # the last bucket says something else by now than when it began

    def clear(self) -> None:
        """Nothing is known of the last 60 s."""
        self.values.extend([None] * BUCKETS)
        self.version += 1
        self._last, self._unseen, self._moved = None, False, False

    def push(self, time_s: float, value: float | None) -> None:
        """Note the value at an engine time in seconds; within one bucket the last one stands."""
        bucket, before = int(time_s / BUCKET_S), list(self.values)
        if self._last is None or bucket < self._last - BUCKETS:  # the first, or another engine's clock
            self._last = bucket
            self.values.append(value)
        elif bucket > self._last:
            between = None if self._unseen else self.values[-1]
            for _ in range(min(bucket - self._last - 1, BUCKETS)):
                self.values.append(between)
            self.values.append(value)
            self._last = bucket
        else:
            self._moved = self._moved or value != before[-1]
            self.values[-1] = value
            return
        self._unseen = False
        if self._moved or list(self.values) != before:
            self._moved = False
            self.version += 1

    def look_away(self) -> None:
        """Nobody looks from here on, until the next value."""
        self._unseen = True

    @property
    def flat(self) -> bool:
        """Every bucket known says the same: there is nothing left to move."""
        known = {value for value in self.values if value is not None}
        return len(known) <= 1 and self.values[0] == self.values[-1]

    @property
    def top(self) -> float:
        return max((value for value in self.values if value is not None), default=0.0)


class Sparkline:
    """Paints a ring. `ceiling` fixes the top of the scale (seats, blocks); without one the line scales to its own highest."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._key: tuple[object, ...] = ()
        self._lines: list[QPolygonF] = []
        self._areas: list[QPolygonF] = []

    def paint(self, painter: QPainter, rect: QRectF, color: QColor, *, ceiling: float | None = None, fill: bool = True) -> None:
        top = ceiling or self.ring.top
        key = (self.ring.version, rect.getRect(), top)
        if key != self._key:
            self._key = key
            self._build(rect, top)
        if fill:
            shade = QLinearGradient(rect.topLeft(), rect.bottomLeft())
            shade.setColorAt(0, faded(color, 0.28))
            shade.setColorAt(1, faded(color, 0.02))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(shade)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)  # the line lies over its edge
            for area in self._areas:
                painter.drawPolygon(area)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(color, 1))
        for line in self._lines:
            painter.drawPolyline(line)

    def _build(self, rect: QRectF, top: float) -> None:
        self._lines, self._areas = [], []
        run: list[QPointF] = []
        step = rect.width() / (BUCKETS - 1)
        height = rect.height() - 1
        for index, value in enumerate([*self.ring.values, None]):
            if value is not None:
                level = min(1.0, value / top) if top else 0.0
                run.append(QPointF(rect.left() + index * step, rect.bottom() - 0.5 - level * height))
                continue
            if run:
                if len(run) == 1:
                    run.append(QPointF(run[0].x() + 1, run[0].y()))
                self._lines.append(QPolygonF(run))
                self._areas.append(QPolygonF([QPointF(run[0].x(), rect.bottom()), *run, QPointF(run[-1].x(), rect.bottom())]))
                run = []
