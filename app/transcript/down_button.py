"""The round button that goes to the end of a transcript. There after half a screen; owns no scrolling."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QToolButton, QWidget

from app.theme import Theme, icon
from app.theme.color import mix

SIZE = 36


class DownButton(QToolButton):
    """Hidden until `place` finds the end far away."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setToolTip(self.tr("To the bottom"))
        self.setAccessibleName(self.tr("To the bottom"))
        self.setFixedSize(SIZE, SIZE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        self.setIcon(icon("down", theme.text))
        line = mix(theme.text, theme.window, 0.16)
        self.setStyleSheet(f"QToolButton {{ background: {theme.raised}; border: 1px solid {line}; border-radius: {SIZE // 2}px; }}")

    def place(self, pixels_left: int, viewport: QWidget) -> None:
        """Show it where much is left below, in the middle above the lower edge."""
        far = pixels_left > viewport.height() // 2
        self.setVisible(far)
        if far:
            self.move((viewport.width() - SIZE) // 2, viewport.height() - SIZE - 12)
