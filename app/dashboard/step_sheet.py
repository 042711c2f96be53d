"""The pixels of the timeline's rows, kept from sample to sample: new steps are added at the right, the rest stays.

Twice as wide as the view, so that it has to be moved back only once in a view's width of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.dashboard.ink import Ink
from app.dashboard.step_image import StepColors, StepScale, paint_steps, pixel
from app.dashboard.steps import StepGrid


@dataclass(frozen=True, slots=True)
class SheetShape:
    """What a sheet is made for: how many seats and columns are on show, and their sizes in device pixels (see `StepScale`)."""

    seats: int
    columns: int
    column: int
    row: int
    bar: int
    gap: int


class StepSheet:
    """Attributes: pixels (uint32 [seats * row, 2 * columns * column]), colors (seats' colours by state)."""

    def __init__(self, ink: Ink, shape: SheetShape) -> None:
        self.shape = shape
        self.colors = StepColors(ink, max(1, shape.seats))
        self._ground = pixel(ink.surface)
        self.pixels = np.full((max(1, shape.seats) * shape.row, 2 * shape.columns * shape.column), self._ground, np.uint32)
        self._drawn = range(0)  # the grid's columns that are here

    def show(self, grid: StepGrid, start: int, stop: int) -> int:
        """Bring the grid's columns start..stop-1 onto the sheet; returns the device pixel at which they begin."""
        column, drawn = self.shape.column, self._drawn
        if not drawn.start <= start <= drawn.stop <= stop:
            drawn = range(start, start)
        elif stop - drawn.start > 2 * self.shape.columns:
            kept = self.pixels[:, (start - drawn.start) * column : (drawn.stop - drawn.start) * column]
            self.pixels[:, : kept.shape[1]] = kept.copy()
            drawn = range(start, drawn.stop)
        if stop > drawn.stop:
            self._add(grid, drawn, stop)
        self._drawn = range(drawn.start, stop)
        return (start - drawn.start) * column

    def _add(self, grid: StepGrid, drawn: range, stop: int) -> None:
        """Draw the columns up to `stop`. The last one there is drawn anew: its right edge depends on what comes after it."""
        shape = self.shape
        begin = max(drawn.start, drawn.stop - 1)
        before = 1 if begin > drawn.start else 0  # the cut between two requests needs the step before
        states, requests, shades = grid.view(begin - before, stop)
        seats = min(states.shape[0], shape.seats)
        scale = StepScale(shape.column, shape.bar, shape.row, shape.gap, (begin - before) * shape.column)
        fresh = paint_steps(states[:seats], requests[:seats], shades[:seats], self.colors, scale, self._ground)
        fresh = fresh[:, before * shape.column :]
        left = (begin - drawn.start) * shape.column
        self.pixels[: fresh.shape[0], left : left + fresh.shape[1]] = fresh
        self.pixels[fresh.shape[0] :, left : left + fresh.shape[1]] = self._ground
