"""The pages of the chats that were shown once, and what their signals mean to the window. Made on first sight, dropped with their tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QStackedWidget

from app.chats.model import ScrollPlace
from app.theme import Theme
from app.window.page import ChatPage

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


class Pages:
    """Pages by chat id, in a stack that shows one of them."""

    def __init__(self, window: MainWindow, stack: QStackedWidget) -> None:
        self._window = window
        self._stack = stack
        self._pages: dict[str, ChatPage] = {}
        self._zoom = 1.0
        self._sends_with_ctrl = False

    def get(self, chat_id: str) -> ChatPage | None:
        """The page of a chat, None until it was shown once."""
        return self._pages.get(chat_id)

    def all(self) -> tuple[ChatPage, ...]:
        return tuple(self._pages.values())

    def show(self, chat_id: str, theme: Theme) -> ChatPage:
        """Bring a chat's page up to its chat and to the front."""
        page = self._pages.get(chat_id) or self._make(chat_id, theme)
        page.refresh(self._window.answering.active(chat_id))
        self._stack.setCurrentWidget(page)
        return page

    def set_zoom(self, zoom: float) -> None:
        self._zoom = zoom
        for page in self._pages.values():
            page.set_zoom(zoom)

    def set_sends_with_ctrl(self, wanted: bool) -> None:
        self._sends_with_ctrl = wanted
        for page in self._pages.values():
            page.composer.set_sends_with_ctrl(wanted)

    def drop(self, chat_id: str) -> None:
        page = self._pages.pop(chat_id, None)
        if page is not None:
            self._stack.removeWidget(page)
            page.composer.reader.close()
            page.deleteLater()

    # ------------------------------------------------------------------------------------------------------ private

    def _make(self, chat_id: str, theme: Theme) -> ChatPage:
        window = self._window
        page = ChatPage(window.book[chat_id], theme, self._stack)
        self._pages[chat_id] = page
        self._stack.addWidget(page)
        page.set_zoom(self._zoom)
        page.composer.set_sends_with_ctrl(self._sends_with_ctrl)
        page.view.zoom_asked.connect(window.preferences.zoom)
        page.sent.connect(lambda text, files: window.send(chat_id, text, files))
        page.stop_asked.connect(lambda: window.stop(chat_id))
        page.message_asked.connect(lambda name, message_id: window.messages.act(chat_id, name, message_id))
        page.edited.connect(lambda message_id, text, files: window.messages.edit(chat_id, message_id, text, files))
        page.undo_asked.connect(lambda: window.messages.undo(chat_id))
        page.draft_changed.connect(lambda text: window.book.set_draft(chat_id, text))
        page.files_changed.connect(lambda files: window.book.set_draft_files(chat_id, files))
        page.follow_up_removed.connect(lambda place: self._take_follow_up(chat_id, place, edit=False))
        page.follow_up_edited.connect(lambda place: self._take_follow_up(chat_id, place, edit=True))
        page.left.connect(lambda place: self._keep_place(chat_id, place))
        page.copied.connect(lambda text: QGuiApplication.clipboard().setText(text))
        return page

    def _keep_place(self, chat_id: str, place: ScrollPlace | None) -> None:
        if chat_id in self._window.book:
            self._window.book.set_scroll(chat_id, place)

    def _take_follow_up(self, chat_id: str, place: int, edit: bool) -> None:
        said = self._window.book.take_follow_up(chat_id, place)
        page = self._pages[chat_id]
        if edit:
            page.composer.take_back(said)
        page.refresh(self._window.answering.active(chat_id))
