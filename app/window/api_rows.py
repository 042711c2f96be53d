"""The settings' part on the local API server: the switch, its port, and what a program needs to reach it."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QPushButton, QSpinBox, QWidget

from app.settings import PORTS
from app.theme import pad_number
from app.window.api_switch import ApiState, ApiSwitch
from app.window.preferences import Preferences


class ApiRows(QObject):
    """Attributes: box, port, reach (the widgets of three rows); address, copy_address, copy_token (the parts of the last)."""

    def __init__(self, api: ApiSwitch, preferences: Preferences, parent: QWidget) -> None:
        super().__init__(parent)
        self._api = api
        self._preferences = preferences
        self.box = QCheckBox(parent)
        self.box.toggled.connect(lambda on: preferences.change(api=on))
        self.port = QSpinBox(parent)
        self.port.setRange(*PORTS)
        self.port.setFixedWidth(110)
        pad_number(self.port)
        self.port.setKeyboardTracking(False)
        self.port.editingFinished.connect(lambda: preferences.change(api_port=self.port.value()))
        self.reach = QWidget(parent)
        self.address = QLabel(self.reach)
        self.address.setProperty("kind", "dim")
        self.copy_address = QPushButton(self.tr("Copy address"), self.reach)
        self.copy_token = QPushButton(self.tr("Copy token"), self.reach)
        self.copy_address.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._api.url))
        self.copy_token.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._api.token))
        row = QHBoxLayout(self.reach)
        row.setContentsMargins(0, 0, 0, 0)
        for part in (self.address, self.copy_address, self.copy_token):
            row.addWidget(part)
        api.changed.connect(self._show_state)
        self._show_state()

    def show_settings(self) -> None:
        settings = self._preferences.settings
        self.box.setChecked(settings.api)
        self.port.setValue(settings.api_port)

    @Slot()
    def _show_state(self) -> None:
        on = self._api.state is ApiState.ON
        words = {ApiState.ON: self._api.url, ApiState.CHANGING: self.tr("one moment …"), ApiState.OFF: self.tr("off")}
        self.address.setText(words[self._api.state])
        self.copy_address.setEnabled(on)
        self.copy_token.setEnabled(on)
