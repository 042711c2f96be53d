"""A card of the dashboard: a title, a word on what is in it, room for a few buttons, and one view."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.dashboard.ink import font


class ElidedLabel(QLabel):
    """A line of text that gives way: cut with an ellipsis where there is no room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        words = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        self.style().drawItemText(
            painter, self.rect(), Qt.AlignmentFlag.AlignVCenter, self.palette(), self.isEnabled(), words, self.foregroundRole()
        )


class Panel(QFrame):
    """Attributes: note (the word beside the title), buttons (layout for buttons at the right)."""

    def __init__(self, title: str, view: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "card")
        self.title = QLabel(title)
        self.title.setFont(font(14, QFont.Weight.DemiBold))
        self.note = ElidedLabel()
        self.note.setProperty("kind", "small")
        self.buttons = QHBoxLayout()
        self.buttons.setSpacing(4)
        self.head = QHBoxLayout()
        self.head.setSpacing(10)
        self.head.addWidget(self.title)
        self.head.addWidget(self.note, 1)
        self.head.addLayout(self.buttons)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 14)
        column.setSpacing(10)
        column.addLayout(self.head)
        column.addWidget(view)
