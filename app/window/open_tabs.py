"""The tabs that are open: how they close, with a question while something is being written, and come back where they were.

Owns which tabs were closed, and where they stood. Their strip is `TabStrip`; their chats are the book's and stay when a tab goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


MOST_CLOSED = 25  # that are remembered for another day


class OpenTabs(QObject):
    """Tabs by the id of their chat."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._closed: list[tuple[str, int]] = []  # chat and place, the last one last

    @property
    def closed(self) -> list[tuple[str, int]]:
        """The tabs that can come back, and where they stood; the last one last."""
        return self._closed[-MOST_CLOSED:]

    def set_closed(self, closed: Sequence[tuple[str, int]]) -> None:
        """Those of another day."""
        self._closed = list(closed)

    def close(self, chat_ids: Sequence[str], choice: str | None = None) -> None:
        """Close tabs. While an answer in one of them is being written: "keep" lets it go on, "stop" stops it, None asks, once for all."""
        window = self._window
        wanted = [chat_id for chat_id in chat_ids if window.tabs.index_of(chat_id) >= 0]
        writing = [chat_id for chat_id in wanted if window.answering.active(chat_id)]
        if writing and choice is None:
            window.questions.ask_close(wanted, writing)
            return
        for chat_id in wanted:
            if choice == "stop" and chat_id in writing:
                window.answering.stop(chat_id)
            self._close(chat_id)

    def close_others(self, chat_id: str) -> None:
        """Close every tab but this one."""
        self.close([other for other in self._window.open_chats if other != chat_id])

    def reopen(self) -> None:
        """Bring back the tab that was closed last, where it stood."""
        window = self._window
        while self._closed:
            chat_id, place = self._closed.pop()
            if chat_id in window.book and window.tabs.index_of(chat_id) < 0:
                window.add_tabs([chat_id], place)
                window.open_chat(chat_id)
                return

    def _close(self, chat_id: str) -> None:
        window = self._window
        index = window.tabs.index_of(chat_id)
        if window.book[chat_id].empty and not window.book[chat_id].drafted:
            if window.tabs.count() == 1:
                return  # the last tab, and nothing in it
        else:
            self._closed.append((chat_id, index))
        window.pages.drop(chat_id)
        window.tabs.remove(index)
        if window.tabs.count() == 0:
            window.new_chat()
