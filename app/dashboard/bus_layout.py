"""Where everything on the bus stands: geometry only, from a width and two counts. Seats wrap, the queue keeps its column at the left.

The column stays even when nobody waits, so that nothing jumps when somebody comes.
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


FULL = Density(168, 300, 54, 10, True, True)
COMPACT = Density(128, 220, 32, 8, False, True)
MINI = Density(50, 64, 24, 6, False, False)

BODY_PADDING = 16
SIGN_HEIGHT = 30  # the destination sign inside the bus
NOSE = 34  # the driver's end
WHEELS = 9  # how far the wheels stand out below
CHIP_HEIGHT = 42
CHIP_GAP = 6
STOP_HEIGHT = 30  # the stop's sign above the chips
MORE_HEIGHT = 20
LEAST_BODY = 176


@dataclass(frozen=True, slots=True)
class BusLayout:
    """Rectangles in widget coordinates. `chips` has as many places as fit; who comes after them is counted in `more`."""

    density: Density
    stop: QRectF
    body: QRectF
    seats: tuple[QRectF, ...]
    chips: tuple[QRectF, ...]
    more: QRectF
    height: int


def density_for(seats: int) -> Density:
    return FULL if seats <= 16 else COMPACT if seats <= 32 else MINI


def bus_layout(width: int, seats: int, waiting: int) -> BusLayout:
    """Lay out `seats` seats and up to `waiting` chips in `width` pixels."""
    density = density_for(seats)
    column = 236 if width >= 900 else 196 if width >= 640 else 164
    gap = 18 if width >= 640 else 12
    nose = NOSE if width >= 640 else 16
    body_left = column + gap
    inner_left = body_left + BODY_PADDING
    inner_width = max(density.least_width, width - inner_left - nose - BODY_PADDING // 2)
    columns = max(1, min(max(seats, 1), int((inner_width + density.gap) // (density.least_width + density.gap))))
    rows = max(1, ceil(seats / columns))
    columns = max(1, ceil(seats / rows))  # even rows rather than a lonely last one
    cell = min(density.most_width, (inner_width - (columns - 1) * density.gap) / columns)
    grid_height = rows * density.height + (rows - 1) * density.gap
    body_height = max(LEAST_BODY, SIGN_HEIGHT + grid_height + 2 * BODY_PADDING)
    top = SIGN_HEIGHT + BODY_PADDING
    rects = []
    for seat in range(seats):
        row, col = divmod(seat, columns)
        left = inner_left + col * (cell + density.gap)
        rects.append(QRectF(round(left), top + row * (density.height + density.gap), round(cell), density.height))
    body = QRectF(body_left, 0, width - body_left, body_height)
    return BusLayout(
        density,
        QRectF(0, 0, column, STOP_HEIGHT),
        body,
        tuple(rects),
        *_chips(column, int(body_height), waiting),
        int(body_height) + WHEELS + 1,
    )


def _chips(column: int, height: int, waiting: int) -> tuple[tuple[QRectF, ...], QRectF]:
    room = int((height - STOP_HEIGHT + CHIP_GAP) // (CHIP_HEIGHT + CHIP_GAP))
    if waiting > room:
        room = int((height - STOP_HEIGHT - MORE_HEIGHT + CHIP_GAP) // (CHIP_HEIGHT + CHIP_GAP))
    shown = max(0, min(room, waiting))
    chips = tuple(QRectF(0, STOP_HEIGHT + index * (CHIP_HEIGHT + CHIP_GAP), column, CHIP_HEIGHT) for index in range(shown))
    below = STOP_HEIGHT + shown * (CHIP_HEIGHT + CHIP_GAP)
    return chips, QRectF(0, below, column, MORE_HEIGHT)
