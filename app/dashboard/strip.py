"""The engine strip: 26 pixels at the foot of the window, always there.

Seats as capsules, who waits, KV, speed, batch, memory; a click opens the dashboard.
"""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QHideEvent, QPainter, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.dashboard import wording
from app.dashboard.ink import Ink, blend, elided, text_width
from app.dashboard.letters import CENTER, write
from app.dashboard.port import EnginePort
from app.dashboard.riders import BusCells, bus_cells
from app.dashboard.sampler import Sampler
from app.dashboard.stamps import Stamps
from app.dashboard.wording import translate
from app.numbers import said
from app.theme import Theme
from app.translations import in_words
from engine import EngineState, Snapshot

HEIGHT = 26
MARGIN = 12
BAR = 64
INTERVAL_MS = 240


class EngineStrip(QAbstractButton):
    """A button all over: `clicked` opens the dashboard.

    Attributes:
        cells: the seats and chips shown. facts: the words at the right, most important first.
    """

    def __init__(self, engine: EnginePort, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ink = Ink(theme)
        self.cells: BusCells = BusCells((), (), 0)
        self.facts: tuple[str, ...] = ()
        self.state_words = ""
        self._kv_level: float | None = None  # None: not known
        self._stamps = Stamps()
        self._shown: tuple[object, ...] = ()
        self._failed = False
        self.setFixedHeight(HEIGHT)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setMinimumWidth(160)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setToolTip(translate("Dashboard", "The engine at a glance. Click for the dashboard."))
        self.setAccessibleName(translate("Dashboard", "Engine"))
        self.sampler = Sampler(engine, self, interval_ms=INTERVAL_MS)
        self.sampler.sampled.connect(self._take)

    def sizeHint(self) -> QSize:
        return QSize(900, HEIGHT)

    def set_theme(self, theme: Theme) -> None:
        self.ink = Ink(theme)
        self._stamps.clear()
        self.update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.sampler.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.sampler.stop()

    def _take(self, snapshot: Snapshot, _time: float) -> None:
        cells, facts, words = bus_cells(snapshot), strip_facts(snapshot), state_words(snapshot)
        level = snapshot.kv.referenced / snapshot.kv.total if snapshot.kv.total else None
        failed = snapshot.state is EngineState.FAILED
        self.cells = cells
        faces = [(cell is not None, cell is not None and cell.reading) for cell in cells.seats]
        key = (faces, facts, words, None if level is None else (round(BAR * level), round(100 * level)), failed)
        if key == self._shown:
            return
        self._shown, self.facts, self.state_words, self._kv_level, self._failed = key, facts, words, level, failed
        if self.hasFocus():
            self.setAccessibleDescription(", ".join(part for part in (words, *facts) if part))
        self.update()

    # ---------------------------------------------------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        ink = self.ink
        ground = blend(ink.text, ink.sidebar, 0.05) if self.underMouse() else ink.sidebar
        painter.fillRect(self.rect(), ground)
        painter.setPen(QPen(blend(ink.text, ink.sidebar, 0.10), 1))
        painter.drawLine(0, 0, self.width(), 0)
        left = self._paint_seats(painter, ground)
        right = self._paint_facts(painter, left)
        if self.state_words:
            painter.setPen(ink.danger if self._failed else ink.dim)
            write(painter, QRectF(left, 0, max(0.0, right - left), HEIGHT), elided(self.state_words, int(right - left - 12), 12), 12)
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(ink.accent, 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 4, 4)

    def _paint_seats(self, painter: QPainter, ground: QColor) -> float:
        """Capsules from the left; returns where they end. Where there are many they shrink to ticks."""
        seats, ratio = self.cells.seats, self.devicePixelRatioF()
        width = 26 if len(seats) * 30 <= self.width() * 0.45 else 14 if len(seats) * 17 <= self.width() * 0.45 else 5
        gap = 4 if width > 5 else 2
        x = float(MARGIN)
        for index, cell in enumerate(seats):
            reading = cell is not None and cell.reading
            draw = partial(self._draw_seat, ground=ground, width=width, index=index, taken=cell is not None, reading=reading)
            key = (index, cell is not None, reading, ground.name())
            painter.drawPixmap(QPointF(x, 6), self._stamps.get(key, width, 14, ratio, draw))
            x += width + gap
            if x > self.width() * 0.6:
                break
        return x + 8

    def _draw_seat(self, painter: QPainter, *, ground: QColor, width: int, index: int, taken: bool, reading: bool) -> None:
        ink, box = self.ink, QRectF(0, 0, width, 14)
        radius, color = min(width, 14) / 2, ink.seat(index)
        if not taken:
            painter.setPen(QPen(blend(ink.text, ground, 0.22), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
        else:
            painter.setPen(QPen(color, 1))
            painter.setBrush(blend(color, ground, 0.30) if reading else color)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        if taken and width >= 14:
            painter.setPen(ink.text if reading else ink.on(color))
            write(painter, box, str(index + 1), 10, QFont.Weight.DemiBold, CENTER)

    def _paint_facts(self, painter: QPainter, left: float) -> float:
        """Words from the right, then the KV bar, as many as there is room for; returns where they begin."""
        ink, known = self.ink, self._kv_level
        label = translate("Dashboard", "KV {0}").format(f"{100 * known:.0f} %") if known is not None else ""
        label_width = text_width(label, 12)
        room = self.width() - MARGIN - left - (min(160, text_width(self.state_words, 12)) + 12 if self.state_words else 0)
        x = float(self.width() - MARGIN)
        used = BAR + label_width + 40 if known is not None else 0
        if room < used:
            return x
        chosen: list[str] = []
        for fact in self.facts:
            used += text_width(fact, 12) + 20
            if used > room:
                break
            chosen.append(fact)
        for position, fact in enumerate(reversed(chosen)):
            width = text_width(fact, 12)
            painter.setPen(ink.text if position == len(chosen) - 1 else ink.dim)
            write(painter, QRectF(x - width, 0, width, HEIGHT), fact, 12)
            x -= width + 20
        if known is None:
            return x
        bar = QRectF(x - BAR, 10, BAR, 6)
        level = max(6, round(BAR * known)) if known > 0 else 0
        draw = partial(self._draw_bar, level=level)
        painter.drawPixmap(bar.topLeft(), self._stamps.get(("bar", level), BAR, 6, self.devicePixelRatioF(), draw))
        painter.setPen(ink.dim)
        write(painter, QRectF(bar.x() - label_width - 8, 0, label_width, HEIGHT), label, 12)
        return bar.x() - label_width - 20

    def _draw_bar(self, painter: QPainter, level: int) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        for width, share in ((BAR, 0.14), (level, 0.62)):
            if width:
                painter.setBrush(blend(self.ink.text, self.ink.sidebar, share))
                painter.drawRoundedRect(QRectF(0, 0, width, 6), 3, 3)


def strip_facts(snapshot: Snapshot) -> tuple[str, ...]:
    """Speed, batch, memory; the first is the last to give way."""
    model = snapshot.model
    facts = [
        translate("Dashboard", "{0} tok/s").format(wording.rate(snapshot.rates.tok_s)),
        translate("Dashboard", "batch {0}").format(snapshot.rates.batch),
    ]
    if model.weight_bytes or model.kv_bytes:
        facts.append(wording.size(model.weight_bytes + model.kv_bytes))
    return tuple(facts)


def state_words(snapshot: Snapshot) -> str:
    """What is out of the ordinary; who waits; nothing when nothing is."""
    state, model = snapshot.state, snapshot.model
    if state is EngineState.FAILED:
        return said(snapshot.error.message) if snapshot.error else translate("Dashboard", "The engine has stopped.")
    words = []
    if state in (EngineState.STARTING, EngineState.LOADING):
        stage = in_words(model.stage) or wording.state(state)
        words.append(f"{stage} {100 * model.progress:.0f} %" if model.progress else stage)
    elif state is not EngineState.READY:
        words.append(wording.state(state))
    if snapshot.waiting:
        words.append(translate("Dashboard", "{0} waiting").format(wording.count(snapshot.waiting)))
    return ", ".join(words)
