"""What stands where the pictures will be before anything has happened: what this is, why it is empty, and one button."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.dashboard.ink import font
from app.dashboard.wording import translate
from engine import EngineState, Snapshot


class EmptyState(QFrame):
    """Signals: run_demo()."""

    run_demo = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "card")
        self.title = QLabel(translate("Dashboard", "Nobody is aboard yet"), self)
        self.title.setFont(font(18, QFont.Weight.DemiBold))
        self.title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.words = QLabel(self)
        self.words.setProperty("kind", "dim")
        self.words.setWordWrap(True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.words.setMaximumWidth(560)
        self.words.setMinimumHeight(88)
        self.demo = QPushButton(translate("Dashboard", "Run demo"), self)
        self.demo.setProperty("kind", "primary")
        self.demo.clicked.connect(self.run_demo)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.words, 8)
        row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 36, 24, 40)
        column.setSpacing(12)
        column.addWidget(self.title)
        column.addLayout(row)
        column.addWidget(self.demo, 0, Qt.AlignmentFlag.AlignHCenter)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        why = {
            EngineState.STARTING: translate("Dashboard", "It is empty because the engine is still starting."),
            EngineState.LOADING: translate("Dashboard", "It is empty because the model is still loading."),
            EngineState.EMPTY: translate("Dashboard", "It is empty because no model is loaded; the next message brings one."),
            EngineState.PAUSED: translate("Dashboard", "It is empty because the engine is paused."),
            EngineState.FAILED: translate("Dashboard", "It is empty because the engine has stopped."),
        }.get(snapshot.state, translate("Dashboard", "It is empty because no chat is being answered."))
        what = translate(
            "Dashboard",
            "All your chats ride in one batch. Here you see who sits in which seat, who waits and why, which chat owns which block of the "
            "KV cache, and what every step did.",
        )
        words = f"{what} {why}"
        if words != self.words.text():
            self.words.setText(words)
        usable = snapshot.state not in (EngineState.FAILED, EngineState.CLOSED)
        if self.demo.isHidden() is usable:
            self.demo.setVisible(usable)
