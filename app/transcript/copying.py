"""What a selection gives to the clipboard: the source. Whole messages and whole blocks as they were written, parts of a block as words.

Code keeps every character, a formula is its TeX; headers, figures and buttons are left out. Reads a document, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from PySide6.QtGui import QTextBlock, QTextCursor, QTextDocument, QTextFormat, QTextListFormat

from app.transcript.formats import KIND, Kind
from app.transcript.formula import SOURCE

CHROME = QTextFormat.Property.UserProperty + 7  # on text of ours that is no part of what was said


@dataclass(frozen=True, slots=True)
class Span:
    """A top-level block: where it stands in the document, and in the message's text."""

    start: int
    end: int
    text_start: int
    text_end: int


@dataclass(frozen=True, slots=True)
class Part:
    """One message in the document, with its whole text and its blocks in order."""

    start: int
    end: int
    text: str
    spans: tuple[Span, ...] = ()


def source_of(document: QTextDocument, start: int, end: int, parts: Iterable[Part]) -> str:
    """The source of what lies between two positions."""
    pieces: list[str] = []
    for part in parts:
        if part.end < start or part.start >= end:
            continue
        if start <= part.start and part.end <= end:
            pieces.append(part.text.strip("\n"))
        else:
            pieces.append(_of_part(document, max(start, part.start), min(end, part.end), part))
    return "\n\n".join(piece for piece in pieces if piece)


def _of_part(document: QTextDocument, start: int, end: int, part: Part) -> str:
    pieces: list[str] = []
    whole: tuple[int, int] | None = None  # a run of whole blocks is one stretch of the text, the empty lines between them included
    at = start
    for span in part.spans:
        if span.end <= start or span.start >= end:
            continue
        if start <= span.start and span.end <= end:
            whole = (whole[0] if whole else span.text_start, span.text_end)
        else:
            if whole:
                pieces.append(part.text[whole[0] : whole[1]].strip("\n"))
                whole = None
            pieces.append(words_between(document, max(start, span.start), min(end, span.end)))
        at = span.end
    if whole:
        pieces.append(part.text[whole[0] : whole[1]].strip("\n"))
    if at < end:  # the tail, which is still being written, or a message without blocks
        pieces.append(words_between(document, at, end))
    return "\n\n".join(piece for piece in pieces if piece.strip())


def words_between(document: QTextDocument, start: int, end: int) -> str:
    """The words between two positions: one line a block, cells of a table apart by tabs, list items with their marks."""
    lines: list[str] = []
    row: tuple[int, int] | None = None
    block = document.findBlock(start)
    while block.isValid() and block.position() < end:
        text = "".join(_words(block, start, end))
        if text or (block.length() == 1 and lines and _is_code(block)):
            cursor = QTextCursor(block)
            table = cursor.currentTable()
            here = (table.firstPosition(), table.cellAt(cursor).row()) if table else None
            if here is not None and here == row:
                lines[-1] += "\t" + text
            else:
                mark = _list_mark(block) if start <= block.position() else ""
                lines.append(mark + text)
            row = here
        block = block.next()
    return "\n".join(lines)


def _words(block: QTextBlock, start: int, end: int) -> Iterator[str]:
    at = block.begin()
    while not at.atEnd():
        fragment = at.fragment()
        char = fragment.charFormat()
        if fragment.position() < end and fragment.position() + fragment.length() > start and not char.property(CHROME):
            text = fragment.text()[max(0, start - fragment.position()) : end - fragment.position()]
            source = char.property(SOURCE)
            yield str(source) * len(text) if source else text.replace("\u2028", "\n").replace("\ufffc", "")
        at += 1


def _is_code(block: QTextBlock) -> bool:
    return QTextCursor(block).currentFrame().frameFormat().intProperty(KIND) == Kind.CODE


def _list_mark(block: QTextBlock) -> str:
    items = block.textList()
    if items is None:
        return ""
    ordered = items.format().style() == QTextListFormat.Style.ListDecimal
    mark = f"{items.itemNumber(block) + max(1, items.format().start())}. " if ordered else "- "
    return "  " * (items.format().indent() - 1) + mark
