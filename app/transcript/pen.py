"""Where writing goes on in a transcript's document: a cursor, and what it is inside of.

A `Pen` knows whether the block it stands in is still unused; Qt insists on such a block after every frame. Owns no frame and no words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor, QTextFrame, QTextFrameFormat, QTextList, QTextTable

from app.transcript.formats import Formats


@dataclass(slots=True)
class ListLevel:
    """A list being written. Qt lays all of a list out anew for each item it gets, so it is written as several that count on."""

    ordered: bool
    start: int
    list: QTextList | None = None
    first_in_item: bool = False
    items: int = 0


@dataclass(slots=True)
class Pen:
    """Where writing goes on.

    Attributes:
        fresh: the current block is empty and may be used. any_block: something was written already.
        codes: the sources of the code blocks written so far; the n-th one's Copy button is the anchor `code_href` + n.
        lists, quotes: those it is inside of, outermost first. table, rows: the one it is inside of, and how many rows it has written.
    """

    cursor: QTextCursor
    formats: Formats
    code_href: str = "code:"
    fresh: bool = True
    any_block: bool = False
    codes: list[str] = field(default_factory=list)
    lists: list[ListLevel] = field(default_factory=list)
    quotes: list[QTextFrame] = field(default_factory=list)
    table: QTextTable | None = None
    rows: int = 0

    def for_tail(self, cursor: QTextCursor) -> Pen:
        """One that goes on as this one would, from a fresh block, for what may be taken out again; this one stays as it is."""
        lists = [replace(level) for level in self.lists]
        return replace(self, cursor=cursor, fresh=True, codes=list(self.codes), lists=lists, quotes=list(self.quotes))

    def block(self, block_format: QTextBlockFormat, char_format: QTextCharFormat) -> None:
        """Go to a block of our own."""
        if self.fresh:
            self.cursor.setBlockFormat(block_format)
            self.cursor.setBlockCharFormat(char_format)
            self.cursor.setCharFormat(char_format)
            self.fresh = False
        else:
            self.cursor.insertBlock(block_format, char_format)
        self.any_block = True

    def open_frame(self, frame_format: QTextFrameFormat) -> QTextFrame:
        """Insert a frame and stand in its first block."""
        if self.fresh:
            self.make_thin()
        else:
            self.cursor.insertBlock(self.formats.thin(), self.formats.thin_char())
        frame = self.cursor.insertFrame(frame_format)
        behind = QTextCursor(self.cursor)
        behind.setPosition(frame.lastPosition() + 1)
        self.make_thin(behind)
        self.fresh = True
        self.any_block = True
        return frame

    def close_frame(self, frame: QTextFrame) -> None:
        """Stand in the unused block behind a frame."""
        self.cursor.setPosition(frame.lastPosition() + 1)
        self.make_thin()
        self.fresh = True

    def open_again(self, frame: QTextFrame) -> QTextFrame:
        """Go on elsewhere in another frame like this one, which then ends without the gap behind it."""
        ended, again = frame.frameFormat(), frame.frameFormat()
        ended.setBottomMargin(0)
        frame.setFrameFormat(ended)
        again.setTopMargin(0)
        return self.open_frame(again)

    def make_thin(self, cursor: QTextCursor | None = None) -> None:
        """Make the block that it stands in, or this cursor, as good as nothing."""
        (cursor or self.cursor).setBlockFormat(self.formats.thin())
        (cursor or self.cursor).setBlockCharFormat(self.formats.thin_char())
