"""A card over the window: for what is asked of the whole window and gone again with Esc. Never modal: answers go on behind it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.theme import Theme

MARGIN = 24


class Overlay(QWidget):
    """Covers its parent with a veil and holds a card of a given size in the upper middle; hidden until `open`.

    Signals:
        closed: it has gone; the focus belongs to somebody else now.
    """

    closed = Signal()

    def __init__(self, theme: Theme, name: str, size: tuple[int, int], parent: QWidget) -> None:
        super().__init__(parent)
        self._below = parent
        self.theme = theme
        self._size = size
        self.card = QFrame(self)
        self.card.setProperty("kind", "card")
        self.card.setAccessibleName(name)
        self.card_layout = QVBoxLayout(self.card)
        self.card_layout.setContentsMargins(16, 16, 16, 16)
        self.setAccessibleName(name)
        self.hide()
        parent.installEventFilter(self)

    # ------------------------------------------------------------------------------------------------------- methods

    def open(self) -> None:
        self._place()
        self.show()
        self.raise_()

    def close_card(self) -> None:
        if not self.isHidden():
            self.hide()
            self.closed.emit()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self.update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and not self.isHidden():
            self._place()
        return False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_card()
        event.accept()  # nothing that is typed here is for the window behind

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self.card.geometry().contains(event.position().toPoint()):
            self.close_card()
        event.accept()

    def paintEvent(self, event: QPaintEvent) -> None:
        veil = QColor("#000000" if self.theme.is_dark else "#3c4048")
        veil.setAlphaF(0.5 if self.theme.is_dark else 0.32)
        QPainter(self).fillRect(self.rect(), veil)

    # ------------------------------------------------------------------------------------------------------- private

    def _place(self) -> None:
        parent = self._below
        self.setGeometry(parent.rect())
        width = min(self._size[0], parent.width() - 2 * MARGIN)
        height = min(self._size[1], parent.height() - 2 * MARGIN)
        top = max(MARGIN, (parent.height() - height) // 3)
        self.card.setGeometry((parent.width() - width) // 2, top, width, height)
