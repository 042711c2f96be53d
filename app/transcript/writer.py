"""Writes Markdown tokens into a document through a `Pen`, with our own formats: no HTML in between, nothing to inject into."""

from __future__ import annotations

from functools import cache

from markdown_it.token import Token
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrame,
    QTextLength,
    QTextListFormat,
    QTextTable,
)

from app.chats.mathmarks import source_of
from app.transcript.colouring import LONG_CODE, Colouring
from app.transcript.copying import CHROME
from app.transcript.direction import direction_of
from app.transcript.formats import BODY_PIXELS, INDENT, KIND, Formats, Kind
from app.transcript.formula import formula_format
from app.transcript.highlight import highlight, language_of
from app.transcript.markdown import link_target
from app.transcript.pen import ListLevel, Pen
from app.transcript.plain import GrowingText
from app.transcript.unbroken import insert_words, is_unbroken

QUOTE_INDENT = 18
BULLET_GAP = 200  # percent of a space, between a bullet and its words
MOST_FORMULA = 700  # pixels; a wider formula is shown as it was written
MOST_ITEMS = 16  # of one list of Qt's
MOST_ROWS = 24  # of one table of Qt's
NARROW = 480  # pixels of a table that any window has room for
COLUMN_SLACK = 8  # pixels: code is a little wider than the words that a column is measured by
SEAM = -4  # pixels: the block that Qt insists on between two tables, and one of their two borders
OBJECT = "\ufffc"


class MarkdownWriter:
    """Writes token lists. Where it is in them (a list, a table) is known by the pen, so that a list can be written in pieces."""

    def __init__(self, formats: Formats, colouring: Colouring | None = None) -> None:
        """Long code gets its colours from `colouring`, later; without one, at once."""
        self._formats = formats
        self._colouring = colouring

    def write(self, pen: Pen, tokens: list[Token]) -> None:
        """Write top-level tokens, or those of a piece of a list or a table. The pen stands behind the last block afterwards."""
        place = 0
        while place < len(tokens):
            place = self._block(pen, tokens, place)

    def write_open_code(self, pen: Pen, info: str, number: int) -> GrowingText:
        """A code block that is still being written; its lines are plain, and appended to what this returns."""
        f = self._formats
        return GrowingText(self._code(pen, info, "", number), f, f.code_block(), f.code(), Kind.CODE_LINES)

    # ------------------------------------------------------------------------------------------------------ blocks

    def _block(self, pen: Pen, tokens: list[Token], at: int) -> int:
        token = tokens[at]
        f = self._formats
        match token.type:
            case "paragraph_open":
                block = f.paragraph(len(pen.lists), tight=token.hidden)
                if token.meta.get("goes_on"):
                    block.setBottomMargin(0)
                block.setLayoutDirection(direction_of(tokens[at + 1].content))
                self._start_block(pen, block, f.body(), _task_mark(tokens[at + 1].children or [], bool(pen.lists)))
                self._inline(pen, tokens[at + 1], f.body())
                return at + 3
            case "heading_open":
                level = int(token.tag[1])
                block = f.heading_block(level, first=not pen.any_block)
                block.setLayoutDirection(direction_of(tokens[at + 1].content))
                self._start_block(pen, block, f.heading(level))
                self._inline(pen, tokens[at + 1], f.heading(level))
                return at + 3
            case "bullet_list_open" | "ordered_list_open":
                start = token.attrGet("start")
                pen.lists.append(ListLevel(token.type == "ordered_list_open", int(start) if start is not None else 1))
            case "bullet_list_close" | "ordered_list_close":
                pen.lists.pop()
                if not pen.lists and not pen.fresh:
                    last = pen.cursor.blockFormat()
                    last.setBottomMargin(10)
                    pen.cursor.setBlockFormat(last)
            case "list_item_open":
                pen.lists[-1].first_in_item = True
                if at + 1 < len(tokens) and tokens[at + 1].type == "list_item_close":
                    self._start_block(pen, f.paragraph(len(pen.lists), tight=True), f.body())
            case "blockquote_open":
                pen.quotes.append(pen.open_frame(f.frame(Kind.QUOTE, left=_indent(pen), top=2, bottom=10)))
            case "blockquote_close":
                pen.close_frame(pen.quotes.pop())
            case "fence" | "code_block":
                code = token.content.removesuffix("\n")
                frame = self._code(pen, token.info, code, len(pen.codes))
                pen.codes.append(token.content)
                pen.close_frame(frame)
            case "math_block":
                self._start_block(pen, f.display(len(pen.lists)), f.body())
                self._formula(pen, token, f.body(), display=True)
            case "math_open":
                self._start_block(pen, f.paragraph(), f.body())
                pen.cursor.insertText(token.content.rstrip("\n").replace("\n", "\u2028"), f.body())
            case "hr":
                rule = pen.open_frame(f.frame(Kind.RULE, top=8, bottom=14))
                pen.block(f.thin(), f.thin_char())
                pen.close_frame(rule)
            case "table_open":
                return self._open_table(pen, tokens, at)
            case "tr_open":
                return self._rows(pen, tokens, at)
            case "table_close":
                pen.table = None
        return at + 1

    def _start_block(self, pen: Pen, block_format: QTextBlockFormat, char_format: QTextCharFormat, task: str = "") -> None:
        """A block, as the list we are in wants it: the first of an item carries the marker, in its place the box of a `task`."""
        pen_list = pen.lists[-1] if pen.lists else None
        if pen.quotes:
            block_format.setLeftMargin(block_format.leftMargin() + QUOTE_INDENT)
        if pen_list is None or not pen_list.first_in_item:
            pen.block(block_format, char_format)
            return
        pen_list.first_in_item = False
        block_format.setLeftMargin(block_format.leftMargin() - INDENT * len(pen.lists))
        font = char_format.font()
        bullets = (QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle, QTextListFormat.Style.ListSquare)
        marker = QTextListFormat.Style.ListDecimal if pen_list.ordered else bullets[(len(pen.lists) - 1) % 3]
        if task and not pen_list.ordered:
            marker = QTextListFormat.Style.ListStyleUndefined
            block_format.setTextIndent(-QFontMetricsF(font).horizontalAdvance(task))
        pen.block(block_format, char_format)
        if not pen_list.ordered:  # Qt keeps a bullet off its words by a space of the block's own font, which is drawn nowhere else
            font.setStretch(BULLET_GAP)
            spaced = QTextCharFormat(char_format)
            spaced.setFont(font)
            pen.cursor.setBlockCharFormat(spaced)
        if pen_list.items % MOST_ITEMS == 0 or pen_list.list is None or pen_list.list.format().style() is not marker:
            style = QTextListFormat()
            style.setStyle(marker)
            style.setIndent(len(pen.lists))
            if pen_list.ordered:
                style.setStart(pen_list.start + pen_list.items)
            pen_list.list = pen.cursor.createList(style)
        else:
            pen_list.list.add(pen.cursor.block())
        pen_list.items += 1

    def _code(self, pen: Pen, info: str, code: str, number: int) -> QTextFrame:
        f = self._formats
        frame = pen.open_frame(f.frame(Kind.CODE, padding=12, left=_indent(pen), top=4, bottom=12))
        language = language_of(info)
        header = f.code_block()
        header.setBottomMargin(6)
        pen.block(header, f.small())
        pen.cursor.insertText(f"{language or 'text'}   ", _chrome(f.small()))
        pen.cursor.insertText(QCoreApplication.translate("Code", "Copy"), _chrome(f.action(f"{pen.code_href}{number}")))
        pen.block(f.code_block(), f.code())
        if is_unbroken(code):
            insert_words(pen.cursor, code, f.code())
            return frame
        if self._colouring is not None and language and len(code) > LONG_CODE:
            span = QTextCursor(pen.cursor)
            start = span.position()
            pen.cursor.insertText(code, f.code())
            span.setPosition(start)
            span.setPosition(pen.cursor.position(), QTextCursor.MoveMode.KeepAnchor)
            self._colouring.later(span, code, language, cache(f.code))
            return frame
        runs = highlight(code, language)
        formats = {style: f.code(style) for style in {style for _, style in runs}}
        for text, style in runs:
            pen.cursor.insertText(text, formats[style])
        return frame

    def _open_table(self, pen: Pen, tokens: list[Token], at: int) -> int:
        """A table with its head; rows are appended to it. The pen stands behind it."""
        end = next(place for place in range(at, len(tokens)) if tokens[place].type == "thead_close")
        columns = sum(token.type == "th_open" for token in tokens[at:end])
        if pen.fresh:
            pen.make_thin()
        else:
            pen.cursor.insertBlock(self._formats.thin(), self._formats.thin_char())
        pen.table = pen.cursor.insertTable(1, columns, self._formats.table(columns, _indent(pen)))
        pen.rows = 0
        pen.any_block = True
        head = next(place for place in range(at, end) if tokens[place].type == "tr_open")
        self._cells(pen, tokens, head, pen.table)
        pen.rows = 1
        pen.close_frame(pen.table)
        return end + 1

    def _rows(self, pen: Pen, tokens: list[Token], at: int) -> int:
        """Rows, as many as follow one another, below those that the table has."""
        end = next((place for place in range(at, len(tokens)) if tokens[place].type == "tbody_close"), len(tokens))
        starts = [place for place in range(at, end) if tokens[place].type == "tr_open"]
        while starts:
            room = MOST_ROWS - pen.rows % MOST_ROWS
            if pen.rows and room == MOST_ROWS:
                self._next_table(pen, min(room, len(starts)))
            elif pen.table is not None:
                pen.table.appendRows(min(room, len(starts)))
            for start in starts[:room]:
                assert pen.table is not None
                self._cells(pen, tokens, start, pen.table)
                pen.rows += 1
            starts = starts[room:]
        return end

    def _next_table(self, pen: Pen, rows: int) -> None:
        """Qt lays all of a table out anew for each row it gets, so a long one goes on in another of the same columns."""
        assert pen.table is not None
        table_format = pen.table.format().toTableFormat()
        if table_format.headerRowCount():  # the first one: from here on, its columns are as they are
            metrics = QFontMetricsF(self._formats.ui(BODY_PIXELS, QFont.Weight.DemiBold))
            table_format.setColumnWidthConstraints(_shares(pen.table, metrics))
        table_format.setBottomMargin(0)
        pen.table.setFormat(table_format)
        table_format.setHeaderRowCount(0)
        table_format.setTopMargin(SEAM)
        table_format.setBottomMargin(self._formats.table(1, 0).bottomMargin())
        pen.make_thin()
        pen.table = pen.cursor.insertTable(rows, pen.table.columns(), table_format)
        pen.rows = 0
        pen.close_frame(pen.table)

    def _cells(self, pen: Pen, tokens: list[Token], at: int, table: QTextTable) -> None:
        """The cells of the row whose tokens begin here, into the table's row `pen.rows`."""
        column = 0
        while tokens[at].type != "tr_close":
            token = tokens[at]
            if token.type in ("th_open", "td_open"):
                content = tokens[at + 1]
                char = self._formats.body()
                char.setFontWeight(QFont.Weight.DemiBold if token.type == "th_open" else QFont.Weight.Normal)
                block = self._formats.cell(str(token.attrGet("style") or "").removeprefix("text-align:"))
                block.setLayoutDirection(direction_of(content.content))
                cell = Pen(table.cellAt(pen.rows, column).firstCursorPosition(), self._formats, codes=pen.codes)
                cell.block(block, char)
                self._inline(cell, content, char)
                column += 1
            at += 1

    # ------------------------------------------------------------------------------------------------------ inline

    def _inline(self, pen: Pen, token: Token, base: QTextCharFormat) -> None:
        f = self._formats
        formats = [base]
        text = _task_mark(token.children or [], bool(pen.lists))
        if text:
            pen.cursor.insertText(text, base)
        for number, child in enumerate(token.children or []):
            current = formats[-1]
            match child.type:
                case "text":
                    content = child.content[4:] if text and number == 0 else child.content
                    insert_words(pen.cursor, content, current)
                case "code_inline":
                    insert_words(pen.cursor, child.content, f.inline_code(current))
                case "math_inline":
                    self._formula(pen, child, current, display=child.markup in ("$$", "\\["))
                case "softbreak" | "hardbreak":
                    pen.cursor.insertText("\u2028", current)
                case "strong_open":
                    formats.append(_with(current, weight=QFont.Weight.DemiBold))
                case "em_open":
                    formats.append(_with(current, italic=True))
                case "s_open":
                    formats.append(_with(current, strike=True))
                case "link_open":
                    target = link_target(str(child.attrGet("href") or ""))
                    formats.append(f.link(current, target) if target else QTextCharFormat(current))
                case "strong_close" | "em_close" | "s_close" | "link_close":
                    formats.pop()
                case "image":
                    # Never fetched: the picture's words stand for it, as a link where its address may be one.
                    target = link_target(str(child.attrGet("src") or ""))
                    words = f"[image: {child.content or 'no description'}]"
                    pen.cursor.insertText(words, f.link(current, target) if target else current)
                case _:
                    insert_words(pen.cursor, child.content, current)

    def _formula(self, pen: Pen, token: Token, base: QTextCharFormat, display: bool) -> None:
        """A formula as a picture, or as it was written where it cannot be drawn."""
        source = source_of(token.markup, token.content)
        char = formula_format(token.content, source, base, display, MOST_FORMULA)
        if char is not None:
            pen.cursor.insertText(OBJECT, char)
        else:
            pen.cursor.insertText(source.replace("\n", "\u2028"), self._formats.inline_code(base))


def _chrome(char: QTextCharFormat) -> QTextCharFormat:
    """A format for words of ours, which are not copied."""
    char.setProperty(CHROME, True)
    return char


def _with(base: QTextCharFormat, weight: QFont.Weight | None = None, italic: bool = False, strike: bool = False) -> QTextCharFormat:
    char = QTextCharFormat(base)
    if weight is not None:
        char.setFontWeight(weight)
    if italic:
        char.setFontItalic(True)
    if strike:
        char.setFontStrikeOut(True)
    return char


def _shares(table: QTextTable, metrics: QFontMetricsF) -> list[QTextLength]:
    """The widths of a table's columns by the words that they have: as wide as these in a narrow one, else as shares of the line."""
    widths = [0.0] * table.columns()
    for row in range(table.rows()):
        for column in range(table.columns()):
            words = table.cellAt(row, column).firstCursorPosition().block().text()
            widths[column] = max(widths[column], metrics.horizontalAdvance(words[:400]) + 2 * table.format().toTableFormat().cellPadding())
    whole = sum(widths)
    if whole <= NARROW:
        return [QTextLength(QTextLength.Type.FixedLength, width + COLUMN_SLACK) for width in widths]
    return [QTextLength(QTextLength.Type.PercentageLength, 100 * width / whole) for width in widths]


def _indent(pen: Pen) -> int:
    """Where a frame begins inside the present lists and quotes. Quotes are frames themselves, so only the innermost counts."""
    return len(pen.lists) * INDENT + (QUOTE_INDENT if pen.quotes else 0)


def _task_mark(children: list[Token], in_list: bool) -> str:
    """The box of a task list item, or nothing."""
    if not in_list or not children or children[0].type != "text":
        return ""
    return {"[ ] ": "\u2610 ", "[x] ": "\u2611 ", "[X] ": "\u2611 "}.get(children[0].content[:4], "")


def frame_kind(frame: QTextFrame) -> Kind:
    """What the view paints behind this frame."""
    return Kind(frame.frameFormat().intProperty(KIND))
