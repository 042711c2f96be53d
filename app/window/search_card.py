"""Ctrl+K: every chat and every message by their words, with what was said around a find beside the list."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QPointF, QRect, QSize, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QKeyEvent, QPainter, QTextCharFormat, QTextCursor, QTextLayout, QTextOption
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTextEdit,
    QWidget,
)

from app.chats.book import ChatBook
from app.chats.model import ChatMessage, Role
from app.chats.search import LIMIT, Hit, first_place
from app.chats.searcher import Searcher
from app.chats.words import Query, find_spans, utf16_length
from app.theme import Theme, ui_font
from app.theme.color import mix
from app.translations import day_in_words
from app.window.overlay import Overlay

PREVIEW = 20_000  # characters of a message that the preview shows, around what was found
HIT = Qt.ItemDataRole.UserRole + 1
RECENT = 30


class SearchCard(Overlay):
    """Attributes:
        shown_for: the words whose finds the list shows.

    Signals:
        chosen(chat id, message id, words): go there, to where the words stand; "" for the chat as a whole.
    """

    chosen = Signal(str, str, str)
    _found = Signal(str, object)

    def __init__(self, book: ChatBook, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, self.tr("Search"), (960, 600), parent)
        self._book = book
        self.shown_for = ""
        self._searcher = Searcher(book.search_everything, self._found.emit)
        self._found.connect(self._on_found, Qt.ConnectionType.QueuedConnection)
        self._build()

    # ------------------------------------------------------------------------------------------------------- methods

    def open(self) -> None:
        super().open()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
        self._on_typed(self.field.text())

    def shut_down(self) -> None:
        self._searcher.close()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self._delegate.theme = theme
        self.preview.setStyleSheet(self._preview_style())
        self._show_preview()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: 8, Qt.Key.Key_PageUp: -8}.get(Qt.Key(event.key()))
            if step is not None and self.list.count():
                self.list.setCurrentRow(max(0, min(self.list.count() - 1, self.list.currentRow() + step)))
                return True
        return super().eventFilter(watched, event)

    # ------------------------------------------------------------------------------------------------------- private

    def _build(self) -> None:
        self.field = QLineEdit(self.card)
        self.field.setPlaceholderText(self.tr("Search all chats"))
        self.field.setAccessibleName(self.tr("Search all chats"))
        self.field.setClearButtonEnabled(True)
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._on_typed)
        self.field.returnPressed.connect(self._choose)
        self.list = QListWidget(self.card)
        self.list.setAccessibleName(self.tr("Finds"))
        self.list.setStyleSheet("QListWidget { background: transparent; }")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self._delegate = _HitDelegate(self.theme, self.list)
        self.list.setItemDelegate(self._delegate)
        self.list.currentRowChanged.connect(self._show_preview)
        self.list.itemClicked.connect(self._choose)
        self.list.itemActivated.connect(self._choose)
        self.preview = QPlainTextEdit(self.card)  # whose placeholder may have several lines
        self.preview.setReadOnly(True)
        self.preview.setAccessibleName(self.tr("What was said there"))
        self.preview.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.preview.setStyleSheet(self._preview_style())
        self.preview.document().setDocumentMargin(14)
        self.preview.setPlaceholderText(self.tr("Titles, messages and attached files are searched, for all the words together."))
        self.words = QLabel(self.card)
        self.words.setProperty("kind", "small")
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        row = QHBoxLayout()
        row.setSpacing(12)
        row.addWidget(self.list, 5)
        row.addWidget(self.preview, 6)
        self.card_layout.addWidget(self.field)
        self.card_layout.addLayout(row, 1)
        self.card_layout.addWidget(self.words)

    def _preview_style(self) -> str:
        background = mix(self.theme.text, self.theme.surface, 0.03)
        look = f"background: {background}; border: none; border-radius: 10px; color: {self.theme.text}; font-size: 14px;"
        return f"QPlainTextEdit {{ {look} }}"

    @Slot(str)
    def _on_typed(self, words: str) -> None:
        if words.strip():
            self._searcher.ask(words)
        else:
            recent = [
                Hit(chat.id, chat.display_title, "", None, chat.updated, chat.display_title, ()) for chat in self._book.listed()[:RECENT]
            ]
            self.shown_for = words
            self._show(recent, self.tr("Recent chats"))

    @Slot(str, object)
    def _on_found(self, words: str, hits: list[Hit]) -> None:
        if words == self.field.text():
            self.shown_for = words
            self._show(hits, self._count(len(hits)))

    def _show(self, hits: list[Hit], words: str) -> None:
        self.list.clear()
        for hit in hits:
            item = QListWidgetItem(self.list)
            item.setData(HIT, hit)
            said = f": {hit.snippet}" if hit.message_id else ""
            item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{hit.title}{said}")
        self.words.setText(words)
        self.list.setCurrentRow(0 if hits else -1)
        self._show_preview()

    @Slot()
    def _choose(self) -> None:
        item = self.list.currentItem()
        if item is not None:
            hit: Hit = item.data(HIT)
            self.close_card()
            self.chosen.emit(hit.chat_id, hit.message_id, self.field.text())

    @Slot()
    def _show_preview(self) -> None:
        item = self.list.currentItem()
        hit: Hit | None = item.data(HIT) if item is not None else None
        if hit is None or hit.chat_id not in self._book:
            self.preview.clear()
            return
        tree = self._book[hit.chat_id].tree
        message = tree.get(hit.message_id) if hit.message_id else None
        if message is None:
            self._set_preview("\n\n".join(self._said(one) for one in tree.path[:6]), Query.of(""))
            return
        following = next((one for one in tree.path if one.parent == message.id), None)
        shown = [self._said(message)] + ([self._said(following)[:2000]] if following is not None else [])
        self._set_preview("\n\n".join(shown), Query.of(self.field.text()))

    def _set_preview(self, text: str, query: Query) -> None:
        start = max(0, first_place(text, query) - PREVIEW // 2) if query else 0
        shown = text[start : start + PREVIEW]
        self.preview.setPlainText(shown)
        marks = []
        for begin, end in find_spans(shown, query) if query else []:
            mark = QTextEdit.ExtraSelection()
            mark.cursor = _cursor(self.preview, shown, begin, end)
            mark.format = _highlight(self.theme)
            marks.append(mark)
        self.preview.setExtraSelections(marks)
        if marks:
            place = QTextCursor(marks[0].cursor)
            place.clearSelection()
            self.preview.setTextCursor(place)
            self.preview.ensureCursorVisible()

    def _said(self, message: ChatMessage) -> str:
        return f"{self.tr('You') if message.role is Role.USER else self.tr('Assistant')}\n{message.searchable}"

    def _count(self, number: int) -> str:
        if not number:
            return self.tr("Nothing was found.")
        if number >= LIMIT:
            return self.tr("The first {0} finds").format(number)
        return self.tr("1 find") if number == 1 else self.tr("{0} finds").format(number)


class _HitDelegate(QStyledItemDelegate):
    """Two lines: the chat's title and when; what was found, with the words of the search in the accent."""

    def __init__(self, theme: Theme, parent: QObject) -> None:
        super().__init__(parent)
        self.theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(200, 52)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        hit: Hit = index.data(HIT)
        theme = self.theme
        rect = QRect(option.rect).adjusted(0, 1, -4, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setBrush(QColor(mix(theme.text, theme.surface, 0.09)))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawRoundedRect(rect, 8, 8)
        day = day_in_words(datetime.fromtimestamp(hit.created)) if hit.created > 0 else ""
        painter.setFont(ui_font(12))
        painter.setPen(QColor(theme.text_dim))
        date_width = painter.fontMetrics().horizontalAdvance(day)
        top = QRect(rect.left() + 10, rect.top() + 6, rect.width() - 20, 18)
        painter.drawText(top, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, day)
        painter.setFont(ui_font(13, QFont.Weight.Medium))
        painter.setPen(QColor(theme.text))
        top.setWidth(top.width() - date_width - 10)
        painter.drawText(
            top, Qt.AlignmentFlag.AlignVCenter, painter.fontMetrics().elidedText(hit.title, Qt.TextElideMode.ElideRight, top.width())
        )
        if hit.message_id:
            self._paint_snippet(painter, hit, QRect(rect.left() + 10, rect.top() + 26, rect.width() - 20, 18))
        painter.restore()

    def _paint_snippet(self, painter: QPainter, hit: Hit, rect: QRect) -> None:
        layout = QTextLayout(hit.snippet, ui_font(12))
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        layout.setTextOption(option)
        marks = []
        for begin, end in hit.spans:
            mark = QTextLayout.FormatRange()
            mark.start, mark.length = utf16_length(hit.snippet[:begin]), utf16_length(hit.snippet[begin:end])
            look = QTextCharFormat()
            look.setForeground(QColor(self.theme.accent))
            look.setFontWeight(QFont.Weight.DemiBold)
            mark.format = look
            marks.append(mark)
        layout.setFormats(marks)
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(10_000)
        layout.endLayout()
        painter.setClipRect(rect)
        painter.setPen(QColor(self.theme.text_dim))
        # A long snippet is moved so that the first find can be seen.
        first: Any = line.cursorToX(utf16_length(hit.snippet[: hit.spans[0][1]])) if hit.spans else 0.0  # PySide gives (x, cursor)
        x = float(first[0] if isinstance(first, tuple) else first)
        layout.draw(painter, QPointF(rect.left() - max(0.0, x - rect.width() + 24), rect.top()))


def _highlight(theme: Theme) -> QTextCharFormat:
    look = QTextCharFormat()
    look.setBackground(QColor(mix(theme.accent, theme.surface, 0.4)))
    return look


def _cursor(edit: QPlainTextEdit, text: str, begin: int, end: int) -> QTextCursor:
    cursor = QTextCursor(edit.document())
    cursor.setPosition(utf16_length(text[:begin]))
    cursor.setPosition(utf16_length(text[:end]), QTextCursor.MoveMode.KeepAnchor)
    return cursor
