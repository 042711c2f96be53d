"""What the actions on one message do: to the book, to the engine, and to what is in view.

Owns what was deleted and can still be taken back. Knows messages by id, so a click that comes late finds nothing and does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QGuiApplication

from app.chats.model import Attachment, ChatMessage, Role, Said
from app.chats.tree import Removed
from app.transcript.markdown import make_parser
from engine import split_reasoning

translate = QCoreApplication.translate

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


class MessageActions:
    """Actions on the messages of a window's chats."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._removed: dict[str, list[Removed]] = {}  # by chat, the last one last

    def act(self, chat_id: str, name: str, message_id: str) -> None:
        """Do what a button of `ActionBar` says. "copy" and "edit" are the page's own."""
        window = self._window
        message = window.book[chat_id].tree.get(message_id) if chat_id in window.book else None
        if message is None:
            return
        match name:
            case "retry":
                window.retry(chat_id, message)
            case "continue":
                window.go_on(chat_id)
            case "older" | "newer":
                self.show_version(chat_id, message, -1 if name == "older" else 1)
            case "branch":
                window.open_chat(window.book.branch(chat_id, message).id)
                window.sidebar.refresh()
            case "delete":
                self.delete(chat_id, message)

    def edit(self, chat_id: str, message_id: str, text: str, files: tuple[Attachment, ...]) -> None:
        """Another version of a message; a question is asked anew."""
        window = self._window
        message = window.book[chat_id].tree.get(message_id)
        page = window.page(chat_id)
        if message is None and page is not None:
            page.composer.take_back(Said(text, files))  # it was deleted meanwhile: the new words stay, as a draft
        elif message is not None and (text, files) != (message.text, message.attachments):
            asked = window.answering.edit(chat_id, message, text, files)
            window.after_change(chat_id, to_end=asked)
            window.monitor.wake()

    def show_version(self, chat_id: str, message: ChatMessage, step: int) -> None:
        """Show the version beside this one, where there is one; the reader stays at its place."""
        window = self._window
        shown = window.book.show_version(chat_id, message, step)
        if shown is None:
            return
        window.after_change(chat_id)
        if page := window.page(chat_id):
            page.view.go_to(shown.id)

    def step_version(self, chat_id: str, step: int) -> None:
        """The same for the message that keys are about."""
        page = self._window.page(chat_id)
        message = page.view.bars.current() if page else None
        if message is not None:
            self.show_version(chat_id, message, step)

    def delete(self, chat_id: str, message: ChatMessage) -> None:
        """Delete a message; its page offers to take that back."""
        window = self._window
        tree = window.book[chat_id].tree
        if any(node.running for node in tree.below(message)):
            window.answering.stop(chat_id)
        removed = window.book.delete_message(chat_id, message)
        self._removed.setdefault(chat_id, []).append(removed)
        window.after_change(chat_id)
        self._offer_undo(chat_id)

    def undo(self, chat_id: str) -> None:
        """Take the last deletion in a chat back; the one before it can be taken back next."""
        if self._removed.get(chat_id) and chat_id in self._window.book:
            self._window.book.restore_message(chat_id, self._removed[chat_id].pop())
            self._window.after_change(chat_id)
            self._offer_undo(chat_id)

    def copy_last_code(self) -> None:
        """Put the last code block of the chat in view on the clipboard."""
        chat_id = self._window.current_chat
        if chat_id is None:
            return
        for message in reversed(self._window.book[chat_id].messages):
            codes = [token.content for token in make_parser().parse(message.text) if token.type in ("fence", "code_block")]
            if message.role is Role.ASSISTANT and codes:
                QGuiApplication.clipboard().setText(codes[-1])
                return

    def copy_last_answer(self) -> None:
        """Put the last answer of the chat in view on the clipboard, without its reasoning."""
        messages = self._window.book[self._window.current_chat].messages if self._window.current_chat else []
        answer = next((message for message in reversed(messages) if message.role is Role.ASSISTANT and message.text), None)
        if answer is not None:
            QGuiApplication.clipboard().setText(split_reasoning(answer.text)[1])

    # ------------------------------------------------------------------------------------------------------- private

    def _offer_undo(self, chat_id: str) -> None:
        removed = self._removed.get(chat_id)
        page = self._window.page(chat_id)
        if not removed or page is None:
            return
        more = len(removed[-1].messages) - 1
        what = translate("MessageActions", "The message was deleted.")
        if more == 1:
            what = translate("MessageActions", "This version and 1 message after it were deleted.")
        elif more:
            what = translate("MessageActions", "This version and {0} messages after it were deleted.").format(more)
        page.offer_undo(what)
