"""The timeline's picture as pixels: NumPy colours every seat-step at once, whatever their number.

Decode is solid, prefill hatched, a held seat thin, a hole pale; holes while somebody waited are tinted and have a rim, since they are
what the tour bus costs, and a tint alone is not seen by everyone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtGui import QColor

from app.dashboard.ink import Ink, blend
from app.dashboard.steps import ABSENT, DECODE, EMPTY, HELD, PREFILL, STATES, WASTED

RIM = 0.8  # of the danger colour, on the rim of a hole while somebody waited
RIMMED_FROM = 5  # device pixels a bar must be high to have a rim
HATCH = 6  # device-independent period of the hatching


def pixel(color: QColor) -> int:
    return 0xFF000000 | (color.red() << 16) | (color.green() << 8) | color.blue()


class StepColors:
    """Colours by seat, state and shade. Two shades alternate from one request to the next in the same seat.

    Attributes:
        base, stripe: uint32 [seats, STATES * 2]; `stripe` is the second colour of the hatching (equal to base where there is none).
        edge: uint32, likewise: the line between two steps. rim: the line above and below a hole while somebody waited.
    """

    def __init__(self, ink: Ink, seats: int) -> None:
        self.base = np.zeros((max(seats, 1), STATES * 2), np.uint32)
        self.stripe = np.zeros_like(self.base)
        self.edge = np.zeros_like(self.base)
        ground = ink.surface
        hole = blend(ink.text, ground, 0.045)
        lost = blend(ink.danger, ground, 0.16)
        self.rim = pixel(blend(ink.danger, ground, RIM))
        for seat in range(seats):
            for shade in (0, 1):
                hue = ink.seat(seat) if shade == 0 else blend(ink.seat(seat), ground, 0.74)
                pairs = {
                    ABSENT: (ground, ground),
                    EMPTY: (hole, hole),
                    WASTED: (lost, lost),
                    HELD: (blend(hue, ground, 0.35), blend(hue, ground, 0.35)),
                    PREFILL: (blend(hue, ground, 0.34), blend(hue, ground, 0.78)),
                    DECODE: (hue, hue),
                }
                for state, (base, stripe) in pairs.items():
                    self.base[seat, state * 2 + shade] = pixel(base)
                    self.stripe[seat, state * 2 + shade] = pixel(stripe)
                    self.edge[seat, state * 2 + shade] = pixel(blend(ground, blend(base, stripe, 0.5), 0.28))


@dataclass(frozen=True, slots=True)
class StepScale:
    """Sizes in device pixels: a step is `column` wide, a seat's bar `bar` high in a row of `row`, `gap` pixels lie between steps.

    With `gap` 0 steps run together and only a change of request is cut. `phase` shifts the hatching, so that it travels with its steps.
    """

    column: int
    bar: int
    row: int
    gap: int
    phase: int = 0


def paint_steps(
    states: np.ndarray, requests: np.ndarray, shades: np.ndarray, colors: StepColors, scale: StepScale, ground: int
) -> np.ndarray:
    """uint32 [seats * row, columns * column], 0xffRRGGBB, of arrays [seats, columns] as `StepGrid.view` gives them."""
    seats, columns = states.shape
    width = columns * scale.column
    picture = np.full((seats * scale.row, width), ground, np.uint32)
    if not seats or not columns:
        return picture
    index = states.astype(np.intp) * 2 + shades
    lanes = np.arange(seats)[:, None]
    base = np.repeat(colors.base[lanes, index], scale.column, axis=1)
    top = (scale.row - scale.bar) // 2
    view = picture.reshape(seats, scale.row, width)
    bars = view[:, top : top + scale.bar]
    bars[:] = base[:, None, :]
    if (states == PREFILL).any():
        stripe = np.repeat(colors.stripe[lanes, index], scale.column, axis=1)
        period = HATCH if scale.bar < 24 else 2 * HATCH
        across = np.arange(width) + scale.phase
        for y in range(min(period, scale.bar)):
            bars[:, y::period] = np.where((across + y) % period < period // 2, stripe, base)[:, None, :]
    if scale.gap:
        edge = colors.edge[lanes, index][:, None, :]
        for x in range(scale.column - scale.gap, scale.column):
            bars[:, :, x :: scale.column] = edge
    lost = states == WASTED
    if lost.any() and scale.bar >= RIMMED_FROM:
        wide = np.repeat(lost, scale.column, axis=1)
        for y in (0, scale.bar - 1):
            bars[:, y][wide] = colors.rim
    slim = states == HELD
    if slim.any():
        wide, edge = np.repeat(slim, scale.column, axis=1), scale.bar // 3
        for y in [*range(edge), *range(scale.bar - edge, scale.bar)]:
            bars[:, y][wide] = ground
    seat, column = np.nonzero((requests[:, 1:] != requests[:, :-1]) & (requests[:, 1:] > 0) & (requests[:, :-1] > 0))
    for x in range(max(1, scale.gap)):
        view[seat, :, (column + 1) * scale.column - x * bool(scale.gap) - bool(scale.gap)] = ground
    return picture
