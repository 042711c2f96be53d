"""The engine strip: 26 pixels at the foot of the window, always there.

Seats as capsules, who waits, KV, speed, batch, memory; a click opens the dashboard.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QHideEvent, QPainter, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.dashboard import wording
from app.dashboard.ink import Ink, blend, elided, font, text_width
from app.dashboard.port import EnginePort
from app.dashboard.riders import BusCells, SeatCell, bus_cells
from app.dashboard.sampler import Sampler
from app.dashboard.wording import translate
from app.theme import Theme
from engine import EngineState, Phase, Snapshot

HEIGHT = 26
MARGIN = 12
INTERVAL_MS = 180


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
        self._kv_level = 0.0
        self._failed = False
        self.setFixedHeight(HEIGHT)
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
        self.update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.sampler.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.sampler.stop()

    def _take(self, snapshot: Snapshot, _time: float) -> None:
        cells, facts, words = bus_cells(snapshot), strip_facts(snapshot), state_words(snapshot)
        level = snapshot.kv.referenced / snapshot.kv.total if snapshot.kv.total else 0.0
        failed = snapshot.state is EngineState.FAILED
        if (cells, facts, words, level, failed) == (self.cells, self.facts, self.state_words, self._kv_level, self._failed):
            return
        self.cells, self.facts, self.state_words, self._kv_level, self._failed = cells, facts, words, level, failed
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
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left = self._paint_seats(painter, ground)
        right = self._paint_facts(painter, left)
        if self.state_words:
            painter.setPen(ink.danger if self._failed else ink.dim)
            painter.setFont(font(12))
            words = elided(self.state_words, int(right - left - 12), 12)
            painter.drawText(QRectF(left, 0, max(0.0, right - left), HEIGHT), Qt.AlignmentFlag.AlignVCenter, words)
        if self.hasFocus():
            painter.setPen(QPen(ink.accent, 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 4, 4)

    def _paint_seats(self, painter: QPainter, ground: QColor) -> float:
        """Capsules from the left; returns where they end. Beyond what fits in half the strip they shrink to ticks."""
        seats = self.cells.seats
        width = 26 if len(seats) * 30 <= self.width() * 0.45 else 14 if len(seats) * 17 <= self.width() * 0.45 else 5
        gap = 4 if width > 5 else 2
        x = float(MARGIN)
        for index, cell in enumerate(seats):
            box = QRectF(x, 6, width, 14)
            self._paint_seat(painter, ground, box, index, cell)
            x += width + gap
            if x > self.width() * 0.6:
                break
        return x + 8

    def _paint_seat(self, painter: QPainter, ground: QColor, box: QRectF, index: int, cell: SeatCell | None) -> None:
        ink, radius = self.ink, min(box.width(), box.height()) / 2
        if cell is None:
            painter.setPen(QPen(blend(ink.text, ground, 0.22), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
            return
        color = ink.seat(cell.seat)
        reading = cell.phase is Phase.PREFILL
        painter.setPen(QPen(color, 1) if reading else Qt.PenStyle.NoPen)
        painter.setBrush(blend(color, ground, 0.30) if reading else color)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        if box.width() >= 14:
            painter.setPen(color if reading and ink.theme.is_dark else ink.text if reading else ink.on(color))
            painter.setFont(font(10, QFont.Weight.DemiBold))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, str(index + 1))

    def _paint_facts(self, painter: QPainter, left: float) -> float:
        """Words from the right, the KV bar among them, as many as there is room for; returns where they begin."""
        ink = self.ink
        painter.setFont(font(12))
        room = self.width() - MARGIN - left - (min(160, text_width(self.state_words, 12)) + 12 if self.state_words else 0)
        chosen: list[str] = []
        used = 64 + 20
        for fact in self.facts:
            used += text_width(fact, 12) + 20
            if used > room:
                break
            chosen.append(fact)
        x = float(self.width() - MARGIN)
        if room < 64:
            return x
        for position, fact in enumerate(reversed(chosen)):
            width = text_width(fact, 12)
            painter.setPen(ink.text if position == len(chosen) - 1 else ink.dim)
            painter.drawText(QRectF(x - width, 0, width + 1, HEIGHT), Qt.AlignmentFlag.AlignVCenter, fact)
            x -= width + 20
        bar = QRectF(x - 64, 10, 64, 6)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(blend(ink.text, ink.sidebar, 0.14))
        painter.drawRoundedRect(bar, 3, 3)
        painter.setBrush(blend(ink.text, ink.sidebar, 0.62))
        if self._kv_level > 0:
            painter.drawRoundedRect(QRectF(bar.x(), bar.y(), max(6.0, bar.width() * self._kv_level), 6), 3, 3)
        painter.setPen(ink.dim)
        label = translate("Dashboard", "KV")
        width = text_width(label, 12)
        painter.drawText(QRectF(bar.x() - width - 8, 0, width + 1, HEIGHT), Qt.AlignmentFlag.AlignVCenter, label)
        return bar.x() - width - 20


def strip_facts(snapshot: Snapshot) -> tuple[str, ...]:
    """Speed, KV share, batch, memory; the first is the last to give way."""
    kv, model = snapshot.kv, snapshot.model
    facts = [translate("Dashboard", "{0} tok/s").format(wording.rate(snapshot.rates.tok_s))]
    if kv.total:
        facts.append(wording.share(kv.referenced, kv.total))
    facts.append(translate("Dashboard", "batch {0}").format(snapshot.rates.batch))
    if model.weight_bytes or model.kv_bytes:
        facts.append(wording.size(model.weight_bytes + model.kv_bytes))
    return tuple(facts)


def state_words(snapshot: Snapshot) -> str:
    """What is out of the ordinary; who waits; nothing when nothing is."""
    state, model = snapshot.state, snapshot.model
    if state is EngineState.FAILED:
        return snapshot.error.message if snapshot.error else translate("Dashboard", "The engine has stopped.")
    words = []
    if state in (EngineState.STARTING, EngineState.LOADING):
        stage = model.stage or wording.state(state)
        words.append(f"{stage} {100 * model.progress:.0f} %" if model.progress else stage)
    elif state is not EngineState.READY:
        words.append(wording.state(state))
    if snapshot.waiting:
        words.append(translate("Dashboard", "{0} waiting").format(wording.count(snapshot.waiting)))
    return ", ".join(words)
