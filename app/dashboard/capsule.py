"""Paints one seat or one waiting chip into a rectangle. What does not change from sample to sample is stamped.

A seat's colour never stands alone: its number stands on it. Prefill is hatched, decode solid, here as on the timeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QPainter, QPen

from app.dashboard.bus_layout import Density
from app.dashboard.ink import Ink, blend, elided, faded, shape_width, text_width
from app.dashboard.letters import CENTER, RIGHT, write, write_live
from app.dashboard.riders import ChipCell, SeatCell
from app.dashboard.stamps import Stamps, stamp_part
from app.dashboard.wording import translate

CROSS = 22
BOLD = QFont.Weight.DemiBold
# How much of the seat's colour stands on the bus, with the text's contrast in mind: where the level has reached, and where it has not.
FULL, FULL_ACTIVE, BARE, BARE_ACTIVE, HATCHED = 0.36, 0.46, 0.13, 0.22, 0.44


@dataclass(frozen=True, slots=True)
class Press:
    """What riders are painted with: colours, kept pictures, and the screen's ratio."""

    ink: Ink
    stamps: Stamps
    ratio: float


def body_color(ink: Ink) -> QColor:
    """The inside of the bus, one step away from the panel it stands on."""
    return ink.raised if ink.theme.is_dark else ink.window


def paint_empty_seat(painter: QPainter, press: Press, rect: QRectF, number: int, density: Density) -> None:
    """An outline with its number: nobody sits here."""
    draw = partial(_draw_empty_seat, ink=press.ink, box=QRectF(0, 0, rect.width(), rect.height()), number=number, density=density)
    painter.drawPixmap(rect.topLeft(), press.stamps.get(("empty", number), rect.width(), rect.height(), press.ratio, draw))


def _draw_empty_seat(painter: QPainter, *, ink: Ink, box: QRectF, number: int, density: Density) -> None:
    ground = body_color(ink)
    _dashes(painter, blend(ink.text, ground, 0.20))
    radius = box.height() / 2
    painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius - 0.5, radius - 0.5)
    painter.setPen(ink.dim)
    place = QRectF(0, 0, box.height(), box.height()) if density.title else box
    write(painter, place, str(number), 12 if density.title else 11, QFont.Weight.Medium, CENTER)


def paint_empty_place(painter: QPainter, press: Press, rect: QRectF) -> None:
    """The first place of a queue in which nobody stands."""
    painter.setPen(press.ink.dim)
    write(painter, rect, translate("Dashboard", "nobody waits"), 12, side=CENTER)

    def draw(inner: QPainter) -> None:
        _dashes(inner, blend(press.ink.text, press.ink.surface, 0.18))
        inner.drawRoundedRect(QRectF(0.5, 0.5, rect.width() - 1, rect.height() - 1), 12, 12)

    painter.drawPixmap(rect.topLeft(), press.stamps.get("place", rect.width(), rect.height(), press.ratio, draw))


def _dashes(painter: QPainter, color: QColor) -> None:
    pen = QPen(color, 1, Qt.PenStyle.DashLine)
    pen.setDashPattern([4, 4])
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)


def paint_seat(
    painter: QPainter, press: Press, rect: QRectF, cell: SeatCell, density: Density, *, active: bool = False, opacity: float = 1.0
) -> None:
    """A taken seat. `active` (under the pointer, or current for the keyboard) shows the cross that cancels."""
    painter.setOpacity(opacity)
    at = QPointF(round(rect.x()), round(rect.y()))
    box = QRectF(0, 0, rect.width(), rect.height())
    key = ("seat", cell.seat, cell.title, cell.marks, cell.reading, active)
    for share, full in ((1.0, False), (cell.level, True)):
        draw = partial(_draw_seat, ink=press.ink, box=box, cell=cell, density=density, active=active, full=full)
        stamp_part(painter, at, press.stamps.get((key, full), rect.width(), rect.height(), press.ratio, draw), share)
    if density.two_lines:
        left, width = text_span(density, box, active)
        painter.setPen(press.ink.text)
        write_live(painter, QRectF(at.x() + left, at.y() + 30, width, 18), fitting(cell.wordings(), int(width), 12), 12)
    if opacity != 1.0:
        painter.setOpacity(1.0)


def _draw_seat(painter: QPainter, *, ink: Ink, box: QRectF, cell: SeatCell, density: Density, active: bool, full: bool) -> None:
    """All of a seat but its moving line, as it is where the level has reached (`full`) or has not."""
    seat, ground = ink.seat(cell.seat), body_color(ink)
    radius = box.height() / 2
    inner = box.adjusted(0.5, 0.5, -0.5, -0.5)
    share = (FULL_ACTIVE if active else FULL) if full and not cell.reading else BARE_ACTIVE if active else BARE
    painter.setPen(QPen(blend(seat, ground, 0.85 if active else 0.5), 1))
    painter.setBrush(blend(seat, ground, share))
    painter.drawRoundedRect(inner, radius, radius)
    if full and cell.reading:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(blend(seat, ground, HATCHED), Qt.BrushStyle.BDiagPattern))
        painter.drawRoundedRect(inner, radius, radius)
    if not density.title:
        painter.setPen(ink.text)
        write(painter, box, str(cell.number), 11, BOLD, CENTER)
        return
    inset = 6 if density.two_lines else 4
    badge = QRectF(inset, inset, box.height() - 2 * inset, box.height() - 2 * inset)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(seat)
    painter.drawEllipse(badge)
    painter.setPen(ink.on(seat))
    write(painter, badge, str(cell.number), 16 if density.two_lines else 12, BOLD, CENTER)
    left, width = text_span(density, box, active)
    top = QRectF(left, 11, width, 19) if density.two_lines else QRectF(left, 0, width, box.height())
    room, pixels = width, 13 if density.two_lines else 12
    if cell.marks and density.two_lines:
        painter.setPen(ink.text)
        write(painter, top, cell.marks, 11, side=RIGHT)
        room -= text_width(cell.marks, 11) + 8
    painter.setPen(ink.text)
    write(painter, top, elided(cell.title, int(room), pixels, BOLD), pixels, BOLD)
    if active:
        _draw_cross(painter, ink, cross_rect(box))


def text_span(density: Density, box: QRectF, active: bool) -> tuple[float, float]:
    """Left edge and width of a seat's words."""
    left = box.height() + (4 if density.two_lines else 3)
    return left, box.width() - left - (CROSS + 12 if active else 16)


def fitting(lines: Iterable[str], width: int, pixels: int) -> str:
    """The longest of `lines` (longest first) that fits, else the last one cut."""
    line = ""
    for line in lines:
        if shape_width(line, pixels) <= width:
            return line
    return elided(line, width, pixels)


def cross_rect(rect: QRectF) -> QRectF:
    """The cancel cross inside a seat or a chip."""
    return QRectF(rect.right() - CROSS - 8, rect.center().y() - CROSS / 2, CROSS, CROSS)


def _draw_cross(painter: QPainter, ink: Ink, box: QRectF) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(faded(ink.text, 0.14))
    painter.drawEllipse(box)
    painter.setPen(QPen(ink.text, 1))
    mid, arm = box.center(), 3.5
    painter.drawLine(QPointF(mid.x() - arm, mid.y() - arm), QPointF(mid.x() + arm, mid.y() + arm))
    painter.drawLine(QPointF(mid.x() - arm, mid.y() + arm), QPointF(mid.x() + arm, mid.y() - arm))


def paint_chip(painter: QPainter, press: Press, rect: QRectF, chip: ChipCell, *, active: bool = False, opacity: float = 1.0) -> None:
    """A waiting request: place, title, why it waits, when it will board."""
    painter.setOpacity(opacity)
    draw = partial(_draw_chip, ink=press.ink, box=QRectF(0, 0, rect.width(), rect.height()), chip=chip, active=active)
    picture = press.stamps.get(("chip", chip.face, active), rect.width(), rect.height(), press.ratio, draw)
    painter.drawPixmap(QPointF(round(rect.x()), round(rect.y())), picture)
    if opacity != 1.0:
        painter.setOpacity(1.0)


def _draw_chip(painter: QPainter, *, ink: Ink, box: QRectF, chip: ChipCell, active: bool) -> None:
    ground = body_color(ink)
    painter.setPen(QPen(blend(ink.text, ground, 0.30 if active else 0.12), 1))
    painter.setBrush(ground)
    painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
    painter.setPen(ink.dim)
    write(painter, QRectF(4, 0, 26, box.height()), str(chip.place), 13, BOLD, CENTER)
    left = 34
    width = box.width() - left - (CROSS + 12 if active else 10)
    taken = 0
    if chip.marks and not active and text_width(chip.marks, 11) + 8 < width * 0.55:
        taken = text_width(chip.marks, 11) + 8
        write(painter, QRectF(left, 5, width, 16), chip.marks, 11, side=RIGHT)
    write(painter, QRectF(left, 21, width, 16), elided(chip.why, int(width), 11), 11)
    painter.setPen(ink.text)
    write(painter, QRectF(left, 5, width - taken, 16), elided(chip.title, int(width - taken), 12, BOLD), 12, BOLD)
    if active:
        _draw_cross(painter, ink, cross_rect(box))


def paint_chip_plain(painter: QPainter, ink: Ink, box: QRectF, title: str) -> None:
    """Somebody on the way by hand: the title alone."""
    painter.setPen(QPen(ink.accent, 1))
    painter.setBrush(blend(ink.accent, body_color(ink), 0.14))
    painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), box.height() / 2, box.height() / 2)
    painter.setPen(ink.text)
    write(painter, box.adjusted(16, 0, -12, 0), elided(title, int(box.width() - 28), 12, BOLD), 12, BOLD)
