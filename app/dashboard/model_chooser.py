"""Which loaded model the dashboard looks at: a switch that is there while two are loaded, each with how many of its seats are taken."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.dashboard.segmented import Segmented
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Snapshot

SIDES = 32  # of a button's width, beside its words


class ModelChooser(QWidget):
    """Asks the engine (see `engine/shown.py`) what may be picked; one that knows of a single model never shows it.

    Signals:
        changed: another engine is shown from now on, because it was picked or came into use.
    """

    changed = Signal()

    def __init__(self, engine: Any, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._theme = theme
        self._shown = ""
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.addStretch(1)
        self.switch: Segmented | None = None
        self.hide()

    def look(self, snapshot: Snapshot | None = None) -> None:
        """Bring it up to what the engine tells now: `snapshot`, where that was asked for already."""
        choices: tuple[Snapshot, ...] = getattr(self._engine, "choices", ())
        several = len(choices) > 1
        if several:
            self._show_choices(choices)
        if several is self.isHidden():
            self.setVisible(several)
        shown = (snapshot or self._engine.snapshot).model.source
        if shown and shown != self._shown:
            before, self._shown = self._shown, shown
            if before:
                self.changed.emit()

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        if self.switch is not None:
            self.switch.set_theme(theme)

    def _show_choices(self, choices: tuple[Snapshot, ...]) -> None:
        sources = [each.model.source for each in choices]
        if self.switch is None or list(self.switch.buttons) != sources:
            self._make(choices)
        assert self.switch is not None
        for each in choices:
            words = translate("Dashboard", "{0}  ·  {1} of {2} seats").format(each.model.name, each.seated, len(each.seats))
            button = self.switch.buttons[each.model.source]
            if button.text() != words:
                button.setText(words)
                bold = QFont(button.font())
                bold.setBold(True)  # as it is when it is chosen; the width must not change with that
                button.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(words) + SIDES)
        shown = self._engine.snapshot.model.source
        if shown in self.switch.buttons:
            self.switch.show_choice(shown)

    def _make(self, choices: tuple[Snapshot, ...]) -> None:
        if self.switch is not None:
            self.switch.hide()
            self.switch.deleteLater()
        tip = translate("Dashboard", "Look at the batch of this model, and steer it")
        name = translate("Dashboard", "Which loaded model is shown")
        self.switch = Segmented(self._theme, name, {each.model.source: ("", tip) for each in choices}, self)
        self.switch.asked.connect(self._pick)
        self._row.insertWidget(0, self.switch)

    def _pick(self, source: str) -> None:
        self._engine.pick(source)
        self.look()
