"""Paints one seat or one waiting chip into a rectangle. Stateless: everything comes in as arguments.

A seat's colour never stands alone: its number stands on it. Prefill is hatched, decode solid, here as on the timeline.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QLinearGradient, QPainter, QPen

from app.dashboard.bus_layout import Density
from app.dashboard.ink import Ink, blend, elided, faded, font, text_width
from app.dashboard.riders import ChipCell, SeatCell
from engine import Phase

CROSS = 22
MIDDLE = Qt.AlignmentFlag.AlignVCenter
CENTER = Qt.AlignmentFlag.AlignCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def body_color(ink: Ink) -> QColor:
    """The inside of the bus, one step away from the panel it stands on."""
    return ink.raised if ink.theme.is_dark else ink.window


def paint_empty_seat(painter: QPainter, ink: Ink, rect: QRectF, number: int, density: Density) -> None:
    """An outline with its number: nobody sits here."""
    ground = body_color(ink)
    pen = QPen(blend(ink.text, ground, 0.20), 1, Qt.PenStyle.DashLine)
    pen.setDashPattern([4, 4])
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    radius = rect.height() / 2
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius - 0.5, radius - 0.5)
    painter.setPen(blend(ink.dim, ground, 0.75))
    painter.setFont(font(12 if density.title else 11, QFont.Weight.Medium))
    if density.title:
        painter.drawText(QRectF(rect.x(), rect.y(), rect.height(), rect.height()), CENTER, str(number))
    else:
        painter.drawText(rect, CENTER, str(number))


def paint_seat(
    painter: QPainter, ink: Ink, rect: QRectF, cell: SeatCell, density: Density, *, active: bool = False, opacity: float = 1.0
) -> None:
    """A taken seat. `active` (under the pointer, or current for the keyboard) shows the cross that cancels."""
    painter.setOpacity(opacity)
    _paint_hull(painter, ink, rect, cell, active)
    if density.title:
        _paint_rider(painter, ink, rect, cell, density, active)
    else:
        painter.setPen(ink.text)
        painter.setFont(font(11, QFont.Weight.DemiBold))
        painter.drawText(rect, CENTER, str(cell.number))
    if opacity != 1.0:
        painter.setOpacity(1.0)


def _paint_hull(painter: QPainter, ink: Ink, rect: QRectF, cell: SeatCell, active: bool) -> None:
    seat, ground = ink.seat(cell.seat), body_color(ink)
    radius = rect.height() / 2
    rest = blend(seat, ground, 0.22 if active else 0.13)
    full = blend(seat, ground, 0.46 if active else 0.36)
    level = min(1.0, max(0.0, cell.level))
    painter.setPen(QPen(blend(seat, ground, 0.85 if active else 0.5), 1))
    box = rect.adjusted(0.5, 0.5, -0.5, -0.5)
    if cell.phase is Phase.PREFILL:
        painter.setBrush(rest)
        painter.drawRoundedRect(box, radius, radius)
        painter.save()
        painter.setClipRect(QRectF(rect.x(), rect.y(), rect.width() * level, rect.height()))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(blend(seat, ground, 0.55), Qt.BrushStyle.BDiagPattern))
        painter.drawRoundedRect(box, radius, radius)
        painter.restore()
        return
    shade = QLinearGradient(rect.topLeft(), rect.topRight())
    shade.setColorAt(0, full)
    if level < 1.0:
        shade.setColorAt(max(0.0, level - 1e-4), full)
        shade.setColorAt(level, rest)
        shade.setColorAt(1, rest)
    painter.setBrush(QBrush(shade))
    painter.drawRoundedRect(box, radius, radius)


def _paint_rider(painter: QPainter, ink: Ink, rect: QRectF, cell: SeatCell, density: Density, active: bool) -> None:
    seat = ink.seat(cell.seat)
    inset = 6 if density.two_lines else 4
    badge = QRectF(rect.x() + inset, rect.y() + inset, rect.height() - 2 * inset, rect.height() - 2 * inset)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(seat)
    painter.drawEllipse(badge)
    painter.setPen(ink.on(seat))
    painter.setFont(font(16 if density.two_lines else 12, QFont.Weight.DemiBold))
    painter.drawText(badge, CENTER, str(cell.number))
    left = badge.right() + (10 if density.two_lines else 7)
    width = rect.right() - left - (CROSS + 10 if active else 16)
    if not density.two_lines:
        painter.setPen(ink.text)
        painter.setFont(font(12, QFont.Weight.Medium))
        painter.drawText(QRectF(left, rect.y(), width, rect.height()), MIDDLE, elided(cell.title, int(width), 12, QFont.Weight.Medium))
    else:
        room = width
        if cell.marks:
            painter.setPen(ink.dim)
            painter.setFont(font(11))
            marks = text_width(cell.marks, 11) + 8
            if marks < width * 0.5:
                painter.drawText(QRectF(left, rect.y() + 8, width, 19), RIGHT, cell.marks)
                room = width - marks
        painter.setPen(ink.text)
        painter.setFont(font(13, QFont.Weight.DemiBold))
        painter.drawText(QRectF(left, rect.y() + 8, room, 19), MIDDLE, elided(cell.title, int(room), 13, QFont.Weight.DemiBold))
        painter.setPen(blend(ink.text, ink.dim, 0.35))
        painter.setFont(font(12))
        painter.drawText(QRectF(left, rect.y() + 27, width, 18), MIDDLE, fitting(cell.lines, int(width), 12))
    if active:
        paint_cross(painter, ink, cross_rect(rect))


def fitting(lines: tuple[str, ...], width: int, pixels: int) -> str:
    """The longest of `lines` (longest first) that fits, else the last one cut."""
    for line in lines:
        if text_width(line, pixels) <= width:
            return line
    return elided(lines[-1], width, pixels)


def cross_rect(rect: QRectF) -> QRectF:
    """The cancel cross inside a seat or a chip."""
    return QRectF(rect.right() - CROSS - 8, rect.center().y() - CROSS / 2, CROSS, CROSS)


def paint_cross(painter: QPainter, ink: Ink, box: QRectF) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(faded(ink.text, 0.14))
    painter.drawEllipse(box)
    painter.setPen(QPen(ink.text, 1))
    mid, arm = box.center(), 3.5
    painter.drawLine(QPointF(mid.x() - arm, mid.y() - arm), QPointF(mid.x() + arm, mid.y() + arm))
    painter.drawLine(QPointF(mid.x() - arm, mid.y() + arm), QPointF(mid.x() + arm, mid.y() - arm))


def paint_chip(painter: QPainter, ink: Ink, rect: QRectF, chip: ChipCell, *, active: bool = False, opacity: float = 1.0) -> None:
    """A waiting request: place, title, why it waits, when it will board."""
    painter.setOpacity(opacity)
    ground = body_color(ink)
    painter.setPen(QPen(blend(ink.text, ground, 0.30 if active else 0.12), 1))
    painter.setBrush(ground)
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
    painter.setPen(ink.dim)
    painter.setFont(font(13, QFont.Weight.DemiBold))
    painter.drawText(QRectF(rect.x() + 4, rect.y(), 26, rect.height()), CENTER, str(chip.place))
    left = rect.x() + 34
    width = rect.right() - left - (CROSS + 12 if active else 10)
    when = 0
    painter.setFont(font(11))
    if chip.when and not active:
        when = text_width(chip.when, 11) + 8
        if when < width * 0.55:
            painter.drawText(QRectF(left, rect.y() + 5, width, 16), RIGHT, chip.when)
        else:
            when = 0
    painter.drawText(QRectF(left, rect.y() + 21, width, 16), MIDDLE, elided(chip.why, int(width), 11))
    painter.setPen(ink.text)
    painter.setFont(font(12, QFont.Weight.DemiBold))
    painter.drawText(QRectF(left, rect.y() + 5, width - when, 16), MIDDLE, elided(chip.title, int(width - when), 12, QFont.Weight.DemiBold))
    if active:
        paint_cross(painter, ink, cross_rect(rect))
    if opacity != 1.0:
        painter.setOpacity(1.0)
