"""The bus: who sits where, who stands at the stop and why, and the moment of getting on and off.

One widget, one paint pass; what it shows is `cells`, a pure function of the snapshot. It asks for things by signals and does none
of them itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QFont,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import QMenu, QToolTip, QWidget

from app.dashboard import capsule, wording
from app.dashboard.bus_layout import bus_layout
from app.dashboard.bus_scene import draw_scene
from app.dashboard.canvas import FIGURES_S, Canvas, Pace
from app.dashboard.ink import text_width
from app.dashboard.letters import LEFT, RIGHT, write
from app.dashboard.lift import Lift, hint, neighbour
from app.dashboard.motion import Motion, reduced_motion
from app.dashboard.rider_menu import rider_menu
from app.dashboard.riders import EMPTY, BusCells, ChipCell, SeatCell, bus_cells
from app.dashboard.stamps import Stamps
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Policy, Snapshot

BOLD = QFont.Weight.DemiBold
MOST_MOVES = 24  # more at once is a storm, not a picture


@dataclass(frozen=True, slots=True)
class Spot:
    """Something that can be pointed at."""

    rect: QRectF
    cell: SeatCell | ChipCell


class BusView(Canvas):
    """Seats, stop and queue.

    Attributes:
        cells: what is shown. plan: where it stands.
    Signals:
        open_chat(chat_id), cancel(request_id), set_priority(request_id, Priority); seat_hovered(seat, or -1).
    """

    open_chat = Signal(str)
    cancel = Signal(str)
    set_priority = Signal(str, object)
    seat_hovered = Signal(int)

    def __init__(
        self,
        theme: Theme,
        parent: QWidget | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        still: Callable[[], bool] = reduced_motion,
    ) -> None:
        super().__init__(theme, translate("Dashboard", "Seats and queue"), parent)
        self.cells: BusCells = EMPTY
        self.policy = Policy.IN_FLIGHT
        self.motion = Motion(self, clock=clock, still=still)
        self.motion.frame.connect(self._on_frame)
        self.plan = bus_layout(900, 0, 0)
        self._stamps = Stamps()
        self._pace = Pace(clock, FIGURES_S)
        self._pointed = ""  # request id under the pointer
        self._current = ""  # request id the keyboard is on
        self._marked = -1  # seat that another view points at
        self._menu: QMenu | None = None
        self._lift: Lift | None = None

    # -------------------------------------------------------------------------------------------------------- properties

    def sizeHint(self) -> QSize:
        return QSize(900, self.plan.height)

    def spots(self) -> list[Spot]:
        """Seats from left to right, then chips in their order."""
        taken = [Spot(rect, cell) for rect, cell in zip(self.plan.seats, self.cells.seats, strict=False) if cell is not None]
        return taken + [Spot(rect, chip) for rect, chip in zip(self.plan.chips, self.cells.chips, strict=False)]

    # ----------------------------------------------------------------------------------------------------------- methods

    def show_snapshot(self, snapshot: Snapshot) -> None:
        cells = bus_cells(snapshot)
        if cells == self.cells and snapshot.policy is self.policy:
            return
        before = self.cells
        self._pace.follow(snapshot.rates.step_s)
        turned, self.policy = snapshot.policy is not self.policy, snapshot.policy
        moved = len(before.seats) != len(cells.seats) or before.waiting != cells.waiting or before.people != cells.people
        places = self._places() if moved else {}
        self.cells = cells
        if (moved and self._relayout()) or turned:
            self.update()
        if moved:
            self._set_off(before, places)
        self._refresh(before)
        self.describe(self.summary)

    def summary(self) -> str:
        """The picture in one sentence, for a screen reader."""
        words = translate("Dashboard", "{0}: {1} of {2} seats taken, {3} waiting.").format(
            wording.policy(self.policy), self.cells.taken, len(self.cells.seats), self.cells.waiting
        )
        return " ".join([words, *(f"{cell.number}: {cell.title}, {cell.lines[0]}." for cell in self.cells.seats if cell is not None)])

    def mark_seat(self, seat: int) -> None:
        """Light up a seat because another view points at its blocks or its row; -1 for none."""
        if seat != self._marked:
            self._marked = seat
            self.update()

    def theme_changed(self) -> None:
        self._stamps.clear()

    def settle(self) -> None:
        """Everyone is where they belong, at once (hidden, or resized)."""
        self.motion.stop()
        self._lift = None

    # ------------------------------------------------------------------------------------------------------------ moving

    def _places(self) -> dict[str, QRectF]:
        return {spot.cell.request_id: spot.rect for spot in self.spots()}

    def _set_off(self, before: BusCells, old: dict[str, QRectF]) -> None:
        new = self._places()
        if not self.isVisible() or len(new.keys() ^ old.keys()) > MOST_MOVES:
            return
        seated = {cell.request_id for cell in self.cells.seats if cell is not None}
        for request_id, rect in new.items():
            start = old.get(request_id)
            if start is None:
                start = (
                    QRectF(self.plan.more.x(), self.plan.more.y(), rect.width(), rect.height())
                    if request_id in seated
                    else rect.translated(0, 28)
                )
            self.motion.add(request_id, start, rect)
        for cell in before.seats:
            if cell is not None and cell.request_id not in new and cell.request_id in old:
                rect = old[cell.request_id]
                self.motion.add(cell.request_id, rect, rect.translated(0, 30), leaving=True, ghost=cell)

    @Slot()
    def _on_frame(self) -> None:
        self.update()

    # ---------------------------------------------------------------------------------------------------------- painting

    def _refresh(self, before: BusCells) -> None:
        """Repaint at once who got on or off, and some three times a second how far everyone is."""
        if (before.waiting, before.taken, len(before.chips)) != (self.cells.waiting, self.cells.taken, len(self.cells.chips)):
            self.update()
            return
        if self._pace.ready():
            self._update_seats()
        if [chip.face for chip in before.chips] != [chip.face for chip in self.cells.chips]:
            self.update(self.plan.queue.toAlignedRect())

    def _update_seats(self) -> None:
        """One rectangle round all of them: Qt is slower with many small ones."""
        around = QRectF()
        for rect, cell in zip(self.plan.seats, self.cells.seats, strict=False):
            if cell is not None:
                around = around.united(rect)
        self.update(around.toAlignedRect())

    def flush(self) -> None:
        """Paint what was held back: nothing new is coming for now."""
        if self._pace.behind:
            self._pace.behind = False
            self._update_seats()

    def _relayout(self) -> bool:
        layout = bus_layout(max(self.width(), 300), len(self.cells.seats), self.cells.waiting)
        layout_changed = layout != self.plan
        self.plan = layout
        if layout.height != self.height():
            self.setFixedHeight(layout.height)
        return layout_changed

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        region, layout = event.region(), self.plan
        press = capsule.Press(self.ink, self._stamps, self.devicePixelRatioF())
        painter.drawPixmap(0, 0, self._scene(press.ratio))
        active = self._pointed or (self._current if self.hasFocus() else "")
        moving = self.motion.moves
        if region.intersects(layout.queue.toAlignedRect()):
            self._paint_queue(painter, press, active)
        for index, (rect, cell) in enumerate(zip(layout.seats, self.cells.seats, strict=False)):
            if not region.intersects(rect.toAlignedRect()):
                continue
            if cell is None or cell.request_id in moving:
                capsule.paint_empty_seat(painter, press, rect, index + 1, layout.density)
            else:
                lit = (active != "" and cell.request_id == active) or index == self._marked
                capsule.paint_seat(painter, press, rect, cell, layout.density, active=lit)
        if moving:
            self._paint_moving(painter, press)
        if self.hasFocus():
            self._paint_current(painter)
        if self._lift is not None and self._lift.lifted:
            self._lift.paint(painter, press, layout)

    def _scene(self, ratio: float) -> QPixmap:
        """All that stays as it is: the bus itself, its sign, the stop's sign."""
        layout = self.plan
        key = ("scene", layout.body.getRect(), self.policy, layout.body.top())
        draw = partial(draw_scene, ink=self.ink, layout=layout, policy=self.policy)
        return self._stamps.get(key, self.width(), layout.height, ratio, draw, self.ink.surface)

    def _paint_queue(self, painter: QPainter, press: capsule.Press, active: str) -> None:
        layout, waiting = self.plan, self.cells.waiting
        painter.setPen(self.ink.dim)
        if waiting:
            beside = text_width(translate("Dashboard", "Waiting"), 13, BOLD) + 8
            write(painter, layout.stop.adjusted(beside, 0, 0, 0), wording.count(waiting), 12)
        else:
            capsule.paint_empty_place(painter, press, layout.first)
        more = waiting - len(layout.chips)
        if more > 0:
            side = RIGHT if layout.more.y() < layout.stop.bottom() else LEFT
            write(
                painter,
                layout.more.adjusted(8, 0, -4, 0),
                translate("Dashboard", "and {0} more").format(wording.count(more)),
                12,
                side=side,
            )
        for rect, chip in zip(layout.chips, self.cells.chips, strict=False):
            if chip.request_id not in self.motion.moves:
                capsule.paint_chip(painter, press, rect, chip, active=chip.request_id == active)

    def _paint_moving(self, painter: QPainter, press: capsule.Press) -> None:
        """Everyone on their way, in the size in which they will arrive."""
        cells: dict[str, SeatCell | ChipCell] = {spot.cell.request_id: spot.cell for spot in self.spots()}
        for request_id, move in self.motion.moves.items():
            rect = QRectF(self.motion.where(move).topLeft(), move.end.size())
            cell = move.ghost if move.leaving else cells.get(request_id)
            opacity = 1.0 - self.motion.progress(move) if move.leaving else 1.0
            if isinstance(cell, SeatCell):
                capsule.paint_seat(painter, press, rect, cell, self.plan.density, opacity=opacity)
            elif isinstance(cell, ChipCell):
                capsule.paint_chip(painter, press, rect, cell, opacity=opacity)

    def _paint_current(self, painter: QPainter) -> None:
        spot = self._spot(self._current)
        if spot is None:
            self.paint_focus(painter, self.plan.body, 24)
        else:
            self.paint_focus(painter, spot.rect.adjusted(-2, -2, 2, 2), spot.rect.height() / 2 if isinstance(spot.cell, SeatCell) else 13)

    # ------------------------------------------------------------------------------------------------------------ people

    def _spot(self, request_id: str) -> Spot | None:
        return next((spot for spot in self.spots() if spot.cell.request_id == request_id), None)

    def _spot_at(self, point: QPoint) -> Spot | None:
        return next((spot for spot in self.spots() if spot.rect.contains(point.toPointF())), None)

    def _point_at(self, spot: Spot | None) -> None:
        request_id = spot.cell.request_id if spot else ""
        if request_id == self._pointed:
            return
        self._pointed = request_id
        self.setCursor(Qt.CursorShape.PointingHandCursor if spot else Qt.CursorShape.ArrowCursor)
        self.seat_hovered.emit(spot.cell.seat if spot and isinstance(spot.cell, SeatCell) else -1)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        spot = self._spot_at(event.position().toPoint())
        if event.button() is Qt.MouseButton.LeftButton and spot is not None and spot.cell.request_id:
            self._lift = Lift(spot.cell, event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._lift is not None and self._lift.move(event.position()):
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
            self.update()
            return
        self._point_at(self._spot_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        self._point_at(None)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        spot = self._spot_at(event.position().toPoint())
        if event.button() is not Qt.MouseButton.LeftButton:
            return
        lift, self._lift = self._lift, None
        if lift is not None and lift.move(event.position()):
            self._set_down(lift)
            return
        if spot is None:
            return
        self._current = spot.cell.request_id
        if spot.cell.request_id and self.plan.density.title and capsule.cross_rect(spot.rect).contains(event.position()):
            self.cancel.emit(spot.cell.request_id)
        else:
            self.open_chat.emit(spot.cell.chat_id)

    def _set_down(self, lift: Lift) -> None:
        """The button is let go: where a class is, it is asked for; the next snapshot shows what came of it."""
        priority = lift.over(self.plan)
        if priority is not None and priority is not lift.cell.priority:
            self.set_priority.emit(lift.cell.request_id, priority)
        self._pointed = ""
        self._point_at(None)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.update()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        spot = self._spot_at(event.pos()) if event.reason() is QContextMenuEvent.Reason.Mouse else self._spot(self._current)
        if spot is not None:
            self._open_menu(spot, event.globalPos() if event.reason() is QContextMenuEvent.Reason.Mouse else self._below(spot))

    def _below(self, spot: Spot) -> QPoint:
        return self.mapToGlobal(spot.rect.bottomLeft().toPoint())

    def make_menu(self, cell: SeatCell | ChipCell) -> QMenu:
        """What can be done with a rider: go to its chat, change its priority, cancel it."""
        return rider_menu(self, cell, self.open_chat.emit, self.set_priority.emit, self.cancel.emit)

    def _open_menu(self, spot: Spot, where: QPoint) -> None:
        self._menu = self.make_menu(spot.cell)
        self._menu.popup(where)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        spots = [spot for spot in self.spots() if spot.cell.request_id]  # not another client's, with which nothing can be done
        ids = [spot.cell.request_id for spot in spots]
        index = ids.index(self._current) if self._current in ids else -1
        key = event.key()
        if key == Qt.Key.Key_Escape and self._lift is not None:
            self._lift = None
            self.setCursor(Qt.CursorShape.ArrowCursor)
        elif event.modifiers() & Qt.KeyboardModifier.AltModifier and key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            if index >= 0:
                self.set_priority.emit(self._current, neighbour(spots[index].cell.priority, key == Qt.Key.Key_Up))
        elif key in (Qt.Key.Key_Right, Qt.Key.Key_Down) and ids:
            self._current = ids[(index + 1) % len(ids)]
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Up) and ids:
            self._current = ids[(index - 1) % len(ids)]
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and index >= 0:
            self.open_chat.emit(spots[index].cell.chat_id)
        elif key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and index >= 0:
            self.cancel.emit(self._current)
        elif key == Qt.Key.Key_P and index >= 0:
            self._open_menu(spots[index], self._below(spots[index]))
        else:
            super().keyPressEvent(event)
            return
        self.update()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            spot = self._spot_at(event.pos())
            if spot is None:
                QToolTip.hideText()
            else:
                tip = f"{spot.cell.tip}\n{hint()}" if spot.cell.request_id else spot.cell.tip
                QToolTip.showText(event.globalPos(), tip, self, spot.rect.toAlignedRect())
            return True
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.settle()
        self._relayout()
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if self._spot(self._current) is None:
            spots = self.spots()
            self._current = spots[0].cell.request_id if spots else ""
