"""The body of an answer: Markdown that grows at its end, in frames of a document.

Blocks that are final are written once, only the tail is replaced; of a long list or table only its last item or row, and of another long
block only what stands behind its draft. The body is cut into frames of MOST_BLOCKS blocks; writing goes on in the last of them. Owns these
frames and the stream behind them; does not scroll or paint.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markdown_it.token import Token
from PySide6.QtGui import QTextCursor, QTextFrame, QTextTable

from app.transcript.container import lines_of, units_of
from app.transcript.copying import Part, Span
from app.transcript.draft import FullLines, OpenFence
from app.transcript.formats import Formats, Kind
from app.transcript.frames import insert_frame, remove_frame
from app.transcript.pen import ListLevel, Pen
from app.transcript.plain import GrowingText
from app.transcript.stream import PLACE, AnswerStream, Update
from app.transcript.writer import MarkdownWriter

SEEN_LINES = 6  # at the end of a long paragraph, at one of which it may be cut
MOST_BLOCKS = 16  # blocks and list items of one frame: Qt goes through all of a frame, but skips whole frames that are not concerned


@dataclass(frozen=True, slots=True)
class _Place:
    """A place to come back to: a position from the body's beginning, how much there was of everything, and what the pen was inside of."""

    position: int = 0
    bodies: int = 1
    in_body: int = 0
    spans: int = 0
    codes: int = 0
    lists: tuple[ListLevel, ...] = ()
    quotes: tuple[QTextFrame, ...] = ()
    table: QTextTable | None = None
    rows: int = 0


class AnswerBody:
    """Feed it pieces of an answer without its reasoning; it writes them where the cursor stood."""

    def __init__(self, cursor: QTextCursor, formats: Formats, writer: MarkdownWriter, code_href: str) -> None:
        self._formats = formats
        self._writer = writer
        self._stream = AnswerStream(full_lines=self._lines_of_tail())
        self._frames = [insert_frame(cursor, formats, Kind.PLAIN)]
        self._in_frame = 0  # blocks in the last of them
        self._spans: list[Span] = []  # blocks that are final, their places counted from the body's beginning
        self._places: dict[int, _Place] = {}  # by their numbers in the stream
        self._fence: tuple[int, int, GrowingText] | None = None  # where it began, characters written, where it is written
        self._open_code = ""
        self._pen = Pen(self.last_frame.firstCursorPosition(), formats, code_href=code_href)
        self._tail = self._mark(self.last_frame.firstPosition())

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def frames(self) -> tuple[QTextFrame, ...]:
        """Top to bottom."""
        return tuple(self._frames)

    @property
    def last_frame(self) -> QTextFrame:
        """The frame in which writing goes on."""
        return self._frames[-1]

    @property
    def first_position(self) -> int:
        return self._frames[0].firstPosition()

    @property
    def empty(self) -> bool:
        """Whether nothing is final yet."""
        return not self._spans

    def part(self) -> Part:
        """What a selection of it copies."""
        start = self.first_position
        spans = tuple(Span(start + s.start, start + s.end, s.text_start, s.text_end) for s in self._spans)
        return Part(start, self.last_frame.lastPosition(), self._stream.text, spans)

    def tail_span(self) -> tuple[int, int]:
        """Positions that the next piece may replace."""
        drafted = self._places.get(self._stream.drafting) if self._stream.drafting is not None else None
        start = self.first_position + drafted.position if drafted else self._tail.position()
        return min(start, self._tail_row()), self.last_frame.lastPosition()

    def code(self, number: int) -> str | None:
        """The source of the n-th code block, to the byte."""
        if 0 <= number < len(self._pen.codes):
            return self._pen.codes[number]
        return self._open_code if number == len(self._pen.codes) and self._open_code else None

    # ------------------------------------------------------------------------------------------------------- methods

    def write(self, piece: str, last: bool) -> int:
        """Take more of the answer; nothing follows after the `last`. Returns where in the document changes begin."""
        touched = min(self._tail.position(), self._pen.table.firstPosition() if self._pen.table else self._tail.position())
        update = self._stream.feed(piece, last)
        if last and self._stream.has_references:
            self._rewrite()
            return self.first_position
        if update.taken_back is not None:
            self._go_back(self._places[update.taken_back])
            touched = min(touched, self._tail.position())
        if update.closed or update.drafted:
            self._clear_tail()
            self._write_closed(update)
            for unit in units_of(update.drafted):
                self._write_unit(unit)
            self._end_block()
            self._tail = self._mark(self._pen.cursor.position())
        if last:
            self._clear_tail()
        elif update.fence is not None:
            self._write_fence(update.fence)
        elif piece:
            self._clear_tail()
            self._writer.write(self._tail_pen(), update.tail)
        return touched

    def begin_again(self) -> None:
        """Take everything out: the whole answer is about to come once more."""
        self._stream = AnswerStream(full_lines=self._lines_of_tail())
        self._empty()

    # ------------------------------------------------------------------------------------------------- what is final

    def _rewrite(self) -> None:
        """Link references may have been used before they were given: the whole answer once more."""
        self._empty()
        self._write_closed(AnswerStream().feed(self._stream.text, last=True))

    def _empty(self) -> None:
        """Take all that was written out again."""
        self._pen = Pen(self._pen.cursor, self._formats, code_href=self._pen.code_href)
        self._go_back(_Place())

    def _note_place(self, number: int) -> None:
        self._end_block()
        pen = self._pen
        self._places[number] = _Place(
            pen.cursor.position() - self.first_position,
            len(self._frames),
            self._in_frame,
            len(self._spans),
            len(pen.codes),
            tuple(replace(level) for level in pen.lists),
            tuple(pen.quotes),
            pen.table,
            pen.rows,
        )

    def _go_back(self, place: _Place) -> None:
        """Take out what was written since."""
        while len(self._frames) > place.bodies:
            remove_frame(self._frames.pop())
        self._in_frame = place.in_body
        del self._spans[place.spans :], self._pen.codes[place.codes :]
        self._pen.lists, self._pen.quotes = [replace(level) for level in place.lists], list(place.quotes)
        self._pen.table, self._pen.rows = place.table, place.rows
        self._tail = self._mark(self.first_position + place.position)
        self._pen.cursor = self.last_frame.firstCursorPosition()
        self._pen.any_block = bool(self._spans)
        self._clear_tail()

    def _next_frame(self) -> None:
        """Go on in a new frame, and in quotes like those that are open; the tail is clear when this is called."""
        self._end_block()  # as where the tail has stood in between
        cursor = QTextCursor(self.last_frame)
        cursor.setPosition(self.last_frame.lastPosition() + 1)
        self._frames.append(insert_frame(cursor, self._formats, Kind.PLAIN))
        self._in_frame = 0
        self._pen.cursor = self.last_frame.firstCursorPosition()
        self._pen.fresh = True
        self._pen.quotes = [self._pen.open_again(quote) for quote in self._pen.quotes]

    def _end_block(self) -> None:
        """Stand in an unused block behind what was written."""
        if not self._pen.fresh:
            self._pen.cursor.insertBlock(self._formats.thin(), self._formats.thin_char())
            self._pen.fresh = True

    def _write_closed(self, update: Update) -> None:
        """Write blocks that are final, and note where each stands, here and in the text."""
        base = self.first_position
        line_starts = [update.closed_at]
        for line in self._stream.text[update.closed_at :].split("\n"):
            line_starts.append(line_starts[-1] + len(line) + 1)
        for unit in units_of(update.closed):
            start, end = self._write_unit(unit)
            if lines := lines_of(unit):
                first, last = (min(line, len(line_starts) - 1) for line in lines)
                text_end = min(line_starts[last], len(self._stream.text))
                self._spans.append(Span(start - base, end - base, line_starts[first], text_end))

    def _write_unit(self, unit: list[Token]) -> tuple[int, int]:
        """Write what stays, for all that is known, and return where it stands."""
        if self._pen.table is None and self._in_frame >= MOST_BLOCKS:  # else these are more rows of it
            self._next_frame()
        if unit[0].type == PLACE:
            self._note_place(unit[0].meta["number"])
        elif self._pen.table is None:
            self._in_frame += 1
        start = self._pen.cursor.position() + (0 if self._pen.fresh else 1)
        self._writer.write(self._pen, unit)
        return start, self._pen.cursor.position() - (1 if self._pen.fresh else 0)

    # ------------------------------------------------------------------------------------------------------ the tail

    def _write_fence(self, fence: OpenFence) -> None:
        """An open code block only grows: append what is new, plain; colours come when it closes."""
        if self._fence is None or self._fence[0] != fence.start:
            self._clear_tail()
            self._fence = (fence.start, 0, self._writer.write_open_code(self._tail_pen(), fence.info, len(self._pen.codes)))
        start, written, lines = self._fence
        lines.append(fence.code[written:])
        self._fence = (start, len(fence.code), lines)
        self._open_code = fence.code

    def _lines_of_tail(self) -> FullLines:
        """`_full_lines`, for a stream that does not keep this alive: in a cycle, wrappers of frames would outlive their document, and
        PySide takes them for those of another document's frames at the same address."""
        method = weakref.WeakMethod(self._full_lines)
        return lambda: () if (full_lines := method()) is None else full_lines()

    def _full_lines(self) -> Sequence[int]:
        """See `app.transcript.draft.FullLines`."""
        block = self.last_frame.document().findBlock(self._tail.position())
        layout, text = block.layout(), block.text()
        starts = [layout.lineAt(line).textStart() for line in range(max(1, layout.lineCount() - SEEN_LINES), layout.lineCount())]
        return [sum(letter.isalnum() for letter in text[:start]) for start in reversed(starts)]

    def _tail_pen(self) -> Pen:
        cursor = QTextCursor(self._tail)
        cursor.setKeepPositionOnInsert(False)
        return self._pen.for_tail(cursor)

    def _clear_tail(self) -> None:
        self._fence = None
        self._open_code = ""
        table = self._pen.table
        if table is not None and table.rows() > self._pen.rows:
            table.removeRows(self._pen.rows, table.rows() - self._pen.rows)
        inner = self._pen.quotes[-1] if self._pen.quotes else self.last_frame
        edit = QTextCursor(inner)
        edit.setPosition(self._tail.position())  # a mark's anchor moves with what is inserted at it; only its position stays
        edit.setPosition(inner.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        edit.removeSelectedText()
        edit.setBlockFormat(self._formats.thin())
        edit.setBlockCharFormat(self._formats.thin_char())
        self._pen.cursor.setPosition(self._tail.position())
        self._pen.fresh = True

    def _tail_row(self) -> int:
        """Where the row begins that is still being written, in a table that goes on; else the document's end."""
        table = self._pen.table
        if table is None or table.rows() <= self._pen.rows:
            return self.last_frame.lastPosition()
        return table.cellAt(self._pen.rows, 0).firstPosition()

    def _mark(self, position: int) -> QTextCursor:
        mark = QTextCursor(self.last_frame)
        mark.setPosition(position)
        mark.setKeepPositionOnInsert(True)
        return mark
