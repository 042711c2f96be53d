"""The state ring of a chat: one small drawing that says queued, prefill, decode, unread or failed, in the colour of the seat.

Colour is never the only sign: the number of the seat, or of the place in the queue, stands inside.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen

from app.theme import Theme, tabular, ui_font
from app.theme.color import mix
from app.window.states import ChatState, Stage

RING = 16  # diameter in device-independent pixels
TURN_PER_TOKEN = 24  # degrees: the ring turns as tokens come, and stands still when none do


def paint_ring(painter: QPainter, centre: QPointF, state: ChatState, theme: Theme, background: str) -> None:
    """Draw the ring of `state` around `centre`. Nothing is drawn for an idle chat."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    box = QRectF(centre.x() - RING / 2, centre.y() - RING / 2, RING, RING).adjusted(1, 1, -1, -1)
    match state.stage:
        case Stage.QUEUED:
            pen = QPen(QColor(theme.text_dim), 1.5)
            pen.setDashPattern([1.2, 1.8])
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            painter.setPen(pen)
            painter.drawEllipse(box)
            if state.place is not None:
                _number(painter, box, state.place, theme.text_dim)
        case Stage.PREFILL | Stage.DECODE:
            color = theme.seat_color(state.seat or 0)
            painter.setPen(QPen(QColor(mix(color.name(), background, 0.28)), 2))
            painter.drawEllipse(box)
            pen = QPen(color, 2)
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            painter.setPen(pen)
            if state.stage is Stage.PREFILL:
                painter.drawArc(box, 90 * 16, -round(state.share * 360 * 16))
            else:
                painter.drawArc(box, (90 - state.tokens * TURN_PER_TOKEN) % 360 * 16, -260 * 16)
            _number(painter, box, (state.seat or 0) + 1, theme.seat_ink(state.seat or 0, background).name())
        case Stage.UNREAD:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(theme.text))
            painter.drawEllipse(centre, 3.5, 3.5)
        case Stage.ERROR:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(theme.danger))
            painter.drawEllipse(box)
            painter.setPen(QColor(background))
            painter.setFont(ui_font(11, QFont.Weight.Bold))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, "!")
    painter.restore()


def _number(painter: QPainter, box: QRectF, number: int, color: str) -> None:
    painter.setPen(QColor(color))
    painter.setFont(tabular(ui_font(8 if number < 10 else 7, QFont.Weight.DemiBold)))
    painter.drawText(box.adjusted(-2, 0, 2, 0), Qt.AlignmentFlag.AlignCenter, str(number) if number < 100 else "…")
