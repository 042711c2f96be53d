"""Where a selection that is made by keyboard reaches to: the key's step through what was said, over the borders of frames.

Qt's own steps would take whole messages, and stop at headers and figures of ours; these go through words alone. Reads the view, changes
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint
from PySide6.QtGui import QKeyEvent, QKeySequence, QTextCursor

from app.transcript.copying import said_in

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView

Key, Move = QKeySequence.StandardKey, QTextCursor.MoveOperation
STEPS = (
    (Key.SelectNextChar, Move.NextCharacter),
    (Key.SelectPreviousChar, Move.PreviousCharacter),
    (Key.SelectNextWord, Move.NextWord),
    (Key.SelectPreviousWord, Move.PreviousWord),
    (Key.SelectNextLine, Move.Down),
    (Key.SelectPreviousLine, Move.Up),
    (Key.SelectStartOfLine, Move.StartOfLine),
    (Key.SelectEndOfLine, Move.EndOfLine),
    (Key.SelectStartOfBlock, Move.PreviousBlock),
    (Key.SelectEndOfBlock, Move.NextBlock),
    (Key.SelectStartOfDocument, Move.Start),
    (Key.SelectEndOfDocument, Move.End),
)
PAGES = ((Key.SelectNextPage, 1), (Key.SelectPreviousPage, -1))


class Caret:
    """Remembers its column while it goes up and down."""

    def __init__(self, view: TranscriptView) -> None:
        self._view = view
        self._at = QTextCursor()

    def step(self, event: QKeyEvent, place: int) -> int | None:
        """Where this key takes a selection that reaches to a place; None for every other key."""
        for page, sign in PAGES:
            if event.matches(page):
                return self._page(place, sign)
        move = next((move for key, move in STEPS if event.matches(key)), None)
        if move is None:
            return None
        cursor = self._cursor(place)
        if move in (Move.StartOfLine, Move.EndOfLine):
            cursor.movePosition(move)
            return cursor.position()
        before = cursor.position()
        while cursor.movePosition(move) and not _among_words(cursor):
            if move in (Move.Start, Move.End):
                move = Move.PreviousCharacter if move is Move.End else Move.NextCharacter
        return cursor.position() if _among_words(cursor) else before

    def in_sight(self, place: int) -> int:
        """This place, if it is in view; else the first one that is."""
        cursor = QTextCursor(self._view.document())
        cursor.setPosition(place)
        rect = self._view.cursorRect(cursor)
        if 0 <= rect.center().y() <= self._view.viewport().height():
            return place
        top = self._view.cursorForPosition(QPoint(0, 0))
        while not _among_words(top) and top.movePosition(Move.NextCharacter):
            pass
        return top.position()

    def _page(self, place: int, sign: int) -> int:
        at = self._view.cursorRect(self._cursor(place)).center()
        return self._view.cursorForPosition(at + QPoint(0, sign * self._view.viewport().height())).position()

    def _cursor(self, place: int) -> QTextCursor:
        if self._at.isNull() or self._at.document() is not self._view.document() or self._at.position() != place:
            self._at = QTextCursor(self._view.document())
            self._at.setPosition(place)
        return self._at


def _among_words(cursor: QTextCursor) -> bool:
    return any(start <= cursor.position() <= end for start, end in said_in(cursor.block()))
