"""The four figures at the top: tokens a second, time to first token, seats, KV blocks, each with its last sixty seconds.

What stands on a card is a `Figure`, made from a snapshot by one pure function; the card only paints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QPainter, QPainterPath, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.ink import elided, text_width
from app.dashboard.letters import RIGHT, write
from app.dashboard.sparkline import BUCKET_S, Ring, Sparkline
from app.dashboard.stamps import Stamps
from app.dashboard.untold import first_token_untold
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Snapshot

HEIGHT = 112
CHART = 40  # of it, at the foot
WORDS = 80  # of it, from the top, has words
PADDING = 16
RADIUS = 14
Weight = QFont.Weight


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
    if not rates.batch:
        step = translate("Dashboard", "idle")
    elif rates.step_s:
        step = translate("Dashboard", "{0} riding, {1} a step").format(rates.batch, wording.seconds(rates.step_s))
    else:
        step = translate("Dashboard", "{0} riding").format(rates.batch)
    if kv.total:
        blocks = wording.count(kv.referenced), translate("Dashboard", "of {0}").format(wording.count(kv.total))
        rest = translate("Dashboard", "{0} cached, {1} free").format(wording.count(kv.cached), wording.count(kv.free))
    else:
        blocks, rest = (wording.DASH, ""), translate("Dashboard", "not told") if snapshot.seated else ""
    unmeasured = translate("Dashboard", "not told") if first_token_untold(snapshot) else translate("Dashboard", "nothing measured yet")
    return (
        Figure(translate("Dashboard", "Speed"), wording.rate(rates.tok_s), translate("Dashboard", "tok/s"), step, (rates.tok_s,)),
        Figure(
            translate("Dashboard", "Time to first token"),
            wording.seconds(rates.ttft_p50_s) if measured else wording.DASH,
            translate("Dashboard", "p50"),
            translate("Dashboard", "p95 {0}").format(wording.seconds(rates.ttft_p95_s)) if measured else unmeasured,
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
            *blocks,
            rest,
            (float(kv.referenced) if kv.total else None,),
            float(kv.total) or None,
        ),
    )


class StatCard(Canvas):
    """One figure with its sparkline."""

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, lines: int = 1) -> None:
        super().__init__(theme, "", parent)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(150, HEIGHT)
        self.rings = [Ring() for _ in range(lines)]
        self.figure: Figure | None = None
        self._sparklines = [Sparkline(ring) for ring in self.rings]
        self._stamps = Stamps()
        self._chart: QPixmap | None = None
        self._chart_key: tuple[object, ...] = ()
        self._drawn: tuple[object, ...] = ()  # what the chart was drawn from when the card was last told to repaint all of itself
        self._painted: Figure | None = None

    def sizeHint(self) -> QSize:
        return QSize(260, HEIGHT)

    def show_figure(self, figure: Figure, time_s: float) -> None:
        """Take the next figure, at an engine time."""
        self.push(figure, time_s)
        self.figure = figure
        drawn = (*(ring.version for ring in self.rings), self._ceiling())
        if figure != self._painted:
            self._painted = figure
            self.setAccessibleName(f"{figure.label}: {figure.value} {figure.unit}, {figure.note}")
            self.update(0, 0, self.width(), WORDS)
        if drawn != self._drawn:
            self._drawn = drawn
            self.update()

    def push(self, figure: Figure, time_s: float) -> None:
        """Only go on with the lines."""
        for ring, value in zip(self.rings, figure.points, strict=True):
            ring.push(time_s, value)

    def forget(self) -> None:
        """Begin the sixty seconds anew: what comes next has another clock."""
        for ring in self.rings:
            ring.clear()

    @property
    def flat(self) -> bool:
        return all(ring.flat for ring in self.rings)

    def theme_changed(self) -> None:
        self._stamps.clear()
        self._chart_key = ()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, ratio = QPainter(self), self.devicePixelRatioF()
        painter.drawPixmap(0, 0, self._stamps.get("card", self.width(), self.height(), ratio, self._draw_frame, self.ink.surface))
        painter.drawPixmap(0, self.height() - CHART, self._foot(ratio))
        if self.figure is not None:
            self._paint_words(painter, self.figure)

    def _foot(self, ratio: float) -> QPixmap:
        """The foot of the card, with the chart; drawn again only when a bucket of the ring begins and the line has moved, or the scale
        changed."""
        key = (tuple(ring.version for ring in self.rings), self._ceiling(), self.size(), ratio)
        if key != self._chart_key or self._chart is None:
            self._chart_key = key
            self._chart = QPixmap(ceil(self.width() * ratio), ceil(CHART * ratio))
            self._chart.setDevicePixelRatio(ratio)
            self._chart.fill(self.ink.surface)
            painter = QPainter(self._chart)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            chart = QRectF(1, 0, self.width() - 2, CHART - 1)
            for index in reversed(range(len(self._sparklines))):
                color = self.ink.text if index == 0 else self.ink.dim
                self._sparklines[index].paint(painter, chart, color, ceiling=self._ceiling(), fill=index == 0)
            frame = self._stamps.get("frame", self.width(), self.height(), ratio, self._draw_frame)
            painter.drawPixmap(0, CHART - self.height(), frame)
            painter.end()
        return self._chart

    def _draw_frame(self, painter: QPainter) -> None:
        """What lies over the chart: the window's colour outside of the rounded corners, and the hairline."""
        box = QRectF(self.rect())
        outside, inside = QPainterPath(), QPainterPath()
        outside.addRect(box)
        inside.addRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS, RADIUS)
        painter.fillPath(outside.subtracted(inside), self.ink.window)
        painter.setPen(self.ink.hairline())
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(inside)

    def _paint_words(self, painter: QPainter, figure: Figure) -> None:
        width = self.width() - 2 * PADDING
        painter.setPen(self.ink.dim)
        write(painter, QRectF(PADDING, 12, width, 18), elided(figure.label, width, 12, Weight.Medium), 12, Weight.Medium)
        painter.setPen(self.ink.text)
        write(painter, QRectF(PADDING, 30, width, 34), figure.value, 26, Weight.DemiBold)
        taken = text_width(figure.value, 26, Weight.DemiBold) + 6
        painter.setPen(self.ink.dim)
        write(painter, QRectF(PADDING + taken, 36, width - taken, 26), figure.unit, 13)
        room = width - taken - text_width(figure.unit, 13) - 12
        if text_width(figure.note, 12) <= room:
            write(painter, QRectF(PADDING, 37, width, 26), figure.note, 12, side=RIGHT)
        else:
            write(painter, QRectF(PADDING, 60, width, 18), elided(figure.note, width, 12), 12)

    def _ceiling(self) -> float | None:
        fixed = self.figure.ceiling if self.figure is not None else None
        return fixed or roomy(max(ring.top for ring in self.rings)) or None


def roomy(top: float) -> float:
    """The top of a scale that holds a value, rounded up to two digits: a scale that follows each new value draws every chart anew."""
    if top <= 0:
        return 0.0
    step = 10.0 ** (floor(log10(top)) - 1)
    return ceil(round(top / step, 9)) * step


class CardRow(QWidget):
    """The four cards side by side, or two by two where it is narrow."""

    GAP = 12
    FOUR_ABREAST = 820

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cards = tuple(StatCard(theme, self, lines=lines) for lines in (1, 2, 1, 1))
        self._arrange()

    def show_snapshot(self, snapshot: Snapshot, time_s: float) -> None:
        for card, figure in zip(self.cards, figures(snapshot), strict=True):
            card.show_figure(figure, time_s)

    def show_past(self, snapshots: tuple[Snapshot, ...]) -> None:
        """Forget the sixty seconds on show and draw those of these snapshots, oldest first; none leaves the cards' lines empty."""
        for card in self.cards:
            card.forget()
        for snapshot, following in zip(snapshots, snapshots[1:], strict=False):
            if int(following.time / BUCKET_S) != int(snapshot.time / BUCKET_S):  # the last of its bucket stands
                for card, figure in zip(self.cards, figures(snapshot), strict=True):
                    card.push(figure, snapshot.time)
        for snapshot in snapshots[-1:]:
            self.show_snapshot(snapshot, snapshot.time)

    def look_away(self) -> None:
        """The page is hidden: what happens now is not seen, and shows as a gap."""
        for card in self.cards:
            for ring in card.rings:
                ring.look_away()

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
