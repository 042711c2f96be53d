"""Ctrl+,: the settings, one a row, narrowed by a search; and every key, which can be changed here (Ctrl+/)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.chats.words import Query, fold
from app.settings import ZOOMS
from app.theme import Theme, icon, leave_the_wheel
from app.window.api_rows import ApiRows
from app.window.api_switch import ApiSwitch
from app.window.keys import KEYS, Keys
from app.window.overlay import Overlay
from app.window.palette import action_title
from app.window.preferences import Preferences


@dataclass(slots=True)
class _Row:
    widget: QWidget
    words: str


class SettingsCard(Overlay):
    """Every change holds at once; there is nothing to confirm."""

    def __init__(self, preferences: Preferences, api: ApiSwitch, keys: Keys, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, self.tr("Settings"), (720, 600), parent)
        self._preferences = preferences
        self._api = api
        self._keys = keys
        self._rows: list[_Row] = []
        self._choices: dict[str, QComboBox] = {}
        self._edits: dict[str, QKeySequenceEdit] = {}
        self._resets: dict[str, QToolButton] = {}
        self.search = QLineEdit(self.card)
        self.search.setPlaceholderText(self.tr("Search settings and keys"))
        self.search.setAccessibleName(self.tr("Search settings and keys"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._narrow)
        self.note = QLabel(self.card)
        self.note.setProperty("kind", "danger")
        self.note.setWordWrap(True)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.hide()
        area = QScrollArea(self.card)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setStyleSheet("QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; }")
        inner = QWidget(area)
        self._layout = QVBoxLayout(inner)
        self._layout.setContentsMargins(4, 4, 12, 4)
        self._layout.setSpacing(2)
        self._build()
        self._layout.addStretch(1)
        area.setWidget(inner)
        leave_the_wheel(inner)
        title = QLabel(self.tr("Settings"), self.card)
        title.setProperty("kind", "title")
        self.card_layout.addWidget(title)
        self.card_layout.addWidget(self.search)
        self.card_layout.addWidget(self.note)
        self.card_layout.addWidget(area, 1)
        preferences.changed.connect(self._show_settings)
        self._show_settings()

    # ------------------------------------------------------------------------------------------------------- methods

    def open(self) -> None:
        super().open()
        self.note.hide()
        self.search.clear()
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        for button in self._resets.values():
            button.setIcon(icon("retry", theme.text_dim))

    def shown(self) -> list[str]:
        """The rows that are in sight, by their names."""
        return [row.widget.accessibleName() for row in self._rows if not row.widget.isHidden()]

    # ------------------------------------------------------------------------------------------------------- private

    def _build(self) -> None:
        self.theme_box = self._choice(
            self.tr("Theme"),
            self.tr("Dark or light, or as the desktop has it"),
            {"system": self.tr("As the system"), "dark": self.tr("Dark"), "light": self.tr("Light")},
            "theme",
        )
        self.motion_box = self._choice(
            self.tr("Motion"),
            self.tr("Whether things glide to their places"),
            {"system": self.tr("As the system"), "reduced": self.tr("Reduced")},
            "motion",
        )
        self.language_box = self._choice(
            self.tr("Language"),
            self.tr("Takes effect at the next start"),
            {"system": self.tr("As the system"), "en": "English", "de": "Deutsch"},
            "language",
        )
        self.notify_box = QCheckBox(self.card)
        self.notify_box.toggled.connect(lambda on: self._preferences.change(notify=on))
        self._row(self.tr("Notices"), self.tr("Tell when an answer is ready while another window is in front"), self.notify_box)
        self.zoom_box = self._choice(
            self.tr("Zoom"),
            self.tr("Of what is said and written; also Ctrl and the wheel"),
            {percent: f"{percent} %" for percent in ZOOMS},
            "zoom",
        )
        self.send_box = self._choice(
            self.tr("Send with"),
            self.tr("The other one begins a new line"),
            {"enter": self.tr("Enter"), "ctrl+enter": self.tr("Ctrl+Enter")},
            "send",
        )
        self.titles_box = self._choice(
            self.tr("Titles by the model"),
            self.tr("Names a chat after its first answer, when nothing else is asked; else its first line is its name"),
            {"auto": self.tr("From 500 million parameters"), "on": self.tr("Always"), "off": self.tr("Never")},
            "titles",
        )
        self.two_box = QCheckBox(self.card)
        self.two_box.toggled.connect(lambda on: self._preferences.change(keep_two=on))
        words = self.tr("A second model is loaded beside the first when memory has comfortable room for both; else they take turns")
        self._row(self.tr("Keep two models loaded when they fit"), words, self.two_box)
        self.same_box = QCheckBox(self.card)
        self.same_box.toggled.connect(lambda on: self._preferences.change(reproducible=on))
        words = self.tr(
            "The same prompt and seed give the same answer, whoever rides along. Free on Omnibus's own kernels for the processor; "
            "any other model then answers one chat at a time, each from its beginning"
        )
        self._row(self.tr("Reproducible answers"), words, self.same_box)
        self.api_rows = ApiRows(self._api, self._preferences, self.card)
        words = self.tr("Programs on this machine that have the token use the model, beside the chats (OpenAI's API)")
        self._row(self.tr("Server for other programs"), words, self.api_rows.box)
        self._row(self.tr("Port of the server"), "", self.api_rows.port)
        self._row(self.tr("Address and token"), self.tr("What such a program needs to reach the server"), self.api_rows.reach)
        heading = QLabel(self.tr("Keys"), self.card)
        heading.setProperty("kind", "dim")
        heading.setContentsMargins(6, 16, 0, 4)
        self._layout.addWidget(heading)
        self._rows.append(_Row(heading, fold(self.tr("Keys"))))
        heading.setAccessibleName(self.tr("Keys"))
        for name in self._keys.actions:
            self._key_row(name)

    def _choice(self, title: str, words: str, choices: Mapping[Any, str], name: str) -> QComboBox:
        box = QComboBox(self.card)
        for value, label in choices.items():
            box.addItem(label, value)
        box.setMinimumWidth(170)
        self._choices[name] = box
        box.activated.connect(lambda index: self._preferences.change(**{name: box.itemData(index)}))
        self._row(title, words, box)
        return box

    def _key_row(self, name: str) -> None:
        edit = QKeySequenceEdit(self.card)
        edit.setMaximumSequenceLength(1)
        edit.setClearButtonEnabled(True)
        edit.setFixedWidth(190)
        edit.editingFinished.connect(partial(self._rebind, name))
        reset = QToolButton(self.card)
        reset.setIcon(icon("retry", self.theme.text_dim))
        reset.setToolTip(self.tr("Back to the default"))
        reset.setAccessibleName(self.tr("{0}: back to the default").format(action_title(name)))
        reset.clicked.connect(partial(self._reset, name))
        both = QWidget(self.card)
        row = QHBoxLayout(both)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(edit)
        row.addWidget(reset)
        self._edits[name], self._resets[name] = edit, reset
        self._row(action_title(name), "", both, more=f"{self.tr('Keys')} {name}")
        words = self.tr("Keys of {0}").format(action_title(name))
        edit.setAccessibleName(words)
        for field in edit.findChildren(QLineEdit):  # which has the focus
            field.setAccessibleName(words)

    def _row(self, title: str, words: str, widget: QWidget, more: str = "") -> None:
        row = QWidget(self.card)
        row.setAccessibleName(title)
        widget.setAccessibleName(title)
        layout = QHBoxLayout(row)
        layout.setContentsMargins(6, 5, 0, 5)
        labels = QVBoxLayout()
        labels.setSpacing(1)
        labels.addWidget(QLabel(title, row))
        if words:
            small = QLabel(words, row)
            small.setProperty("kind", "small")
            small.setWordWrap(True)
            labels.addWidget(small)
        layout.addLayout(labels, 1)
        layout.addWidget(widget)
        self._layout.addWidget(row)
        self._rows.append(_Row(row, fold(f"{title} {words} {more}")))

    @Slot(str)
    def _narrow(self, words: str) -> None:
        query = Query.of(words)
        for row in self._rows:
            row.widget.setVisible(query.matches(row.words))

    @Slot()
    def _show_settings(self) -> None:
        settings = self._preferences.settings
        for name, box in self._choices.items():
            box.setCurrentIndex(box.findData(getattr(settings, name)))
        self.notify_box.setChecked(settings.notify)
        self.two_box.setChecked(settings.keep_two)
        self.same_box.setChecked(settings.reproducible)
        self.api_rows.show_settings()
        for name, edit in self._edits.items():
            keys = self._keys.of(name)
            edit.setKeySequence(QKeySequence(keys[0] if keys else ""))
            self._resets[name].setVisible(name in settings.keys)

    def _rebind(self, name: str) -> None:
        """The first key of an action is another one; its further ones stay. An empty one takes them all away."""
        now = self._keys.of(name)
        wanted = self._edits[name].keySequence().toString(QKeySequence.SequenceFormat.PortableText)
        if wanted == (now[0] if now else ""):
            return
        other = self._keys.taken_by(wanted, name) if wanted else None
        if other is not None:
            self.note.setText(self.tr("{0} belongs to “{1}” already: take it from there first.").format(wanted, action_title(other)))
            self.note.show()
            self._show_settings()
            return
        self.note.hide()
        keys = (wanted, *now[1:]) if wanted else ()
        self._preferences.change(keys={**self._preferences.settings.keys, name: keys})

    def _reset(self, name: str) -> None:
        taken = next((other for keys in KEYS[name] if (other := self._keys.taken_by(keys, name)) is not None), None)
        if taken is not None:
            self.note.setText(self.tr("Its default belongs to “{0}” now.").format(action_title(taken)))
            self.note.show()
            return
        self.note.hide()
        self._preferences.change(keys={other: keys for other, keys in self._preferences.settings.keys.items() if other != name})
