"""The reasoning before an answer: a line that says how long it took, and the words behind it when the person unfolds them.

Owns a frame above the answer's body. The words are plain text, dim; they only grow.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QTextCharFormat, QTextCursor, QTextFrame

from app.transcript.copying import CHROME
from app.transcript.formats import Formats, Kind
from app.transcript.frames import insert_frame, remove_frame
from app.transcript.plain import GrowingText
from app.transcript.unbroken import insert_words
from app.transcript.wording import seconds

translate = QCoreApplication.translate


class ThoughtFrame:
    """Begins folded and empty."""

    def __init__(self, body: QTextFrame, message_id: str, formats: Formats) -> None:
        self._formats = formats
        self._message_id = message_id
        self._text = ""
        self._shown = 0  # how many characters of it stand in the document
        self._lines: GrowingText | None = None  # where more of them are written
        self._head = ""
        self._open = False
        cursor = body.firstCursorPosition()
        cursor.setPosition(body.firstPosition() - 1)
        self.frame = insert_frame(cursor, formats, Kind.PLAIN, top=2, bottom=6)

    @property
    def text(self) -> str:
        return self._text

    def append(self, text: str) -> bool:
        """Take more of it in. False for nothing."""
        self._text += text
        return bool(text)

    def show(self, unfolded: bool, duration: float | None, thinking: bool) -> None:
        """Bring the document up to what is known."""
        head = ("\u25be  " if unfolded else "\u25b8  ") + _head_words(duration, thinking)
        if head == self._head and unfolded == self._open:
            if self._lines is not None and self._shown < len(self._text):
                self._lines.append(self._text[self._shown :])
                self._shown = len(self._text)
            return
        self._head, self._open = head, unfolded
        edit = self.frame.firstCursorPosition()
        edit.beginEditBlock()
        edit.setPosition(self.frame.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        edit.removeSelectedText()
        block = self._formats.cell("left")
        edit.setBlockFormat(block)
        action = self._formats.action(f"thought:{self._message_id}:")
        action.setProperty(CHROME, True)
        edit.insertText(head, action)
        self._shown, self._lines = 0, None
        if unfolded:
            words = self._formats.paragraph(tight=True)
            words.setLeftMargin(18)
            words.setTopMargin(4)
            edit.insertBlock(words, self._words())
            self._shown = len(self._text)
            if thinking:
                self._lines = GrowingText(self.frame, self._formats, words, self._words(), Kind.PLAIN)
                self._lines.append(self._text)
            else:
                insert_words(edit, self._text, self._words())
        edit.endEditBlock()

    def remove(self) -> None:
        """Take the frame out of the document, one thin block before it included."""
        remove_frame(self.frame)

    def _words(self) -> QTextCharFormat:
        words = self._formats.body()
        words.setForeground(self._formats.small().foreground())
        return words


def _head_words(duration: float | None, thinking: bool) -> str:
    if thinking:
        return translate("Thought", "Thinking\u2026")
    return translate("Thought", "Thought for {0}").format(seconds(duration)) if duration is not None else translate("Thought", "Thoughts")
