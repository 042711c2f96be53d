"""The composer: what one is about to say, what is queued behind the answer being written, and the button that sends or stops.

Owns no chat: it is given texts and tells what the person did with them.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QTextCursor
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from app.composer.buttons import SendButton
from app.composer.editor import MessageEdit
from app.theme import Theme, icon
from app.theme.color import mix

RADIUS = 22
GROW_SHARE = 0.4  # of the window's height


class Composer(QWidget):
    """A rounded box with the text, the queue above it and the button at its right.

    Signals:
        sent(text): the person sent this; the box is empty already. Empty text: the first held message is to go.
        edited(text): what was being edited is to be replaced by this. edit_ended: an edit is over, either way.
        stop_asked: the button was pressed while an answer is being written.
        draft_changed(text): what stands in the box.
        follow_up_edited(place), follow_up_removed(place): a queued message was taken back, or dropped.
        recalled: Up in an empty box: the last own message is wanted.
    """

    sent = Signal(str)
    edited = Signal(str)
    edit_ended = Signal()
    stop_asked = Signal()
    draft_changed = Signal(str)
    follow_up_edited = Signal(int)
    follow_up_removed = Signal(int)
    recalled = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._held = False
        self._kept: str | None = None  # while an edit is on: the draft that comes back after it
        self.edit = MessageEdit(self)
        self.button = SendButton(theme, self)
        self._notice = self._make_notice()
        self._queue = QVBoxLayout()
        self._queue.setSpacing(2)
        self._queue_rows: list[QWidget] = []
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.edit, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 9, 10, 9)
        layout.setSpacing(4)
        layout.addWidget(self._notice)
        layout.addLayout(self._queue)
        layout.addLayout(row)
        self.setFocusProxy(self.edit)
        self.setAccessibleName("Composer")
        self.edit.submitted.connect(self.submit)
        self.edit.recalled.connect(self.recalled)
        self.edit.height_changed.connect(self.updateGeometry)
        self.edit.focus_changed.connect(self.update)
        self.edit.textChanged.connect(self._on_text)
        self.button.clicked.connect(self._on_button)
        self.set_theme(theme)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def text(self) -> str:
        return self.edit.toPlainText()

    @property
    def editing(self) -> bool:
        """Whether what stands in the box is another version of something that was said."""
        return self._kept is not None

    @property
    def draft(self) -> str:
        """What is to be sent one day: the text, or the one that an edit has pushed aside."""
        return self.text if self._kept is None else self._kept

    @property
    def follow_up_count(self) -> int:
        return len(self._queue_rows)

    # ------------------------------------------------------------------------------------------------------- methods

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.button.set_theme(theme)
        self.update()

    def set_text(self, text: str) -> None:
        """Put text into the box, the cursor behind it. Does not count as typing."""
        if text != self.text:
            self.edit.setPlainText(text)
            self.edit.moveCursor(QTextCursor.MoveOperation.End)

    def begin_edit(self, words: str, text: str) -> None:
        """Offer `text` to be changed; `words` say what it is. The draft is kept aside."""
        self._kept = self.draft
        self._notice_words.setText(words)
        self._notice.show()
        self.set_text(text)
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot()
    def end_edit(self) -> None:
        """Bring the draft back."""
        if self._kept is not None:
            draft, self._kept = self._kept, None
            self._notice.hide()
            self.set_text(draft)
            self.edit_ended.emit()

    def set_placeholder(self, words: str) -> None:
        if words != self.edit.placeholderText():
            self.edit.setPlaceholderText(words)

    def set_running(self, running: bool) -> None:
        self.button.set_running(running)

    def set_follow_ups(self, texts: list[str], held: bool) -> None:
        """Show the queued messages. `held`: nothing is being written, so they wait for the person to send them."""
        for row in self._queue_rows:
            self._queue.removeWidget(row)
            row.deleteLater()
        self._queue_rows = [self._make_row(place, text, held) for place, text in enumerate(texts)]
        for row in self._queue_rows:
            self._queue.addWidget(row)
        self._held = held and bool(texts)
        self._refresh_button()

    def bound_height(self, window_height: int) -> None:
        """Let the box grow to its share of the window."""
        self.edit.bound(round(window_height * GROW_SHARE))

    def type(self, text: str) -> None:
        """Take the focus, and text that was typed elsewhere."""
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self.edit.insertPlainText(text)

    @Slot()
    def submit(self) -> None:
        """Send what stands in the box; with an empty box, the first queued message that is held back."""
        text = self.text
        if self.editing:
            if text.strip():
                self.end_edit()
                self.edited.emit(text)
        elif text.strip():
            self.edit.clear()
            self.sent.emit(text)
        elif self._held:
            self.sent.emit("")

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(600, super().sizeHint().height())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.edit.setFocus(Qt.FocusReason.MouseFocusReason)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = self._theme
        line = mix(theme.accent, theme.surface, 0.55) if self.edit.hasFocus() else mix(theme.text, theme.surface, 0.14)
        painter.setPen(QPen(QColor(line), 1))
        painter.setBrush(QColor(theme.surface))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), RADIUS, RADIUS)

    # ------------------------------------------------------------------------------------------------------- private

    @Slot()
    def _on_text(self) -> None:
        self._refresh_button()
        if not self.editing:
            self.draft_changed.emit(self.text)

    def _refresh_button(self) -> None:
        self.button.set_has_text(bool(self.text.strip()) or self._held)

    @Slot()
    def _on_button(self) -> None:
        if self.button.running:
            self.stop_asked.emit()
        else:
            self.submit()

    def _make_notice(self) -> QWidget:
        """The line above an edit, with the way out of it."""
        notice = QWidget(self)
        self._notice_words = QLabel(notice)
        self._notice_words.setProperty("kind", "small")
        cancel = self._tool(notice, "close", "Cancel the edit (Esc)")
        cancel.clicked.connect(self.end_edit)
        row = QHBoxLayout(notice)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._notice_words, 1)
        row.addWidget(cancel)
        notice.hide()
        return notice

    def _tool(self, parent: QWidget, picture: str, name: str) -> QToolButton:
        button = QToolButton(parent)
        button.setIcon(icon(picture, self._theme.text_dim))
        button.setIconSize(QSize(14, 14))
        button.setToolTip(name)
        button.setAccessibleName(name)
        return button

    def _make_row(self, place: int, text: str, held: bool) -> QWidget:
        row = QWidget(self)
        label = QLabel(row)
        label.setProperty("kind", "small")
        label.setTextFormat(Qt.TextFormat.PlainText)
        first = " ".join(text.split())
        words = f"{'Held' if held else 'Next'}:  {first}"
        label.setText(label.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, 560))
        label.setToolTip(text[:500])
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addWidget(label, 1)
        edits = (("edit", "Edit queued message", self.follow_up_edited), ("close", "Remove queued message", self.follow_up_removed))
        for picture, name, signal in edits:
            button = self._tool(row, picture, name)
            button.clicked.connect(lambda _=False, signal=signal, place=place: signal.emit(place))
            layout.addWidget(button)
        return row
