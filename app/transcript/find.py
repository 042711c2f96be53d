"""Finding words in a chat: every message is searched, wherever it is; what is found in the document is highlighted.

A hit is the n-th occurrence in a message's text. Going to one writes the messages around it first, if they are not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtGui import QColor, QTextCursor
from PySide6.QtWidgets import QTextEdit

from app.chats.words import Query, find_spans, utf16_length
from app.theme.color import mix
from app.transcript.mirror import Entry

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView

MOST_HIGHLIGHTS = 2000


@dataclass(frozen=True, slots=True)
class Hit:
    """The `number`-th occurrence, from 0, in the message at `place` of the chat's path."""

    place: int
    number: int


class Finder:
    """Searches one view's chat.

    Attributes:
        hits: all occurrences, first to last. at: the one gone to last, None before the first step.
    """

    def __init__(self, view: TranscriptView) -> None:
        self._view = view
        self._words = ""
        self.hits: list[Hit] = []
        self.at: int | None = None

    def search(self, words: str) -> None:
        """Look for other words; "" ends the search. Begins at the last message, where the reader usually is."""
        self._words = words
        self.at = None
        self.refresh()

    def refresh(self) -> None:
        """Search again: the chat may have changed."""
        wanted = self._words.casefold()
        messages = self._view.chat.messages if self._view.chat and wanted else []
        self.hits = [Hit(place, n) for place, message in enumerate(messages) for n in range(message.text.casefold().count(wanted))]
        if self.at is not None and self.at >= len(self.hits):
            self.at = None
        self._highlight()

    def step(self, by: int) -> Hit | None:
        """Go to the next hit (+1) or the one before (-1), around the ends. None where nothing is found."""
        self.refresh()
        if not self.hits:
            return None
        self.at = (len(self.hits) - 1 if by < 0 else self._first_in_view()) if self.at is None else (self.at + by) % len(self.hits)
        hit = self.hits[self.at]
        view = self._view
        assert view.chat is not None
        message_id = view.chat.messages[hit.place].id
        view.go_to(message_id)
        entry = view.entry_of(message_id)
        found = self._occurrences(entry) if entry else []
        if found:  # marks of Markdown may hide some occurrences from the document
            cursor = found[min(hit.number, len(found) - 1)]
            view.reading.show_cursor(cursor)
            self._highlight(cursor)
        return hit

    def show(self, message_id: str, words: str) -> None:
        """Go to a message, and where one of these words of a search stands in it; that is selected."""
        view = self._view
        view.go_to(message_id)
        entry = view.entry_of(message_id)
        query = Query.of(words)
        if entry is None or not query:
            return
        part = entry.part()
        block = view.document().findBlock(part.start)
        while block.isValid() and block.position() <= part.end:
            text = block.text()
            for begin, end in find_spans(text, query)[:1]:
                cursor = QTextCursor(block)
                start = block.position() + utf16_length(text[:begin])
                cursor.setPosition(start)
                cursor.setPosition(start + utf16_length(text[begin:end]), QTextCursor.MoveMode.KeepAnchor)
                view.setTextCursor(cursor)
                view.reading.show_cursor(cursor)
                return
            block = block.next()

    # ------------------------------------------------------------------------------------------------------- private

    def _first_in_view(self) -> int:
        """The first hit at or below the top of what the reader sees."""
        place = self._view.scroll_place()
        messages = self._view.chat.messages if self._view.chat else []
        top = next((i for i, message in enumerate(messages) if place and message.id == place.message_id), None)
        if top is None:
            return len(self.hits) - 1
        return next((i for i, hit in enumerate(self.hits) if hit.place >= top), 0)

    def _occurrences(self, entry: Entry) -> list[QTextCursor]:
        part = entry.part()
        found: list[QTextCursor] = []
        cursor = self._view.document().find(self._words, part.start - 1)
        while not cursor.isNull() and cursor.selectionEnd() <= part.end + 1:
            found.append(cursor)
            cursor = self._view.document().find(self._words, cursor)
        return found

    def _highlight(self, current: QTextCursor | None = None) -> None:
        theme = self._view.theme
        selections: list[QTextEdit.ExtraSelection] = []
        if self._words:
            cursor = self._view.document().find(self._words, 0)
            while not cursor.isNull() and len(selections) < MOST_HIGHLIGHTS:
                here = current is not None and cursor.selectionStart() == current.selectionStart()
                selections.append(_selection(cursor, mix(theme.accent, theme.window, 0.75 if here else 0.35)))
                cursor = self._view.document().find(self._words, cursor)
        self._view.set_marks("find", selections)


def _selection(cursor: QTextCursor, color: str) -> QTextEdit.ExtraSelection:
    selection = QTextEdit.ExtraSelection()
    selection.cursor = cursor  # type: ignore[attr-defined]
    selection.format.setBackground(QColor(color))  # type: ignore[attr-defined]
    return selection
