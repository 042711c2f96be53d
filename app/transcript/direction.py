"""Which way a paragraph reads. Qt goes by its first letter alone, and an answer in Arabic may well begin with `pip`.

Pure text; knows nothing of documents. Words count, each by its first strong letter (Unicode's bidirectional classes).
"""

from __future__ import annotations

import unicodedata

from PySide6.QtCore import Qt

_RIGHT = frozenset({"R", "AL"})
LOOKED_AT = 2000  # characters; a paragraph does not change its language after so many


def direction_of(text: str) -> Qt.LayoutDirection:
    """The direction of most words; the text's own first letter decides a draw, as Qt has it."""
    right = left = 0
    for word in text[:LOOKED_AT].split():
        side = next((kind for letter in word if (kind := unicodedata.bidirectional(letter)) in _RIGHT or kind == "L"), "")
        right += side in _RIGHT
        left += side == "L"
    if right == left:
        return Qt.LayoutDirection.LayoutDirectionAuto
    return Qt.LayoutDirection.RightToLeft if right > left else Qt.LayoutDirection.LeftToRight
