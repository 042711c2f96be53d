"""The tabs: one a chat, each with the ring of what its chat is doing.

A QTabBar for its keyboard and its accessible tree; painting, closing and dragging are our own, because the stock style can show neither
the ring nor a close mark that keeps out of the way.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QFont, QFontMetrics, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QApplication, QTabBar, QToolButton, QWidget

from app.numbers import number
from app.theme import Theme, tabular, ui_font
from app.theme.color import mix
from app.window.rings import RING, paint_ring
from app.window.states import IDLE, ChatState, Stage, stage_words

HEIGHT = 40
WIDEST = 220
NARROWEST = 104
LEAST_CURRENT = 180  # the tab in view keeps room for some twelve letters beside its ring and its close mark
SPEED_FROM = 190  # width from which tok/s fits beside the title


class TabStrip(QTabBar):
    """Tabs by chat id.

    Signals:
        close_asked(index): by the close mark or the middle button.
        menu_asked(index, global position): the right button, or the menu key for the tab in view.
        changed: a tab came, went or moved, or another is in view.
    """

    close_asked = Signal(int)
    menu_asked = Signal(int, QPoint)
    changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._states: dict[str, ChatState] = {}
        self._titles: dict[str, str] = {}
        self._room = 800
        self._hover = -1
        self._hover_close = False
        self._pressed_close = -1
        self._press_at: QPoint | None = None
        self._drag_index = -1
        self._drag_offset = 0
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setElideMode(Qt.TextElideMode.ElideRight)
        self.setUsesScrollButtons(True)
        self.setFont(ui_font(13))
        self.setAccessibleName(self.tr("Chats"))
        self._speed_font = tabular(ui_font(11))
        self.tabMoved.connect(self.changed)
        self.currentChanged.connect(self._lay_out)  # another is the widest
        self.currentChanged.connect(self.changed)

    # ---------------------------------------------------------------------------------------------------- properties

    def chat_at(self, index: int) -> str | None:
        return self.tabData(index) if 0 <= index < self.count() else None

    def index_of(self, chat_id: str) -> int:
        """The tab of a chat, -1 where it has none."""
        return next((index for index in range(self.count()) if self.tabData(index) == chat_id), -1)

    @property
    def seen(self) -> QRect:
        """Where tabs are painted: not behind the arrows that are there when not all of them fit."""
        arrows = [button.x() for button in self.findChildren(QToolButton) if button.isVisible()]
        return QRect(0, 0, min(arrows, default=self.width()), self.height())

    @property
    def needed(self) -> int:
        """The least width in which all tabs are wholly seen."""
        return LEAST_CURRENT + (self.count() - 1) * NARROWEST

    def title_of(self, chat_id: str) -> str:
        return self._titles.get(chat_id, "")

    def state_of(self, chat_id: str) -> ChatState:
        return self._states.get(chat_id, IDLE)

    # ------------------------------------------------------------------------------------------------------- methods

    def add(self, chat_id: str, title: str, index: int = -1) -> int:
        """Insert a tab (at the end for -1) without switching to it, and return its place."""
        self._titles[chat_id] = title
        # QTabBar makes the first tab current, and says so, before the tab could be told its chat.
        quiet = self.blockSignals(True)
        place = self.insertTab(self.count() if index < 0 else index, _plain(title))
        self.setTabData(place, chat_id)
        self.blockSignals(quiet)
        self._describe(place)
        self._lay_out()
        self.changed.emit()
        return place

    def remove(self, index: int) -> None:
        self._states.pop(self.tabData(index), None)
        self._titles.pop(self.tabData(index), None)
        self.removeTab(index)
        self._lay_out()
        self.changed.emit()

    def set_title(self, chat_id: str, title: str) -> None:
        index = self.index_of(chat_id)
        if index >= 0 and self._titles.get(chat_id) != title:
            self._titles[chat_id] = title
            self.setTabText(index, _plain(title))
            self._describe(index)

    def set_state(self, chat_id: str, state: ChatState) -> None:
        before = self._states.get(chat_id, IDLE)
        if state == before:
            return
        self._states[chat_id] = state
        index = self.index_of(chat_id)
        if index < 0:
            return
        self.update(self.tabRect(index))
        if (before.stage, before.seat) != (state.stage, state.seat):
            self._describe(index)

    def set_room(self, width: int) -> None:
        """How wide all tabs together may be."""
        if width != self._room:
            self._room = width
            self._lay_out()

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def tabSizeHint(self, index: int) -> QSize:
        share = self._room // max(1, self.count())
        if share < LEAST_CURRENT and index != self.currentIndex():  # what the tab in view takes more, the others have less
            share = (self._room - LEAST_CURRENT) // max(1, self.count() - 1)
        return QSize(max(self.minimumTabSizeHint(index).width(), min(WIDEST, share)), HEIGHT)

    def minimumTabSizeHint(self, index: int) -> QSize:
        return QSize(LEAST_CURRENT if index == self.currentIndex() else NARROWEST, HEIGHT)

    def sizeHint(self) -> QSize:
        return QSize(min(self._room, sum(self.tabSizeHint(index).width() for index in range(self.count()))), HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(NARROWEST, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        seen = self.seen
        painter.setClipRect(seen)
        order = [index for index in range(self.count()) if index not in (self.currentIndex(), self._drag_index)]
        order += [index for index in (self.currentIndex(), self._drag_index) if index >= 0]
        for index in dict.fromkeys(order):
            rect = self.tabRect(index)
            if index == self._drag_index:
                rect.translate(self._drag_offset, 0)
            if rect.intersects(event.rect()) and rect.intersects(seen):
                self._paint_tab(painter, index, rect, seen.right())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        index = self.tabAt(place)
        if event.button() == Qt.MouseButton.MiddleButton and index >= 0:
            self.close_asked.emit(index)
            return
        if event.button() == Qt.MouseButton.LeftButton and index >= 0:
            if self._close_rect(index).contains(place):
                self._pressed_close = index
                return
            self._press_at = place
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        self._set_hover(self.tabAt(place), place)
        if self._press_at is not None and event.buttons() & Qt.MouseButton.LeftButton:
            self._drag(place)
            return
        super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        pressed, self._pressed_close = self._pressed_close, -1
        self._press_at, self._drag_index, self._drag_offset = None, -1, 0
        self.update()
        if pressed >= 0:
            if pressed < self.count() and self._close_rect(pressed).contains(place):
                self.close_asked.emit(pressed)
            return
        if event.button() == Qt.MouseButton.RightButton and self.tabAt(place) >= 0:
            self.menu_asked.emit(self.tabAt(place), event.globalPosition().toPoint())
            return
        super().mouseReleaseEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() is QContextMenuEvent.Reason.Keyboard and self.currentIndex() >= 0:
            self.menu_asked.emit(self.currentIndex(), self.mapToGlobal(self.tabRect(self.currentIndex()).bottomLeft()))
        event.accept()  # the mouse's is asked for when its button is released

    def leaveEvent(self, event: QEvent) -> None:
        self._set_hover(-1, QPoint())
        super().leaveEvent(event)

    # ------------------------------------------------------------------------------------------------------- private

    def _lay_out(self) -> None:
        # QTabBar asks for its tabs' sizes again only when it thinks that something about them changed.
        self.setIconSize(QSize(33 - self.iconSize().width(), 16) if self.iconSize().width() in (16, 17) else QSize(16, 16))
        self.updateGeometry()

    def _describe(self, index: int) -> None:
        """The tab in words: tool tip, and name for a screen reader."""
        title = self._titles[self.tabData(index)]
        words = self._states.get(self.tabData(index), IDLE)
        spoken = stage_words(words.stage)
        if words.seat is not None:
            spoken += ", " + self.tr("seat {0}").format(words.seat + 1)
        self.setTabToolTip(index, title)
        self.setAccessibleTabName(index, f"{title}, {spoken}" if spoken else title)

    def _paint_tab(self, painter: QPainter, index: int, rect: QRect, end: int) -> None:
        """`end`: beyond it nothing is seen, so the title ends before."""
        theme = self._theme
        current = index == self.currentIndex()
        background = theme.window if current else theme.sidebar
        if current:
            painter.fillPath(_tab_shape(QRectF(rect)), QColor(background))
        elif index == self._hover:
            path = QPainterPath()
            path.addRoundedRect(QRectF(rect).adjusted(3, 6, -3, -4), 8, 8)
            painter.fillPath(path, QColor(theme.hover))
        elif index + 1 not in (self.currentIndex(), self._hover) and index != self.count() - 1:
            painter.fillRect(QRectF(rect.right(), rect.top() + 13, 1, rect.height() - 26), QColor(theme.hairline))
        state = self._states.get(self.tabData(index), IDLE)
        left = rect.left() + 14
        if state.stage is not Stage.IDLE:
            paint_ring(painter, QPointF(left + RING / 2, rect.center().y() + 1), state, theme, background)
            left += RING + 8
        right = min(rect.right() - 12, end - 4)
        if current or index == self._hover:
            right = self._close_rect(index).translated(rect.topLeft() - self.tabRect(index).topLeft()).left() - 4
            self._paint_close(painter, index, rect)
        right = self._paint_speed(painter, state, rect, right, background)
        font = QFont(self.font())
        if current:
            font.setWeight(QFont.Weight.Medium)
        painter.setFont(font)
        painter.setPen(QColor(theme.text if current else theme.text_dim))
        text = QFontMetrics(font).elidedText(self._titles[self.tabData(index)], Qt.TextElideMode.ElideRight, max(0, right - left))
        painter.drawText(QRect(left, rect.top() + 1, right - left, rect.height()), Qt.AlignmentFlag.AlignVCenter, text)
        if current and self.hasFocus():
            painter.setPen(QPen(QColor(theme.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(rect).adjusted(6, 7, -6, -6), 7, 7)

    def _paint_speed(self, painter: QPainter, state: ChatState, rect: QRect, right: int, background: str) -> int:
        """The speed of a decoding chat, where there is room; returns where the title must end."""
        if state.stage is not Stage.DECODE or state.tok_s <= 0 or rect.width() < SPEED_FROM:
            return right
        words = number(state.tok_s, ".0f" if state.tok_s >= 9.95 else ".1f") + "/s"
        width = QFontMetrics(self._speed_font).horizontalAdvance(words)
        painter.setFont(self._speed_font)
        painter.setPen(self._theme.seat_ink(state.seat or 0, background))
        painter.drawText(QRect(right - width, rect.top() + 1, width + 1, rect.height()), Qt.AlignmentFlag.AlignVCenter, words)
        return right - width - 8

    def _paint_close(self, painter: QPainter, index: int, rect: QRect) -> None:
        theme = self._theme
        box = QRectF(self._close_rect(index).translated(rect.topLeft() - self.tabRect(index).topLeft()))
        hot = self._hover_close and index == self._hover
        if hot:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(mix(theme.text, theme.window, 0.14)))
            painter.drawRoundedRect(box, 6, 6)
        painter.setPen(QPen(QColor(theme.text if hot else theme.text_dim), 1.4))
        cross = box.adjusted(6.5, 6.5, -6.5, -6.5)
        painter.drawLine(cross.topLeft(), cross.bottomRight())
        painter.drawLine(cross.topRight(), cross.bottomLeft())

    def _close_rect(self, index: int) -> QRect:
        rect = self.tabRect(index)
        return QRect(rect.right() - 28, rect.top() + (rect.height() - 20) // 2 + 1, 20, 20)

    def _set_hover(self, index: int, place: QPoint) -> None:
        close = index >= 0 and self._close_rect(index).contains(place)
        if (index, close) != (self._hover, self._hover_close):
            self._hover, self._hover_close = index, close
            self.update()

    def _drag(self, place: QPoint) -> None:
        """Carry the pressed tab along; it changes places when its middle passes a neighbour's."""
        assert self._press_at is not None
        if self._drag_index < 0:
            if abs(place.x() - self._press_at.x()) < QApplication.startDragDistance():
                return
            self._drag_index = self.currentIndex()
        self._drag_offset = place.x() - self._press_at.x()
        rect = self.tabRect(self._drag_index)
        middle = rect.center().x() + self._drag_offset
        for other in (self._drag_index - 1, self._drag_index + 1):
            if not 0 <= other < self.count():
                continue
            theirs = self.tabRect(other).center().x()
            if (middle < theirs) if other < self._drag_index else (middle > theirs):
                shift = self.tabRect(other).left() - rect.left()
                self.moveTab(self._drag_index, other)
                self._drag_index = other
                self._press_at += QPoint(shift, 0)
                self._drag_offset -= shift
                break
        self.update()


def _plain(title: str) -> str:
    """A title as QTabBar wants it: an ampersand would mark a shortcut."""
    return title.replace("&", "&&")


def _tab_shape(rect: QRectF) -> QPainterPath:
    """Round shoulders above, flush with the page below."""
    box = rect.adjusted(2, 5, -2, 0)
    path = QPainterPath()
    path.moveTo(box.bottomLeft())
    path.lineTo(box.left(), box.top() + 10)
    path.quadTo(box.left(), box.top(), box.left() + 10, box.top())
    path.lineTo(box.right() - 10, box.top())
    path.quadTo(box.right(), box.top(), box.right(), box.top() + 10)
    path.lineTo(box.bottomRight())
    path.closeSubpath()
    return path
