"""The transcript: one read-only browser over one document that mirrors one chat.

Owns the document, its entries and the painting behind frames; where its reader stands is `Reading`'s. Text reaches it only through
`sync`, from the chat's model, so a view that was hidden, or did not exist, catches up by itself. It never fetches a resource and never
opens a link: it asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QPointF, QRectF, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QTextEdit, QWidget

from app.chats.model import Chat, ScrollPlace
from app.composer.editor import is_typing
from app.theme import Theme
from app.transcript.anchors import Anchors
from app.transcript.bars import MessageBars
from app.transcript.colouring import Colouring
from app.transcript.column import Column
from app.transcript.down_button import DownButton
from app.transcript.entries import AnswerEntry
from app.transcript.find import Finder
from app.transcript.focus import FocusRing
from app.transcript.formats import INDENT, Formats
from app.transcript.formula import FORMULA_TYPE, FormulaObject
from app.transcript.mirror import Entry, Mirror
from app.transcript.painting import paint_backdrop, paint_less
from app.transcript.reading import Reading
from app.transcript.selection import Selection

COST_SHARE = 6  # after a sync that took t, the next one waits COST_SHARE * t: at most a seventh of the time goes into writing


class TranscriptView(QTextBrowser):
    """Shows a chat.

    Signals:
        action_asked(name, message id): a message's button, see `ActionBar`.
        code_copied(source): a code block's Copy button.
        link_asked(address): a link was clicked; nothing was opened.
        typed(text): the person typed while this had the focus.
        zoom_asked(by): larger (+1) or smaller (-1), by the wheel.
    """

    action_asked = Signal(str, str)
    code_copied = Signal(str)
    link_asked = Signal(str)
    typed = Signal(str)
    zoom_asked = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(parent)
        self._clock = clock
        self._theme = theme
        self._formats = Formats(theme)
        self.column = Column(self)
        self._mirror = Mirror(self.document, self._formats, lambda: self.column.width, Colouring(self))
        self._marks: dict[str, list[QTextEdit.ExtraSelection]] = {"selection": [], "find": []}
        self.finder = Finder(self)
        self.selection = Selection(self)
        self._ended = False  # whether the last message was complete when it was last looked at
        self._next_sync = 0.0
        self._late = QTimer(self)
        self._late.setSingleShot(True)
        self._late.timeout.connect(self.sync_text)
        self.setAccessibleName(self.tr("Conversation"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setAcceptDrops(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # It fills its ground itself: what lies under it then need not be painted for every token.
        self.viewport().setAutoFillBackground(False)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self._ground = QColor(theme.window)
        self.setStyleSheet("QTextBrowser { background: transparent; border: none; }")
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(INDENT)
        self._formulas = FormulaObject(self)
        self.document().documentLayout().registerHandler(FORMULA_TYPE, self._formulas)
        self._ring = FocusRing(theme, self)
        self._down = DownButton(theme, self)
        self._down.clicked.connect(self.scroll_to_end)
        self.reading = Reading(self, self._mirror, self._down)
        self.bars = MessageBars(self, theme)
        self.bars.asked.connect(self.action_asked)
        self.anchors = Anchors(self)
        self.selectionChanged.connect(self._on_selection)
        self.selection.changed.connect(self._keep_selected)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def following(self) -> bool:
        """Whether the view stays at the bottom as text arrives."""
        return self.reading.follow

    @property
    def chat(self) -> Chat | None:
        return self._mirror.chat

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is written now, first to last: a stretch of the chat."""
        return tuple(self._mirror.entries)

    # ------------------------------------------------------------------------------------------------------- methods

    def show_chat(self, chat: Chat) -> None:
        """Mirror this chat from now on, from where its reader stood."""
        self._open(chat, chat.scroll)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._ground = QColor(theme.window)
        self._formats = Formats(theme, self._formats.zoom)
        self._mirror.set_formats(self._formats)
        self._ring.set_theme(theme)
        self._down.set_theme(theme)
        self.bars.set_theme(theme)
        self.rebuild()

    def set_zoom(self, zoom: float) -> None:
        """Larger or smaller words, and a column as much wider; 1.0 is as designed."""
        if zoom != self._formats.zoom:
            self._formats = Formats(self._theme, zoom)
            self.column.zoom = zoom
            self._mirror.set_formats(self._formats)
            self.rebuild()

    def rebuild(self) -> None:
        """Write the document anew from the chat, the reader at the same place."""
        self._open(self.chat, self.scroll_place())

    @Slot()
    def sync(self) -> None:
        """Bring the document up to the chat: new messages, removed ones, more text. For whenever something has happened."""
        self._next_sync = float("-inf")
        self.sync_text()

    @Slot()
    def sync_text(self) -> None:
        """The same for more text, once a frame while it arrives: it waits a little if writing was costly. First words never wait."""
        if self.chat is None:
            return
        now = self._clock()
        last = self._last_answer()
        if now < self._next_sync and not (last is not None and last.blank):
            if not self._late.isActive():
                self._late.start(max(1, round((self._next_sync - now) * 1000)))
            return
        self._late.stop()
        changed = self._mirror.sync()
        if self.reading.follow and self._mirror.at_end and self._mirror.drop_oldest():
            self.reading.to_end()
        last = self._last_answer()
        if last is not None and not self._selection_in_tail(last):
            paint_less(self, last.sync)
        ended = bool(self.entries) and not self.entries[-1].message.running
        if changed or ended is not self._ended:
            self._ended = ended
            self.bars.refresh()
        self._next_sync = now + COST_SHARE * (self._clock() - now)

    def set_status(self, words: str) -> None:
        """How the answer being written is getting on."""
        last = self._last_answer()
        if last is not None and last.message.running:
            paint_less(self, lambda: last.set_status(words))

    def scroll_to_end(self) -> None:
        """Go to the bottom and follow again."""
        if not self._mirror.at_end:
            self._open(self.chat, None)
        self.reading.follow = True
        self.reading.to_end()

    def scroll_place(self) -> ScrollPlace | None:
        """Where the reader stands; None at the end, where the view follows."""
        return self.reading.standing()

    def go_to(self, message_id: str, offset: int | None = None) -> None:
        """Bring a message into view, wherever in the chat it is: its part `offset` pixels down at the top, or with as little scrolling as
        is needed."""
        place = self._index_of(message_id)
        if place is None:
            return
        if not self._mirror.first <= place < self._mirror.last:
            self._write_around(place)
            offset = offset or -12
        self.reading.go_to(message_id, offset)

    def entry_of(self, message_id: str) -> Entry | None:
        return self._mirror.entry_of(message_id)

    def set_marks(self, kind: str, marks: list[QTextEdit.ExtraSelection]) -> None:
        """What is marked in the text: of one kind, in place of what was; later kinds lie over earlier ones."""
        self._marks[kind] = marks
        self.setExtraSelections([mark for each in self._marks.values() for mark in each])

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def loadResource(self, kind: int, name: QUrl | str) -> None:
        """Nothing is ever fetched, from the network or from a disk."""
        return None

    @Slot()
    def copy(self) -> None:
        """The source of what is selected, to the clipboard, in an object of Qt's own: off screen the clipboard outlives Python, and takes
        the process along with what Python made."""
        if self.selection.span is not None:
            QGuiApplication.clipboard().setText(self.selection.source())

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        data.setText(self.selection.source())
        return data

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.selection.menu(self.viewport().mapFromGlobal(event.globalPos())).popup(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._ground)
        paint_backdrop(painter, self, QRectF(event.rect()), self._formats)
        self.bars.paint_mark(painter)
        painter.end()
        super().paintEvent(event)
        self.bars.place()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            if event.angleDelta().y():
                self.zoom_asked.emit(1 if event.angleDelta().y() > 0 else -1)
            event.accept()
            return
        super().wheelEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is not Qt.MouseButton.LeftButton or not self.selection.press(event):
            super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.selection.leave_to_qt()
        super().mouseDoubleClickEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton and self.selection.release():
            with self.selection.ours():  # Qt would take it for a click on what lies here
                super().mouseReleaseEvent(_elsewhere(event))
        else:
            super().mouseReleaseEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if not self.selection.draw_to(event):
            super().mouseMoveEvent(event)
        self.bars.point_at(event.position().y() if not event.buttons() else None)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.bars.point_at(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        with self.reading.kept():
            super().resizeEvent(event)
            self.column.set_margins()
            self._mirror.fit()
        self.reading.place_button()

    def showEvent(self, event: QShowEvent) -> None:
        with self.reading.kept():  # Qt scrolls to its text cursor when a text edit is first shown
            super().showEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.SelectAll):
            self.selection.select_all()
            return
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
            return
        if is_typing(event):
            self.typed.emit(event.text())
            return
        if self.selection.reach(event):
            return
        super().keyPressEvent(event)

    # ------------------------------------------------------------------------------------------------------- private

    def _open(self, chat: Chat | None, place: ScrollPlace | None) -> None:
        """Write a chat's end, or the part where its reader stands."""
        self._mirror.chat = chat
        index = self._index_of(place.message_id) if place else None
        self._write_around(index)
        if place is not None and index is not None:
            self.reading.open_at(place)

    def _write_around(self, index: int | None) -> None:
        self.selection.forget()
        with self.reading.moving():
            self._mirror.forget()
            self.clear()
            self.column.set_margins()
            self._mirror.fit()
            self.reading.follow = index is None
            self._mirror.open(self.chat, index)
            if index is None:
                self.reading.stand_at_end()
        self.bars.refresh()

    def _index_of(self, message_id: str) -> int | None:
        messages = self.chat.messages if self.chat else []
        return next((index for index, message in enumerate(messages) if message.id == message_id), None)

    def _last_answer(self) -> AnswerEntry | None:
        """The answer at the chat's end, if it is written."""
        last = self._mirror.entries[-1] if self._mirror.entries and self._mirror.at_end else None
        return last if isinstance(last, AnswerEntry) else None

    def entry_rect(self, entry: Entry) -> QRectF:
        """An entry's place in the viewport."""
        layout = self.document().documentLayout()
        frames = entry.frames
        rect = layout.frameBoundingRect(frames[0]).united(layout.frameBoundingRect(frames[-1]))
        return rect.translated(0, -self.verticalScrollBar().value())

    def _selection_in_tail(self, entry: AnswerEntry) -> bool:
        """A selection that the next write would take away; the write waits until it is gone."""
        span = self.selection.span
        if span is None or entry.up_to_date:
            return False
        start, end = entry.tail_span()
        return span[1] > start and span[0] < end

    @Slot()
    def _on_selection(self) -> None:
        if not self.reading.document_moves:
            self.selection.note_change()
        self._keep_selected()

    @Slot()
    def _keep_selected(self) -> None:
        self._mirror.keep = self.selection.span is not None
        if not self._mirror.keep:
            self.sync()


def _elsewhere(event: QMouseEvent) -> QMouseEvent:
    """The same, but where nothing is."""
    return QMouseEvent(event.type(), QPointF(-1, -1), event.globalPosition(), event.button(), event.buttons(), event.modifiers())
