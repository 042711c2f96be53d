"""Where everything on the timeline stands at one moment: geometry only, from the columns on show and the sizes."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPoint

PITCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 36)
GAPS_FROM = 6  # pixels a step must have to stand apart from the next one
GUTTER = 30
LEGEND = 26
FLAGS = 16
AXIS = 22
TWO_LINES_BELOW = 700


@dataclass(frozen=True, slots=True)
class Lane:
    """Height of a row and of the bar in it; the more seats, the slimmer."""

    row: int
    bar: int


def lane_for(seats: int) -> Lane:
    for most, lane in ((8, Lane(24, 20)), (16, Lane(17, 14)), (32, Lane(10, 8)), (64, Lane(6, 5))):
        if seats <= most:
            return lane
    return Lane(4, 3)


def legend_height(width: int) -> int:
    """One line, or two where it is narrow."""
    return LEGEND * (2 if width < TWO_LINES_BELOW else 1)


def rows_top(width: int) -> int:
    """Where the rows begin."""
    return legend_height(width) + FLAGS


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns `start` up to, not including, `stop`, `unit` wide each; `seats` rows, `row` high each; device-independent pixels."""

    start: int
    stop: int
    unit: float
    row: float
    seats: int
    width: int

    @property
    def top(self) -> int:
        """Where the first row begins."""
        return rows_top(self.width)

    @property
    def bottom(self) -> float:
        """Where the last row ends."""
        return self.top + self.seats * self.row

    @property
    def wide(self) -> float:
        """How much of the rows has steps."""
        return (self.stop - self.start) * self.unit

    def x(self, column: int) -> float:
        return GUTTER + (column - self.start) * self.unit

    def y(self, seat: int) -> float:
        return self.top + seat * self.row

    def column_at(self, point: QPoint) -> int:
        """The column under a point, -1 for none."""
        column = self.start + int((point.x() - GUTTER) / self.unit)
        return column if point.x() >= GUTTER and self.start <= column < self.stop else -1

    def seat_at(self, point: QPoint) -> int:
        """The row under a point, -1 for none."""
        seat = int((point.y() - self.top) / self.row)
        return seat if 0 <= seat < self.seats and point.y() >= self.top else -1
