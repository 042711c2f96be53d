"""The four figures at the top: tokens a second, time to first token, seats, KV blocks, each with its last sixty seconds.

What stands on a card is a `Figure`, made from a snapshot by one pure function; the card only paints it. Numbers are repainted four
times a second, since nobody reads faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPainterPath, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.ink import elided, font, text_width
from app.dashboard.sparkline import Ring, Sparkline
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Snapshot

HEIGHT = 112
PADDING = 16
REPAINT_S = 0.25


@dataclass(frozen=True, slots=True)
class Figure:
    """What one card says. `points` are the values its lines go on with; `ceiling` is the top of their scale (None: their own highest)."""

    label: str
    value: str
    unit: str
    note: str
    points: tuple[float | None, ...]
    ceiling: float | None = None


def figures(snapshot: Snapshot) -> tuple[Figure, Figure, Figure, Figure]:
    """The four cards of a snapshot."""
    rates, kv = snapshot.rates, snapshot.kv
    seats = len(snapshot.seats)
    measured = rates.ttft_p50_s > 0
    waiting = (
        translate("Dashboard", "{0} waiting").format(wording.count(snapshot.waiting))
        if snapshot.waiting
        else translate("Dashboard", "no one waiting")
    )
    step = (
        translate("Dashboard", "{0} riding, {1} a step").format(rates.batch, wording.seconds(rates.step_s))
        if rates.batch
        else translate("Dashboard", "idle")
    )
    return (
        Figure(translate("Dashboard", "Speed"), wording.rate(rates.tok_s), translate("Dashboard", "tok/s"), step, (rates.tok_s,)),
        Figure(
            translate("Dashboard", "Time to first token"),
            wording.seconds(rates.ttft_p50_s) if measured else wording.DASH,
            translate("Dashboard", "p50"),
            translate("Dashboard", "p95 {0}").format(wording.seconds(rates.ttft_p95_s))
            if measured
            else translate("Dashboard", "nothing measured yet"),
            (rates.ttft_p50_s, rates.ttft_p95_s) if measured else (None, None),
        ),
        Figure(
            translate("Dashboard", "Seats taken"),
            wording.count(snapshot.seated),
            translate("Dashboard", "of {0}").format(wording.count(seats)),
            waiting,
            (float(snapshot.seated),),
            float(seats) or None,
        ),
        Figure(
            translate("Dashboard", "KV blocks in use"),
            wording.count(kv.referenced),
            translate("Dashboard", "of {0}").format(wording.count(kv.total)),
            translate("Dashboard", "{0} cached, {1} free").format(wording.count(kv.cached), wording.count(kv.free)),
            (float(kv.referenced),),
            float(kv.total) or None,
        ),
    )


class StatCard(Canvas):
    """One figure with its sparkline."""

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, lines: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(theme, "", parent)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(150, HEIGHT)
        self.rings = [Ring() for _ in range(lines)]
        self.figure: Figure | None = None
        self._sparklines = [Sparkline(ring) for ring in self.rings]
        self._clock = clock
        self._painted_at = -1.0
        self._painted: tuple[object, ...] = ()

    def sizeHint(self) -> QSize:
        return QSize(260, HEIGHT)

    def show_figure(self, figure: Figure, time_s: float, *, final: bool = False) -> None:
        """Take the next figure at an engine time; `final` paints it at once."""
        for ring, value in zip(self.rings, figure.points, strict=True):
            ring.push(time_s, value)
        self.figure = figure
        key = (figure, *(ring.version for ring in self.rings))
        now = self._clock()
        if key == self._painted or (not final and now - self._painted_at < REPAINT_S):
            return
        self._painted, self._painted_at = key, now
        self.setAccessibleName(f"{figure.label}: {figure.value} {figure.unit}, {figure.note}")
        self.update()

    @property
    def flat(self) -> bool:
        return all(ring.flat for ring in self.rings)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(self.ink.hairline())
        painter.setBrush(self.ink.surface)
        painter.drawRoundedRect(box, 14, 14)
        if self.figure is None:
            return
        outline = QPainterPath()
        outline.addRoundedRect(box.adjusted(1, 1, -1, -1), 13, 13)
        painter.setClipPath(outline)
        chart = QRectF(1, self.height() - 40, self.width() - 2, 39)
        for index in reversed(range(len(self._sparklines))):
            color = self.ink.text if index == 0 else self.ink.dim
            self._sparklines[index].paint(painter, chart, color, ceiling=self._ceiling(), fill=index == 0)
        painter.setClipping(False)
        self._paint_words(painter, self.figure)

    def _paint_words(self, painter: QPainter, figure: Figure) -> None:
        width = self.width() - 2 * PADDING
        painter.setPen(self.ink.dim)
        painter.setFont(font(12, QFont.Weight.Medium))
        painter.drawText(
            QRectF(PADDING, 12, width, 18), Qt.AlignmentFlag.AlignVCenter, elided(figure.label, width, 12, QFont.Weight.Medium)
        )
        painter.setPen(self.ink.text)
        painter.setFont(font(26, QFont.Weight.DemiBold))
        painter.drawText(QRectF(PADDING, 30, width, 34), Qt.AlignmentFlag.AlignVCenter, figure.value)
        taken = text_width(figure.value, 26, QFont.Weight.DemiBold) + 6
        painter.setPen(self.ink.dim)
        painter.setFont(font(13))
        painter.drawText(QRectF(PADDING + taken, 36, width - taken, 26), Qt.AlignmentFlag.AlignVCenter, figure.unit)
        unit = text_width(figure.unit, 13)
        room = int(width - taken - unit - 12)
        note_width = text_width(figure.note, 12)
        painter.setFont(font(12))
        if note_width <= room:
            painter.drawText(QRectF(PADDING, 37, width, 26), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, figure.note)
        else:
            painter.drawText(QRectF(PADDING, 60, width, 18), Qt.AlignmentFlag.AlignVCenter, elided(figure.note, width, 12))

    def _ceiling(self) -> float | None:
        assert self.figure is not None
        return self.figure.ceiling or max(ring.top for ring in self.rings) or None


class CardRow(QWidget):
    """The four cards side by side, or two by two where it is narrow."""

    GAP = 12
    FOUR_ABREAST = 820

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self.cards = tuple(StatCard(theme, self, lines=lines, clock=clock) for lines in (1, 2, 1, 1))
        self._arrange()

    def show_snapshot(self, snapshot: Snapshot, time_s: float, *, final: bool = False) -> None:
        for card, figure in zip(self.cards, figures(snapshot), strict=True):
            card.show_figure(figure, time_s, final=final)

    @property
    def flat(self) -> bool:
        return all(card.flat for card in self.cards)

    def set_theme(self, theme: Theme) -> None:
        for card in self.cards:
            card.set_theme(theme)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()

    def _arrange(self) -> None:
        columns = 4 if self.width() >= self.FOUR_ABREAST else 2
        rows = 4 // columns
        width = (self.width() - (columns - 1) * self.GAP) / columns
        for index, card in enumerate(self.cards):
            column, row = index % columns, index // columns
            left, right = round(column * (width + self.GAP)), round(column * (width + self.GAP) + width)
            card.setGeometry(left, row * (HEIGHT + self.GAP), right - left, HEIGHT)
        self.setFixedHeight(rows * HEIGHT + (rows - 1) * self.GAP)
