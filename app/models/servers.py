"""The page for servers elsewhere: those that were added, and the few fields that add one. A key goes to the keyring and is never shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QFormLayout, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.models import wording
from app.models.rows import Row
from app.models.wording import translate
from app.theme import Theme
from app.translations import later
from engine import PRESETS

WORDS = later(
    "Models", "A server with an OpenAI-compatible API takes the place of a model of this machine: same tabs, same streaming, same Stop."
)
BESIDE = later("Models", "those that lie beside the address")
APART = later(
    "Models",
    "Fill this in where a gateway or Ray stands before the server, and its metrics lie at another address. The key is not sent there.",
)
RHYTHM = later(
    "Models",
    "Whoever watches the network can guess from the rhythm of a streamed answer what it is about, encrypted or not. "
    "Answers that come whole show nothing before their end, and tell only how long they are.",
)


class ServersPage(QWidget):
    """Attributes: rows (by source), preset, address, key, model, metrics, whole, connect_button."""

    def __init__(self, theme: Theme, desk: Any, chooser: Any, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._desk, self._chooser = theme, desk, chooser
        self.rows: dict[str, Row] = {}
        self._buttons: dict[str, QPushButton] = {}
        words = QLabel(translate("Models", WORDS), self)
        words.setProperty("kind", "small")
        words.setWordWrap(True)
        self._list = QVBoxLayout()
        self._list.setSpacing(8)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(10)
        layout.addWidget(words)
        layout.addLayout(self._list)
        layout.addLayout(self._make_form())
        layout.addStretch(1)

    def show_list(self, servers: Sequence[str]) -> None:
        for row in self.rows.values():
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows, self._buttons = {}, {}
        for source in servers:
            row = Row(self._theme, wording.short_name(source), wording.server_words(source), self)
            remove = row.add_button(translate("Models", "Remove"), "quiet")
            remove.clicked.connect(lambda _=False, source=source: self._desk.remove_server(source))
            use = row.add_button(translate("Models", "Use"))
            use.clicked.connect(lambda _=False, source=source: self._chooser.choose(source))
            self._list.addWidget(row)
            self.rows[source], self._buttons[source] = row, use
        self.show_present(self._chooser.source)

    def show_present(self, present: str) -> None:
        for source, button in self._buttons.items():
            button.setEnabled(source != present)
            button.setText(translate("Models", "In use") if source == present else translate("Models", "Use"))

    def connect_to(self) -> None:
        """Add the server that is filled in, and use it."""
        if self.address.text().strip():
            asked = self.address.text(), self.key.text(), self.model.text().strip(), self.whole.isChecked(), self.metrics.text().strip()
            self._desk.add_server(*asked)
            self.key.clear()

    def _make_form(self) -> QFormLayout:
        self.preset = QComboBox(self)
        self.preset.setAccessibleName(translate("Models", "Kind of server"))
        for preset in PRESETS:
            self.preset.addItem(preset.name, preset)
        self.address = self._field(translate("Models", "Address"), PRESETS[0].url)
        self.key = self._field(translate("Models", "Key"), translate("Models", "if the server wants one"))
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.model = self._field(translate("Models", "Model"), translate("Models", "the first one it offers"))
        self.metrics = self._field(translate("Models", "Metrics"), translate("Models", BESIDE))
        self.metrics.setToolTip(translate("Models", APART))
        self.hint = QLabel(translate("Models", PRESETS[0].hint), self)
        self.hint.setProperty("kind", "small")
        self.hint.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.preset.activated.connect(self._choose_preset)
        self.whole = QCheckBox(translate("Models", "Answers come whole, not word by word"), self)
        rhythm = QLabel(translate("Models", RHYTHM), self)
        rhythm.setProperty("kind", "small")
        rhythm.setWordWrap(True)
        self.connect_button = QPushButton(translate("Models", "Connect"), self)
        self.connect_button.setProperty("kind", "primary")
        self.connect_button.clicked.connect(lambda: self.connect_to())
        self.address.returnPressed.connect(self.connect_to)
        line = QHBoxLayout()
        line.addWidget(self.connect_button)
        line.addStretch(1)
        form = QFormLayout()
        form.setHorizontalSpacing(14)
        form.setVerticalSpacing(8)
        form.addRow(translate("Models", "Kind"), self.preset)
        form.addRow("", self.hint)
        form.addRow(translate("Models", "Address"), self.address)
        form.addRow(translate("Models", "Key"), self.key)
        form.addRow(translate("Models", "Model"), self.model)
        form.addRow(translate("Models", "Metrics"), self.metrics)
        form.addRow("", self.whole)
        form.addRow("", rhythm)
        form.addRow("", line)
        return form

    def _field(self, name: str, placeholder: str) -> QLineEdit:
        field = QLineEdit(self)
        field.setAccessibleName(name)
        field.setPlaceholderText(placeholder)
        return field

    def _choose_preset(self, index: int) -> None:
        preset = self.preset.itemData(index)
        self.address.setText(preset.url)
        self.hint.setText(translate("Models", preset.hint))
        like = translate("Models", "for the dashboard, like {0}").format(preset.metrics)
        self.metrics.setPlaceholderText(like if preset.metrics else translate("Models", BESIDE))
