"""A switch between a few named choices, shown side by side. Says what was asked for; shows only what it is told."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QWidget

from app.theme import Theme
from app.theme.color import mix


class Segmented(QFrame):
    """Choices by key.

    Signals:
        asked(key): the person chose this one. The choice shown changes only by `show_choice`.
    """

    asked = Signal(str)

    def __init__(self, theme: Theme, name: str, choices: dict[str, tuple[str, str]], parent: QWidget | None = None) -> None:
        """`choices` maps a key to its label and its tooltip."""
        super().__init__(parent)
        self.setObjectName("segmented")
        self.setAccessibleName(name)
        row = QHBoxLayout(self)
        row.setContentsMargins(3, 3, 3, 3)
        row.setSpacing(2)
        self._group = QButtonGroup(self)
        self.buttons: dict[str, QPushButton] = {}
        for key, (label, tip) in choices.items():
            button = QPushButton(label, self)
            button.setCheckable(True)
            button.setToolTip(tip)
            button.setAccessibleDescription(tip)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.clicked.connect(lambda _=False, k=key: self._ask(k))
            self._group.addButton(button)
            row.addWidget(button)
            self.buttons[key] = button
        self._shown = next(iter(choices))
        self.buttons[self._shown].setChecked(True)
        self.set_theme(theme)

    @property
    def choice(self) -> str:
        """The key that is shown as chosen."""
        return self._shown

    def show_choice(self, key: str) -> None:
        if key != self._shown or not self.buttons[key].isChecked():
            self._shown = key
            self.buttons[key].setChecked(True)

    def set_theme(self, theme: Theme) -> None:
        t = theme
        chosen = t.raised if t.is_dark else t.surface
        side = 12 if len(self.buttons) < 6 else 4
        self.setStyleSheet(f"""
#segmented {{ background: {mix(t.text, t.window, 0.07)}; border: 1px solid {mix(t.text, t.window, 0.10)}; border-radius: 12px; }}
#segmented QPushButton {{
    background: transparent; color: {t.text_dim}; border: 2px solid transparent; border-radius: 9px;
    padding: 3px {side}px; min-height: 20px;
}}
#segmented QPushButton:hover {{ color: {t.text}; }}
#segmented QPushButton:checked {{ background: {mix(t.text, chosen, 0.10) if t.is_dark else chosen}; color: {t.text}; font-weight: 600; }}
#segmented QPushButton:disabled {{ color: {mix(t.text_dim, t.surface, 0.6)}; }}
#segmented QPushButton:checked:disabled {{ background: transparent; border: 1px solid {mix(t.text, t.window, 0.16)}; }}
#segmented QPushButton:focus {{ border: 2px solid {t.accent}; }}
""")

    def _ask(self, key: str) -> None:
        self.buttons[self._shown].setChecked(True)
        if key != self._shown:
            self.asked.emit(key)
