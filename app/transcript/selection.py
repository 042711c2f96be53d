"""What is selected in a transcript, beyond what Qt knows of it: the whole chat, of which only a stretch is written.

Owns the flag and the menu of a right click; reads the view and its chat, changes neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtWidgets import QMenu

from app.chats.model import Chat, Role
from app.transcript.copying import source_of
from app.transcript.markdown import clean, link_target
from engine import split_reasoning

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView


class Selection(QObject):
    """Attributes:
    everything: the whole chat was selected, and nothing was since.
    """

    def __init__(self, view: TranscriptView) -> None:
        super().__init__(view)
        self._view = view
        self._selecting = False
        self.everything = False

    def select_all(self) -> None:
        """Select all that is written, and mean the whole chat."""
        self._selecting = True
        self._view.selectAll()
        self._selecting = False
        self.everything = self._view.textCursor().hasSelection()

    def note_change(self) -> None:
        """Qt's selection has changed."""
        if not self._selecting:
            self.everything = False

    def note_written(self) -> None:
        """More of the chat was written: it is selected, too, if all is."""
        if self.everything:
            self.select_all()

    def source(self) -> str:
        """What a copy gives: the source, in the order of the chat."""
        view = self._view
        if self.everything and view.chat is not None:
            return source_of_chat(view.chat)
        cursor = view.textCursor()
        parts = [entry.part() for entry in view.entries]
        return source_of(view.document(), cursor.selectionStart(), cursor.selectionEnd(), parts)

    def menu(self, place: QPoint) -> QMenu:
        """The menu of a right click at a place of the viewport."""
        view = self._view
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(self.tr("Copy"), QKeySequence(QKeySequence.StandardKey.Copy), view.copy)
        copy.setEnabled(view.textCursor().hasSelection())
        menu.addAction(self.tr("Select all"), QKeySequence(QKeySequence.StandardKey.SelectAll), self.select_all)
        if target := link_target(view.anchorAt(place)):
            menu.addSeparator()
            menu.addAction(self.tr("Copy link address"), lambda: QGuiApplication.clipboard().setText(target))
        return menu


def source_of_chat(chat: Chat) -> str:
    """All that was said on the path in view, as it was written; reasoning is left out, as it is folded away."""
    texts = (message.text if message.role is Role.USER else split_reasoning(message.text)[1] for message in chat.messages)
    return "\n\n".join(piece for text in texts if (piece := clean(text).strip("\n")))
