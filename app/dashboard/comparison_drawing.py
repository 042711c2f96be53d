"""How a comparison is drawn, on screen and into files alike: the verdict, the figures with a bar each, the two timelines on one clock.

Pure painting: everything drawn comes from the `Comparison`, every size from the width. The axis is time, so that the shorter of the
two ends earlier to the eye as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QPainter

from app.dashboard import wording
from app.dashboard.comparison import ORDER, Comparison
from app.dashboard.ink import Ink, blend, elided, font, metrics
from app.dashboard.letters import CENTER, RIGHT, write
from app.dashboard.rides import Ride
from app.dashboard.step_image import RIM
from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED
from app.dashboard.timeline_words import draw_entries, entries, fitting_entries
from app.dashboard.wording import translate
from app.numbers import number

Weight = QFont.Weight
GUTTER = 30
HEAD, LINE, CAPTION, AXIS, LEGEND, GAP = 24, 34, 26, 24, 26, 12
TABLE_MOST = 820
LABEL_FROM = 44
WRAP = Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop


@dataclass(frozen=True, slots=True)
class Plan:
    """Where things stand for a width, in device-independent pixels from the top."""

    width: int
    words: int  # height of the verdict
    table: int
    lanes: tuple[int, int]  # top of each policy's lanes
    row: int
    axis: int
    legend: int
    note: int
    height: int


def note_words() -> str:
    return translate(
        "Dashboard",
        "The same arrivals and answers for both, scheduled by the engine's own code; a step takes as long as the recording's steps did.",
    )


@lru_cache(maxsize=8)
def _words_height(words: str, width: int, pixels: int, weight: Weight) -> int:
    return metrics(pixels, weight).boundingRect(QRect(0, 0, max(1, width), 10_000), WRAP, words).height()


def lane_height(seats: int) -> int:
    return next((high for most, high in ((4, 20), (8, 17), (16, 11), (32, 7), (64, 4)) if seats <= most), 2)


def legend_rows(width: int) -> list[tuple[int, int]]:
    """The legend in rows, each as (first entry, how many)."""
    rows: list[tuple[int, int]] = []
    first = 0
    while first < len(entries()):
        shown = max(1, fitting_entries(GUTTER, width, first))
        rows.append((first, shown))
        first += shown
    return rows


def plan(comparison: Comparison, width: int) -> Plan:
    """The layout for a width."""
    row = lane_height(comparison.seats)
    high = row * comparison.seats
    words = _words_height(comparison.verdict(), width, 15, Weight.DemiBold)
    table = words + GAP
    first = table + HEAD + LINE * len(comparison.lines()) + GAP + CAPTION
    second = first + high + GAP + CAPTION
    axis = second + high
    legend = axis + AXIS
    note = legend + LEGEND * len(legend_rows(width))
    return Plan(width, words, table, (first, second), row, axis, legend, note, note + _words_height(note_words(), width, 12, Weight.Normal))


def draw_comparison(painter: QPainter, ink: Ink, comparison: Comparison, width: int) -> None:
    """All of it, `width` wide and `plan(comparison, width).height` high, on the ground that is there."""
    where = plan(comparison, width)
    painter.setPen(ink.text)
    painter.setFont(font(15, Weight.DemiBold))
    painter.drawText(QRectF(0, 0, width, where.words), WRAP, comparison.verdict())
    _draw_table(painter, ink, comparison, where)
    scale = (width - GUTTER) / (comparison.span_s or 1.0)
    _draw_axis(painter, ink, comparison, where, scale)
    for index in range(2):
        _draw_lanes(painter, ink, comparison, where, index, scale)
    painter.save()
    painter.translate(0, where.legend)
    for first, shown in legend_rows(width):
        draw_entries(painter, ink, GUTTER, shown, first)
        painter.translate(0, LEGEND)
    painter.restore()
    painter.setPen(ink.dim)
    painter.setFont(font(12))
    painter.drawText(QRectF(0, where.note, width, where.height - where.note), WRAP, note_words())


def _draw_table(painter: QPainter, ink: Ink, comparison: Comparison, where: Plan) -> None:
    wide = min(where.width, TABLE_MOST)
    label = min(190, round(wide * 0.38))
    column = (wide - label) / 2
    for index, policy in enumerate(ORDER):
        painter.setPen(ink.text)
        left = label + index * column
        write(painter, QRectF(left, where.table, column - 16, HEAD - 4), wording.policy(policy), 13, Weight.DemiBold)
    for place, line in enumerate(comparison.lines()):
        y = where.table + HEAD + place * LINE
        painter.setPen(ink.line)
        painter.drawLine(0, y, wide, y)
        painter.setPen(ink.dim)
        write(painter, QRectF(0, y + 2, label - 8, LINE - 4), elided(line.label, label - 8, 12), 12)
        most = max(line.values)
        for index in range(2):
            left, better = label + index * column, line.better in (index, -1)
            weight = Weight.DemiBold if better else Weight.Normal
            painter.setPen(ink.text if better else ink.dim)
            write(painter, QRectF(left, y + 3, column - 16, 20), line.words[index], 14, weight)
            track = QRectF(left, y + LINE - 9, column - 24, 3)
            painter.fillRect(track, ink.faint)
            if most > 0:
                track.setWidth(track.width() * line.values[index] / most)
                painter.fillRect(track, ink.accent if better else blend(ink.dim, ink.surface, 0.7))


def _draw_lanes(painter: QPainter, ink: Ink, comparison: Comparison, where: Plan, index: int, scale: float) -> None:
    top, row = where.lanes[index], where.row
    painter.setPen(ink.text)
    write(
        painter,
        QRectF(0, top - CAPTION + 2, where.width, CAPTION - 6),
        elided(comparison.caption(index), where.width, 12),
        12,
        Weight.Medium,
    )
    painter.setPen(ink.dim)
    if row >= 11:
        for seat in range(comparison.seats):
            write(painter, QRectF(0, top + seat * row, GUTTER - 8, row), str(seat + 1), 10, side=RIGHT)
    bar = row - (3 if row >= 11 else 1 if row > 2 else 0)
    for ride in comparison.rides[index]:
        left, right = GUTTER + ride.start * scale, GUTTER + ride.stop * scale
        box = QRectF(left, top + ride.seat * row + (row - bar) // 2, max(0.75, right - left), bar)
        _draw_ride(painter, ink, ride, box)
    end = round(GUTTER + comparison.results[index].makespan_s * scale)
    if end < where.width - 4:
        painter.setPen(ink.text)
        painter.drawLine(end, top - 2, end, top + row * comparison.seats + 2)
        words = translate("Dashboard", "all done")
        if metrics(11, Weight.Medium).horizontalAdvance(words) + 8 < where.width - end:
            write(painter, QRectF(end + 6, top, where.width - end, row * comparison.seats), words, 11, Weight.Medium)


def _draw_ride(painter: QPainter, ink: Ink, ride: Ride, box: QRectF) -> None:
    ground = ink.surface
    hue = ink.seat(ride.seat) if not ride.shade else blend(ink.seat(ride.seat), ground, 0.74)
    if ride.state == HELD:
        third = box.height() / 3
        painter.fillRect(box.adjusted(0, third, 0, -third), blend(hue, ground, 0.35))
        return
    fills: dict[int, QColor] = {
        EMPTY: blend(ink.text, ground, 0.045),
        WASTED: blend(ink.danger, ground, 0.16),
        PREFILL: blend(hue, ground, 0.34),
        DECODE: hue,
    }
    painter.fillRect(box, fills[ride.state])
    if ride.state == WASTED and box.height() >= 5:
        for y in (box.top(), box.bottom() - 1):
            painter.fillRect(QRectF(box.left(), y, box.width(), 1), blend(ink.danger, ground, RIM))
    if ride.state == PREFILL:
        painter.fillRect(box, QBrush(hue, Qt.BrushStyle.BDiagPattern))
    if ride.state == DECODE and ride.title and box.height() >= 13 and box.width() >= LABEL_FROM:
        painter.setPen(ink.on(hue))
        write(painter, box.adjusted(5, 0, -5, 0), elided(ride.title, int(box.width()) - 10, 10, Weight.DemiBold), 10, Weight.DemiBold)


def _draw_axis(painter: QPainter, ink: Ink, comparison: Comparison, where: Plan, scale: float) -> None:
    every = tick_seconds(84 / scale)
    count = int(comparison.span_s / every)
    for tick in range(count + 1):
        x = round(GUTTER + tick * every * scale)
        painter.setPen(ink.line)
        for top in where.lanes:
            painter.drawLine(x, top - 2, x, top + where.row * comparison.seats + 2)
        painter.setPen(ink.dim)
        if x + 20 < where.width:
            width = min(60, 2 * (where.width - x), 2 * x)
            write(painter, QRectF(x - width / 2, where.axis + 4, width, AXIS - 6), tick_words(tick * every), 11, side=CENTER)


def tick_seconds(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten, from a millisecond, that is at least `least`."""
    return next((nice * 10.0**power for power in range(-3, 9) for nice in (1, 2, 5) if nice * 10.0**power >= least), 1e9)


def tick_words(seconds: float) -> str:
    return number(seconds, "g") + " s" if seconds < 120 else wording.seconds(seconds)
