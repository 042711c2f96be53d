"""The timeline: rows are seats, columns are steps, and what stays empty can be seen. The lesson of the two buses in one picture.

Follows the engine until it is held; then it can be dragged, scrubbed and zoomed through the last 2,048 steps. What it shows is in `grid`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.ink import elided, text_width
from app.dashboard.letters import CENTER, RIGHT, write
from app.dashboard.stamps import Stamps
from app.dashboard.step_sheet import SheetShape, StepSheet
from app.dashboard.steps import StepGrid
from app.dashboard.timeline_labels import LabelPlace, paint_labels
from app.dashboard.timeline_words import draw_entries, fitting_entries, step_words, verdict
from app.dashboard.wording import translate
from app.theme import Theme
from engine import StepRecord

Weight = QFont.Weight
PITCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 36)
GAPS_FROM = 6  # pixels a step must have to stand apart from the next one
GUTTER = 30
LEGEND = 26
FLAGS = 16
AXIS = 22


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


def tick_distance(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, … that is at least `least`."""
    return next(nice for power in range(9) for nice in (10**power, 2 * 10**power, 5 * 10**power) if nice >= least)


class Timeline(Canvas):
    """What every seat did in every step.

    Attributes:
        grid: the steps held. pitch: device-independent pixels a step. held: no longer following.
    Signals:
        step_selected(step); open_chat(chat_id); seat_hovered(seat, or -1); hold_changed(bool).
    """

    step_selected = Signal(int)
    open_chat = Signal(str)
    seat_hovered = Signal(int)
    hold_changed = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, translate("Dashboard", "Timeline"), parent)
        self.grid = StepGrid()
        self.pitch = 6
        self.held = False
        self._right = 0  # column after the last shown one, while held
        self._seats = 0
        self._pointer: QPoint | None = None
        self._selected = -1
        self._marked = -1
        self._dragged_from: tuple[int, int] | None = None
        self._sheet: StepSheet | None = None
        self._stamps = Stamps()
        self._fit()

    # -------------------------------------------------------------------------------------------------------- properties

    @property
    def unit(self) -> float:
        """Width of a step in device-independent pixels: the pitch, rounded to whole device pixels."""
        ratio = self.devicePixelRatioF()
        return max(1, round(self.pitch * ratio)) / ratio

    @property
    def row(self) -> float:
        """Height of a row, likewise."""
        ratio = self.devicePixelRatioF()
        return max(2, round(lane_for(self._seats).row * ratio)) / ratio

    @property
    def columns(self) -> int:
        """How many steps fit."""
        return max(1, int((self.width() - GUTTER) / self.unit))

    @property
    def span(self) -> tuple[int, int]:
        """The columns on show, first and one past the last."""
        grid = self.grid
        stop = min(max(self._right, grid.first + 1), grid.end) if self.held else grid.end
        start = max(grid.first, stop - self.columns)
        return start, max(start, min(grid.end, start + self.columns))

    def sizeHint(self) -> QSize:
        return QSize(900, self.height())

    # ----------------------------------------------------------------------------------------------------------- methods

    def show_steps(self, records: tuple[StepRecord, ...], seats: int) -> None:
        """Take new records (those known already are passed over) and the number of seats there are now."""
        added = self.grid.extend(records)
        shown = max(seats, self.grid.view(*self.span)[0].shape[0])
        grown = shown != self._seats
        if grown:
            self._seats = shown
            self._fit()
        if grown or (added and not self.held):
            self.update()
            self.describe(self.summary())

    def clear(self) -> None:
        self.grid.clear()
        self._sheet = None
        self._right, self._selected = 0, -1
        self.hold(False)
        self.update()

    def summary(self) -> str:
        waste = self.grid.waste(*self.span)
        start, stop = self.span
        return translate("Dashboard", "{0} steps of {1} seats: {2} of {3} seat-steps empty, {4} of them while somebody waited.").format(
            wording.count(stop - start),
            self._seats,
            wording.count(waste.empty),
            wording.count(waste.seat_steps),
            wording.count(waste.wasted),
        )

    def hold(self, held: bool) -> None:
        """Stand still at what is shown, or follow again."""
        if held == self.held:
            return
        if held:
            self._right = self.span[1]
        self.held = held
        if not held:
            self._selected = -1
        self.hold_changed.emit(held)
        self.update()

    def scrub(self, columns: int) -> None:
        """Move the view by so many steps, to the right when positive; holds first."""
        start, stop = self.span
        self.hold(True)
        least = min(self.grid.end, self.grid.first + self.columns)
        self._right = min(max(stop + columns, least), self.grid.end)
        self.update()

    def zoom(self, notches: int, around: int | None = None) -> None:
        """Make steps wider (positive) or narrower; the step under `around` (widget x) stays where it is, else the right edge does."""
        index = min(max(0, PITCHES.index(self.pitch) + notches), len(PITCHES) - 1)
        if PITCHES[index] == self.pitch:
            return
        anchor = self.column_at(QPoint(around, 0)) if around is not None and self.held else -1
        self.pitch = PITCHES[index]
        if anchor >= 0 and around is not None:
            left = anchor - int((around - GUTTER) / self.unit)
            self._right = min(max(left + self.columns, self.grid.first + 1), self.grid.end)
        self.update()

    def select(self, step: int) -> None:
        """Show and mark a step, holding the view; a step that is gone is ignored."""
        column = self.grid.column_of(step)
        if column is None:
            return
        self.hold(True)
        start, stop = self.span
        if not start <= column < stop:
            self._right = min(self.grid.end, column + self.columns // 2)
        self._selected = column
        self.update()

    def mark_seat(self, seat: int) -> None:
        """Light up the row of a seat that another view points at; -1 for none."""
        if seat != self._marked:
            self._marked = seat
            self.update()

    def column_at(self, point: QPoint) -> int:
        """The column under a point, -1 for none."""
        start, stop = self.span
        column = start + int((point.x() - GUTTER) / self.unit)
        return column if point.x() >= GUTTER and start <= column < stop else -1

    def seat_at(self, point: QPoint) -> int:
        seat = int((point.y() - LEGEND - FLAGS) / self.row)
        return seat if 0 <= seat < self._seats and point.y() >= LEGEND + FLAGS else -1

    def words_for(self, column: int) -> str:
        """A step in words; "" when it is not here."""
        record = self.grid.record(column)
        return "" if record is None else step_words(record)

    def theme_changed(self) -> None:
        self._sheet = None
        self._stamps.clear()

    # ---------------------------------------------------------------------------------------------------------- painting

    def _fit(self) -> None:
        height = LEGEND + FLAGS + round(max(self._seats, 1) * self.row) + AXIS
        if height != self.height():
            self.setFixedHeight(height)

    def sheet(self) -> tuple[np.ndarray, int]:
        """(pixels, x): the rows on show begin at device pixel `x` of the sheet, uint32 [rows, columns]."""
        start, stop = self.span
        ratio, lane = self.devicePixelRatioF(), lane_for(self._seats)
        row = max(2, round(lane.row * ratio))
        shape = SheetShape(
            seats=self._seats,
            columns=self.columns,
            column=max(1, round(self.pitch * ratio)),
            row=row,
            bar=max(1, min(row - 1, round(lane.bar * ratio))),
            gap=max(1, round(ratio)) if self.pitch >= GAPS_FROM else 0,
        )
        if self._sheet is None or self._sheet.shape != shape:
            self._sheet = StepSheet(self.ink, shape)
        return self._sheet.pixels, self._sheet.show(self.grid, start, stop)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        start, stop = self.span
        lane, top, ratio = lane_for(self._seats), LEGEND + FLAGS, self.devicePixelRatioF()
        self._paint_rows(painter, (stop - start) * self.unit, top, ratio)
        key = ("gutter", self._seats, self.height())
        painter.drawPixmap(0, 0, self._stamps.get(key, GUTTER, self.height(), ratio, self._draw_gutter))
        self._paint_legend(painter, ratio)
        if stop > start:
            if lane.bar >= 12:
                paint_labels(
                    painter, self.ink, self.grid, (start, stop), LabelPlace(GUTTER, top, self.unit, self.row, 11 if lane.bar >= 16 else 10)
                )
            self._paint_marked(painter, top)
            self._paint_flags(painter, start, stop, top)
        self._paint_axis(painter, start, stop, top + self._seats * self.row)
        self.paint_focus(painter, None, 6)

    def _paint_rows(self, painter: QPainter, wide: float, top: float, ratio: float) -> None:
        """The steps, and bare surface round them."""
        surface, high = self.ink.surface, 0.0
        if wide:
            sheet, x = self.sheet()
            high = sheet.shape[0] / ratio
            image = QImage(sheet.data, sheet.shape[1], sheet.shape[0], sheet.shape[1] * 4, QImage.Format.Format_RGB32)
            image.setDevicePixelRatio(ratio)
            painter.drawImage(QRectF(GUTTER, top, wide, high), image, QRectF(x, 0, round(wide * ratio), sheet.shape[0]))
        painter.fillRect(QRectF(0, 0, self.width(), top), surface)
        painter.fillRect(QRectF(0, top + high, self.width(), self.height() - top - high), surface)
        painter.fillRect(QRectF(0, top, GUTTER, high), surface)
        painter.fillRect(QRectF(GUTTER + wide, top, self.width() - GUTTER - wide, high), surface)

    def _paint_legend(self, painter: QPainter, ratio: float) -> None:
        words = verdict(self.grid.waste(*self.span))
        shown = fitting_entries(GUTTER, self.width() - text_width(words, 12, Weight.Medium) - 24)
        draw = partial(draw_entries, ink=self.ink, left=GUTTER, shown=shown)
        painter.drawPixmap(0, 0, self._stamps.get(("legend", shown), self.width(), LEGEND, ratio, draw))
        painter.setPen(self.ink.text)
        write(painter, QRectF(0, 2, self.width() - 2, 20), words, 12, Weight.Medium, RIGHT)

    def _draw_gutter(self, painter: QPainter) -> None:
        lane, top = lane_for(self._seats), LEGEND + FLAGS
        size = min(lane.bar, 18)
        every = 1 if lane.row >= 10 else 4 if lane.row >= 6 else 8
        for seat in range(0, self._seats, every):
            color = self.ink.seat(seat)
            middle = top + seat * self.row + self.row / 2
            if size >= 12:
                disc = QRectF(2, middle - size / 2, size, size)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(color)
                painter.drawEllipse(disc)
                painter.setPen(self.ink.on(color))
                write(painter, disc, str(seat + 1), 11 if size >= 16 else 9, Weight.DemiBold, CENTER)
            else:
                painter.setPen(self.ink.dim)
                write(painter, QRectF(0, middle - 6, GUTTER - 8, 12), str(seat + 1), 9, side=RIGHT)

    def _paint_marked(self, painter: QPainter, top: float) -> None:
        if 0 <= self._marked < self._seats:
            painter.setPen(QPen(self.ink.dim, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            y = round(top + self._marked * self.row)
            painter.drawRect(GUTTER - 2, y - 1, self.width() - GUTTER + 1, round(self.row) + 1)

    def _paint_flags(self, painter: QPainter, start: int, stop: int, top: float) -> None:
        """Settings that changed, the step under the pointer, and the step that is selected."""
        ink, bottom, unit = self.ink, top + self._seats * self.row, self.unit
        free = 0.0
        for column, words in self.grid.marks:
            if start <= column < stop:
                x = GUTTER + (column - start) * unit
                painter.setPen(QPen(ink.dim, 1))
                painter.drawLine(QPointF(x, LEGEND + 2), QPointF(x, bottom))
                if x >= free:
                    cut = elided(words, 176, 11)
                    write(painter, QRectF(x + 4, LEGEND, 180, FLAGS - 2), cut, 11)
                    free = x + 16 + text_width(cut, 11)
        pointed = self.column_at(self._pointer) if self._pointer is not None else -1
        for column in (self._selected, pointed):
            if start <= column < stop:
                painter.setPen(QPen(ink.text, 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(round(GUTTER + (column - start) * unit) - 1, round(top) - 1, max(2, round(unit)), round(bottom - top))

    def _paint_axis(self, painter: QPainter, start: int, stop: int, top: float) -> None:
        line = QRectF(GUTTER, top + 2, self.width() - GUTTER, AXIS - 2)
        pointed = self.column_at(self._pointer) if self._pointer is not None else self._selected
        if start <= pointed < stop:
            painter.setPen(self.ink.text)
            write(painter, line, elided(self.words_for(pointed), self.width() - GUTTER, 11), 11)
            return
        painter.setPen(self.ink.dim)
        first = self.grid.record(start)
        if first is None:
            write(painter, line, translate("Dashboard", "No steps yet."), 11)
            return
        every = tick_distance(84 / self.unit)
        step = -(-first.step // every) * every
        while (column := start + step - first.step) < stop:
            record = self.grid.record(column)
            x = GUTTER + (column - start) * self.unit
            words = translate("Dashboard", "step {0}").format(wording.count(step))
            if record is not None and record.step == step and x + text_width(words, 11) < self.width():
                painter.drawLine(QPointF(x, top + 2), QPointF(x, top + 6))
                write(painter, QRectF(x + 4, top + 2, 120, AXIS - 2), words, 11)
            step += every

    # ------------------------------------------------------------------------------------------------------------ people

    def _chat_at(self, point: QPoint) -> str:
        record, seat = self.grid.record(self.column_at(point)), self.seat_at(point)
        if record is None:
            return ""
        return next((row.chat_id for row in record.rows if row.seat == seat), "")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._dragged_from = (event.position().toPoint().x(), self.span[1])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        point = event.position().toPoint()
        if self._dragged_from is not None and event.buttons() & Qt.MouseButton.LeftButton:
            x, right = self._dragged_from
            if abs(point.x() - x) >= 4:
                self.hold(True)
                self.scrub(right - int((point.x() - x) / self.unit) - self.span[1])
        self._pointer = point
        self.seat_hovered.emit(self.seat_at(point) if self.column_at(point) >= 0 else -1)
        self.update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        point = event.position().toPoint()
        if self._dragged_from is not None and abs(point.x() - self._dragged_from[0]) < 4:
            record = self.grid.record(self.column_at(point))
            if record is not None:
                self.select(record.step)
                self.step_selected.emit(record.step)
        self._dragged_from = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        chat = self._chat_at(event.position().toPoint())
        if chat:
            self.open_chat.emit(chat)

    def leaveEvent(self, event: QEvent) -> None:
        self._pointer = None
        self.seat_hovered.emit(-1)
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom with Ctrl or once the timeline has the focus; sideways scrubs; otherwise the page scrolls."""
        sideways = event.angleDelta().x() or (event.angleDelta().y() if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 0)
        if sideways:
            self.scrub(-sideways // (4 * self.pitch) or (-1 if sideways > 0 else 1))
        elif event.modifiers() & Qt.KeyboardModifier.ControlModifier or self.hasFocus():
            self.zoom(1 if event.angleDelta().y() > 0 else -1, int(event.position().x()))
        else:
            event.ignore()
            return
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        page = max(1, self.columns // 2)
        if key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._walk(1 if key == Qt.Key.Key_Right else -1)
        elif key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            self.scrub(page if key == Qt.Key.Key_PageDown else -page)
        elif key == Qt.Key.Key_Home:
            self.scrub(-self.grid.end)
        elif key == Qt.Key.Key_End:
            self.hold(False)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(1)
        elif key == Qt.Key.Key_Minus:
            self.zoom(-1)
        elif key == Qt.Key.Key_Space:
            self.hold(not self.held)
        else:
            super().keyPressEvent(event)

    def _walk(self, by: int) -> None:
        """One step on with the keyboard, read out."""
        start, stop = self.span
        column = self._selected + by if start <= self._selected < stop else stop - 1
        record = self.grid.record(column)
        if record is not None:
            self.select(record.step)
            self.setAccessibleDescription(self.words_for(column))
            self.step_selected.emit(record.step)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.update()
