"""A card of the dashboard: a title, a word on what is in it, room for a few buttons, and one view."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.dashboard.ink import font


class Panel(QFrame):
    """Attributes: note (the word beside the title), actions (layout for buttons at the right)."""

    def __init__(self, title: str, view: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "card")
        self.title = QLabel(title)
        self.title.setFont(font(14, QFont.Weight.DemiBold))
        self.note = QLabel()
        self.note.setProperty("kind", "small")
        self.note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.actions = QHBoxLayout()
        self.actions.setSpacing(4)
        self.head = QHBoxLayout()
        self.head.setSpacing(10)
        self.head.addWidget(self.title)
        self.head.addWidget(self.note, 1, Qt.AlignmentFlag.AlignVCenter)
        self.head.addLayout(self.actions)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 14)
        column.setSpacing(10)
        column.addLayout(self.head)
        column.addWidget(view)
