"""Writes Markdown tokens into a document through a cursor, with our own formats: no HTML in between, nothing to inject into.

A `Pen` owns a cursor and knows whether the block it stands in is still unused; Qt insists on such a block after every frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from markdown_it.token import Token
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import (
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrame,
    QTextFrameFormat,
    QTextList,
    QTextListFormat,
)

from app.transcript.copying import CHROME
from app.transcript.direction import direction_of
from app.transcript.formats import INDENT, KIND, Formats, Kind
from app.transcript.formula import formula_format
from app.transcript.highlight import highlight, language_of
from app.transcript.markdown import link_target
from app.transcript.mathmarks import source_of

QUOTE_INDENT = 18
MOST_FORMULA = 700  # pixels; a wider formula is shown as it was written
OBJECT = "\ufffc"


@dataclass(slots=True)
class _ListLevel:
    ordered: bool
    start: int
    list: QTextList | None = None
    first_in_item: bool = False


@dataclass(slots=True)
class Pen:
    """Where writing goes on.

    Attributes:
        fresh: the current block is empty and may be used. any_block: something was written already.
        codes: the sources of the code blocks written so far; the n-th one's Copy button is the anchor `code_href` + n.
    """

    cursor: QTextCursor
    formats: Formats
    code_href: str = "code:"
    fresh: bool = True
    any_block: bool = False
    codes: list[str] = field(default_factory=list)

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
            self._make_thin()
        else:
            self.cursor.insertBlock(self.formats.thin(), self.formats.thin_char())
        frame = self.cursor.insertFrame(frame_format)
        self.fresh = True
        self.any_block = True
        return frame

    def close_frame(self, frame: QTextFrame) -> None:
        """Stand in the unused block behind a frame."""
        self.cursor.setPosition(frame.lastPosition() + 1)
        self._make_thin()
        self.fresh = True

    def _make_thin(self) -> None:
        self.cursor.setBlockFormat(self.formats.thin())
        self.cursor.setBlockCharFormat(self.formats.thin_char())


class MarkdownWriter:
    """Writes token lists with one pen; keeps no state between calls but what the pen holds."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._lists: list[_ListLevel] = []
        self._quotes: list[QTextFrame] = []

    def write(self, pen: Pen, tokens: list[Token]) -> None:
        """Write top-level tokens. The pen stands behind the last block afterwards."""
        self._lists, self._quotes = [], []
        place = 0
        while place < len(tokens):
            place = self._block(pen, tokens, place)

    def write_open_code(self, pen: Pen, info: str, code: str, number: int) -> QTextFrame:
        """A code block that is still being written, plain; more is appended at the frame's last position."""
        self._lists, self._quotes = [], []
        return self._code(pen, info, code, number, colours=False)

    # ------------------------------------------------------------------------------------------------------ blocks

    def _block(self, pen: Pen, tokens: list[Token], at: int) -> int:
        token = tokens[at]
        f = self._formats
        match token.type:
            case "paragraph_open":
                block = f.paragraph(len(self._lists), tight=token.hidden)
                block.setLayoutDirection(direction_of(tokens[at + 1].content))
                self._start_block(pen, block, f.body())
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
                self._lists.append(_ListLevel(token.type == "ordered_list_open", int(start) if start is not None else 1))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                if not self._lists and not pen.fresh:
                    last = pen.cursor.blockFormat()
                    last.setBottomMargin(10)
                    pen.cursor.setBlockFormat(last)
            case "list_item_open":
                self._lists[-1].first_in_item = True
                if at + 1 < len(tokens) and tokens[at + 1].type == "list_item_close":
                    self._start_block(pen, f.paragraph(len(self._lists), tight=True), f.body())
            case "blockquote_open":
                self._quotes.append(pen.open_frame(f.frame(Kind.QUOTE, left=self._indent(), top=2, bottom=10)))
            case "blockquote_close":
                pen.close_frame(self._quotes.pop())
            case "fence" | "code_block":
                code = token.content.removesuffix("\n")
                frame = self._code(pen, token.info, code, len(pen.codes), colours=True)
                pen.codes.append(token.content)
                pen.close_frame(frame)
            case "math_block":
                self._start_block(pen, f.display(len(self._lists)), f.body())
                self._formula(pen, token, f.body(), display=True)
            case "math_open":
                self._start_block(pen, f.paragraph(), f.body())
                pen.cursor.insertText(token.content.rstrip("\n").replace("\n", "\u2028"), f.body())
            case "hr":
                rule = pen.open_frame(f.frame(Kind.RULE, top=8, bottom=14))
                pen.block(f.thin(), f.thin_char())
                pen.close_frame(rule)
            case "table_open":
                return self._table(pen, tokens, at)
        return at + 1

    def _start_block(self, pen: Pen, block_format: QTextBlockFormat, char_format: QTextCharFormat) -> None:
        """A block, as the list we are in wants it: the first of an item carries the marker."""
        pen_list = self._lists[-1] if self._lists else None
        if self._quotes:
            block_format.setLeftMargin(block_format.leftMargin() + QUOTE_INDENT)
        if pen_list is None or not pen_list.first_in_item:
            pen.block(block_format, char_format)
            return
        pen_list.first_in_item = False
        block_format.setLeftMargin(block_format.leftMargin() - INDENT * len(self._lists))
        pen.block(block_format, char_format)
        if pen_list.list is None:
            style = QTextListFormat()
            bullets = (QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle, QTextListFormat.Style.ListSquare)
            style.setStyle(QTextListFormat.Style.ListDecimal if pen_list.ordered else bullets[(len(self._lists) - 1) % 3])
            style.setIndent(len(self._lists))
            if pen_list.ordered:
                style.setStart(pen_list.start)
            pen_list.list = pen.cursor.createList(style)
        else:
            pen_list.list.add(pen.cursor.block())

    def _indent(self) -> int:
        """Where a frame begins inside the present lists and quotes. Quotes are frames themselves, so only the innermost counts."""
        return len(self._lists) * INDENT + (QUOTE_INDENT if self._quotes else 0)

    def _code(self, pen: Pen, info: str, code: str, number: int, colours: bool) -> QTextFrame:
        f = self._formats
        frame = pen.open_frame(f.frame(Kind.CODE, padding=12, left=self._indent(), top=4, bottom=12))
        language = language_of(info)
        header = f.code_block()
        header.setBottomMargin(6)
        pen.block(header, f.small())
        pen.cursor.insertText(f"{language or 'text'}   ", _chrome(f.small()))
        pen.cursor.insertText(QCoreApplication.translate("Code", "Copy"), _chrome(f.action(f"{pen.code_href}{number}")))
        pen.block(f.code_block(), f.code())
        for text, style in highlight(code, language) if colours else [(code, "")]:
            pen.cursor.insertText(text, f.code(style))
        return frame

    def _table(self, pen: Pen, tokens: list[Token], at: int) -> int:
        end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
        rows: list[list[tuple[Token, str, bool]]] = []
        for i in range(at, end):
            if tokens[i].type == "tr_open":
                rows.append([])
            elif tokens[i].type in ("th_open", "td_open"):
                align = str(tokens[i].attrGet("style") or "").removeprefix("text-align:")
                rows[-1].append((tokens[i + 1], align, tokens[i].type == "th_open"))
        columns = max(len(row) for row in rows)
        f = self._formats
        if pen.fresh:
            pen.cursor.setBlockFormat(f.thin())
            pen.cursor.setBlockCharFormat(f.thin_char())
        else:
            pen.cursor.insertBlock(f.thin(), f.thin_char())
        table = pen.cursor.insertTable(len(rows), columns, f.table(columns, self._indent()))
        for y, row in enumerate(rows):
            for x, (inline, align, head) in enumerate(row):
                cell = Pen(table.cellAt(y, x).firstCursorPosition(), f, codes=pen.codes)
                char = f.body()
                char.setFontWeight(QFont.Weight.DemiBold if head else QFont.Weight.Normal)
                block = f.cell(align)
                block.setLayoutDirection(direction_of(inline.content))
                cell.block(block, char)
                self._inline(cell, inline, char)
        pen.any_block = True
        pen.close_frame(table)
        return end + 1

    # ------------------------------------------------------------------------------------------------------ inline

    def _inline(self, pen: Pen, token: Token, base: QTextCharFormat) -> None:
        f = self._formats
        formats = [base]
        text = _task_mark(token.children or [], bool(self._lists))
        if text:
            pen.cursor.insertText(text, base)
        for number, child in enumerate(token.children or []):
            current = formats[-1]
            match child.type:
                case "text":
                    content = child.content[4:] if text and number == 0 else child.content
                    pen.cursor.insertText(content, current)
                case "code_inline":
                    pen.cursor.insertText(child.content, f.inline_code(current))
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
                    pen.cursor.insertText(child.content, current)

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


def _task_mark(children: list[Token], in_list: bool) -> str:
    """The box of a task list item, or nothing."""
    if not in_list or not children or children[0].type != "text":
        return ""
    return {"[ ] ": "\u2610 ", "[x] ": "\u2611 ", "[X] ": "\u2611 "}.get(children[0].content[:4], "")


def frame_kind(frame: QTextFrame) -> Kind:
    """What the view paints behind this frame."""
    return Kind(frame.frameFormat().intProperty(KIND))
