"""Chats as PDF: the HTML export, laid out by Qt on A4 pages with title and number. Needs no screen, and fetches nothing.

The one place outside the window that imports Qt; whoever calls it without an application gets one that draws off screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMarginsF, QPointF, QRect, QRectF, QSizeF, Qt, QUrl
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QColor,
    QFont,
    QFontMetricsF,
    QGuiApplication,
    QImage,
    QPageSize,
    QPainter,
    QPalette,
    QPdfWriter,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)

from app.chats.exchange.answers import make_parser
from app.chats.exchange.html import body
from app.chats.model import Chat
from app.pdf_words import mend_words
from app.theme.fonts import MONO_FAMILY, UI_FAMILY, load_fonts, ui_font
from app.transcript.formula import FORMULA_TYPE, FormulaObject, formula_format, formula_of

# The part of CSS that QTextDocument knows. Sizes in its own pixels, of which an inch has 96.
_STYLE = f"""
body {{ font-family: '{UI_FAMILY}'; font-size: 13px; color: #17191c; }}
h1 {{ font-size: 21px; margin-top: 0; }} h2 {{ font-size: 17px; }} h3 {{ font-size: 15px; }}
time, .note, b {{ color: #52575f; font-size: 11px; }} strong, th {{ color: #17191c; font-weight: 600; }}
pre, code {{ font-family: '{MONO_FAMILY}'; font-size: 11px; }} pre {{ background-color: #f3f4f6; white-space: pre-wrap; }}
.typed {{ white-space: pre-wrap; background-color: #eef0fb; }} .math {{ text-align: center; }}
.thoughts {{ color: #52575f; font-size: 11px; white-space: pre-wrap; margin-left: 14px; }}
td, th {{ padding: 4px 8px; }} a {{ color: #3b47c4; }}
"""
DPI = 96  # of the layout
RESOLUTION = 300  # of the file
FINE = 8  # pixels of a formula's picture to one of the layout: 768 to the inch
PAGE_MM, MARGIN_MM, FOOT_MM = (210.0, 297.0), 18.0, 8.0
_OPEN, _CLOSE = "\ue000", "\ue001"  # private signs: a formula's place, until its picture stands there


class _Document(QTextDocument):
    """A document that loads nothing, whatever its text asks for."""

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None


class _PaperFormula(FormulaObject):
    """Formulas as fine pictures: Qt's writer of PDF would draw a line around every stroke of them."""

    def drawObject(self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, format: Any) -> None:
        formula = formula_of(format)
        if formula is None:
            return
        size = QSizeF(formula.width, formula.above + formula.below)
        picture = QImage((size * FINE).toSize(), QImage.Format.Format_ARGB32_Premultiplied)
        picture.fill(Qt.GlobalColor.transparent)
        fine = QPainter(picture)
        formula.renderer.render(fine)
        fine.end()
        painter.drawImage(QRectF(QPointF(rect.topLeft()), size), picture)


class _Formulas:
    """The formulas of a document: named in its HTML, drawn when Qt has laid it out."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, bool]] = []

    def name(self, tex: str, source: str, display: bool) -> str:
        self._found.append((tex, source, display))
        return f"{_OPEN}{len(self._found) - 1}{_CLOSE}"

    def draw(self, document: QTextDocument, most_width: float) -> None:
        """Put pictures in place of the names; what cannot be drawn stays as written."""
        cursor = QTextCursor(document)
        for number, (tex, source, display) in enumerate(self._found):
            cursor = document.find(f"{_OPEN}{number}{_CLOSE}", cursor)
            if cursor.isNull():
                return
            base = QTextCharFormat(cursor.charFormat())
            base.setFont(ui_font(13))
            drawn = formula_format(tex, source, base, display, most_width)
            cursor.insertText("\ufffc" if drawn else source, drawn or base)


def write_pdf(chats: Iterable[Chat], target: Path) -> None:
    """Write these chats to one PDF, each from a new page. Raises OSError where it cannot be written."""
    application = QGuiApplication.instance() or _make_application()
    load_fonts()
    size = QSizeF(*(_pixels(side - 2 * MARGIN_MM) for side in PAGE_MM))
    writer = QPdfWriter(str(target))
    writer.setCreator("Omnibus")
    writer.setResolution(RESOLUTION)
    writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
    writer.setPageMargins(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM))
    painter = QPainter()
    if painter.begin(writer):
        number = 0
        for chat in chats:
            document = _make_document(chat, size)
            for page in range(document.pageCount()):
                number += 1
                if number > 1:
                    writer.newPage()
                _draw_page(painter, document, page, size)
                _draw_foot(painter, size, " ".join(chat.display_title.split()), number)
        painter.end()
    del writer  # it writes its end when it goes
    if not target.is_file() or not target.stat().st_size:
        raise OSError(f"{target} could not be written")
    mend_words(target)
    assert application is not None


def _make_document(chat: Chat, page: QSizeF) -> QTextDocument:
    """One chat, laid out on pages of this size."""
    document = _Document()
    formulas = _Formulas()
    parser = make_parser(formulas.name)
    document.setDocumentMargin(0)
    document.setUseDesignMetrics(True)  # the layout is for paper, not for a screen's pixels
    document.setDefaultFont(ui_font(13))
    document.setDefaultStyleSheet(_STYLE)
    document.documentLayout().registerHandler(FORMULA_TYPE, _PaperFormula(document))
    document.setHtml(f"<body>{_for_qt(body(chat, parser))}</body>")
    document.setPageSize(page)
    _set_faces(document)
    formulas.draw(document, page.width())
    return document


def _for_qt(article: str) -> str:
    """What Qt's HTML lacks: borders come from a table's own attributes, a summary is a line, and code ends with its last line."""
    table = '<table border="1" cellspacing="0" style="border-collapse: collapse; border-style: solid; border-color: #c4c8cf">'
    article = article.replace("<table>", table).replace("\n</code></pre>", "</code></pre>").replace("\n</pre>", "</pre>")
    return article.replace("<summary>", '<p class="note">').replace("</summary>", "</p>")


def _set_faces(document: QTextDocument) -> None:
    """Words and code without shapes that depend on their neighbours: in code an arrow is two signs, and what is copied is what was
    written."""
    block = document.begin()
    while block.isValid():
        pieces = block.begin()
        spans = []
        while not pieces.atEnd():
            piece = pieces.fragment()
            spans.append((piece.position(), piece.length(), piece.charFormat()))
            pieces += 1
        for start, length, look in spans:
            font = look.font()
            for feature in ("calt", "liga"):
                font.setFeature(QFont.Tag(feature), 0)
            look.setFont(font, QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesAll)
            cursor = QTextCursor(document)
            cursor.setPosition(start)
            cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
            cursor.setCharFormat(look)
        block = block.next()


def _draw_page(painter: QPainter, document: QTextDocument, page: int, size: QSizeF) -> None:
    painter.save()
    painter.scale(RESOLUTION / DPI, RESOLUTION / DPI)
    painter.translate(0, -page * size.height())
    context = QAbstractTextDocumentLayout.PaintContext()
    context.palette.setColor(QPalette.ColorRole.Text, QColor("#17191c"))
    # A pixel less at both ends: a line that only touches the border belongs to the other page, and would be drawn on both.
    context.clip = QRectF(QPointF(0, page * size.height()), size).adjusted(0, 1, 0, -1)
    painter.setClipRect(context.clip)
    document.documentLayout().draw(painter, context)
    painter.restore()


def _draw_foot(painter: QPainter, size: QSizeF, title: str, number: int) -> None:
    painter.save()
    painter.scale(RESOLUTION / DPI, RESOLUTION / DPI)
    painter.setFont(ui_font(11))
    painter.setPen(QColor("#52575f"))
    foot = QRectF(0, size.height() + _pixels(2), size.width(), _pixels(FOOT_MM))
    painter.drawText(foot, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, str(number))
    title = QFontMetricsF(ui_font(11)).elidedText(title, Qt.TextElideMode.ElideRight, size.width() - _pixels(20))
    painter.drawText(foot, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, title)
    painter.restore()


def _pixels(millimetres: float) -> float:
    return millimetres / 25.4 * DPI


def _make_application() -> QGuiApplication:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    return QGuiApplication(sys.argv[:1])
