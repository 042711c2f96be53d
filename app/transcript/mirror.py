"""The part of a chat that stands in a document: a stretch of its messages, long enough to read in, short enough to lay out.

Owns the entries and their order. Long chats are never written whole: what is far from the reader is taken out again. Scrolling is the
view's; every call that changes what lies above the reader says so in its description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtGui import QTextCursor, QTextDocument

from app.chats.model import Chat, ChatMessage, Role
from app.transcript.colouring import Colouring
from app.transcript.entries import AnswerEntry, UserEntry
from app.transcript.formats import Formats
from app.transcript.frames import remove_frame
from app.transcript.writer import MarkdownWriter

FIRST_BUILT = 60  # messages written when a chat is opened; others follow when the reader comes near an end
MORE_AT_ONCE = 20
MOST_BUILT = 200  # about 40 ms of layout when the window changes its width

Entry = UserEntry | AnswerEntry


class Mirror:
    """Messages `first` to `last` (exclusive) of a chat's path, written into a document.

    While `keep` is set (something is selected) nothing that is far from the reader is taken out.

    `column` tells the width that a bubble may fill. The document is asked for each time: PySide takes its wrapper for gone with that of
    any object through which it was ever reached.
    """

    def __init__(self, document: Callable[[], QTextDocument], formats: Formats, column: Callable[[], float], colouring: Colouring) -> None:
        self.entries: list[Entry] = []
        self.first = 0
        self.chat: Chat | None = None
        self.keep = False
        self._document = document
        self._formats = formats
        self._colouring = colouring
        self._writer = MarkdownWriter(formats, colouring)
        self._column = column
        self._reaches_end = True

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def last(self) -> int:
        return self.first + len(self.entries)

    @property
    def at_end(self) -> bool:
        """Whether the chat's last message is among what is written, so that what is new is written, too."""
        return self._reaches_end

    # ------------------------------------------------------------------------------------------------------- methods

    def set_formats(self, formats: Formats) -> None:
        """Other colours; hold until the next `open`."""
        self._formats = formats
        self._writer = MarkdownWriter(formats, self._colouring)

    def forget(self) -> None:
        """Let go of the entries: the document is about to be emptied, and their frames with it."""
        self.entries = []
        self._colouring.forget()

    def open(self, chat: Chat | None, around: int | None = None) -> None:
        """Write the end of a chat, or the messages around a place in it. The document is empty when this is called."""
        self.chat, self.entries = chat, []
        messages = chat.messages if chat else []
        last = len(messages) if around is None else min(len(messages), around + FIRST_BUILT // 2)
        self.first = max(0, last - FIRST_BUILT)
        self._reaches_end = last == len(messages)
        self._append(messages[self.first : last])

    def sync(self) -> bool:
        """Bring entries and messages to the same order. Returns whether entries came or went; text is not looked at."""
        if self.chat is None:
            return False
        messages = self.chat.messages
        wanted = messages[self.first :] if self._reaches_end else messages[self.first : self.last]
        same = 0
        while same < len(self.entries) and same < len(wanted) and self.entries[same].message is wanted[same]:
            same += 1
        if same == len(self.entries) == len(wanted):
            return False
        for entry in reversed(self.entries[same:]):
            self._remove(entry)
        if same < len(wanted):
            self._append(wanted[same:])
        self._reaches_end = self.last >= len(messages)
        self._mark_last(0)
        return True

    def write_older(self) -> bool:
        """Write some messages above the first; False where there are none. What is far below goes."""
        if self.chat is None or self.first == 0:
            return False
        start = max(0, self.first - MORE_AT_ONCE)
        cursor = QTextCursor(self._document())
        cursor.beginEditBlock()
        written: list[Entry] = []
        for message in self.chat.messages[start : self.first]:
            cursor.setPosition(written[-1].frames[-1].lastPosition() + 1 if written else 0)
            written.append(self._write(cursor, message))
        cursor.endEditBlock()
        self.entries[:0] = written
        self.first = start
        while len(self.entries) > MOST_BUILT and not self.keep:
            self._remove(self.entries[-1])
            self._reaches_end = False
        return True

    def write_newer(self) -> bool:
        """Write some messages below the last; False where there are none."""
        if self.chat is None or self._reaches_end:
            return False
        messages = self.chat.messages
        self._append(messages[self.last : self.last + MORE_AT_ONCE])
        self._reaches_end = self.last >= len(messages)
        return True

    def drop_oldest(self) -> bool:
        """Take out what is far above, once there is too much; what lies above the reader shrinks."""
        if len(self.entries) <= MOST_BUILT or self.keep:
            return False
        for entry in self.entries[: len(self.entries) - MOST_BUILT]:
            self._remove(entry)
            self.first += 1
        return True

    def fit(self) -> None:
        """The column has another width."""
        for entry in self.entries:
            if isinstance(entry, UserEntry):
                entry.fit(self._column())

    def entry_of(self, message_id: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.message.id == message_id), None)

    # ------------------------------------------------------------------------------------------------------- private

    def _append(self, messages: Sequence[ChatMessage]) -> None:
        cursor = QTextCursor(self._document())
        cursor.beginEditBlock()
        for message in messages:
            cursor.movePosition(QTextCursor.MoveOperation.End)
            self.entries.append(self._write(cursor, message))
        cursor.endEditBlock()
        self._mark_last(len(messages))

    def _write(self, cursor: QTextCursor, message: ChatMessage) -> Entry:
        if message.role is Role.USER:
            bubble = UserEntry(cursor, message, self._formats)
            bubble.fit(self._column())
            return bubble
        last = self.chat is not None and message is self.chat.last
        answer = AnswerEntry(cursor, message, self._formats, self._writer, last)
        answer.sync()
        return answer

    def _mark_last(self, new: int) -> None:
        """Tell the answer before the `new` last entries, and the last one, which of them is the chat's last message."""
        for entry in self.entries[-new - 1 :]:
            if isinstance(entry, AnswerEntry):
                entry.set_last(self.chat is not None and entry.message is self.chat.last)

    def _remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        for frame in reversed(entry.frames):
            remove_frame(frame)
