"""Presets of a chat's parameters: those that come with the program, and the person's own, which are named, renamed and deleted here.

Owns the row in the panel at the right; knows neither a chat nor a file. What is chosen, and what the own presets are, goes out as signals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QHBoxLayout, QLabel, QLineEdit, QMenu, QPushButton, QToolButton, QWidget

from app.theme import Theme, icon

# How the model draws its words; a preset of ours leaves the system prompt, the length and the overflow alone.
PRESETS: dict[str, dict[str, Any]] = {
    "Balanced": {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    "Precise": {"temperature": 0.2, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "repetition_penalty": 1.0},
    "Creative": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.05, "repetition_penalty": 1.05},
    "Likeliest word only": {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
}
KEPT = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")  # of the present parameters, in an own preset
LONGEST_NAME = 40

Values = Mapping[str, Any]


class PresetRow(QWidget):
    """`present` tells the parameters of now, by the names of `ChatSettings`, when they are to be kept.

    Signals:
        chosen(values): these parameters are wanted.
        own_changed(presets): the person's own presets are these now, by name.
    """

    chosen = Signal(object)
    own_changed = Signal(object)

    def __init__(self, present: Callable[[], Values], theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._present = present
        self._own: dict[str, dict[str, Any]] = {}
        self._renamed: str | None = None  # the preset whose name is being written; None: a new one's
        self._deleted: tuple[str, dict[str, Any]] | None = None
        self.box = QComboBox(self)
        self.box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)  # the panel has one width
        self.box.setAccessibleName(self.tr("Preset"))
        self.more = QToolButton(self)
        self.more.setIconSize(QSize(16, 16))
        self.more.setToolTip(self.tr("Save, rename or delete presets"))
        self.more.setAccessibleName(self.tr("Save, rename or delete presets"))
        self.field = NameField(self)
        self.field.setMaxLength(LONGEST_NAME)
        self.field.setPlaceholderText(self.tr("Name of the preset"))
        self.field.setAccessibleName(self.tr("Name of the preset"))
        self.with_prompt = QCheckBox(self.tr("With the system prompt"), self)
        self.save = QPushButton(self.tr("Save"), self)
        self.note = QLabel(self)
        self.note.setProperty("kind", "small")
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self.undo = QPushButton(self.tr("Undo"), self)
        self.undo.setProperty("kind", "quiet")
        self._lay_out()
        self.box.activated.connect(self._on_chosen)
        self.more.clicked.connect(self._open_menu)
        self.field.returnPressed.connect(self._on_save)
        self.field.given_up.connect(self._close_field)
        self.save.clicked.connect(self._on_save)
        self.undo.clicked.connect(self._on_undo)
        self.set_theme(theme)
        self.set_own({})
        self._close_field()

    # ------------------------------------------------------------------------------------------------------- methods

    @property
    def names(self) -> list[str]:
        """Every preset that can be chosen, in order."""
        return [self.box.itemText(index) for index in range(1, self.box.count()) if self.box.itemText(index)]

    def set_own(self, presets: Mapping[str, Values]) -> None:
        """Offer these, too; tells nobody."""
        self._own = {name: dict(values) for name, values in presets.items()}
        self.box.clear()
        self.box.addItem(self.tr("Preset\u2026"))
        for name, values in PRESETS.items():
            self.box.addItem(self._translated(name), values)
        if self._own:
            self.box.insertSeparator(self.box.count())
        for name in sorted(self._own, key=str.casefold):
            self.box.addItem(name, self._own[name])

    def set_theme(self, theme: Theme) -> None:
        self.more.setIcon(icon("more", theme.text_dim))

    def menu(self) -> QMenu:
        """What can be done with presets now."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Save the present parameters\u2026"), self.ask_name)
        for name in sorted(self._own, key=str.casefold):
            own = menu.addMenu(name.replace("&", "&&"))
            own.addAction(self.tr("Replace by the present parameters"), partial(self._keep, name, self.tr("\u201c{0}\u201d was replaced.")))
            own.addAction(self.tr("Rename\u2026"), partial(self.ask_name, name))
            own.addAction(self.tr("Delete"), partial(self.delete, name))
        return menu

    def ask_name(self, renamed: str | None = None) -> None:
        """Offer the field for a name: of a new preset, or another one for `renamed`."""
        self._renamed = renamed
        self._say("")
        self.field.setText(renamed or "")
        self.with_prompt.setChecked(False)
        for widget in (self.field, self.save):
            widget.show()
        self.with_prompt.setVisible(renamed is None)
        self.field.selectAll()
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def delete(self, name: str) -> None:
        """Take an own preset away; a word beside it takes that back."""
        self._close_field()
        self._deleted = (name, self._own[name])
        self._change({other: values for other, values in self._own.items() if other != name})
        self._say(self.tr("\u201c{0}\u201d was deleted.").format(name), undo=True)

    # ------------------------------------------------------------------------------------------------------- private

    def _lay_out(self) -> None:
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setHorizontalSpacing(6)
        layout.setVerticalSpacing(6)
        layout.setColumnStretch(0, 1)
        layout.addWidget(self.box, 0, 0)
        layout.addWidget(self.more, 0, 1)
        row = QHBoxLayout()
        row.addWidget(self.field, 1)
        row.addWidget(self.save)
        layout.addLayout(row, 1, 0, 1, 2)
        layout.addWidget(self.with_prompt, 2, 0, 1, 2)
        told = QHBoxLayout()
        told.addWidget(self.note, 1)
        told.addWidget(self.undo)
        layout.addLayout(told, 3, 0, 1, 2)

    def _translated(self, name: str) -> str:
        words = {
            "Balanced": self.tr("Balanced"),
            "Precise": self.tr("Precise"),
            "Creative": self.tr("Creative"),
            "Likeliest word only": self.tr("Likeliest word only"),
        }
        return words.get(name, name)

    @Slot(int)
    def _on_chosen(self, index: int) -> None:
        values = self.box.itemData(index)
        self.box.setCurrentIndex(0)
        if values is not None:
            self.chosen.emit(values)

    @Slot()
    def _open_menu(self) -> None:
        self.menu().popup(self.more.mapToGlobal(self.more.rect().bottomLeft()))

    @Slot()
    def _on_save(self) -> None:
        name = " ".join(self.field.text().split())
        if not name:
            self._say(self.tr("A preset needs a name."))
        elif name != self._renamed and name.casefold() in {other.casefold() for other in self.names if other != self._renamed}:
            self._say(self.tr("There is a preset of this name already: choose another."))
        elif self._renamed is None:
            self._keep(name, self.tr("\u201c{0}\u201d was saved."))
        else:
            self._change({name if other == self._renamed else other: values for other, values in self._own.items()})
            self._close_field()

    def _keep(self, name: str, words: str) -> None:
        """The present parameters under a name."""
        kept = (*KEPT, "system_prompt") if self.with_prompt.isChecked() and not self.with_prompt.isHidden() else KEPT
        present = self._present()
        self._change({**self._own, name: {key: present[key] for key in kept}})
        self._close_field()
        self._say(words.format(name))

    @Slot()
    def _on_undo(self) -> None:
        if self._deleted is not None:
            name, values = self._deleted
            self._change({**self._own, name: values})
        self._say("")

    def _change(self, presets: dict[str, dict[str, Any]]) -> None:
        self.set_own(presets)
        self.own_changed.emit(presets)

    @Slot()
    def _close_field(self) -> None:
        for widget in (self.field, self.save, self.with_prompt):
            widget.hide()
        self._say("")

    def _say(self, words: str, undo: bool = False) -> None:
        self.note.setText(words)
        self.note.setVisible(bool(words))
        self.undo.setVisible(undo)


class NameField(QLineEdit):
    """Signals:
    given_up: Esc.
    """

    given_up = Signal()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()  # the window's own Esc would stop an answer
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.given_up.emit()
        else:
            super().keyPressEvent(event)
