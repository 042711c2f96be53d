"""What the window asks before something ends, and what it offers to take back: one bar, one question at a time.

Owns what the question is about (the tabs to close, whether the program may end). Asks each thing once; what can be taken back is offered
again when a question that came in between is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

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
        self._tabs: tuple[str, ...] = ()
        self._unsaved_words = ""  # of the question whether to quit
        self._ending = False
        self._finishing = False  # hidden, until the last answer is written
        self.in_memory = False
        window.bar.chosen.connect(self._on_answer)

    # ------------------------------------------------------------------------------------------------------- methods

    def ask_close(self, chat_ids: Sequence[str], writing: Sequence[str]) -> None:
        """Tabs are to be closed, in some of which an answer is being written."""
        self._tabs = tuple(chat_ids)
        words = self._answered_still(writing)
        keep, stop, cancel = self.tr("Close, keep writing"), self.tr("Stop and close"), self.tr("Cancel")
        self._window.bar.ask(words, (("keep", keep, "primary"), ("stop", stop, "danger"), ("cancel", cancel, "quiet")))

    def offer_undo(self, words: str) -> None:
        """Something was deleted that can be taken back."""
        self._window.bar.ask(words, (("undo", self.tr("Undo"), "primary"), ("forget", self.tr("Dismiss"), "quiet")))

    def may_end(self) -> bool:
        """Whether the program may end. Asks, once, where an answer is being written or something would be lost; closing again means it."""
        if self._ending or self._on_show("quit"):
            return True
        self._unsaved_words = self._unsaved()
        reasons = [words for words in (self._writing(), self._unsaved_words) if words]
        if not reasons:
            return True
        answers = [("quit", self.tr("Quit all the same"), "danger"), ("stay", self.tr("Stay"), "quiet")]
        if len(reasons) == 1 and self._window.answering.active_chats:
            answers[0] = ("quit", self.tr("Stop and quit"), "danger")
            answers.insert(0, ("finish", self.tr("Quit when they are written"), "primary"))
        self._window.bar.ask(" ".join(reasons), answers)
        return False

    def escape(self) -> bool:
        """Leave things as they are, where something is asked. False where nothing is."""
        way = next((key for key in ("cancel", "stay") if self._on_show(key)), None)
        if way is not None:
            self._window.bar.choose(way)
        return way is not None

    def note_end(self) -> None:
        """An answer has ended: a question about it is brought up to that, and the program ends with the last one, if that was chosen."""
        self._bring_up()
        if self._finishing and not self._window.answering.active_chats:
            self.stay()
            if not self._window.close():  # something is not saved: that is asked where it can be seen
                self._window.show()

    def stay(self) -> None:
        """The window is wanted again."""
        self._ending = self._finishing = False

    def end(self) -> None:
        """The program ends, whatever anybody says."""
        self._ending = True

    # ------------------------------------------------------------------------------------------------------- private

    def _on_show(self, key: str) -> bool:
        return not self._window.bar.isHidden() and key in self._window.bar.keys

    def _bring_up(self) -> None:
        """What is asked is still so, or is not asked any more."""
        bar = self._window.bar
        if self._on_show("keep"):
            writing = [chat_id for chat_id in self._tabs if self._window.answering.active(chat_id)]
            bar.reword(self._answered_still(writing)) if writing else bar.choose("cancel")
        elif self._on_show("quit"):
            words = " ".join(words for words in (self._writing(), self._unsaved_words) if words)
            bar.reword(words) if words else bar.choose("stay")

    def _answered_still(self, writing: Sequence[str]) -> str:
        if len(writing) > 1:
            return self.tr("{0} of these chats are still being answered.").format(len(writing))
        return self.tr("“{0}” is still being answered.").format(self._window.book[writing[0]].display_title)

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
        tabs, self._tabs = self._tabs, ()
        match key:
            case "keep" | "stop":
                window.open_tabs.close(tabs, key)
            case "undo":
                window.chats.undo()
            case "forget":
                window.chats.forget()
            case "quit":
                self._ending = True
                window.close()
            case "finish":
                self._finishing = True
                window.hide()
                self.note_end()
            case "stay":
                self.stay()
        if window.bar.isHidden() and not self._ending and not self._finishing:
            window.chats.offer_undo()
