"""What a selection gives to the clipboard: the source. Whole messages and whole blocks as they were written, parts of a block as words.

Code keeps every character, a formula is its TeX; headers, figures and buttons are left out. Reads a document, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from PySide6.QtGui import QTextBlock, QTextBlockFormat, QTextCursor, QTextDocument, QTextFormat, QTextListFormat

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
    runs: list[tuple[bool, list[Span]]] = []  # whole blocks one after another are one stretch of the text, what is between them included
    for span in part.spans:
        if span.end > start and span.start < end:
            whole = start <= span.start and span.end <= end
            if whole and runs and runs[-1][0]:
                runs[-1][1].append(span)
            else:
                runs.append((whole, [span]))
    copied = ""
    for number, (whole, spans) in enumerate(runs):
        if number:
            copied += _gap(part, runs[number - 1][1][-1], spans[0])
        if whole:
            copied += part.text[spans[0].text_start : spans[-1].text_end].strip("\n")
        else:
            copied += words_between(document, max(start, spans[0].start), min(end, spans[0].end))
    at = runs[-1][1][-1].end if runs else start
    if at < end:  # the tail, which is still being written, or a message without blocks
        rest = words_between(document, at, end)
        copied += ("\n\n" if copied.strip() and rest.strip() else "") + (rest if rest.strip() else "")
    return copied if copied.strip() else ""


def _gap(part: Part, before: Span, span: Span) -> str:
    """What to put between two blocks: an empty line where the text has one, as between paragraphs; none where not, as between items."""
    lines = part.text[before.text_start : span.text_start].split("\n")
    return "\n" if len(lines) > 1 and lines[-2].strip() else "\n\n"


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


def said_in(block: QTextBlock) -> list[tuple[int, int]]:
    """(Start, end) of the stretches of a block that are of what was said, and not of ours."""
    stretches: list[tuple[int, int]] = []
    at = block.begin()
    while not at.atEnd():
        fragment = at.fragment()
        if not fragment.charFormat().property(CHROME):
            start, end = fragment.position(), fragment.position() + fragment.length()
            if stretches and stretches[-1][1] == start:
                start = stretches.pop()[0]
            stretches.append((start, end))
        at += 1
    return stretches


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
    """Whether it is a line of code, and not what Qt insists on between frames of them."""
    if block.blockFormat().lineHeightType() == QTextBlockFormat.LineHeightTypes.FixedHeight.value:
        return False
    return QTextCursor(block).currentFrame().frameFormat().intProperty(KIND) in (Kind.CODE, Kind.CODE_LINES)


def _list_mark(block: QTextBlock) -> str:
    items = block.textList()
    if items is None:
        return ""
    ordered = items.format().style() == QTextListFormat.Style.ListDecimal
    mark = f"{items.itemNumber(block) + max(1, items.format().start())}. " if ordered else "- "
    return "  " * (items.format().indent() - 1) + mark
