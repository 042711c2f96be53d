"""The page "On this machine" of the models window: the models that are here and how each fits, and the ways to add some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLabel, QPushButton, QWidget

from app.models.layouts import clear, column, scroller
from app.models.rows import ModelRow
from app.models.wording import translate
from app.numbers import explained
from app.theme import Theme
from app.translations import later
from engine import Fitted, Listed, ModelEntry

HINT = later("Models", "Drop a model folder or a GGUF file here to add it.")
IDLE_CHOICES = (
    (later("Models", "Never"), 0),
    (later("Models", "After 10 minutes"), 10),
    (later("Models", "After 30 minutes"), 30),
    (later("Models", "After 2 hours"), 120),
)


class MachinePage(QWidget):
    """Attributes: rows (by source).

    Signals:
        load: of a model, by its source. remove: of an entry. idle_chosen: minutes, 0 for never.
    """

    load = Signal(str)
    remove = Signal(object)
    idle_chosen = Signal(int)

    def __init__(self, theme: Theme, desk: Any, idle_minutes: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._desk = desk
        self._idle_minutes = idle_minutes
        self.rows: dict[str, ModelRow] = {}
        layout = column(self)
        area, self._list = scroller(self, translate("Models", "Models on this machine"))
        layout.addWidget(area, 1)
        foot = QHBoxLayout()
        foot.setSpacing(6)
        buttons = (
            (translate("Models", "Add folder…"), self._ask_folder),
            (translate("Models", "Add GGUF file…"), self._ask_file),
            (translate("Models", "Import Hugging Face cache"), lambda: self._desk.import_hub_cache()),
        )
        for words, action in buttons:
            button = QPushButton(words, self)
            button.clicked.connect(lambda _=False, action=action: action())
            foot.addWidget(button)
        foot.addStretch(1)
        layout.addLayout(foot)
        hint = QLabel(translate("Models", HINT), self)
        hint.setProperty("kind", "small")
        self.folder = QLabel(self)
        self.folder.setProperty("kind", "small")
        self.folder.setTextFormat(Qt.TextFormat.PlainText)
        change = QPushButton(translate("Models", "Change…"), self)
        change.setProperty("kind", "quiet")
        change.setAccessibleName(translate("Models", "Change the folder for downloads"))
        change.clicked.connect(lambda: self._ask_download_folder())
        layout.addWidget(hint)
        last = QHBoxLayout()
        last.addWidget(self.folder)
        last.addWidget(change)
        last.addStretch(1)
        last.addWidget(QLabel(translate("Models", "Unload when idle"), self))
        last.addWidget(self._make_idle())
        layout.addLayout(last)

    # ------------------------------------------------------------------------------------------------------- methods

    def add(self, path: str) -> None:
        """Put a folder or a file into the list."""
        if path:
            self._desk.add(path)

    def show_list(self, listed: Listed) -> None:
        clear(self._list)
        self.rows = {}
        for entry in listed.entries:
            self._list.insertWidget(self._list.count() - 1, self._row(entry))
        self.folder.setText(translate("Models", "Downloads go to {0}").format(listed.folder))

    def show_fit(self, fitted: Fitted) -> None:
        if row := self.rows.get(fitted.source):
            row.show_fit(fitted.fit, explained(fitted.error) if fitted.error else "")

    # ------------------------------------------------------------------------------------------------------- private

    def _row(self, entry: ModelEntry) -> ModelRow:
        row = self.rows[entry.source] = ModelRow(self._theme, entry, self)
        row.load.clicked.connect(lambda: self.load.emit(entry.source))
        row.remove.clicked.connect(lambda: self.remove.emit(entry))
        return row

    def _make_idle(self) -> QComboBox:
        self.idle = QComboBox(self)
        self.idle.setAccessibleName(translate("Models", "Unload when idle"))
        for words, minutes in IDLE_CHOICES:
            self.idle.addItem(translate("Models", words), minutes)
        known = self.idle.findData(self._idle_minutes)
        self.idle.setCurrentIndex(max(0, known))
        self.idle.activated.connect(lambda index: self.idle_chosen.emit(self.idle.itemData(index)))
        return self.idle

    def _ask_folder(self) -> None:
        chooser = QFileDialog(self, translate("Models", "Add a model folder"))
        chooser.setFileMode(QFileDialog.FileMode.Directory)
        self._open(chooser, self.add)

    def _ask_file(self) -> None:
        chooser = QFileDialog(self, translate("Models", "Add a GGUF file"), "", translate("Models", "GGUF files (*.gguf);;All files (*)"))
        chooser.setFileMode(QFileDialog.FileMode.ExistingFile)
        self._open(chooser, self.add)

    def _ask_download_folder(self) -> None:
        chooser = QFileDialog(self, translate("Models", "Where downloads go"))
        chooser.setFileMode(QFileDialog.FileMode.Directory)
        self._open(chooser, self._desk.set_folder)

    def _open(self, chooser: QFileDialog, then: Callable[[str], object]) -> None:
        chooser.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chooser.fileSelected.connect(then)
        chooser.open()
