"""The line under the block map: every owner's colour, number and count, and how many blocks are shared, cached and free.

Counts and names come in; what is drawn follows from them alone, so the line is a stamp until one of them changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QFont, QPainter

from app.dashboard import wording
from app.dashboard.ink import Ink, elided, text_width
from app.dashboard.letters import CENTER, write
from app.dashboard.wording import translate
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED

LINE = 22
SWATCH = 14
TITLE = 96
MORE = 40
TWO_LINES_BELOW = 700


@dataclass(frozen=True, slots=True)
class Entry:
    """One owner: its code, its blocks, and its name ("" where the code says it all)."""

    code: int
    blocks: int
    title: str = ""

    def words(self, named: bool) -> str:
        blocks = wording.count(self.blocks)
        if self.code >= OWNER_SEAT0:
            title = elided(self.title, TITLE, 12) if named else ""
            return f"{title} {blocks}" if title else blocks
        if self.title:
            return f"{self.title} {blocks}"
        return {
            OWNER_FREE: translate("Dashboard", "free {0}"),
            OWNER_CACHED: translate("Dashboard", "cached {0}"),
            OWNER_SHARED: translate("Dashboard", "shared {0}"),
        }[self.code].format(blocks)

    def width(self, named: bool) -> int:
        return SWATCH + 22 + text_width(self.words(named), 12)


def legend_height(width: int) -> int:
    """One line, or two where it is narrow."""
    return 8 + LINE * (2 if width < TWO_LINES_BELOW else 1)


def draw_legend(painter: QPainter, ink: Ink, width: int, owners: tuple[Entry, ...], rest: tuple[Entry, ...]) -> None:
    """Seats first, with their titles where all of them fit; then shared, cached, free."""
    below = width < TWO_LINES_BELOW
    room = width - (0 if below else sum(entry.width(True) for entry in rest))
    named = sum(entry.width(True) for entry in owners) <= room
    x, top = 0.0, 8.0
    for index, entry in enumerate(owners):
        if x + entry.width(named) > room - (MORE if index + 1 < len(owners) else 0):
            painter.setPen(ink.dim)
            write(painter, QRectF(x, top, MORE, LINE), f"+{len(owners) - index}", 12)
            x += MORE
            break
        _draw_entry(painter, ink, x, top, entry, named)
        x += entry.width(named)
    if below:
        x, top = 0.0, top + LINE
    for entry in rest:
        _draw_entry(painter, ink, x, top, entry, named)
        x += entry.width(named)


def _draw_entry(painter: QPainter, ink: Ink, x: float, top: float, entry: Entry, named: bool) -> None:
    box = QRectF(x, top + 4, SWATCH, SWATCH)
    seat = entry.code - OWNER_SEAT0
    plain = {OWNER_FREE: ink.faint, OWNER_CACHED: ink.cached, OWNER_SHARED: ink.faint}
    color = plain[entry.code] if seat < 0 else ink.seat(seat)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    painter.drawRoundedRect(box, 3, 3)
    if entry.code == OWNER_SHARED:
        painter.setBrush(QBrush(ink.shared, Qt.BrushStyle.BDiagPattern))
        painter.drawRoundedRect(box, 3, 3)
    if seat >= 0:
        painter.setPen(ink.on(color))
        write(painter, box, str(seat + 1), 10, QFont.Weight.DemiBold, CENTER)
    painter.setPen(ink.dim)
    write(painter, QRectF(box.right() + 6, top, 400, LINE), entry.words(named), 12)
