"""Formulas as pictures: TeX through ziamath to SVG, drawn as an object inside a line of text. No LaTeX installation, nothing fetched.

A formula that cannot be drawn stays what was written. Owns a cache of drawn formulas; the TeX itself lies in the document's formats, so
that what is copied is what was written.
"""

from __future__ import annotations

import functools
from typing import Any

from PySide6.QtCore import QByteArray, QRect, QRectF, QSizeF
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QPyTextObject, QTextCharFormat, QTextDocument, QTextFormat
from PySide6.QtSvg import QSvgRenderer

from app.chats.tex import svg
from app.theme import ui_font

FORMULA_TYPE = QTextFormat.ObjectTypes.UserObject.value + 1
SOURCE = QTextFormat.Property.UserProperty + 2  # what was written, marks included
_TEX = QTextFormat.Property.UserProperty + 3
_PIXELS = QTextFormat.Property.UserProperty + 4
_COLOR = QTextFormat.Property.UserProperty + 5
_DISPLAY = QTextFormat.Property.UserProperty + 6

MOST_CACHED = 512


class Formula:
    """One drawn formula. `above` and `below` its base line, and `width`, in pixels."""

    def __init__(self, picture: str) -> None:
        self.renderer = QSvgRenderer(QByteArray(picture.encode()))
        box = self.renderer.viewBoxF()
        self.width, self.above, self.below = box.width(), -box.top(), box.bottom()


@functools.lru_cache(MOST_CACHED)
def draw(tex: str, pixels: int, color: str, display: bool) -> Formula | None:
    """The formula, or None where it cannot be drawn. Import and first use take a few hundred milliseconds, a formula some 10."""
    drawn = svg(tex, pixels, color, display)
    if drawn is None:
        return None
    formula = Formula(drawn)
    return formula if formula.renderer.isValid() and 0 < formula.width < 8000 else None


class FormulaObject(QPyTextObject):
    """Tells Qt's layout how large a formula is, and paints it."""

    def intrinsicSize(self, document: QTextDocument, position: int, format: Any) -> QSizeF:
        formula = formula_of(format)
        return QSizeF(formula.width, formula.above + formula.below) if formula else QSizeF(1, 1)

    def drawObject(self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, format: Any) -> None:
        formula = formula_of(format)
        if formula:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            formula.renderer.render(painter, QRectF(rect.topLeft(), QSizeF(formula.width, formula.above + formula.below)))


def formula_format(tex: str, source: str, base: QTextCharFormat, display: bool, most_width: float) -> QTextCharFormat | None:
    """The format of a formula's character (U+FFFC), or None where it cannot be drawn within `most_width` pixels."""
    pixels = round(base.font().pixelSize() * (1.22 if display else 1.15))
    color = base.foreground().color().name()
    formula = draw(tex, pixels, color, display)
    if formula is None or formula.width > most_width:
        return None
    char = QTextCharFormat(base)
    char.setObjectType(FORMULA_TYPE)
    char.setProperty(SOURCE, source)
    char.setProperty(_TEX, tex)
    char.setProperty(_PIXELS, pixels)
    char.setProperty(_COLOR, color)
    char.setProperty(_DISPLAY, display)
    char.setToolTip(source)
    # Qt hangs an object below the base line by the descent of its format's font: one with the right descent is chosen.
    char.setFont(_font_with_descent(round(formula.below)))
    char.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignBaseline)
    return char


@functools.lru_cache(256)
def _font_with_descent(pixels: int) -> QFont:
    size = max(1, round(pixels / 0.24))
    for candidate in sorted(range(max(1, size - 12), size + 13), key=lambda wanted: abs(wanted - size)):
        if round(QFontMetricsF(ui_font(candidate)).descent()) == pixels:
            return ui_font(candidate)
    return ui_font(size)


def formula_of(format: Any) -> Formula | None:
    value = format.property
    return draw(str(value(_TEX)), int(value(_PIXELS)), str(value(_COLOR)), bool(value(_DISPLAY)))
