"""Where everything on the bus stands: geometry only, from a width and two counts.

Seats wrap; the queue stands at the left, or above where it is narrow.
Its room stays even when nobody waits, so that nothing jumps when somebody comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from PySide6.QtCore import QRectF


@dataclass(frozen=True, slots=True)
class Density:
    """How large a seat is drawn; the more seats, the smaller."""

    least_width: int
    most_width: int
    height: int
    gap: int
    two_lines: bool
    title: bool


FULL = Density(168, 320, 58, 10, True, True)
COMPACT = Density(128, 220, 32, 8, False, True)
MINI = Density(50, 64, 24, 6, False, False)

BODY_PADDING = 16
SIGN_HEIGHT = 30  # the destination sign inside the bus
NOSE = 34  # the driver's end
NOSE_FROM = 560
WHEELS = 12  # how far the wheels stand out below
CHIP_HEIGHT = 42
CHIP_GAP = 6
STOP_HEIGHT = 30  # the stop's sign above the chips
MORE_HEIGHT = 20
LEAST_BODY = 176


STACKED_BELOW = 640  # narrower than this the queue stands above the bus, not at its left


@dataclass(frozen=True, slots=True)
class BusLayout:
    """Rectangles in widget coordinates. `chips` has as many places as fit; who comes after them is counted at `more`."""

    density: Density
    queue: QRectF
    stop: QRectF
    body: QRectF
    seats: tuple[QRectF, ...]
    chips: tuple[QRectF, ...]
    more: QRectF
    height: int

    @property
    def first(self) -> QRectF:
        """The first place of the queue, taken or not."""
        stacked = self.body.top() > 0
        return QRectF(
            0, self.stop.bottom() + (2 if stacked else 0), self.stop.width() / (2 if stacked else 1) - (3 if stacked else 0), CHIP_HEIGHT
        )


def density_for(seats: int) -> Density:
    return FULL if seats <= 16 else COMPACT if seats <= 32 else MINI


def bus_layout(width: int, seats: int, waiting: int) -> BusLayout:
    """Lay out `seats` seats and up to `waiting` chips in `width` pixels."""
    density = density_for(seats)
    if width < STACKED_BELOW:
        chips, more, bottom = _chips_above(width, waiting)
        body, places = _body(density, QRectF(0, bottom + 12, width, 0), seats, 0)
        queue, stop = QRectF(0, 0, width, bottom + 6), QRectF(0, 0, width, STOP_HEIGHT - 4)
    else:
        column = 236 if width >= 900 else 196
        body, places = _body(density, QRectF(column + 18, 0, width - column - 18, 0), seats, LEAST_BODY)
        chips, more = _chips_beside(column, int(body.height()), waiting)
        queue, stop = QRectF(0, 0, column + 9, body.height()), QRectF(0, 0, column, STOP_HEIGHT)
    return BusLayout(density, queue, stop, body, places, chips, more, int(body.bottom()) + WHEELS + 1)


def _body(density: Density, place: QRectF, seats: int, least_height: int) -> tuple[QRectF, tuple[QRectF, ...]]:
    """The bus in `place` (its height is found here), and its seats in even rows rather than with a lonely last one."""
    nose = NOSE if place.width() >= NOSE_FROM else 8
    left = place.x() + BODY_PADDING
    room = max(density.least_width, place.width() - 2 * BODY_PADDING - nose + 8)
    columns = max(1, min(max(seats, 1), int((room + density.gap) // (density.least_width + density.gap))))
    rows = max(1, ceil(seats / columns))
    columns = max(1, ceil(seats / rows))
    cell = min(density.most_width, (room - (columns - 1) * density.gap) / columns)
    grid_height = rows * density.height + (rows - 1) * density.gap
    needed = SIGN_HEIGHT + grid_height + 2 * BODY_PADDING
    height = max(least_height, needed)
    top = place.y() + SIGN_HEIGHT + BODY_PADDING + (height - needed) // 2
    rects = []
    for seat in range(seats):
        row, column = divmod(seat, columns)
        rects.append(
            QRectF(round(left + column * (cell + density.gap)), top + row * (density.height + density.gap), round(cell), density.height)
        )
    return QRectF(place.x(), place.y(), place.width(), height), tuple(rects)


def _chips_beside(column: int, height: int, waiting: int) -> tuple[tuple[QRectF, ...], QRectF]:
    pitch = CHIP_HEIGHT + CHIP_GAP
    room = (height - STOP_HEIGHT + CHIP_GAP) // pitch
    if waiting > room:
        room = (height - STOP_HEIGHT - MORE_HEIGHT + CHIP_GAP) // pitch
    shown = max(0, min(room, waiting))
    chips = tuple(QRectF(0, STOP_HEIGHT + index * pitch, column, CHIP_HEIGHT) for index in range(shown))
    return chips, QRectF(0, STOP_HEIGHT + shown * pitch, column, MORE_HEIGHT)


def _chips_above(width: int, waiting: int) -> tuple[tuple[QRectF, ...], QRectF, float]:
    """Two abreast, one row kept free always and a second one when needed; the rest is counted in the stop's own line."""
    columns = 2 if width >= 380 else 1
    rows = 2 if waiting > columns else 1
    cell = (width - (columns - 1) * CHIP_GAP) / columns
    top = STOP_HEIGHT - 2
    chips = []
    for index in range(min(waiting, rows * columns)):
        row, column = divmod(index, columns)
        chips.append(QRectF(round(column * (cell + CHIP_GAP)), top + row * (CHIP_HEIGHT + CHIP_GAP), round(cell), CHIP_HEIGHT))
    bottom = top + rows * CHIP_HEIGHT + (rows - 1) * CHIP_GAP
    return tuple(chips), QRectF(width / 2, 0, width / 2, STOP_HEIGHT - 4), bottom
