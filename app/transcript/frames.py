"""Frames of a transcript's document: put in, taken out, and found by their height. Owns nothing.

Qt insists on a block before and behind every frame; these are made as good as nothing, and taken out with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

from PySide6.QtGui import QTextCursor, QTextFrame

from app.transcript.formats import Formats, Kind

Item = TypeVar("Item")


def insert_frame(cursor: QTextCursor, formats: Formats, kind: Kind, padding: float = 0, top: float = 0, bottom: float = 0) -> QTextFrame:
    """A frame at a thin block of the root frame; the thin block behind it is where the cursor ends."""
    cursor.setBlockFormat(formats.thin())
    cursor.setBlockCharFormat(formats.thin_char())
    frame = cursor.insertFrame(formats.frame(kind, padding=padding, top=top, bottom=bottom))
    cursor.setPosition(frame.lastPosition() + 1)
    cursor.setBlockFormat(formats.thin())
    cursor.setBlockCharFormat(formats.thin_char())
    return frame


def remove_frame(frame: QTextFrame) -> None:
    """Take a frame out, from the thin block before it to the one behind it, of which one stays."""
    cursor = frame.firstCursorPosition()
    cursor.setPosition(frame.firstPosition() - 1)
    cursor.setPosition(frame.lastPosition() + 1, QTextCursor.MoveMode.KeepAnchor)
    cursor.removeSelectedText()


def first_reaching(items: Sequence[Item], height: float, bottom: Callable[[Item], float]) -> int:
    """Of items that lie one below the other: the place of the first that reaches down to `height`, by halving."""
    return bisect_left(items, height, key=bottom)
