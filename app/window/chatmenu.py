"""The menu of chats in the sidebar, for one or for many: open, rename, pin, folders, export, delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QCoreApplication, QObject, QPoint, Qt, Signal
from PySide6.QtWidgets import QInputDialog, QMenu, QWidget

from app.chats.book import ChatBook


class ChatMenu(QObject):
    """Changes nothing by itself.

    Signals:
        opened(id), renamed(id): of one chat. pinned(ids, on), moved(ids, folder), exported(ids), deleted(ids): of all that are selected.
    """

    opened = Signal(str)
    renamed = Signal(str)
    pinned = Signal(list, bool)
    moved = Signal(list, str)
    exported = Signal(list)
    deleted = Signal(list)

    def __init__(self, book: ChatBook, parent: QWidget) -> None:
        super().__init__(parent)
        self._book = book
        self._widget = parent

    def popup(self, chat_ids: Sequence[str], place: QPoint) -> None:
        self.make(chat_ids).popup(place)

    def make(self, chat_ids: Sequence[str]) -> QMenu:
        """The menu of these chats; it deletes itself when it closes."""
        ids = list(chat_ids)
        chats = [self._book[chat_id] for chat_id in ids]
        menu = QMenu(self._widget)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if len(ids) == 1:
            menu.addAction(_tr("Open"), lambda: self.opened.emit(ids[0]))
            menu.addAction(_tr("Rename"), lambda: self.renamed.emit(ids[0]))
        on = not all(chat.pinned for chat in chats)
        menu.addAction(_tr("Pin") if on else _tr("Unpin"), lambda: self.pinned.emit(ids, on))
        folders = menu.addMenu(_tr("Move to folder"))
        here = {chat.folder for chat in chats}
        for folder in self._book.folders():
            folders.addAction(folder, partial(self.moved.emit, ids, folder)).setEnabled(here != {folder})
        if self._book.folders():
            folders.addSeparator()
        folders.addAction(_tr("New folder …"), lambda: self.ask_folder(ids))
        folders.addAction(_tr("Out of its folder"), lambda: self.moved.emit(ids, "")).setEnabled(here != {""})
        menu.addAction(_tr("Export …"), lambda: self.exported.emit(ids))
        menu.addSeparator()
        menu.addAction(_tr("Delete") if len(ids) == 1 else _tr("Delete {0} chats").format(len(ids)), lambda: self.deleted.emit(ids))
        return menu

    def ask_folder(self, chat_ids: list[str]) -> QInputDialog:
        """Ask for the name of a new folder, beside everything else."""
        dialog = QInputDialog(self._widget)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(_tr("New folder"))
        dialog.setLabelText(_tr("Name of the folder"))
        dialog.textValueSelected.connect(lambda name: self.moved.emit(chat_ids, name.strip()))
        dialog.open()
        return dialog


def _tr(words: str) -> str:
    return QCoreApplication.translate("ChatMenu", words)
