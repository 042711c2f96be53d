"""Plain text that grows at the end of a frame: code that is still being written, reasoning that goes on.

Qt lays all of a line out anew for each character it gets, and goes through all lines of a frame. So the text stands in frames of a few
lines each, and of a line that is very long each part is one of its own. Owns no text, and none of the frames.
"""

from __future__ import annotations

import re

from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextFrame

from app.transcript.formats import Formats, Kind
from app.transcript.frames import insert_frame

MOST_LINES = 24  # of one frame
MOST_CHARACTERS = 1500  # of one line; a frame that has more of them in all takes no other line


class GrowingText:
    """Writes behind what `frame` has, whose last block is empty and formatted by now. The first lines stand in that frame itself."""

    def __init__(self, frame: QTextFrame, formats: Formats, line: QTextBlockFormat, words: QTextCharFormat, kind: Kind) -> None:
        self._frame = self._part = frame
        self._formats = formats
        self._line = line
        self._words = words
        self._kind = kind  # of the frames inside
        self._lines = 1
        self._characters = 0  # of the present frame
        self._in_line = 0  # of these, in its last line

    def append(self, text: str) -> None:
        """More of it. Where it is cut does not depend on the pieces in which it comes."""
        for line in re.findall(r"[^\n]+|\n", text):
            if line == "\n":
                self._new_line()
                continue
            while line:
                if self._in_line >= MOST_CHARACTERS:
                    self._new_part()
                piece, line = line[: MOST_CHARACTERS - self._in_line], line[MOST_CHARACTERS - self._in_line :]
                self._part.lastCursorPosition().insertText(piece, self._words)
                self._in_line += len(piece)
                self._characters += len(piece)

    def _new_line(self) -> None:
        if self._lines >= MOST_LINES or self._characters >= MOST_CHARACTERS:
            self._new_part()
            return
        self._part.lastCursorPosition().insertBlock(self._line, self._words)
        self._lines += 1
        self._in_line = 0

    def _new_part(self) -> None:
        cursor = self._frame.lastCursorPosition()
        if self._part is self._frame:
            cursor.insertBlock(self._formats.thin(), self._formats.thin_char())
        self._part = insert_frame(cursor, self._formats, self._kind)
        start = self._part.firstCursorPosition()
        start.setBlockFormat(self._line)
        start.setBlockCharFormat(self._words)
        self._lines, self._characters, self._in_line = 1, 0, 0
