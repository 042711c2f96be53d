"""The timeline: rows are seats, columns are steps, and what stays empty can be seen. The lesson of the two buses in one picture.

Follows the engine until it is held; then it can be dragged, scrubbed and zoomed through the last 2,048 steps. What it shows is in `grid`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.ink import blend, elided, font, text_width
from app.dashboard.step_image import StepColors, StepScale, paint_steps, pixel
from app.dashboard.steps import DECODE, EMPTY, WASTED, StepGrid
from app.dashboard.wording import translate
from app.theme import Theme
from engine import StepRecord

PITCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 36)
GUTTER = 30
LEGEND = 26
FLAGS = 16
AXIS = 22
LABEL_FROM = 40  # pixels a stretch must have to carry words


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
        self._image: QImage | None = None
        self._pixels: np.ndarray | None = None  # what _image looks at
        self._image_key: tuple[object, ...] = ()
        self._colors: StepColors | None = None
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
    def window(self) -> tuple[int, int]:
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
        shown = max(seats, self.grid.view(*self.window)[0].shape[0])
        grown = shown != self._seats
        if grown:
            self._seats = shown
            self._colors = None
            self._fit()
        if grown or (added and not self.held):
            self.update()
            self.describe(self.summary())

    def clear(self) -> None:
        self.grid.clear()
        self._right, self._selected = 0, -1
        self.hold(False)
        self.update()

    def summary(self) -> str:
        waste = self.grid.waste(*self.window)
        start, stop = self.window
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
            self._right = self.window[1]
        self.held = held
        if not held:
            self._selected = -1
        self.hold_changed.emit(held)
        self.update()

    def scrub(self, columns: int) -> None:
        """Move the view by so many steps, to the right when positive; holds first."""
        start, stop = self.window
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
        start, stop = self.window
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
        start, stop = self.window
        column = start + int((point.x() - GUTTER) / self.unit)
        return column if point.x() >= GUTTER and start <= column < stop else -1

    def seat_at(self, point: QPoint) -> int:
        seat = int((point.y() - LEGEND - FLAGS) / self.row)
        return seat if 0 <= seat < self._seats and point.y() >= LEGEND + FLAGS else -1

    def words_for(self, column: int) -> str:
        """A step in words."""
        record = self.grid.record(column)
        if record is None:
            return ""
        taken = len(record.rows) + len(record.held)
        positions = sum(row.tokens for row in record.rows)
        words = translate("Dashboard", "Step {0}: {1} rode, {2} seats empty, {3} waiting; {4} positions in {5}").format(
            wording.count(record.step),
            len(record.rows),
            max(0, record.seats_total - taken),
            wording.count(record.waiting),
            wording.count(positions),
            wording.seconds(record.duration),
        )
        return " · ".join([words, *(f"{wording.decision(d.kind)} {d.title} {d.detail}".strip() for d in record.decisions)])

    def theme_changed(self) -> None:
        self._colors = None
        self._image_key = ()

    # ---------------------------------------------------------------------------------------------------------- painting

    def _fit(self) -> None:
        height = LEGEND + FLAGS + round(max(self._seats, 1) * self.row) + AXIS
        if height != self.height():
            self.setFixedHeight(height)

    def image(self) -> QImage:
        """The rows on show, at device pixels."""
        start, stop = self.window
        ratio = self.devicePixelRatioF()
        key = (self.grid.version, start, stop, self.pitch, self._seats, ratio)
        if self._image is None or key != self._image_key or self._colors is None:
            self._image_key = key
            self._image = self._build(start, stop, ratio)
        return self._image

    def _build(self, start: int, stop: float, ratio: float) -> QImage:
        if self._colors is None:
            self._colors = StepColors(self.ink, max(self._seats, 1))
        lane = lane_for(self._seats)
        column, row = max(1, round(self.pitch * ratio)), max(2, round(lane.row * ratio))
        gap = max(1, round(ratio)) if self.pitch >= 6 else 0
        states, requests, shades = self.grid.view(start, stop)
        scale = StepScale(column, max(1, min(row - 1, round(lane.bar * ratio))), row, gap, start * column)
        seats = min(states.shape[0], self._seats)
        self._pixels = paint_steps(states[:seats], requests[:seats], shades[:seats], self._colors, scale, pixel(self.ink.surface))
        height, width = self._pixels.shape
        image = QImage(self._pixels.data, width, height, width * 4, QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(ratio)
        return image

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        start, stop = self.window
        lane, top = lane_for(self._seats), LEGEND + FLAGS
        if stop > start:
            painter.drawImage(GUTTER, top, self.image())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_legend(painter)
        self._paint_gutter(painter, lane, top)
        if stop > start:
            if lane.bar >= 12:
                self._paint_labels(painter, start, stop, lane, top)
            self._paint_flags(painter, start, stop, top, lane)
        self._paint_axis(painter, start, stop, top + self._seats * self.row)
        self.paint_focus(painter, None, 6)

    def _paint_legend(self, painter: QPainter) -> None:
        ink, x = self.ink, float(GUTTER)
        painter.setFont(font(12))
        grey = blend(ink.text, ink.surface, 0.55)
        entries = [
            (translate("Dashboard", "reading the prompt"), blend(grey, ink.surface, 0.5), True),
            (translate("Dashboard", "answering"), grey, False),
            (translate("Dashboard", "empty"), blend(ink.text, ink.surface, 0.06), False),
            (translate("Dashboard", "empty while somebody waits"), blend(ink.danger, ink.surface, 0.24), False),
        ]
        waste = self.grid.waste(*self.window)
        verdict = translate("Dashboard", "{0} of the seat-steps empty").format(wording.share(waste.empty, waste.seat_steps))
        if waste.wasted:
            verdict = translate("Dashboard", "{0} empty, {1} while somebody waited").format(
                wording.share(waste.empty, waste.seat_steps), wording.share(waste.wasted, waste.seat_steps)
            )
        verdict_width = text_width(verdict, 12, QFont.Weight.Medium) if waste.seat_steps else 0
        for words, color, hatched in entries:
            width = 12 + 6 + text_width(words, 12)
            if x + width > self.width() - verdict_width - 24:
                break
            box = QRectF(x, 6, 12, 12)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawRoundedRect(box, 3, 3)
            if hatched:
                painter.setPen(QPen(grey, 1))
                for shift in (0, 4, 8):
                    painter.drawLine(int(x + shift), 17, int(min(x + shift + 11, x + 11)), 17 - (11 - shift))
            painter.setPen(ink.dim)
            painter.drawText(QRectF(x + 18, 2, width, 20), Qt.AlignmentFlag.AlignVCenter, words)
            x += width + 16
        if waste.seat_steps:
            painter.setPen(ink.text)
            painter.setFont(font(12, QFont.Weight.Medium))
            painter.drawText(QRectF(0, 2, self.width() - 2, 20), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, verdict)

    def _paint_gutter(self, painter: QPainter, lane: Lane, top: float) -> None:
        size = min(lane.bar, 18)
        every = 1 if self.row >= 10 else 4 if self.row >= 6 else 8
        for seat in range(0, self._seats, every):
            color = self.ink.seat(seat)
            middle = top + seat * self.row + self.row / 2
            if size >= 12:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(color)
                painter.drawEllipse(QRectF(2, middle - size / 2, size, size))
                painter.setPen(self.ink.on(color))
                painter.setFont(font(11 if size >= 16 else 9, QFont.Weight.DemiBold))
                painter.drawText(QRectF(2, middle - size / 2, size, size), Qt.AlignmentFlag.AlignCenter, str(seat + 1))
            else:
                painter.setPen(self.ink.dim)
                painter.setFont(font(9))
                painter.drawText(
                    QRectF(0, middle - 6, GUTTER - 8, 12), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, str(seat + 1)
                )
            if seat == self._marked:
                painter.setPen(QPen(self.ink.text, 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(QRectF(GUTTER - 2.5, middle - self.row / 2 + 0.5, self.width() - GUTTER + 2, self.row - 1))

    def _paint_labels(self, painter: QPainter, start: int, stop: float, lane: Lane, top: float) -> None:
        """Titles on the stretches that are wide enough, and plain words in the holes."""
        states, requests, _ = self.grid.view(start, stop)
        pixels = 11 if lane.bar >= 16 else 10
        painter.setFont(font(pixels, QFont.Weight.DemiBold))
        for seat in range(min(states.shape[0], self._seats)):
            row, who = states[seat], requests[seat]
            hole = np.where(row <= WASTED, row, 0)
            cuts = np.flatnonzero((who[1:] != who[:-1]) | (hole[1:] != hole[:-1])) + 1
            edges = np.concatenate(([0], cuts, [len(row)]))
            for index in np.flatnonzero(np.diff(edges) * self.unit >= LABEL_FROM):
                a, b = int(edges[index]), int(edges[index + 1])
                if who[a]:
                    solid = np.flatnonzero(row[a:b] == DECODE)
                    a = a + int(solid[0]) if len(solid) else b
                box = QRectF(GUTTER + a * self.unit + 6, top + seat * self.row, (b - a) * self.unit - 10, self.row)
                if box.width() < LABEL_FROM - 12:
                    continue
                if who[a if a < len(who) else -1]:
                    painter.setPen(self.ink.on(self.ink.seat(seat)))
                    words = self.grid.title(int(who[a]))
                elif row[a] == WASTED:
                    painter.setPen(blend(self.ink.danger, self.ink.text, 0.55))
                    record = self.grid.record(start + (a + b) // 2)
                    words = translate("Dashboard", "empty, {0} waiting").format(record.waiting if record else 0)
                    if text_width(words, pixels, QFont.Weight.DemiBold) > box.width():
                        words = translate("Dashboard", "empty")
                elif row[a] == EMPTY:
                    painter.setPen(self.ink.dim)
                    words = translate("Dashboard", "empty")
                else:
                    continue
                painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, elided(words, int(box.width()), pixels, QFont.Weight.DemiBold))

    def _paint_flags(self, painter: QPainter, start: int, stop: float, top: float, lane: Lane) -> None:
        """Settings that changed, the step under the pointer, and the step that is selected."""
        ink, bottom = self.ink, top + self._seats * self.row
        painter.setFont(font(11))
        free = 0.0
        for column, words in self.grid.marks:
            if start <= column < stop:
                x = GUTTER + (column - start) * self.unit
                painter.setPen(QPen(ink.dim, 1))
                painter.drawLine(QPointF(x, LEGEND + 2), QPointF(x, bottom))
                if x >= free:
                    painter.drawText(QRectF(x + 4, LEGEND, 180, FLAGS - 2), Qt.AlignmentFlag.AlignVCenter, elided(words, 176, 11))
                    free = x + 16 + text_width(words, 11)
        pointed = self.column_at(self._pointer) if self._pointer is not None else -1
        for column in (self._selected, pointed):
            if start <= column < stop:
                x = GUTTER + (column - start) * self.unit
                painter.setPen(QPen(ink.text, 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(QRectF(x - 0.5, top - 0.5, max(2, self.pitch), bottom - top))

    def _paint_axis(self, painter: QPainter, start: int, stop: float, top: float) -> None:
        ink = self.ink
        painter.setFont(font(11))
        pointed = self.column_at(self._pointer) if self._pointer is not None else self._selected
        if start <= pointed < stop:
            painter.setPen(ink.text)
            painter.drawText(
                QRectF(GUTTER, top + 2, self.width() - GUTTER, AXIS - 2),
                Qt.AlignmentFlag.AlignVCenter,
                elided(self.words_for(pointed), self.width() - GUTTER, 11),
            )
            return
        painter.setPen(ink.dim)
        first = self.grid.record(start)
        if first is None:
            painter.drawText(
                QRectF(GUTTER, top + 2, self.width() - GUTTER, AXIS - 2),
                Qt.AlignmentFlag.AlignVCenter,
                translate("Dashboard", "No steps yet."),
            )
            return
        least = -(-84 // self.pitch)
        every = next(nice for power in (1, 10, 100, 1000, 10000) for nice in (power, 2 * power, 5 * power) if nice >= least)
        step = -(-first.step // every) * every
        while (column := start + step - first.step) < stop:
            record = self.grid.record(column)
            if record is not None and record.step == step:
                x = GUTTER + (column - start) * self.unit
                words = translate("Dashboard", "step {0}").format(wording.count(step))
                if x + text_width(words, 11) < self.width():
                    painter.drawLine(QPointF(x, top + 2), QPointF(x, top + 6))
                    painter.drawText(QRectF(x + 4, top + 2, 120, AXIS - 2), Qt.AlignmentFlag.AlignVCenter, words)
            step += every

    # ------------------------------------------------------------------------------------------------------------ people

    def _chat_at(self, point: QPoint) -> str:
        record, seat = self.grid.record(self.column_at(point)), self.seat_at(point)
        if record is None:
            return ""
        return next((row.chat_id for row in record.rows if row.seat == seat), "")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._dragged_from = (event.position().toPoint().x(), self.window[1])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        point = event.position().toPoint()
        if self._dragged_from is not None and event.buttons() & Qt.MouseButton.LeftButton:
            x, right = self._dragged_from
            if abs(point.x() - x) >= 4:
                self.hold(True)
                self.scrub(right - int((point.x() - x) / self.unit) - self.window[1])
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
        start, stop = self.window
        column = self._selected + by if start <= self._selected < stop else stop - 1
        record = self.grid.record(column)
        if record is not None:
            self.select(record.step)
            self.setAccessibleDescription(self.words_for(column))
            self.step_selected.emit(record.step)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.update()
