"""The files that go along with a message, as a row of chips above its text. Owns the list; reads no file."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from app.chats.model import Attachment
from app.numbers import fill
from app.theme import Theme, icon

NAME_WIDTH = 200
IN_A_ROW = 3
SHOWN = 600  # characters in the tool tip


class AttachmentChips(QWidget):
    """Signals:
    changed: a file came or went. unfolded(text): a long paste is to be text again.
    """

    changed = Signal()
    unfolded = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._files: tuple[Attachment, ...] = ()
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 2, 0, 4)
        self._rows.setSpacing(6)
        self._widgets: list[QWidget] = []
        self.setAccessibleName(self.tr("Attachments"))
        self.hide()

    @property
    def files(self) -> tuple[Attachment, ...]:
        return self._files

    @property
    def chips(self) -> tuple[QWidget, ...]:
        return tuple(self.findChildren(QFrame, "chip"))

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._show()

    def set_files(self, files: tuple[Attachment, ...]) -> None:
        """Show these files; tells nobody."""
        if files != self._files:
            self._files = files
            self._show()

    def add(self, file: Attachment) -> None:
        if file not in self._files:
            self._files = (*self._files, file)
            self._show()
            self.changed.emit()

    def remove(self, place: int) -> None:
        self._files = self._files[:place] + self._files[place + 1 :]
        self._show()
        self.changed.emit()

    def _unfold(self, place: int) -> None:
        text = self._files[place].text
        self.remove(place)
        self.unfolded.emit(text)

    def _show(self) -> None:
        for widget in self._widgets:
            self._rows.removeWidget(widget)
            widget.setParent(None)  # type: ignore[call-overload]
            widget.deleteLater()
        self._widgets = []
        for start in range(0, len(self._files), IN_A_ROW):
            row = QWidget(self)
            layout = QHBoxLayout(row)
            layout.setContentsMargins(0, 0, 0, 0)
            layout.setSpacing(6)
            for place in range(start, min(start + IN_A_ROW, len(self._files))):
                layout.addWidget(self._make_chip(place, row))
            layout.addStretch(1)
            self._rows.addWidget(row)
            self._widgets.append(row)
        self.setVisible(bool(self._files))

    def _make_chip(self, place: int, parent: QWidget) -> QFrame:
        file = self._files[place]
        chip = QFrame(parent)
        chip.setObjectName("chip")
        chip.setProperty("kind", "bar")
        chip.setToolTip(file.text[:SHOWN] + ("…" if len(file.text) > SHOWN else ""))
        chip.setAccessibleName(fill(self.tr("{0}, {1:,} characters"), file.name, len(file.text)))
        picture = QLabel(chip)
        picture.setPixmap(icon("file", self._theme.text_dim).pixmap(QSize(16, 16), self.devicePixelRatioF()))
        name = QLabel(chip)
        name.setTextFormat(Qt.TextFormat.PlainText)
        name.setText(name.fontMetrics().elidedText(file.name, Qt.TextElideMode.ElideMiddle, NAME_WIDTH))
        size = QLabel(self._size_words(file), chip)
        size.setProperty("kind", "small")
        layout = QHBoxLayout(chip)
        layout.setContentsMargins(10, 3, 4, 3)
        layout.setSpacing(6)
        for widget in (picture, name, size):
            layout.addWidget(widget)
        if file.kind == "paste":
            layout.addWidget(self._tool(chip, "edit", self.tr("Put {0} back as text").format(file.name), lambda: self._unfold(place)))
        layout.addWidget(self._tool(chip, "close", self.tr("Remove {0}").format(file.name), lambda: self.remove(place)))
        return chip

    def _tool(self, parent: QWidget, picture: str, words: str, action) -> QToolButton:  # type: ignore[no-untyped-def]
        button = QToolButton(parent)
        button.setIcon(icon(picture, self._theme.text_dim))
        button.setIconSize(QSize(12, 12))
        button.setToolTip(words)
        button.setAccessibleName(words)
        button.clicked.connect(lambda _=False: action())
        return button

    def _size_words(self, file: Attachment) -> str:
        count = len(file.text)
        return fill(self.tr("{0:,} characters"), count) if count < 10_000 else fill(self.tr("{0:,.0f}k characters"), count / 1000)
