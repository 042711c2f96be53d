"""The colours of long code, put in a little at a time: finding them takes longer than a frame, and code can be read without.

Owns the code that waits for its colours, and the timer that goes on with it. Changes formats alone, never a letter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QTextCharFormat, QTextCursor

from app.chats.words import utf16_length
from app.transcript.highlight import runs_of

LONG_CODE = 3_000  # characters; shorter code has its colours at once, in some ten milliseconds
SLICE_S = 0.004  # of a frame of 16 ms
PAUSE_MS = 12


@dataclass(slots=True)
class _Code:
    """`span` selects it in its document, and no longer does once it was taken out."""

    span: QTextCursor
    length: int
    runs: Iterator[tuple[str, str]]
    format_of: Callable[[str], QTextCharFormat]
    at: int = 0


class Colouring(QObject):
    """Code that was written plain is handed over with `later`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting: list[_Code] = []
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PAUSE_MS)
        self._timer.timeout.connect(self._go_on)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def later(self, span: QTextCursor, code: str, language: str, format_of: Callable[[str], QTextCharFormat]) -> None:
        """Colour what this cursor selects, which is `code`."""
        span.setKeepPositionOnInsert(True)
        self._waiting.append(_Code(span, utf16_length(code), iter(runs_of(code, language)), format_of))
        self._timer.start()

    def forget(self) -> None:
        """The document is written anew."""
        self._waiting.clear()
        self._timer.stop()

    @Slot()
    def _go_on(self) -> None:
        until = time.perf_counter() + SLICE_S
        code = self._waiting[0]
        start = code.span.selectionStart()
        if code.span.selectionEnd() - start != code.length or not self._colour(code, start, until):
            del self._waiting[0]
        if self._waiting:
            self._timer.start()

    @staticmethod
    def _colour(code: _Code, start: int, until: float) -> bool:
        """A few runs more. Returns whether some are left."""
        cursor = QTextCursor(code.span.document())
        cursor.beginEditBlock()
        try:
            for text, style in code.runs:
                end = code.at + utf16_length(text)
                if style:
                    cursor.setPosition(start + code.at)
                    cursor.setPosition(start + end, QTextCursor.MoveMode.KeepAnchor)
                    cursor.setCharFormat(code.format_of(style))
                code.at = end
                if time.perf_counter() > until:
                    return True
            return False
        finally:
            cursor.endEditBlock()
