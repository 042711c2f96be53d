"""The transcript: one read-only browser over one document that mirrors one chat.

Owns the document, its entries, the scrolling and the painting behind frames. Text reaches it only through `sync`, from the chat's model,
so a view that was hidden, or did not exist, catches up by itself. It never fetches a resource and never opens a link: it asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QRectF, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QTextCursor, QTextFrame
from PySide6.QtWidgets import QFrame, QTextBrowser, QToolButton, QWidget

from app.chats.model import Chat, ChatMessage, Role
from app.theme import Theme, icon
from app.theme.color import mix
from app.transcript.bars import MessageBars
from app.transcript.copying import source_of
from app.transcript.entries import AnswerEntry, UserEntry
from app.transcript.formats import INDENT, Formats, Kind
from app.transcript.formula import FORMULA_TYPE, FormulaObject
from app.transcript.writer import MarkdownWriter, frame_kind

COLUMN = 740
SIDE = 24  # least space beside the column
FOLLOW_PIXELS = 10
FIRST_BUILT = 60  # messages written when a chat is opened; older ones follow when the reader comes near the top
OLDER_AT_ONCE = 20
COST_SHARE = 6  # after a sync that took t, the next one waits COST_SHARE * t: at most a seventh of the time goes into writing


class TranscriptView(QTextBrowser):
    """Shows a chat.

    Signals:
        action_asked(name, message id): a message's button, see `ActionBar`.
        code_copied(source): a code block's Copy button.
        link_asked(address): a link was clicked; nothing was opened.
        typed(text): the person typed while this had the focus.
    """

    action_asked = Signal(str, str)
    code_copied = Signal(str)
    link_asked = Signal(str)
    typed = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(parent)
        self._clock = clock
        self._theme = theme
        self._formats = Formats(theme)
        self._writer = MarkdownWriter(self._formats)
        self._chat: Chat | None = None
        self._entries: list[UserEntry | AnswerEntry] = []
        self._first = 0  # index of the first message that is written
        self._follow = True
        self._ended = False  # whether the last message was complete when it was last looked at
        self._next_sync = 0.0
        self._late = QTimer(self)
        self._late.setSingleShot(True)
        self._late.timeout.connect(self.sync_text)
        self.setAccessibleName("Conversation")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setAcceptDrops(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.setStyleSheet("QTextBrowser { background: transparent; border: none; }")
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(INDENT)
        self._formulas = FormulaObject(self)
        self.document().documentLayout().registerHandler(FORMULA_TYPE, self._formulas)
        self._down = self._make_down_button()
        self.bars = MessageBars(self, theme)
        self.bars.asked.connect(self.action_asked)
        self.anchorClicked.connect(self._on_anchor)
        self.verticalScrollBar().rangeChanged.connect(self._on_range)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.selectionChanged.connect(self._on_selection)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def following(self) -> bool:
        """Whether the view stays at the bottom as text arrives."""
        return self._follow

    @property
    def chat(self) -> Chat | None:
        return self._chat

    @property
    def entries(self) -> tuple[UserEntry | AnswerEntry, ...]:
        return tuple(self._entries)

    # ------------------------------------------------------------------------------------------------------- methods

    def show_chat(self, chat: Chat) -> None:
        """Mirror this chat from now on, from its end."""
        self._chat = chat
        self.rebuild()

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._formats = Formats(theme)
        self._writer = MarkdownWriter(self._formats)
        self._down.setIcon(icon("down", theme.text))
        self._style_down_button()
        self.bars.set_theme(theme)
        self.rebuild()

    def rebuild(self) -> None:
        """Write the document anew from the chat."""
        self._entries = []
        self.clear()
        self._set_margins()
        if self._chat is None:
            return
        messages = self._chat.messages
        self._first = max(0, len(messages) - FIRST_BUILT)
        self._follow = True
        self._append(messages[self._first :])
        self._to_end()
        self.bars.refresh()

    @Slot()
    def sync(self) -> None:
        """Bring the document up to the chat: new messages, removed ones, more text. For whenever something has happened."""
        self._next_sync = float("-inf")
        self.sync_text()

    @Slot()
    def sync_text(self) -> None:
        """The same for more text, once a frame while it arrives: it waits a little if writing was costly. First words never wait."""
        chat = self._chat
        if chat is None:
            return
        now = self._clock()
        last = self._entries[-1] if self._entries else None
        if now < self._next_sync and not (isinstance(last, AnswerEntry) and last.blank):
            if not self._late.isActive():
                self._late.start(max(1, round((self._next_sync - now) * 1000)))
            return
        self._late.stop()
        shown = [entry.message for entry in self._entries]
        wanted = chat.messages[self._first :]
        same = 0
        while same < len(shown) and same < len(wanted) and shown[same] is wanted[same]:
            same += 1
        for entry in reversed(self._entries[same:]):
            self._remove(entry)
        if same < len(wanted):
            self._append(wanted[same:])
        if self._entries and isinstance(self._entries[-1], AnswerEntry) and not self._selection_in_tail(self._entries[-1]):
            self._entries[-1].sync()
        ended = bool(self._entries) and not self._entries[-1].message.running
        if same < max(len(shown), len(wanted)) or ended is not self._ended:
            self._ended = ended
            self.bars.refresh()
        self._next_sync = now + COST_SHARE * (self._clock() - now)

    def set_status(self, words: str) -> None:
        """How the answer being written is getting on."""
        if self._entries and isinstance(self._entries[-1], AnswerEntry) and self._entries[-1].message.running:
            self._entries[-1].set_status(words)

    def scroll_to_end(self) -> None:
        """Go to the bottom and follow again."""
        self._follow = True
        self._to_end()

    def show_entry(self, entry: UserEntry | AnswerEntry) -> None:
        """Scroll as little as is needed to see this entry, its beginning first."""
        rect = self.entry_rect(entry)
        bar = self.verticalScrollBar()
        if rect.top() < 0 or rect.height() > self.viewport().height():
            bar.setValue(round(bar.value() + rect.top()) - 12)
        elif rect.bottom() > self.viewport().height():
            bar.setValue(round(bar.value() + rect.bottom() - self.viewport().height()) + 12)

    def reveal(self, message_id: str) -> None:
        """Scroll to a message, if it is not in sight."""
        if entry := self.entry_of(message_id):
            self.show_entry(entry)

    def entry_of(self, message_id: str) -> UserEntry | AnswerEntry | None:
        return next((entry for entry in self._entries if entry.message.id == message_id), None)

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def loadResource(self, kind: int, name: QUrl | str) -> None:
        """Nothing is ever fetched, from the network or from a disk."""
        return None

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        cursor = self.textCursor()
        parts = [entry.part() for entry in self._entries]
        data.setText(source_of(self.document(), cursor.selectionStart(), cursor.selectionEnd(), parts))
        return data

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        top = self.verticalScrollBar().value()
        seen = QRectF(event.rect()).translated(0, top)
        painter.translate(0, -top)
        for entry in self._entries:
            for frame in entry.frames:
                self._paint_frame(painter, frame, seen)
        self.bars.paint_mark(painter)
        painter.end()
        super().paintEvent(event)
        self.bars.place()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        self.bars.point_at(event.position().y() if not event.buttons() else None)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.bars.point_at(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_margins()
        if self._follow:
            self._to_end()
        self._place_down_button()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = not event.modifiers() & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier)
        if plain and event.text() and event.text().isprintable() and event.key() != Qt.Key.Key_Space:
            self.typed.emit(event.text())
            return
        super().keyPressEvent(event)

    # ------------------------------------------------------------------------------------------------------- private

    def _append(self, messages: list[ChatMessage]) -> None:
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for message in messages:
            cursor.movePosition(QTextCursor.MoveOperation.End)
            self._entries.append(self._write(cursor, message, last=message is messages[-1]))
        cursor.endEditBlock()
        self._mark_last(len(messages))

    def _write(self, cursor: QTextCursor, message: ChatMessage, last: bool) -> UserEntry | AnswerEntry:
        if message.role is Role.USER:
            bubble = UserEntry(cursor, message, self._formats)
            bubble.fit(self.column())
            return bubble
        answer = AnswerEntry(cursor, message, self._formats, self._writer, last)
        answer.sync()
        return answer

    def _mark_last(self, new: int) -> None:
        """Tell the answer before the `new` last entries, and the last one, which of them is the last."""
        for entry in self._entries[-new - 1 :]:
            if isinstance(entry, AnswerEntry):
                entry.set_last(entry is self._entries[-1])

    def _remove(self, entry: UserEntry | AnswerEntry) -> None:
        self._entries.remove(entry)
        cursor = QTextCursor(self.document())
        for frame in reversed(entry.frames):
            # From the thin block before the frame to the one behind it, so that the frame goes and one thin block stays.
            cursor.setPosition(frame.firstPosition() - 1)
            cursor.setPosition(frame.lastPosition() + 1, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
        self._mark_last(0)

    def _write_older(self) -> None:
        """Write a few messages above the first one, without moving what the reader sees."""
        if self._chat is None or self._first == 0:
            return
        start = max(0, self._first - OLDER_AT_ONCE)
        older = self._chat.messages[start : self._first]
        bar = self.verticalScrollBar()
        before = bar.maximum() - bar.value()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        written: list[UserEntry | AnswerEntry] = []
        for message in older:
            cursor.setPosition(written[-1].frames[-1].lastPosition() + 1 if written else 0)
            written.append(self._write(cursor, message, last=False))
        cursor.endEditBlock()
        self._entries[:0] = written
        self._first = start
        bar.setValue(bar.maximum() - before)

    def column_left(self) -> float:
        """Where the column begins in the viewport."""
        return self.document().rootFrame().frameFormat().leftMargin()

    def entry_rect(self, entry: UserEntry | AnswerEntry) -> QRectF:
        """An entry's place in the viewport."""
        layout = self.document().documentLayout()
        rect = QRectF()
        for frame in entry.frames:
            rect = rect.united(layout.frameBoundingRect(frame))
        return rect.translated(0, -self.verticalScrollBar().value())

    def column(self) -> float:
        return float(min(COLUMN, max(200, self.viewport().width() - 2 * SIDE)))

    def _set_margins(self) -> None:
        root = self.document().rootFrame()
        # Centred in the widget, scroll bar included, so that the composer below stands exactly under the column.
        left = max(float(SIDE), (self.width() - COLUMN) / 2)
        right = max(float(SIDE), self.viewport().width() - COLUMN - left)
        frame_format = root.frameFormat()
        if abs(frame_format.leftMargin() - left) + abs(frame_format.rightMargin() - right) > 0.5 or frame_format.topMargin() != 28:
            frame_format.setLeftMargin(left)
            frame_format.setRightMargin(right)
            frame_format.setTopMargin(28)
            frame_format.setBottomMargin(20)
            root.setFrameFormat(frame_format)
        for entry in self._entries:
            if isinstance(entry, UserEntry):
                entry.fit(self.column())

    def _paint_frame(self, painter: QPainter, frame: QTextFrame, seen: QRectF) -> None:
        rect = self.document().documentLayout().frameBoundingRect(frame)
        if not rect.intersects(seen):
            return
        kind = frame_kind(frame)
        if kind is not Kind.PLAIN:
            margins = frame.frameFormat()
            inner = rect.adjusted(margins.leftMargin(), margins.topMargin(), -margins.rightMargin(), -margins.bottomMargin())
            self._paint_behind(painter, kind, inner)
        for child in frame.childFrames():
            self._paint_frame(painter, child, seen)

    def _paint_behind(self, painter: QPainter, kind: Kind, rect: QRectF) -> None:
        theme = self._theme
        painter.setPen(Qt.PenStyle.NoPen)
        if kind is Kind.BUBBLE:
            painter.setBrush(QColor(theme.raised if theme.is_dark else mix(theme.accent, theme.surface, 0.13)))
            # Line spacing adds its share below the last line; the bubble gives it back.
            painter.drawRoundedRect(rect.adjusted(0, 0, 0, -5), 18, 18)
        elif kind is Kind.CODE:
            painter.setPen(QPen(QColor(theme.hairline), 1))
            painter.setBrush(self._formats.code_background)
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)
        elif kind is Kind.QUOTE:
            painter.setBrush(self._formats.line)
            painter.drawRoundedRect(QRectF(rect.left(), rect.top() + 2, 3, max(4.0, rect.height() - 12)), 1.5, 1.5)
        elif kind is Kind.RULE:
            painter.setBrush(self._formats.line)
            painter.drawRect(QRectF(rect.left(), round(rect.top()), rect.width(), 1))
        elif kind is Kind.ERROR:
            painter.setPen(QPen(QColor(mix(theme.danger, theme.window, 0.55)), 1))
            painter.setBrush(QColor(mix(theme.danger, theme.window, 0.10)))
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)

    # ----------------------------------------------------------------------------------------------------- scrolling

    def _to_end(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    @Slot(int, int)
    def _on_range(self, least: int, most: int) -> None:
        if self._follow:
            self.verticalScrollBar().setValue(most)
        self._place_down_button()

    @Slot(int)
    def _on_scrolled(self, value: int) -> None:
        bar = self.verticalScrollBar()
        self._follow = value >= bar.maximum() - FOLLOW_PIXELS
        self._place_down_button()
        if value < self.viewport().height() // 2 and self._first > 0 and bar.maximum() > 0:
            QTimer.singleShot(0, self._write_older)

    def _selection_in_tail(self, entry: AnswerEntry) -> bool:
        """A selection that the next write would take away; the write waits until it is gone."""
        cursor = self.textCursor()
        if not cursor.hasSelection() or entry.up_to_date:
            return False
        start, end = entry.tail_span()
        return cursor.selectionEnd() > start and cursor.selectionStart() < end

    @Slot()
    def _on_selection(self) -> None:
        if not self.textCursor().hasSelection():
            self.sync()

    def _make_down_button(self) -> QToolButton:
        button = QToolButton(self)
        button.setIcon(icon("down", self._theme.text))
        button.setToolTip("To the bottom")
        button.setAccessibleName("To the bottom")
        button.setFixedSize(36, 36)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(self.scroll_to_end)
        button.hide()
        self._down = button
        self._style_down_button()
        return button

    def _style_down_button(self) -> None:
        line = mix(self._theme.text, self._theme.window, 0.16)
        self._down.setStyleSheet(f"QToolButton {{ background: {self._theme.raised}; border: 1px solid {line}; border-radius: 18px; }}")

    def _place_down_button(self) -> None:
        bar = self.verticalScrollBar()
        far = bar.maximum() - bar.value() > self.viewport().height() // 2
        self._down.setVisible(far)
        if far:
            self._down.move((self.viewport().width() - 36) // 2, self.viewport().height() - 48)

    # --------------------------------------------------------------------------------------------------------- links

    @Slot(QUrl)
    def _on_anchor(self, url: QUrl) -> None:
        scheme, _, rest = url.toString().partition(":")
        if scheme == "action":
            name, _, message_id = rest.partition(":")
            self.action_asked.emit(name, message_id)
        elif scheme == "thought":
            entry = self.entry_of(rest.partition(":")[0])
            if isinstance(entry, AnswerEntry):
                entry.toggle_thought()
        elif scheme == "code":
            message_id, _, number = rest.partition(":")
            entry = self.entry_of(message_id)
            source = entry.code(int(number)) if isinstance(entry, AnswerEntry) else None
            if source is not None:
                self.code_copied.emit(source)
        else:
            self.link_asked.emit(url.toString())
