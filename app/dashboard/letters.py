"""Writing on a painted view, cheaply: words that come again are shaped once, words that change with every sample are drawn straight.

Shaping a line costs some 20 us, drawing a shaped one 3. Owns a bounded cache of shaped words; knows nothing of what they mean.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QStaticText, QTransform

from app.dashboard.ink import font, metrics, text_width

Weight = QFont.Weight
LEFT, CENTER, RIGHT = range(3)


@lru_cache(maxsize=4096)
def _shaped(text: str, pixels: int, weight: Weight) -> tuple[QStaticText, float, float]:
    """(words, width, height), shaped for the face."""
    words = QStaticText(text)
    words.setTextFormat(Qt.TextFormat.PlainText)
    words.prepare(QTransform(), font(pixels, weight))
    size = words.size()
    return words, size.width(), size.height()


def write(painter: QPainter, box: QRectF, text: str, pixels: int, weight: Weight = Weight.Normal, side: int = LEFT) -> None:
    """One line, in the middle of the box's height, in the painter's pen. Not clipped: cut it first with `ink.elided`."""
    if not text:
        return
    words, width, height = _shaped(text, pixels, weight)
    x = box.x() if side == LEFT else box.right() - width if side == RIGHT else box.x() + (box.width() - width) / 2
    painter.setFont(font(pixels, weight))
    painter.drawStaticText(QPointF(round(x), round(box.y() + (box.height() - height) / 2)), words)


def write_live(painter: QPainter, box: QRectF, text: str, pixels: int, weight: Weight = Weight.Normal) -> None:
    """The same, from the left, for words that will hardly come again."""
    face = metrics(pixels, weight)
    painter.setFont(font(pixels, weight))
    painter.drawText(QPointF(box.x(), round(box.y() + (box.height() + face.ascent() - face.descent()) / 2)), text)


__all__ = ["CENTER", "LEFT", "RIGHT", "text_width", "write", "write_live"]
