"""Ctrl+Shift+P: every action by its name, with its keys."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHeaderView, QLineEdit, QTableWidget, QTableWidgetItem, QWidget

from app.chats.words import Query, fold
from app.theme import Theme
from app.window.keys import Keys, in_words
from app.window.overlay import Overlay

NAME = Qt.ItemDataRole.UserRole + 1


def action_title(name: str) -> str:
    """An action's name for a person."""
    return QCoreApplication.translate("Keys", name[:1].upper() + name[1:])


class Palette(Overlay):
    """Typing narrows, arrows move, Enter does it."""

    def __init__(self, keys: Keys, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, self.tr("Command palette"), (620, 460), parent)
        self._keys = keys
        self.field = QLineEdit(self.card)
        self.field.setPlaceholderText(self.tr("What shall be done?"))
        self.field.setAccessibleName(self.tr("Command"))
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._fill)
        self.field.returnPressed.connect(self._do)
        self.list = QTableWidget(0, 2, self.card)
        self.list.setAccessibleName(self.tr("Commands"))
        self.list.setShowGrid(False)
        self.list.verticalHeader().hide()
        self.list.horizontalHeader().hide()
        self.list.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.list.horizontalHeader().setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
        self.list.verticalHeader().setDefaultSectionSize(34)
        self.list.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.list.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.list.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
        self.list.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.list.cellClicked.connect(self._do)
        self.card_layout.addWidget(self.field)
        self.card_layout.addWidget(self.list, 1)

    def open(self) -> None:
        super().open()
        self.field.clear()
        self._fill()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            if step is not None and self.list.rowCount():
                self.list.selectRow((self.list.currentRow() + step) % self.list.rowCount())
                return True
        return super().eventFilter(watched, event)

    @Slot()
    def _fill(self) -> None:
        query = Query.of(self.field.text())
        names = [name for name in self._keys.actions if name != "command palette" and query.matches(fold(action_title(name)))]
        self.list.setRowCount(len(names))
        for row, name in enumerate(names):
            item = QTableWidgetItem(action_title(name))
            item.setData(NAME, name)
            keys = QTableWidgetItem(in_words(self._keys.of(name)))
            keys.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            self.list.setItem(row, 0, item)
            self.list.setItem(row, 1, keys)
        if names:
            self.list.selectRow(0)

    @Slot()
    def _do(self) -> None:
        item = self.list.item(self.list.currentRow(), 0)
        if item is not None:
            action = self._keys.actions[item.data(NAME)]
            self.close_card()
            QTimer.singleShot(0, self, action)  # once the focus is back where it was
