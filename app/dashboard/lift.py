"""Priority by drag: somebody is lifted out of a seat or the queue, and set down in another class.

While one is lifted, the stop shows the four classes as places to set them down; let go anywhere else, nothing happens. Owns the gesture
and its picture; asks for nothing itself. What the keyboard can do instead stands in `neighbour`.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFont, QPainter, QPen
from PySide6.QtWidgets import QApplication

from app.dashboard import wording
from app.dashboard.bus_layout import CHIP_HEIGHT, BusLayout
from app.dashboard.capsule import Press, body_color, paint_chip_plain
from app.dashboard.ink import blend, elided, text_width
from app.dashboard.letters import write
from app.dashboard.riders import ChipCell, SeatCell
from app.dashboard.wording import translate
from engine import Priority

GAP = 4
GHOST = 180  # pixels at most
BOLD = QFont.Weight.DemiBold


@dataclass(frozen=True, slots=True)
class Place:
    """Where one can be set down to ride in a class."""

    priority: Priority
    rect: QRectF


def places(layout: BusLayout) -> tuple[Place, ...]:
    """The four classes over the queue: one below the other beside the bus, side by side above it."""
    queue = layout.queue
    stacked = layout.body.top() > 0
    columns = 4 if stacked else 1
    rows = len(Priority) // columns
    top = layout.stop.bottom()
    width = (layout.stop.width() - (columns - 1) * GAP) / columns
    height = (queue.bottom() - top - (rows - 1) * GAP) / rows
    found = []
    for index, priority in enumerate(Priority):
        row, column = divmod(index, columns)
        found.append(Place(priority, QRectF(round(column * (width + GAP)), round(top + row * (height + GAP)), round(width), round(height))))
    return tuple(found)


def neighbour(priority: Priority, up: bool) -> Priority:
    """The next class above or below, for the keyboard; the same at either end."""
    return Priority(min(max(priority + (-1 if up else 1), min(Priority)), max(Priority)))


class Lift:
    """One gesture, from the press of the button to its release.

    Attributes:
        cell: who is under the pointer. lifted: the pointer has gone far enough for this to be meant.
    """

    def __init__(self, cell: SeatCell | ChipCell, start: QPointF) -> None:
        self.cell = cell
        self.lifted = False
        self._start = start
        self._at = start

    def move(self, at: QPointF) -> bool:
        """Follow the pointer; True while somebody is lifted."""
        self._at = at
        if (at - self._start).manhattanLength() >= QApplication.startDragDistance():
            self.lifted = True
        return self.lifted

    def over(self, layout: BusLayout) -> Priority | None:
        """The class over which they hang; None elsewhere."""
        return next((place.priority for place in places(layout) if place.rect.contains(self._at)), None)

    def paint(self, painter: QPainter, press: Press, layout: BusLayout) -> None:
        """The classes over the queue, and who is lifted, at the pointer."""
        ink, over = press.ink, self.over(layout)
        ground = body_color(ink)
        painter.fillRect(layout.queue.adjusted(0, 0, 0, 1), ink.surface)
        painter.setPen(ink.text)
        write(painter, layout.stop, elided(translate("Dashboard", "Set down to ride as"), int(layout.stop.width()), 13, BOLD), 13, BOLD)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for place in places(layout):
            here, now = place.priority is over, place.priority is self.cell.priority
            painter.setPen(QPen(ink.accent if here else blend(ink.text, ground, 0.35 if now else 0.16), 1))
            painter.setBrush(blend(ink.accent, ground, 0.22) if here else ground)
            painter.drawRoundedRect(place.rect.adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
            painter.setPen(ink.text if here or now else ink.dim)
            word = wording.priority(place.priority)
            if now:
                word = translate("Dashboard", "{0}, as now").format(word)
            write(painter, place.rect.adjusted(14, 0, -8, 0), elided(word, int(place.rect.width() - 22), 12, BOLD), 12, BOLD)
        ghost = QRectF(0, 0, min(GHOST, 30 + text_width(self.cell.title, 12, BOLD)), CHIP_HEIGHT - 12)
        ghost.moveTopLeft(QPointF(self._at.x() + 8, self._at.y() + 8))  # clear of the word that is under the pointer
        paint_chip_plain(painter, ink, ghost, self.cell.title)


def hint() -> str:
    """How priority is changed, for a tip."""
    return translate("Dashboard", "Drag onto another class, or press Alt+Up and Alt+Down, to change the priority")
