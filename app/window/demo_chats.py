"""The chats that the demo made: they come into tabs, and when all are answered a bar offers to remove them.

Owns which they are, and what each was like when its answer ended. Never removes one that the person has made their own: gone on with,
asked again, edited, renamed, pinned, moved, set up otherwise, or with something in its composer. What it removes can be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.chats.model import Chat, ChatSettings

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

Said = tuple[tuple[str, int], ...]  # the messages of a chat by id, and how long each is


@dataclass(slots=True)
class Made:
    """A chat as the demo made it; `said` once its answer has ended."""

    title: str
    settings: ChatSettings
    said: Said | None = None

    def untouched(self, chat: Chat) -> bool:
        """Whether the person has left it as it was."""
        if self.said is None or len(self.said) > 2 or _said(chat) != self.said:
            return False
        own = chat.title != self.title or chat.pinned or chat.folder or chat.drafted or chat.follow_ups
        return not own and replace(chat.settings, model="") == self.settings


class DemoChats(QObject):
    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._made: dict[str, Made] = {}
        self._offers = False  # once a run
        window.parts.demo_bar.chosen.connect(self._on_answer)

    # ------------------------------------------------------------------------------------------------------- methods

    def begin(self) -> None:
        """A crowd is about to come."""
        self._window.parts.demo_bar.hide()
        self._offers = True

    def arrive(self, title: str, settings: ChatSettings, text: str) -> None:
        """Somebody of the scripted crowd has arrived."""
        window = self._window
        chat_id = window.book.new_chat().id
        self._made[chat_id] = Made(title, replace(settings, model=""))
        window.book.set_settings(chat_id, settings)
        window.add_tabs([chat_id])
        window.chats.rename(chat_id, title)  # first, so that its seat has the name that its tab has
        window.send(chat_id, text)

    def removable(self) -> list[str]:
        """Those that are as the demo left them."""
        book = self._window.book
        return [chat_id for chat_id, made in self._made.items() if chat_id in book and made.untouched(book[chat_id])]

    def look(self) -> None:
        """A chat has changed: whether that was the last of the crowd, and all have got off."""
        if not self._made:
            return
        window = self._window
        for chat_id, made in self._made.items():
            if made.said is None and chat_id in window.book:
                chat = window.book[chat_id]
                if chat.empty or window.answering.active(chat_id):
                    return
                made.said = _said(chat)
        if self._offers and not window.demo.coming:
            self._offers = False
            if self.removable():
                self._ask()

    # ------------------------------------------------------------------------------------------------------- private

    def _ask(self) -> None:
        words = self.tr("The demo is over. Its chats can be removed; those that you went on with, renamed, pinned or moved stay.")
        answers = (("remove", self.tr("Remove them"), "primary"), ("keep", self.tr("Keep them"), "quiet"))
        self._window.parts.demo_bar.ask(words, answers)

    @Slot(str)
    def _on_answer(self, key: str) -> None:
        """Kept ones are the person's from now on."""
        wanted = self.removable() if key == "remove" else []
        self._made.clear()
        self._window.chats.delete(wanted)


def _said(chat: Chat) -> Said:
    return tuple((message.id, len(message.text)) for message in chat.tree.everything())
