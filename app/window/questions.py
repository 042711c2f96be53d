"""What the window asks before something ends, and what it offers to take back: one bar, one question at a time.

Owns what the question is about (the tab to close, the chats that were deleted, whether the program may end). Asks each thing once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.chats.model import Chat

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

COMMIT_S = 1.0  # what the disk may take for the last words before the window asks


class Questions(QObject):
    """Attributes:
    in_memory: chats are kept in memory only, and end with the window.
    """

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._tab: str | None = None
        self._deleted: list[Chat] = []
        self._quitting = False
        self._finishing = False  # hidden, until the last answer is written
        self.in_memory = False
        window.bar.chosen.connect(self._on_answer)

    # ------------------------------------------------------------------------------------------------------- methods

    def ask_close(self, chat_id: str) -> None:
        """A tab whose answer is being written is to be closed."""
        self._tab = chat_id
        words = self.tr("“{0}” is still being answered.").format(self._window.book[chat_id].display_title)
        keep, stop, cancel = self.tr("Close, keep writing"), self.tr("Stop and close"), self.tr("Cancel")
        self._window.bar.ask(words, (("keep", keep, "primary"), ("stop", stop, "danger"), ("cancel", cancel, "quiet")))

    def offer_undo(self, deleted: list[Chat]) -> None:
        """Chats were deleted."""
        self._tab, self._deleted = None, deleted
        title = deleted[0].display_title
        words = (
            self.tr("“{0}” was deleted.").format(title) if len(deleted) == 1 else self.tr("{0} chats were deleted.").format(len(deleted))
        )
        self._window.bar.ask(words, (("undo", self.tr("Undo"), "primary"), ("dismiss", self.tr("Dismiss"), "quiet")))

    def may_end(self) -> bool:
        """Whether the program may end. Asks, once, where an answer is being written or something would be lost; closing again means it."""
        reasons = [] if self._quitting else [words for words in (self._writing(), self._unsaved()) if words]
        self._quitting = True
        if not reasons:
            return True
        answers = [("quit", self.tr("Quit all the same"), "danger"), ("stay", self.tr("Stay"), "quiet")]
        if len(reasons) == 1 and self._window.answering.active_chats:
            answers[0] = ("quit", self.tr("Stop and quit"), "danger")
            answers.insert(0, ("finish", self.tr("Quit when they are written"), "primary"))
        self._window.bar.ask(" ".join(reasons), answers)
        return False

    def note_end(self) -> None:
        """An answer has ended: the program ends with the last one, if that is what was chosen."""
        if self._finishing and not self._window.answering.active_chats:
            self.stay()
            if not self._window.close():  # something is not saved: that is asked where it can be seen
                self._window.show()

    def stay(self) -> None:
        """The window is wanted again."""
        self._quitting = self._finishing = False

    def end(self) -> None:
        """The program ends, whatever anybody says."""
        self._quitting = True

    # ------------------------------------------------------------------------------------------------------- private

    def _writing(self) -> str:
        count = len(self._window.answering.active_chats)
        if count == 1:
            return self.tr("1 answer is still being written. What is there stays.")
        return self.tr("{0} answers are still being written. What is there stays.").format(count) if count else ""

    def _unsaved(self) -> str:
        book = self._window.book
        if self.in_memory and book.listed():
            return self.tr("These chats are kept in memory only: they are lost when the window closes. Export those that matter.")
        if not book.commit(COMMIT_S):
            return self.tr(
                "The last messages could not be saved yet: they are lost if the window closes now. Free some space, or export them."
            )
        return ""

    @Slot(str)
    def _on_answer(self, key: str) -> None:
        window = self._window
        match key:
            case "keep" | "stop" if self._tab is not None:
                window.close_tab(window.tabs.index_of(self._tab), key)
            case "undo" if self._deleted:
                for chat in self._deleted:
                    window.book.restore(chat)
                window.sidebar.refresh()
                window.open_chat(self._deleted[0].id)
            case "quit":
                window.close()
            case "finish":
                self._finishing = True
                window.hide()
                self.note_end()
            case "stay":
                self.stay()
        self._tab, self._deleted = None, []
