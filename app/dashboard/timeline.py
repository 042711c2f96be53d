"""The timeline: rows are seats, columns are steps, and what stays empty can be seen. The lesson of the two buses in one picture.

Follows the engine until it is held; then it can be dragged, scrubbed and zoomed through the last 2,048 steps. What it shows is in `grid`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.ink import text_width
from app.dashboard.letters import RIGHT, write
from app.dashboard.stamps import Stamps
from app.dashboard.step_sheet import SheetShape, StepSheet
from app.dashboard.steps import StepGrid
from app.dashboard.timeline_frame import AXIS, GAPS_FROM, GUTTER, LEGEND, PITCHES, Frame, lane_for, legend_height, rows_top
from app.dashboard.timeline_labels import LabelPlace, paint_labels
from app.dashboard.timeline_marks import draw_gutter, paint_axis, paint_flags, paint_seat_mark, paint_step_mark
from app.dashboard.timeline_words import draw_entries, fitting_entries, step_words, verdict
from app.dashboard.wording import translate
from app.theme import Theme
from engine import StepRecord

Weight = QFont.Weight


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

    @property
    def frame(self) -> Frame:
        """Where everything stands now."""
        return Frame(*self.span, self.unit, self.row, self._seats, self.width())

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
            self.describe(self.summary)

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
        return self.frame.column_at(point)

    def seat_at(self, point: QPoint) -> int:
        """The row under a point, -1 for none."""
        return self.frame.seat_at(point)

    def words_for(self, column: int) -> str:
        """A step in words; "" when it is not here."""
        record = self.grid.record(column)
        return "" if record is None else step_words(record)

    def theme_changed(self) -> None:
        self._sheet = None
        self._stamps.clear()

    # ---------------------------------------------------------------------------------------------------------- painting

    def _fit(self) -> None:
        height = rows_top(self.width()) + round(max(self._seats, 1) * self.row) + AXIS
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
        frame, lane, ratio = self.frame, lane_for(self._seats), self.devicePixelRatioF()
        self._paint_rows(painter, frame, ratio)
        draw = partial(draw_gutter, ink=self.ink, seats=self._seats, row=self.row, top=frame.top)
        painter.drawPixmap(0, 0, self._stamps.get(("gutter", self._seats, frame.top), GUTTER, self.height(), ratio, draw))
        self._paint_legend(painter, frame, ratio)
        pointed = frame.column_at(self._pointer) if self._pointer is not None else -1
        if frame.stop > frame.start:
            if lane.bar >= 12:
                place = LabelPlace(GUTTER, frame.top, frame.unit, frame.row, 11 if lane.bar >= 16 else 10)
                paint_labels(painter, self.ink, self.grid, (frame.start, frame.stop), place)
            paint_seat_mark(painter, self.ink, frame, self._marked)
            paint_flags(painter, self.ink, frame, self.grid)
            for column in (self._selected, pointed):
                paint_step_mark(painter, self.ink, frame, column)
        paint_axis(painter, self.ink, frame, self.grid, pointed if pointed >= 0 else self._selected)
        self.paint_focus(painter, None, 6)

    def _paint_rows(self, painter: QPainter, frame: Frame, ratio: float) -> None:
        """The steps, and bare surface round them."""
        surface, high, wide, top = self.ink.surface, 0.0, frame.wide, frame.top
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

    def _paint_legend(self, painter: QPainter, frame: Frame, ratio: float) -> None:
        words = verdict(self.grid.waste(frame.start, frame.stop))
        below = legend_height(frame.width) > LEGEND  # then what stayed empty stands in a line of its own
        shown = fitting_entries(GUTTER, frame.width - (0 if below else text_width(words, 12, Weight.Medium) + 24))
        draw = partial(draw_entries, ink=self.ink, left=GUTTER, shown=shown)
        painter.drawPixmap(0, 0, self._stamps.get(("legend", shown), frame.width, LEGEND, ratio, draw))
        painter.setPen(self.ink.text)
        if below:
            write(painter, QRectF(GUTTER, LEGEND + 2, frame.width - GUTTER, 20), words, 12, Weight.Medium)
        else:
            write(painter, QRectF(0, 2, frame.width - 2, 20), words, 12, Weight.Medium, RIGHT)

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
        self._fit()
        self.update()
