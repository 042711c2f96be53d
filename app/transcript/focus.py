"""The ring around a transcript that was reached by keyboard: two pixels, and none for who clicked into it. Owns nothing else."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRectF, Qt
from PySide6.QtGui import QColor, QFocusEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.theme import Theme

BY_KEYBOARD = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)


class FocusRing(QWidget):
    """Lies over a widget while that has the focus; hidden, and so without any cost, else."""

    def __init__(self, theme: Theme, around: QWidget) -> None:
        super().__init__(around)
        self._around = around
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()
        around.installEventFilter(self)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.FocusIn and isinstance(event, QFocusEvent):
            self.setGeometry(self._around.rect())
            self.setVisible(event.reason() in BY_KEYBOARD)
            self.raise_()
        elif event.type() is QEvent.Type.FocusOut:
            self.hide()
        elif event.type() is QEvent.Type.Resize:
            self.setGeometry(self._around.rect())
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(self._theme.accent), 2))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(3, 3, -3, -3), 10, 10)
