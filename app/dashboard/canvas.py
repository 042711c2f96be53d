"""The common ground of the painted views: a theme, a focus ring, and a name that a screen reader can say.

A canvas is a QLabel only by descent: that gives it an accessible role with a text, where a bare QWidget has none.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QRectF, Qt
from PySide6.QtGui import QAccessible, QFocusEvent, QPainter, QPen
from PySide6.QtWidgets import QLabel, QWidget

from app.dashboard.ink import Ink
from app.theme import Theme

FIGURES_S = 0.34  # nobody reads a moving number faster, and each time costs the engine's cores some milliseconds
SLOWEST_S = 0.5
STEPS_A_LOOK = 6  # where steps are slow, a look shows at least so many new ones


class Pace:
    """Holds figures back that would be painted faster than anyone reads them.

    Attributes:
        behind: something was held back since the last time that it was ready.
    """

    def __init__(self, clock: Callable[[], float], interval_s: float) -> None:
        self._clock = clock
        self._least = self._interval = interval_s
        self._last = float("-inf")
        self.behind = False

    def follow(self, step_s: float) -> None:
        """Keep pace with an engine that takes so long for a step: each look costs its model's cores time, and has less news to show."""
        self._interval = max(self._least, min(SLOWEST_S, STEPS_A_LOOK * step_s))

    def reset(self) -> None:
        """The next time it is ready, whatever the clock says."""
        self._last = float("-inf")

    def ready(self) -> bool:
        """Is it time to paint? When not, remembers that something is owed."""
        now = self._clock()
        self.behind = now - self._last < self._interval
        if not self.behind:
            self._last = now
        return not self.behind


class Canvas(QLabel):
    """A widget that paints itself.

    Attributes:
        ink: the colours to paint with.
    """

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ink = Ink(theme)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(name)
        self.setMouseTracking(True)

    def set_theme(self, theme: Theme) -> None:
        self.ink = Ink(theme)
        self.theme_changed()
        self.update()

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() in (QEvent.Type.Polish, QEvent.Type.StyleChange, QEvent.Type.Show):
            # Paints all of itself: else every sample would repaint the styled cards underneath, at ten times the cost. The style sheet
            # takes this back each time it dresses a label.
            self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, False)
            self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        return handled

    def theme_changed(self) -> None:
        """Drop what was cached in the old colours."""

    def summary(self) -> str:
        """The picture in a sentence or two, for a screen reader; "" where its name says it all."""
        return ""

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.describe(self.summary)

    def describe(self, words: Callable[[], str]) -> None:
        """What a screen reader says after the name. Costs nothing while none is listening; the tables carry the same in any case."""
        if QAccessible.isActive() or self.hasFocus():
            said = words()
            if said and said != self.accessibleDescription():
                self.setAccessibleDescription(said)

    def paint_focus(self, painter: QPainter, rect: QRectF | None = None, radius: float = 12.0) -> None:
        """The 2 px ring, drawn only while the keyboard is here."""
        if not self.hasFocus():
            return
        box = QRectF(self.rect()) if rect is None else rect
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.ink.accent, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box.adjusted(1, 1, -1, -1), radius, radius)
