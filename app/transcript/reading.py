"""Where the reader of a transcript stands: at its end, which is followed as text arrives, or at a place that holds still meanwhile.

Owns the scroll bar's value, and has messages written that come near. It tells scrolling by the reader from that by the document; only
the former changes where the reader stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QTextCursor

from app.chats.model import ScrollPlace
from app.transcript.down_button import DownButton
from app.transcript.mirror import Entry, Mirror

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView

FOLLOW_PIXELS = 10


class Reading(QObject):
    """Attributes:
    follow: the view stays at the bottom as text arrives.
    document_moves: the scroll bar moves because what is written changes, not by the reader.
    """

    def __init__(self, view: TranscriptView, mirror: Mirror, down: DownButton) -> None:
        super().__init__(view)
        self._view = view
        self._mirror = mirror
        self._down = down
        self.follow = True
        self.document_moves = False
        self._resizing = False  # so does the view
        self._place: ScrollPlace | None = None  # where the reader stands, while not following
        bar = view.verticalScrollBar()
        bar.rangeChanged.connect(self._on_range)
        bar.valueChanged.connect(self._on_scrolled)

    # ------------------------------------------------------------------------------------------------------- methods

    def standing(self) -> ScrollPlace | None:
        """The message at the top, and how far into it; None at the end, where the view follows."""
        if self.follow:
            return None
        for entry in self._view.entries:
            rect = self._view.entry_rect(entry)
            if rect.bottom() > 0:
                return ScrollPlace(entry.message.id, round(-rect.top()))
        return None

    def to_end(self) -> None:
        """Scroll to the end of what is written."""
        bar = self._view.verticalScrollBar()
        bar.setValue(bar.maximum())

    def stand_at_end(self) -> None:
        """The end of the chat is written, and shown."""
        self._place = None
        self.to_end()

    def open_at(self, place: ScrollPlace) -> None:
        """What is around a place is written, and shown."""
        self.follow, self._place = False, place
        with self.moving():
            self.go_to(place.message_id, place.offset)

    def go_to(self, message_id: str, offset: int | None) -> None:
        """See `TranscriptView.go_to`; for a message that is written."""
        entry = self._view.entry_of(message_id)
        if entry is None:
            return
        if offset is None:
            self.show_entry(entry)
        else:
            bar = self._view.verticalScrollBar()
            bar.setValue(round(bar.value() + self._view.entry_rect(entry).top() + offset))
        self._note()

    def show_cursor(self, cursor: QTextCursor) -> None:
        """Scroll to a place in the document, a third down the view, if it is not in sight."""
        rect = self._view.cursorRect(cursor)
        height = self._view.viewport().height()
        if rect.top() < 0 or rect.bottom() > height:
            bar = self._view.verticalScrollBar()
            bar.setValue(bar.value() + rect.top() - height // 3)

    def reveal(self, cursor: QTextCursor) -> None:
        """Scroll as little as is needed to see a place in the document."""
        rect, bar = self._view.cursorRect(cursor), self._view.verticalScrollBar()
        bar.setValue(bar.value() + min(0, rect.top()) + max(0, rect.bottom() - self._view.viewport().height()))

    def show_entry(self, entry: Entry) -> None:
        """Scroll as little as is needed to see this entry, its beginning first."""
        rect = self._view.entry_rect(entry)
        bar, height = self._view.verticalScrollBar(), self._view.viewport().height()
        if rect.top() < 0 or rect.height() > height:
            bar.setValue(round(bar.value() + rect.top()) - 12)
        elif rect.bottom() > height:
            bar.setValue(round(bar.value() + rect.bottom() - height) + 12)

    def place_button(self) -> None:
        """Show the button to the end, where it is far."""
        bar = self._view.verticalScrollBar()
        self._down.place(bar.maximum() - bar.value(), self._view.viewport())

    @contextmanager
    def moving(self) -> Iterator[None]:
        """While the document is written anew, or one stands elsewhere in it."""
        self.document_moves = True
        try:
            yield
        finally:
            self.document_moves = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While the view changes its size: then the reader stands where he stood."""
        self._resizing = True
        try:
            yield
            if self.follow:
                self.to_end()
            elif self._place is not None:
                self._view.go_to(self._place.message_id, self._place.offset)
        finally:
            self._resizing = False

    # ------------------------------------------------------------------------------------------------------- private

    def _note(self) -> None:
        """Note where the reader stands, if it was by reading that he came there."""
        if not self.document_moves and not self._resizing:
            self._place = self.standing()

    @Slot(int, int)
    def _on_range(self, least: int, most: int) -> None:
        if self.follow:
            self._view.verticalScrollBar().setValue(most)
        self.place_button()

    @Slot(int)
    def _on_scrolled(self, value: int) -> None:
        bar = self._view.verticalScrollBar()
        if not self._resizing:
            self.follow = value >= bar.maximum() - FOLLOW_PIXELS and self._mirror.at_end
        self.place_button()
        self._note()
        near = self._view.viewport().height() // 2
        if bar.maximum() > 0 and value < near and self._mirror.first > 0:
            QTimer.singleShot(0, self._write_older)
        elif value > bar.maximum() - near and not self._mirror.at_end:
            QTimer.singleShot(0, self._write_newer)

    @Slot()
    def _write_older(self) -> None:
        """Write messages above, without moving what the reader sees."""
        self._hold(self._mirror.write_older)

    @Slot()
    def _write_newer(self) -> None:
        """Write messages below, and take out what is far above."""
        self._hold(lambda: self._mirror.write_newer() and (self._mirror.drop_oldest() or True))

    def _hold(self, change: Callable[[], bool]) -> None:
        """Change the document around what the reader sees, and put that back where it was."""
        place = self.standing()
        with self.moving():
            changed = change()
            if changed and place is not None and (entry := self._view.entry_of(place.message_id)) is not None:
                bar = self._view.verticalScrollBar()
                bar.setValue(round(bar.value() + self._view.entry_rect(entry).top() + place.offset))
        if changed:
            self._view.bars.refresh()
            self._view.selection.note_written()
