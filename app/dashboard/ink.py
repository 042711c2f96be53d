"""Colours and fonts for the painted views: the theme's strings turned into Qt values once, and looked up from then on.

Owns only caches. Must never know what is being painted.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPen

from app.theme import Theme, tabular, ui_font
from app.theme.color import contrast


def faded(color: QColor, opacity: float) -> QColor:
    """The colour with another opacity, 0..1."""
    copy = QColor(color)
    copy.setAlphaF(opacity)
    return copy


def blend(over: QColor, under: QColor, share: float) -> QColor:
    """An opaque colour: `share` of `over`, the rest `under`."""
    rest = 1.0 - share
    return QColor(
        round(over.red() * share + under.red() * rest),
        round(over.green() * share + under.green() * rest),
        round(over.blue() * share + under.blue() * rest),
    )


def flat(color: QColor, under: QColor) -> QColor:
    """A translucent colour as it looks on an opaque one."""
    return blend(color, under, color.alphaF())


@lru_cache(maxsize=64)
def font(pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The interface face with tabular figures."""
    return tabular(ui_font(pixels, weight))


@lru_cache(maxsize=64)
def metrics(pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFontMetrics:
    return QFontMetrics(font(pixels, weight))


@lru_cache(maxsize=2048)
def elided(text: str, width: int, pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> str:
    """The text cut with an ellipsis to `width` pixels."""
    return metrics(pixels, weight).elidedText(text, Qt.TextElideMode.ElideRight, max(0, width))


@lru_cache(maxsize=2048)
def text_width(text: str, pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> int:
    return metrics(pixels, weight).horizontalAdvance(text)


_DIGITS = str.maketrans("123456789", "000000000")


def shape_width(text: str, pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> int:
    """The same for words with figures in them that move: figures are equally wide, so each shape of words is measured once."""
    return text_width(text.translate(_DIGITS), pixels, weight)


class Ink:
    """One theme, ready to paint with.

    Attributes:
        surface, window, raised, text, dim, accent, danger, good: opaque colours.
        line: the hairline as it looks on a surface. faint: what is there but means nothing (free blocks, tracks).
        cached: blocks that are kept but belong to nobody. shared: blocks that several requests hold.
    """

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.window = QColor(theme.window)
        self.sidebar = QColor(theme.sidebar)
        self.surface = QColor(theme.surface)
        self.raised = QColor(theme.raised)
        self.text = QColor(theme.text)
        self.dim = QColor(theme.text_dim)
        self.accent = QColor(theme.accent)
        self.danger = QColor(theme.danger)
        self.good = QColor(theme.good)
        self.line = blend(self.text, self.surface, 0.14)
        self.faint = blend(self.text, self.surface, 0.09 if theme.is_dark else 0.08)
        self.cached = blend(self.text, self.surface, 0.24)
        self.shared = blend(self.text, self.surface, 0.72)
        self._seats: dict[int, QColor] = {}
        self._on: dict[str, QColor] = {}

    def seat(self, seat: int) -> QColor:
        """The hue of a 0-based seat."""
        color = self._seats.get(seat)
        if color is None:
            color = self._seats[seat] = self.theme.seat_color(seat)
        return color

    def on(self, color: QColor) -> QColor:
        """Dark or white, whichever reads better on `color`."""
        name = color.name()
        found = self._on.get(name)
        if found is None:
            found = QColor(max(("#0f1012", "#ffffff"), key=lambda candidate: contrast(candidate, name)))
            self._on[name] = found
        return found

    def hairline(self) -> QPen:
        """One device-independent pixel; wider antialiased strokes cost fifty times as much."""
        return QPen(self.line, 1)
