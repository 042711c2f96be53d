"""What rich text cannot draw, painted behind it: bubbles, code cards, quote bars, rules, error cards. Owns nothing."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QAbstractTextDocumentLayout, QColor, QPainter, QPen, QTextFrame

from app.theme.color import mix
from app.transcript.formats import Formats, Kind
from app.transcript.frames import first_reaching
from app.transcript.writer import frame_kind


def paint_frames(
    painter: QPainter, frames: Sequence[QTextFrame], layout: QAbstractTextDocumentLayout, seen: QRectF, formats: Formats
) -> None:
    """Paint behind these frames, one below the other, and those inside them, where they lie in `seen`; document coordinates."""
    for frame in frames[first_reaching(frames, seen.top(), lambda one: layout.frameBoundingRect(one).bottom()) :]:
        rect = layout.frameBoundingRect(frame)
        if rect.top() > seen.bottom():
            return
        kind = frame_kind(frame)
        if kind is not Kind.PLAIN:
            margins = frame.frameFormat()
            inner = rect.adjusted(margins.leftMargin(), margins.topMargin(), -margins.rightMargin(), -margins.bottomMargin())
            if kind is Kind.QUOTE and not margins.bottomMargin():
                inner.setBottom(inner.bottom() + 16)  # it goes on in the next frame, and so does its bar
            _paint(painter, kind, inner, formats)
        if kind not in (Kind.BUBBLE, Kind.CODE, Kind.ERROR, Kind.RULE):  # no frames are inside these
            paint_frames(painter, frame.childFrames(), layout, seen, formats)


def _paint(painter: QPainter, kind: Kind, rect: QRectF, formats: Formats) -> None:
    theme = formats.theme
    painter.setPen(Qt.PenStyle.NoPen)
    if kind is Kind.BUBBLE:
        painter.setBrush(QColor(theme.raised if theme.is_dark else mix(theme.accent, theme.surface, 0.13)))
        # Line spacing adds its share below the last line; the bubble gives it back.
        painter.drawRoundedRect(rect.adjusted(0, 0, 0, -5), 18, 18)
    elif kind is Kind.CODE:
        painter.setPen(QPen(QColor(theme.hairline), 1))
        painter.setBrush(formats.code_background)
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)
    elif kind is Kind.QUOTE:
        painter.setBrush(formats.line)
        painter.drawRoundedRect(QRectF(rect.left(), rect.top() + 2, 3, max(4.0, rect.height() - 12)), 1.5, 1.5)
    elif kind is Kind.RULE:
        painter.setBrush(formats.line)
        painter.drawRect(QRectF(rect.left(), round(rect.top()), rect.width(), 1))
    elif kind is Kind.ERROR:
        painter.setPen(QPen(QColor(mix(theme.danger, theme.window, 0.55)), 1))
        painter.setBrush(QColor(mix(theme.danger, theme.window, 0.10)))
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)
