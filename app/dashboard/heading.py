"""The head of the page: which model runs where, and how the engine is. When it has stopped: what happened, what to do, and Restart."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.dashboard import wording
from app.dashboard.ink import font
from app.dashboard.panel import ElidedLabel
from app.dashboard.untold import untold
from app.dashboard.wording import translate
from app.numbers import explained
from app.theme import Theme
from app.theme.color import mix
from app.translations import in_words
from engine import EngineState, Snapshot


class Heading(QWidget):
    """Signals: restart()."""

    restart = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._key: tuple[object, ...] = ()
        self.title = QLabel(translate("Dashboard", "Dashboard"), self)
        self.title.setFont(font(20, QFont.Weight.DemiBold))
        self.model = ElidedLabel(self)
        self.model.setProperty("kind", "dim")
        self.state = QLabel(self)
        self.state.setObjectName("engineState")
        self.state.setFont(font(12, QFont.Weight.DemiBold))
        self.trouble = QLabel(self)
        self.trouble.setProperty("kind", "danger")
        self.trouble.setWordWrap(True)
        self.trouble.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.note = QLabel(self)
        self.note.setProperty("kind", "small")
        self.note.setWordWrap(True)
        self.note.hide()
        self.again = QPushButton(translate("Dashboard", "Restart the engine"), self)
        self.again.clicked.connect(self.restart)
        top = QHBoxLayout()
        top.setSpacing(12)
        top.addWidget(self.title)
        top.addWidget(self.model, 1)
        top.addWidget(self.state)
        below = QHBoxLayout()
        below.addWidget(self.trouble, 1)
        below.addWidget(self.again)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(top)
        column.addLayout(below)
        column.addWidget(self.note)
        self.trouble.hide()
        self.again.hide()

    def show_snapshot(self, snapshot: Snapshot, replay: bool = False) -> None:
        """`replay`: the snapshot is a recording's, not the engine's."""
        note = "" if replay else untold(snapshot)
        key = (snapshot.state, snapshot.model, snapshot.error, bool(snapshot.seated), replay, note)
        if key == self._key:
            return
        self._key = key
        self.note.setText(note)
        self.note.setVisible(bool(note))
        model, state = snapshot.model, snapshot.state
        parts = [model.name, model.device, model.dtype, translate("Dashboard", "{0} lane").format(model.lane) if model.lane else ""]
        self.model.setText(" · ".join(part for part in parts if part))
        tip = translate("Dashboard", "Weights {0}, KV cache {1}, context {2} tokens").format(
            wording.size(model.weight_bytes), " ".join((wording.size(model.kv_bytes), model.kv_dtype)).strip(), wording.count(model.context)
        )
        self.model.setToolTip(tip if model.weight_bytes else "")
        self.state.setText(translate("Dashboard", "replay") if replay else state_text(snapshot))
        self._tint(state, snapshot.seated > 0 and not replay)
        failed = state is EngineState.FAILED
        error = snapshot.error
        self.trouble.setText(explained(error) if error else translate("Dashboard", "The engine has stopped."))
        self.trouble.setVisible(failed or error is not None)
        self.again.setVisible(failed)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._key = ()

    def _tint(self, state: EngineState, busy: bool) -> None:
        t = self._theme
        color = (
            t.danger if state in (EngineState.FAILED, EngineState.CLOSED) else t.good if state is EngineState.READY and busy else t.text_dim
        )
        words, ground = mix(color, t.text, 0.75), mix(color, t.window, 0.16)
        self.state.setStyleSheet(f"#engineState {{ color: {words}; background: {ground}; border-radius: 11px; padding: 3px 11px; }}")


def state_text(snapshot: Snapshot) -> str:
    """The engine's state in a word or two."""
    state, model = snapshot.state, snapshot.model
    if state is EngineState.LOADING:
        stage = in_words(model.stage) or wording.state(state)
        return f"{stage} {100 * model.progress:.0f} %"
    if state is EngineState.READY:
        return translate("Dashboard", "driving") if snapshot.seated else translate("Dashboard", "idle")
    return wording.state(state)
