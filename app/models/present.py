"""What the engine has loaded, at the head of the models window: a row for each model, with its memory and a way to let it go."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from app.models import wording
from app.models.rows import Row
from app.models.wording import translate
from app.theme import Theme
from app.theme.color import mix
from engine import EngineState, ModelView, Snapshot


def lacks_template(model: ModelView) -> bool:
    """Whether a loaded model has no chat template of its own that could be used."""
    return model.template not in ("", "model")


class PresentRow(Row):
    """One engine. Attributes: progress, cancel, form, unload; source, model."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "", "", parent)
        self.source, self.model = "", ModelView()
        self.name.setStyleSheet("font-size: 16px; font-weight: 600;")
        self.progress = QProgressBar(self)
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(5)
        self.progress.setAccessibleName(translate("Models", "Loading"))
        line = mix(theme.text, theme.surface, 0.14)
        self.progress.setStyleSheet(
            f"QProgressBar {{ background: {line}; border: none; border-radius: 2px; }}"
            f"QProgressBar::chunk {{ background: {theme.accent}; border-radius: 2px; }}"
        )
        self.progress.hide()
        self.add_below(self.progress)
        self.cancel = self.add_button(translate("Models", "Cancel"))
        self.form = self.add_button(translate("Models", "Chat form…"), "quiet")
        self.form.setToolTip(translate("Models", "How chats are put to a model that brings no chat template"))
        self.unload = self.add_button(translate("Models", "Unload"))
        self.unload.setToolTip(translate("Models", "Give its memory back; the next message loads it again"))
        for button in (self.cancel, self.form, self.unload):
            button.hide()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        model, state = snapshot.model, snapshot.state
        self.source, self.model = model.source, model
        self.form.setVisible(state is EngineState.READY and lacks_template(model))
        self.name.setText(model.name if model.name != "starter" else wording.short_name("starter"))
        self.words.setText(wording.present(snapshot))
        self.progress.setVisible(state in (EngineState.LOADING, EngineState.STARTING))
        self.progress.setValue(int(1000 * model.progress))
        self.cancel.setVisible(state is EngineState.LOADING)
        self.unload.setVisible(model.lane != "remote" and state in (EngineState.READY, EngineState.PAUSED))
        for button, words in (
            (self.cancel, translate("Models", "Cancel {0}")),
            (self.form, translate("Models", "Chat form of {0}")),
            (self.unload, translate("Models", "Unload {0}")),
        ):
            button.setAccessibleName(words.format(self.name.text()))


class Present(QWidget):
    """Attributes: first (the row of the present model), rows (all that are in sight).

    Signals:
        cancel, unload: of a model, by its source. form: of a loaded model, whose chat form is to be chosen.
    """

    cancel = Signal(str)
    unload = Signal(str)
    form = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._all: list[PresentRow] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.first = self._row(0)

    @property
    def rows(self) -> list[PresentRow]:
        return [row for row in self._all if not row.isHidden()]

    def show_snapshot(self, snapshot: Snapshot) -> None:
        shown = (snapshot, *snapshot.others)
        for place, each in enumerate(shown):
            row = self._row(place)
            row.show_snapshot(each)
            row.show()
        for row in self._all[len(shown) :]:
            row.hide()

    def _row(self, place: int) -> PresentRow:
        while len(self._all) <= place:
            row = PresentRow(self._theme, self)
            row.cancel.clicked.connect(lambda _=False, row=row: self.cancel.emit(row.source))
            row.form.clicked.connect(lambda _=False, row=row: self.form.emit(row.model))
            row.unload.clicked.connect(lambda _=False, row=row: self.unload.emit(row.source))
            self._column.addWidget(row)
            self._all.append(row)
        return self._all[place]
