"""The box one writes in: plain text, grows with it, and knows an Enter that sends from one that belongs to an input method."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QInputMethodEvent, QKeyEvent, QTextOption
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextEdit, QWidget

from app.chats.attach import LONG_PASTE
from app.theme import ui_font
from app.transcript.unbroken import is_unbroken

EDIT_PIXELS = 15
LEAST_HEIGHT = 24
# On X11 Qt's own editing keys include these (delete a character, to the end of the line …); in this window they are the window's.
WINDOW_KEYS = frozenset({Qt.Key.Key_D, Qt.Key.Key_K, Qt.Key.Key_W, Qt.Key.Key_B, Qt.Key.Key_N, Qt.Key.Key_T})


class MessageEdit(QTextEdit):
    """Plain text of one message.

    Signals:
        submitted: Enter, or Ctrl+Enter, outside of any composition.
        recalled: Up in an empty box.
        height_changed: the text needs another height.
        focus_changed: the box got or lost the focus.
        files_dropped(paths): files were dropped or pasted. long_pasted(text): a paste that is better kept as a file.

    Attributes:
        most_height: where growing ends and scrolling begins, in pixels.
        sends_with_ctrl: Enter is a new line, and only Ctrl+Enter sends.
    """

    submitted = Signal()
    recalled = Signal()
    height_changed = Signal()
    focus_changed = Signal()
    files_dropped = Signal(object)
    long_pasted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.most_height = 240
        self.sends_with_ctrl = False
        self._composing = False
        self.setAcceptRichText(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(ui_font(EDIT_PIXELS))
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setStyleSheet("QTextEdit { background: transparent; border: none; }")
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(3)
        self.setAccessibleName(self.tr("Message"))
        self.document().documentLayout().documentSizeChanged.connect(self._on_size)

    @property
    def composing(self) -> bool:
        """Whether an input method is in the middle of a word."""
        return self._composing

    def wanted_height(self) -> int:
        """Height for the text, within bounds, in pixels."""
        return max(LEAST_HEIGHT, min(self.most_height, round(self.document().size().height()) + 1))

    def set_zoom(self, zoom: float) -> None:
        self.setFont(ui_font(round(EDIT_PIXELS * zoom)))
        self._on_size()

    def bound(self, most_height: int) -> None:
        """Set where growing ends."""
        self.most_height = max(LEAST_HEIGHT, most_height)
        self._on_size()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def setPlainText(self, text: str) -> None:
        self._break_anywhere(is_unbroken(text))
        super().setPlainText(text)

    def insertPlainText(self, text: str) -> None:
        if is_unbroken(text):
            self._break_anywhere(True)
        super().insertPlainText(text)

    def clear(self) -> None:
        super().clear()
        self._break_anywhere(False)

    def sizeHint(self) -> QSize:
        return QSize(400, self.wanted_height())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            control = event.modifiers() & ~Qt.KeyboardModifier.ShiftModifier == Qt.KeyboardModifier.ControlModifier
            if control and event.key() in WINDOW_KEYS:
                event.ignore()
                return False
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            # While a word is being composed Enter belongs to the input method; one that still arrives here is nobody's.
            if not self._composing:
                self._on_enter(event)
            event.accept()
            return
        if event.key() == Qt.Key.Key_Up and not event.modifiers() and self.document().isEmpty() and not self._composing:
            self.recalled.emit()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or bool(local_paths(source))

    def insertFromMimeData(self, source: QMimeData) -> None:
        if paths := local_paths(source):
            self.files_dropped.emit(paths)
        elif source.hasText() and len(source.text()) > LONG_PASTE:
            self.long_pasted.emit(source.text())
        elif source.hasText():
            self.insertPlainText(source.text())

    # ------------------------------------------------------------------------------------------------------- private

    def _on_enter(self, event: QKeyEvent) -> None:
        controlled = bool(event.modifiers() & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.MetaModifier))
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier or (self.sends_with_ctrl and not controlled):
            self.textCursor().insertText("\n")
            self.ensureCursorVisible()
        elif not event.isAutoRepeat():
            self.submitted.emit()

    def _break_anywhere(self, wanted: bool) -> None:
        """Lines of a text without blanks are broken wherever they are full: looking for its words takes Qt minutes."""
        mode = QTextOption.WrapMode
        self.setWordWrapMode(mode.WrapAnywhere if wanted else mode.WrapAtWordBoundaryOrAnywhere)

    def _on_size(self) -> None:
        if self.height() != self.wanted_height():
            self.setFixedHeight(self.wanted_height())
            self.height_changed.emit()


def is_typing(event: QKeyEvent) -> bool:
    """Whether a key that another widget got begins a message: a letter or a sign, no blank and no command."""
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    return bool(event.text()) and event.text().isprintable() and event.key() != Qt.Key.Key_Space and not event.modifiers() & commands


def local_paths(source: QMimeData) -> list[Path]:
    """The files of this machine that a drop or a paste names."""
    return [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
