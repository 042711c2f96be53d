"""A question or a notice inside the window, beside what it is about. Never modal: everything else goes on."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget


class InlineBar(QFrame):
    """Words and a few buttons; hidden while there is nothing to ask.

    Signals:
        chosen(key): the key of the button that was pressed; the bar has gone already.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "bar")
        self._label = QLabel(self)
        self._label.setWordWrap(True)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._buttons: dict[str, QPushButton] = {}
        self._layout = QHBoxLayout(self)
        self._layout.setContentsMargins(16, 8, 8, 8)
        self._layout.setSpacing(6)
        self._layout.addWidget(self._label, 1)
        self.hide()

    @property
    def words(self) -> str:
        return self._label.text()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._buttons)

    def ask(self, words: str, answers: Sequence[tuple[str, str, str]]) -> None:
        """Show `words` with buttons (key, label, kind), the kinds of the style sheet ("" is plain). Replaces what was asked before."""
        for button in self._buttons.values():
            self._layout.removeWidget(button)
            button.deleteLater()
        self._buttons = {}
        self._label.setText(words)
        for key, label, kind in answers:
            button = QPushButton(label, self)
            button.setProperty("kind", kind)
            button.clicked.connect(lambda _=False, key=key: self.choose(key))
            self._layout.addWidget(button)
            self._buttons[key] = button
        self.setAccessibleName(words)
        self.show()

    def reword(self, words: str) -> None:
        """Say the same question with other words; its buttons, and a focus on one of them, stay."""
        self._label.setText(words)
        self.setAccessibleName(words)

    def choose(self, key: str) -> None:
        """Answer, as a press of that button does."""
        self.hide()
        self.chosen.emit(key)
