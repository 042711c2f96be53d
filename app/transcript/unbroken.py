"""Very long stretches without a place to break a line: base64, minified JSON, a model that says one letter for ever.

For each line Qt looks for the end of the word it begins with, so that a stretch costs the square of its length: 400,000 letters held the
window for most of a minute. Places to break at, which are no part of what was said and are not copied, make it as cheap as words.
"""

from __future__ import annotations

import re

from PySide6.QtGui import QTextCharFormat, QTextCursor

from app.transcript.copying import CHROME

MOST = 1000  # characters, all of them signs of ASCII; other letters may need their neighbours
BREAK = "\u200b"  # a space without width
_STRETCH = re.compile(f"[!-~]{{{MOST}}}(?=[!-~])")


def is_unbroken(text: str) -> bool:
    """Whether a text has such a stretch."""
    return _STRETCH.search(text) is not None


def insert_words(cursor: QTextCursor, text: str, words: QTextCharFormat) -> None:
    """Insert text, with places to break at where it has none for long."""
    start = 0
    for stretch in _STRETCH.finditer(text):
        cursor.insertText(text[start : stretch.end()], words)
        ours = QTextCharFormat(words)
        ours.setProperty(CHROME, True)
        cursor.insertText(BREAK, ours)
        start = stretch.end()
    cursor.insertText(text[start:], words)
