"""The composer: what one is about to say, what is queued behind the answer being written, and the button that sends or stops.

Owns no chat: it is given texts and tells what the person did with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QTextCursor
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from app.chats.attach import paste_attachment
from app.chats.model import Attachment, Said
from app.composer.buttons import SendButton
from app.composer.chips import AttachmentChips
from app.composer.editor import MessageEdit, local_paths
from app.composer.reader import FileReader
from app.theme import Theme, icon
from app.theme.color import mix

RADIUS = 22
GROW_SHARE = 0.4  # of the window's height


class Composer(QWidget):
    """A rounded box with the text, the queue above it and the button at its right.

    Signals:
        sent(text, attachments): the person sent this; the box is empty already. Nothing at all: the first held message is to go.
        edited(text, attachments): what was being edited is to be replaced by this. edit_ended: an edit is over, either way.
        files_changed(attachments): what goes along with the draft. attach_asked: the person wants to choose files.
        trouble(words): a file could not be attached.
        stop_asked: the button was pressed while an answer is being written.
        draft_changed(text): what stands in the box.
        follow_up_edited(place), follow_up_removed(place): a queued message was taken back, or dropped.
        recalled: Up in an empty box: the last own message is wanted.
    """

    sent = Signal(str, object)
    edited = Signal(str, object)
    files_changed = Signal(object)
    attach_asked = Signal()
    trouble = Signal(str)
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
        self._kept: Said | None = None  # while an edit is on: the draft that comes back after it
        self.edit = MessageEdit(self)
        self.button = SendButton(theme, self)
        self.files = AttachmentChips(theme, self)
        self.reader = FileReader(self)
        self.clip = self._tool(self, "clip", self.tr("Attach text, code or PDF (or drop it here)"))
        self.clip.setIconSize(QSize(18, 18))
        self.clip.setFixedSize(32, self.button.height())
        self.setAcceptDrops(True)
        self._notice = self._make_notice()
        self._queue = QVBoxLayout()
        self._queue.setSpacing(2)
        self._queue_rows: list[QWidget] = []
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.clip, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.edit, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 9, 10, 9)
        layout.setSpacing(4)
        layout.addWidget(self._notice)
        layout.addLayout(self._queue)
        layout.addWidget(self.files)
        layout.addLayout(row)
        self.setFocusProxy(self.edit)
        self.setAccessibleName(self.tr("Composer"))
        self.edit.submitted.connect(self.submit)
        self.edit.recalled.connect(self.recalled)
        self.edit.height_changed.connect(self.updateGeometry)
        self.edit.focus_changed.connect(self.update)
        self.edit.textChanged.connect(self._on_text)
        self.button.clicked.connect(self._on_button)
        self.clip.clicked.connect(self.attach_asked)
        self.edit.files_dropped.connect(self.reader.start)
        self.edit.long_pasted.connect(self._on_long_paste)
        self.reader.read.connect(self.files.add)
        self.reader.failed.connect(self.trouble)
        self.files.changed.connect(self._on_files)
        self.files.unfolded.connect(self.edit.insertPlainText)
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
        return self.text if self._kept is None else self._kept.text

    @property
    def follow_up_count(self) -> int:
        return len(self._queue_rows)

    # ------------------------------------------------------------------------------------------------------- methods

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.button.set_theme(theme)
        self.files.set_theme(theme)
        self.clip.setIcon(icon("clip", theme.text_dim))
        self.update()

    def set_sends_with_ctrl(self, wanted: bool) -> None:
        """Whether Ctrl+Enter sends and Enter is a new line, or Enter sends."""
        self.edit.sends_with_ctrl = wanted
        self.button.set_send_key("Ctrl+Enter" if wanted else "Enter")

    def set_text(self, text: str) -> None:
        """Put text into the box, the cursor behind it. Does not count as typing."""
        if text != self.text:
            self.edit.setPlainText(text)
            self.edit.moveCursor(QTextCursor.MoveOperation.End)

    def begin_edit(self, words: str, text: str, files: tuple[Attachment, ...] = ()) -> None:
        """Offer something said to be changed; `words` say what it is. The draft is kept aside, with its files."""
        if self._kept is None:
            self._kept = Said(self.text, self.files.files)
        self._notice_words.setText(words)
        self._notice.show()
        self.set_text(text)
        self.files.set_files(files)
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self._refresh_button()

    @Slot()
    def end_edit(self) -> None:
        """Bring the draft back."""
        if self._kept is not None:
            self._notice.hide()
            draft = self._kept
            self.set_text(draft.text)
            self.files.set_files(draft.attachments)
            self._kept = None
            self._refresh_button()
            self.edit_ended.emit()

    def set_placeholder(self, words: str) -> None:
        if words != self.edit.placeholderText():
            self.edit.setPlaceholderText(words)

    def set_running(self, running: bool) -> None:
        self.button.set_running(running)

    def set_follow_ups(self, queued: Sequence[Said], held: bool) -> None:
        """Show the queued messages. `held`: nothing is being written, so they wait for the person to send them."""
        for row in self._queue_rows:
            self._queue.removeWidget(row)
            row.deleteLater()
        self._queue_rows = [self._make_row(place, said, held) for place, said in enumerate(queued)]
        for row in self._queue_rows:
            self._queue.addWidget(row)
        self._held = held and bool(queued)
        self._refresh_button()

    def bound_height(self, window_height: int) -> None:
        """Let the box grow to its share of the window."""
        self.edit.bound(round(window_height * GROW_SHARE))

    def take_back(self, said: Said) -> None:
        """Put something said into the box again, its files too, before the draft that stands there; an edit is over."""
        self.end_edit()
        self.set_text(said.text + ("\n" + self.text if self.text else ""))
        for file in said.attachments:
            self.files.add(file)
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def type(self, text: str) -> None:
        """Take the focus, and text that was typed elsewhere."""
        self.edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self.edit.insertPlainText(text)

    @Slot()
    def submit(self) -> None:
        """Send what stands in the box; with an empty box, the first queued message that is held back."""
        text, files = self.text, self.files.files
        said = bool(text.strip() or files)
        if self.editing:
            if said:
                self.end_edit()
                self.edited.emit(text, files)
        elif said:
            self.edit.clear()
            self.files.set_files(())
            self._on_files()
            self.sent.emit(text, files)
        elif self._held:
            self.sent.emit("", ())

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(600, super().sizeHint().height())

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        self.reader.start(local_paths(event.mimeData()))
        event.acceptProposedAction()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.edit.setFocus(Qt.FocusReason.MouseFocusReason)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = self._theme
        focus = self.edit.hasFocus()
        line, width = (mix(theme.accent, theme.surface, 0.75), 2) if focus else (mix(theme.text, theme.surface, 0.14), 1)
        painter.setPen(QPen(QColor(line), width))
        painter.setBrush(QColor(theme.surface))
        half = width / 2
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(half, half, -half, -half), RADIUS, RADIUS)

    # ------------------------------------------------------------------------------------------------------- private

    @Slot()
    def _on_text(self) -> None:
        self._refresh_button()
        if not self.editing:
            self.draft_changed.emit(self.text)

    def _refresh_button(self) -> None:
        self.button.set_has_text(bool(self.text.strip() or self.files.files) or self._held)

    @Slot()
    def _on_files(self) -> None:
        self._refresh_button()
        if not self.editing:
            self.files_changed.emit(self.files.files)

    @Slot(str)
    def _on_long_paste(self, text: str) -> None:
        number = 1 + sum(file.kind == "paste" for file in self.files.files)
        self.files.add(paste_attachment(text, number))

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
        cancel = self._tool(notice, "close", self.tr("Cancel the edit (Esc)"))
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

    def _make_row(self, place: int, said: Said, held: bool) -> QWidget:
        row = QWidget(self)
        label = QLabel(row)
        label.setProperty("kind", "small")
        label.setTextFormat(Qt.TextFormat.PlainText)
        files = ", ".join(file.name for file in said.attachments)
        first = " ".join(said.text.split()) + (f"  ({files})" if files else "")
        words = f"{self.tr('Held') if held else self.tr('Next')}:  {first}"
        label.setText(label.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, 560))
        label.setToolTip(said.text[:500])
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addWidget(label, 1)
        edits = (
            ("edit", self.tr("Edit queued message"), self.follow_up_edited),
            ("close", self.tr("Remove queued message"), self.follow_up_removed),
        )
        for picture, name, signal in edits:
            button = self._tool(row, picture, name)
            button.clicked.connect(lambda _=False, signal=signal, place=place: signal.emit(place))
            layout.addWidget(button)
        return row
