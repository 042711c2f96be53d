"""The menu of a tab's right click: close, stop, how soon its chat is answered, delete. Owns nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, Slot
from PySide6.QtWidgets import QMenu

from engine import Priority

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


class TabMenu(QObject):
    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        window.tabs.menu_asked.connect(self.open)

    @Slot(int, QPoint)
    def open(self, index: int, place: QPoint) -> None:
        if chat_id := self._window.tabs.chat_at(index):
            self.menu(chat_id).popup(place)

    def menu(self, chat_id: str) -> QMenu:
        """What can be done with the tab of this chat now."""
        window = self._window
        menu = QMenu(window)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Close"), lambda: window.close_tab(window.tabs.index_of(chat_id)))
        menu.addAction(self.tr("Close others"), lambda: window.open_tabs.close_others(chat_id)).setEnabled(window.tabs.count() > 1)
        menu.addAction(self.tr("Stop"), lambda: window.stop(chat_id)).setEnabled(window.answering.active(chat_id))
        menu.addSeparator()
        chosen = window.answering.priority_of(chat_id)
        priorities = menu.addMenu(self.tr("Priority"))
        for priority, words in (
            (None, self.tr("Automatic: first while it is in view")),
            (Priority.FOREGROUND, self.tr("Always first")),
            (Priority.BACKGROUND, self.tr("Behind the one in view")),
            (Priority.IDLE, self.tr("Only when nobody else waits")),
        ):
            action = priorities.addAction(words, partial(window.answering.set_priority, chat_id, priority))
            action.setCheckable(True)
            action.setChecked(chosen is priority)
        menu.addSeparator()
        menu.addAction(self.tr("Delete chat"), lambda: window.chats.delete([chat_id])).setEnabled(not window.book[chat_id].empty)
        return menu
