"""The row of buttons under a message: copy, another answer, edit, continue, branch, delete, and the way between its versions.

There are two in a transcript: one stays under the last answer, one goes to the message under the pointer or the one chosen by keyboard.
They are real buttons, so that Tab, a screen reader and a tool tip find them. Owns no message: it is told which one it serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from app.chats.model import AnswerState, ChatMessage, Role
from app.theme import Theme, icon, tabular, ui_font
from app.translations import later

BUTTON = 28
HEIGHT = 28

# name, icon, words for a person
_BUTTONS = (
    ("older", "left", later("ActionBar", "Version before (Alt+Left)")),
    ("newer", "right", later("ActionBar", "Version after (Alt+Right)")),
    ("copy", "copy", later("ActionBar", "Copy")),
    ("retry", "retry", later("ActionBar", "Regenerate: another version of this answer")),
    ("continue", "play", later("ActionBar", "Continue this answer (Alt+Enter)")),
    ("edit", "edit", later("ActionBar", "Edit: makes a new version")),
    ("branch", "branch", later("ActionBar", "Branch: a new chat from here")),
    ("delete", "trash", later("ActionBar", "Delete")),
)


@dataclass(frozen=True, slots=True)
class Served:
    """The message a bar serves: which of its versions it is (from 1), of how many; whether it is the chat's last message."""

    message: ChatMessage
    version: int = 1
    versions: int = 1
    last: bool = False

    def names(self) -> frozenset[str]:
        """What can be done with it now."""
        message = self.message
        names = {"delete"}
        if self.versions > 1:
            names |= {"older", "newer"}
        if message.running:
            return frozenset(names - {"delete"})
        if message.text or message.attachments:
            names |= {"copy", "branch", "edit"}
        if message.role is Role.ASSISTANT:
            names.add("retry")
            if self.last and message.cut_short:
                names.add("continue")
        elif self.last:
            names.add("retry")
        return frozenset(names)


class ActionBar(QWidget):
    """Buttons for one message; hidden while it serves none.

    Signals:
        asked(name, message id): a button was pressed.
    """

    asked = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._served: Served | None = None
        self._buttons: dict[str, QToolButton] = {}
        self._count = QLabel(self)
        self._count.setProperty("kind", "small")
        self._count.setFont(tabular(ui_font(12)))
        self._count.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._row = row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        for name, _, words in _BUTTONS:
            button = QToolButton(self)
            button.setFixedSize(BUTTON, HEIGHT)
            button.setIconSize(QSize(16, 16))
            button.setToolTip(self.tr(words))
            button.setAccessibleName(self.tr(words))
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.clicked.connect(lambda _=False, name=name: self._ask(name))
            self._buttons[name] = button
            row.addWidget(button)
            if name == "older":
                row.addWidget(self._count)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setAttribute(Qt.WidgetAttribute.WA_NoMousePropagation)
        self.set_theme(theme)
        self.hide()

    @property
    def served(self) -> Served | None:
        return self._served

    @property
    def names(self) -> tuple[str, ...]:
        """The buttons that are shown, in order."""
        return tuple(name for name, button in self._buttons.items() if self._served and not button.isHidden())

    def button(self, name: str) -> QToolButton:
        return self._buttons[name]

    def set_theme(self, theme: Theme) -> None:
        for name, picture, _ in _BUTTONS:
            self._buttons[name].setIcon(icon(picture, theme.text_dim))

    def serve(self, served: Served | None) -> None:
        """Take over a message; None hides the bar. The place is the owner's to set."""
        changed = served != self._served
        self._served = served
        if served is None:
            self.hide()
            return
        if changed or served.message.state is not AnswerState.DONE:
            names = served.names()
            for name, button in self._buttons.items():
                button.setVisible(name in names)
            self._buttons["older"].setEnabled(served.version > 1)
            self._buttons["newer"].setEnabled(served.version < served.versions)
            self._count.setVisible(served.versions > 1)
            self._count.setText(f"{served.version} / {served.versions}")
            mine = served.message.role is Role.USER
            self.setAccessibleName(self.tr("Actions for your message") if mine else self.tr("Actions for the answer"))
            self._row.activate()
            self.resize(self.sizeHint())

    def _ask(self, name: str) -> None:
        if self._served is not None:
            self.asked.emit(name, self._served.message.id)
