"""The bar for finding words in the chat in view: a field, how many there are, the way to the next and the one before.

Opened by Ctrl+F. Enter and F3 go on, Shift goes back, Esc closes. Owns no chat: it drives a view's `Finder`.
"""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QToolButton, QWidget

from app.numbers import fill
from app.theme import Theme, icon, tabular, ui_font
from app.transcript.find import Finder

TYPING_MS = 120  # a search begins when typing rests this long


class FindField(QLineEdit):
    """Signals:
    entered(by): Enter (+1), or Shift+Enter (-1).
    """

    entered = Signal(int)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entered.emit(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
        else:
            super().keyPressEvent(event)


class FindBar(QFrame):
    """Signals:
    closed: the bar went away; the keyboard belongs to whoever had it.
    """

    closed = Signal()

    def __init__(self, finder: Finder, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._finder = finder
        self.setProperty("kind", "bar")
        self.setAccessibleName(self.tr("Find in this chat"))
        self.field = FindField(self)
        self.field.setPlaceholderText(self.tr("Find in this chat"))
        self.field.setAccessibleName(self.tr("Find in this chat"))
        self.count = QLabel(self)
        self.count.setProperty("kind", "small")
        self.count.setFont(tabular(ui_font(12)))
        self.count.setMinimumWidth(78)
        self._buttons = {
            name: self._tool(words)
            for name, words in (
                ("up", self.tr("Match before (Shift+F3)")),
                ("down", self.tr("Next match (F3)")),
                ("close", self.tr("Close (Esc)")),
            )
        }
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 6, 8, 6)
        row.setSpacing(4)
        row.addWidget(self.field, 1)
        row.addWidget(self.count)
        for button in self._buttons.values():
            row.addWidget(button)
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(TYPING_MS)
        self._rest.timeout.connect(self._search)
        self.field.textChanged.connect(self._on_text)
        self._buttons["up"].clicked.connect(lambda: self.step(-1))
        self._buttons["down"].clicked.connect(lambda: self.step(1))
        self._buttons["close"].clicked.connect(self.close_bar)
        self.field.entered.connect(self.step)
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        for name, button in self._buttons.items():
            button.setIcon(icon({"up": "up", "down": "below", "close": "close"}[name], theme.text_dim))

    def open_bar(self) -> None:
        """Show the bar, the words of last time ready to be typed over."""
        self.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
        if self.field.text():
            self._search()

    @Slot()
    def close_bar(self) -> None:
        self._rest.stop()
        self._finder.search("")
        self.hide()
        self.closed.emit()

    def step(self, by: int) -> None:
        """Go to the next match (+1) or the one before (-1)."""
        if self.isHidden():
            self.open_bar()
        if self._rest.isActive():
            self._search()
        self._finder.step(by)
        self._show_count()

    # ------------------------------------------------------------------------------------------------------- private

    @Slot()
    def _on_text(self) -> None:
        self._rest.start()

    @Slot()
    def _search(self) -> None:
        self._rest.stop()
        self._finder.search(self.field.text())
        self._show_count()

    def _show_count(self) -> None:
        hits = len(self._finder.hits)
        if not self.field.text():
            words = ""
        elif not hits:
            words = self.tr("No match")
        elif self._finder.at is None:
            words = self.tr("1 match") if hits == 1 else fill(self.tr("{0:,} matches"), hits)
        else:
            words = fill(self.tr("{0:,} of {1:,}"), self._finder.at + 1, hits)
        self.count.setText(words)

    def _tool(self, words: str) -> QToolButton:
        button = QToolButton(self)
        button.setIconSize(QSize(16, 16))
        button.setToolTip(words)
        button.setAccessibleName(words)
        return button
