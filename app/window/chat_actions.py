"""What is done to whole chats, one or many: renamed, pinned, put into folders, deleted, and brought back.

Owns what was deleted and can still be taken back, with the tabs it had. The chats are the book's; nothing is asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.chats.model import Chat

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


@dataclass(frozen=True, slots=True)
class Deletion:
    """Chats that went together. `places`: the tabs that they had; `viewed`: the one that was in view, if it was one of them."""

    chats: tuple[Chat, ...]
    places: dict[str, int]
    viewed: str | None


class ChatActions(QObject):
    """Actions on the chats of a window."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._deletions: list[Deletion] = []  # the last one last

    def rename(self, chat_id: str, title: str) -> None:
        self._window.titling.drop(chat_id)
        self._window.book.rename(chat_id, title)
        self._window.after_change(chat_id)

    @Slot(list, bool)
    def pin(self, chat_ids: list[str], pinned: bool) -> None:
        for chat_id in chat_ids:
            self._window.book.set_pinned(chat_id, pinned)
        self._window.sidebar.refresh()

    @Slot(list, str)
    def move(self, chat_ids: list[str], folder: str) -> None:
        """Into a folder, or out of any for ""."""
        for chat_id in chat_ids:
            self._window.book.set_folder(chat_id, folder)
        self._window.sidebar.refresh()

    @Slot(list)
    def delete(self, chat_ids: list[str]) -> None:
        """Delete chats; a bar offers to take that back, for all of them together."""
        window = self._window
        wanted = [chat_id for chat_id in chat_ids if chat_id in window.book and not window.book[chat_id].empty]
        if not wanted:
            return
        places = {chat_id: place for chat_id in wanted if (place := window.tabs.index_of(chat_id)) >= 0}
        viewed = window.current_chat if window.current_chat in wanted else None
        for chat_id in wanted:
            window.answering.stop(chat_id)
            window.open_tabs.close([chat_id], "stop")
        self._deletions.append(Deletion(tuple(window.book.delete(chat_id) for chat_id in wanted), places, viewed))
        window.sidebar.refresh()
        self.offer_undo()

    def offer_undo(self) -> None:
        """Offer to take the last deletion back, if there is one."""
        if self._deletions:
            chats = self._deletions[-1].chats
            one = self.tr("“{0}” was deleted.").format(chats[0].display_title)
            self._window.questions.offer_undo(one if len(chats) == 1 else self.tr("{0} chats were deleted.").format(len(chats)))

    def undo(self) -> None:
        """Take the last deletion back, its tabs included; the one before it can be taken back next."""
        if not self._deletions:
            return
        window, deletion = self._window, self._deletions.pop()
        for chat in deletion.chats:
            window.book.restore(chat)
        for chat_id, place in sorted(deletion.places.items(), key=lambda tab: tab[1]):
            window.add_tabs([chat_id], place)
        window.sidebar.refresh()
        if deletion.viewed is not None or len(deletion.chats) == 1:
            window.open_chat(deletion.viewed or deletion.chats[0].id)
        self.offer_undo()

    def forget(self) -> None:
        """Nobody wants any of it back."""
        self._deletions.clear()
