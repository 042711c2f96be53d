"""The words on the timeline's rows: a title on every ride that is wide enough, and in every hole that it is one."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF
from PySide6.QtGui import QFont, QPainter

from app.dashboard.ink import Ink, blend, elided, text_width
from app.dashboard.letters import write
from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED, Run, StepGrid
from app.dashboard.wording import translate

LABEL_FROM = 40  # pixels a stretch must have to carry words
BOLD = QFont.Weight.DemiBold


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """Where the rows are: left and top edge, width of a step, height of a row, size of the letters; device-independent pixels."""

    left: float
    top: float
    unit: float
    row: float
    letters: int


def paint_labels(painter: QPainter, ink: Ink, grid: StepGrid, span: tuple[int, int], place: LabelPlace) -> None:
    """Label the stretches of the columns `span`."""
    for run in grid.stretches(*span, max(1, round(LABEL_FROM / place.unit))):
        width = int((run.stop - run.start) * place.unit) - 10
        if width < LABEL_FROM - 14 or run.state in (HELD, PREFILL):
            continue
        if run.state == DECODE:
            painter.setPen(ink.on(ink.seat(run.seat)))
            words = grid.title(run.request)
        else:
            painter.setPen(ink.dim if run.state == EMPTY else blend(ink.danger, ink.text, 0.55))
            words = hole_words(grid, run, span[0], width, place.letters)
        box = QRectF(place.left + run.start * place.unit + 6, place.top + run.seat * place.row, width, place.row)
        write(painter, box, elided(words, width, place.letters, BOLD), place.letters, BOLD)


def hole_words(grid: StepGrid, run: Run, start: int, width: int, letters: int) -> str:
    """That it is empty, and how many stood waiting in its middle where there is room to say so."""
    empty = translate("Dashboard", "empty")
    record = grid.record(start + (run.start + run.stop) // 2)
    if run.state != WASTED or record is None:
        return empty
    words = translate("Dashboard", "empty, {0} waiting").format(record.waiting)
    return words if text_width(words, letters, BOLD) <= width else empty
