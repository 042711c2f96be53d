"""The line under the block map: every owner's colour, number and count, and how many blocks are shared, cached and free.

Counts and names come in; what is drawn follows from them alone. With eight answers some count moves at nearly every look, so the
swatches are stamps and only the words are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QFont, QPainter

from app.dashboard import wording
from app.dashboard.capsule import Press
from app.dashboard.ink import Ink, elided, shape_width
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


def legend_height(width: int) -> int:
    """One line, or two where it is narrow."""
    return 8 + LINE * (2 if width < TWO_LINES_BELOW else 1)


@dataclass(frozen=True, slots=True)
class _Written:
    """An entry with its words, and how much room it takes."""

    entry: Entry
    words: str
    width: int


def _written(entries: tuple[Entry, ...], named: bool) -> list[_Written]:
    found = [(entry, entry.words(named)) for entry in entries]
    return [_Written(entry, words, SWATCH + 22 + shape_width(words, 12)) for entry, words in found]


def paint_legend(painter: QPainter, press: Press, at: QRectF, owners: tuple[Entry, ...], rest: tuple[Entry, ...]) -> None:
    """Seats first, with their titles where all of them fit; then shared, cached, free."""
    below = at.width() < TWO_LINES_BELOW
    plain = _written(rest, True)
    room = at.width() - (0 if below else sum(each.width for each in plain))
    seats = _written(owners, True)
    if sum(each.width for each in seats) > room:
        seats = _written(owners, False)
    x, top = 0.0, at.top() + 8.0
    for index, each in enumerate(seats):
        if x + each.width > room - (MORE if index + 1 < len(seats) else 0):
            painter.setPen(press.ink.dim)
            write(painter, QRectF(x, top, MORE, LINE), f"+{len(seats) - index}", 12)
            x += MORE
            break
        _paint_entry(painter, press, x, top, each)
        x += each.width
    if below:
        x, top = 0.0, top + LINE
    for each in plain:
        _paint_entry(painter, press, x, top, each)
        x += each.width


def _paint_entry(painter: QPainter, press: Press, x: float, top: float, each: _Written) -> None:
    draw = partial(_draw_swatch, ink=press.ink, code=each.entry.code)
    swatch = press.stamps.get(("swatch", each.entry.code), SWATCH, SWATCH, press.ratio, draw, press.ink.surface)
    painter.drawPixmap(QPointF(round(x), top + 4), swatch)
    painter.setPen(press.ink.dim)
    write(painter, QRectF(x + SWATCH + 6, top, 400, LINE), each.words, 12)


def _draw_swatch(painter: QPainter, ink: Ink, code: int) -> None:
    box, seat = QRectF(0, 0, SWATCH, SWATCH), code - OWNER_SEAT0
    plain = {OWNER_FREE: ink.faint, OWNER_CACHED: ink.cached, OWNER_SHARED: ink.faint}
    color = plain[code] if seat < 0 else ink.seat(seat)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    painter.drawRoundedRect(box, 3, 3)
    if code == OWNER_SHARED:
        painter.setBrush(QBrush(ink.shared, Qt.BrushStyle.BDiagPattern))
        painter.drawRoundedRect(box, 3, 3)
    if seat >= 0:
        painter.setPen(ink.on(color))
        write(painter, box, str(seat + 1), 10, QFont.Weight.DemiBold, CENTER)
