"""What stands round the timeline's rows: the seats' numbers, the steps' numbers, the changes of a setting, the step that is meant."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QPen

from app.dashboard import wording
from app.dashboard.ink import Ink, elided, text_width
from app.dashboard.letters import CENTER, RIGHT, write
from app.dashboard.steps import StepGrid
from app.dashboard.timeline_frame import AXIS, FLAGS, GUTTER, Frame, lane_for
from app.dashboard.timeline_words import step_words
from app.dashboard.wording import translate

TICKS_APART = 112  # pixels from one step's number to the next, at least


def tick_distance(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, … that is at least `least`."""
    return next(nice for power in range(9) for nice in (10**power, 2 * 10**power, 5 * 10**power) if nice >= least)


def draw_gutter(painter: QPainter, ink: Ink, seats: int, row: float, top: int) -> None:
    """The seats' numbers at the left, on their colours where there is room."""
    lane = lane_for(seats)
    size = min(lane.bar, 18)
    every = 1 if lane.row >= 10 else 4 if lane.row >= 6 else 8
    for seat in range(0, seats, every):
        color = ink.seat(seat)
        middle = top + seat * row + row / 2
        if size >= 12:
            disc = QRectF(2, middle - size / 2, size, size)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(disc)
            painter.setPen(ink.on(color))
            write(painter, disc, str(seat + 1), 11 if size >= 16 else 9, QFont.Weight.DemiBold, CENTER)
        else:
            painter.setPen(ink.dim)
            write(painter, QRectF(0, middle - 6, GUTTER - 8, 12), str(seat + 1), 9, side=RIGHT)


def paint_seat_mark(painter: QPainter, ink: Ink, frame: Frame, seat: int) -> None:
    """A line round the row that another view points at; nothing when there is no such row."""
    if 0 <= seat < frame.seats:
        painter.setPen(QPen(ink.dim, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(GUTTER - 2, round(frame.y(seat)) - 1, frame.width - GUTTER + 1, round(frame.row) + 1)


def paint_flags(painter: QPainter, ink: Ink, frame: Frame, grid: StepGrid) -> None:
    """A line with its words at each change of a setting."""
    free = 0.0
    for column, words in grid.marks:
        if frame.start <= column < frame.stop:
            x = frame.x(column)
            painter.setPen(QPen(ink.dim, 1))
            painter.drawLine(QPointF(x, frame.top - FLAGS + 2), QPointF(x, frame.bottom))
            if x >= free:
                cut = elided(wording.setting(words), 176, 11)
                write(painter, QRectF(x + 4, frame.top - FLAGS, 180, FLAGS - 2), cut, 11)
                free = x + 16 + text_width(cut, 11)


def paint_step_mark(painter: QPainter, ink: Ink, frame: Frame, column: int) -> None:
    """A line round one step in all rows; nothing when it is not on show."""
    if frame.start <= column < frame.stop:
        painter.setPen(QPen(ink.text, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        high = round(frame.bottom - frame.top)
        painter.drawRect(round(frame.x(column)) - 1, frame.top - 1, max(2, round(frame.unit)), high)


def paint_axis(painter: QPainter, ink: Ink, frame: Frame, grid: StepGrid, meant: int) -> None:
    """Under the rows: the numbers of the steps, or all about the one that is meant."""
    line = QRectF(GUTTER, frame.bottom + 2, frame.width - GUTTER, AXIS - 2)
    record = grid.record(meant) if frame.start <= meant < frame.stop else None
    if record is not None:
        painter.setPen(ink.text)
        write(painter, line, elided(step_words(record), frame.width - GUTTER, 11), 11)
        return
    painter.setPen(ink.dim)
    first = grid.record(frame.start)
    if first is None:
        write(painter, line, translate("Dashboard", "No steps yet."), 11)
        return
    every = tick_distance(TICKS_APART / frame.unit)
    step, named = -(-first.step // every) * every, translate("Dashboard", "step {0}")
    while (column := frame.start + step - first.step) < frame.stop:
        record = grid.record(column)
        x = frame.x(column)
        words = named.format(wording.count(step))
        if record is not None and record.step == step and x + text_width(words, 11) < frame.width:
            painter.drawLine(QPointF(x, frame.bottom + 2), QPointF(x, frame.bottom + 6))
            write(painter, QRectF(x + 4, frame.bottom + 2, 120, AXIS - 2), words, 11)
        step += every
