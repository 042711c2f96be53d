"""The list of all tabs, behind the button at the strip's end that is there when not all of them are seen. Owns nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, QPointF, Qt, Slot
from PySide6.QtGui import QFontMetrics, QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QMenu

from app.theme import Theme
from app.window.rings import RING, paint_ring
from app.window.states import ChatState, Stage, stage_words

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

WIDEST = 320  # pixels of a title


class TabList(QObject):
    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        window.parts.row.all_tabs.clicked.connect(self.open)

    @Slot()
    def open(self) -> None:
        """Below its button, or where that would be; the tab in view is chosen already, so that the arrow keys go on from there."""
        row = self._window.parts.row
        menu = self.menu()
        beside = row.plus if row.all_tabs.isHidden() else row.all_tabs
        corner = beside.mapToGlobal(QPoint(beside.width(), beside.height()))
        menu.popup(corner - QPoint(menu.sizeHint().width(), 0))
        menu.setActiveAction(menu.actions()[self._window.tabs.currentIndex()])

    def menu(self) -> QMenu:
        """Every tab with its state, in the order of the strip."""
        window = self._window
        menu = QMenu(window)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.setAccessibleName(self.tr("All tabs"))
        for index, chat_id in enumerate(window.open_chats):
            state = window.tabs.state_of(chat_id)
            title = QFontMetrics(menu.font()).elidedText(window.tabs.title_of(chat_id), Qt.TextElideMode.ElideRight, WIDEST)
            words = stage_words(state.stage)
            line = title.replace("&", "&&") + (f"\t{words}" if words else "")
            action = menu.addAction(_drawn(state, window.theme, menu), line, partial(window.open_chat, chat_id))
            if index == window.tabs.currentIndex():
                font = action.font()
                font.setBold(True)
                action.setFont(font)
        return menu


def _drawn(state: ChatState, theme: Theme, menu: QMenu) -> QIcon:
    """The ring of a state; nothing, as large as one, for none."""
    ratio = menu.devicePixelRatioF()
    picture = QPixmap(round(RING * ratio), round(RING * ratio))
    picture.setDevicePixelRatio(ratio)
    picture.fill(Qt.GlobalColor.transparent)
    if state.stage is not Stage.IDLE:
        painter = QPainter(picture)
        paint_ring(painter, QPointF(RING / 2, RING / 2), state, theme, theme.window)
        painter.end()
    return QIcon(picture)
