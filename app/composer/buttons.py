"""The round button at the composer's right: Send, which turns into Stop in the same place and size."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QEnterEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.theme import Theme, icon
from app.theme.color import mix

SIZE = 36


class SendButton(QAbstractButton):
    """Send or Stop, as `set_running` says. Sending is offered only while there is something to send."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._running = False
        self._has_text = False
        self._send_key = "Enter"
        self._hover = False
        self.setFixedSize(SIZE, SIZE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.set_theme(theme)
        self._refresh()

    @property
    def running(self) -> bool:
        return self._running

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._dim = mix(theme.text, theme.surface, 0.16)
        self._icons = {
            "send": icon("send", theme.on_accent),
            "send-dim": icon("send", theme.text_dim),
            "stop": icon("stop", theme.window),
        }
        self.update()

    def set_send_key(self, key: str) -> None:
        """What sends, in words, for the tool tip."""
        self._send_key = key
        self._refresh()

    def set_running(self, running: bool) -> None:
        if running != self._running:
            self._running = running
            self._refresh()

    def set_has_text(self, has_text: bool) -> None:
        if has_text != self._has_text:
            self._has_text = has_text
            self._refresh()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(SIZE, SIZE)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hover = True
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._hover = False
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = self._theme
        if self._running:
            fill, picture = theme.text, "stop"
        elif self._has_text:
            fill, picture = theme.accent, "send"
        else:
            fill, picture = self._dim, "send-dim"
        if self._hover and self.isEnabled():
            fill = mix("#ffffff" if theme.is_dark else "#000000", fill, 0.12)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(fill))
        painter.drawEllipse(QRectF(1, 1, SIZE - 2, SIZE - 2))
        self._icons[picture].paint(painter, QRect(8, 8, SIZE - 16, SIZE - 16))
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(theme.text if self._has_text else theme.accent), 2))
            painter.drawEllipse(QRectF(1, 1, SIZE - 2, SIZE - 2))

    # ------------------------------------------------------------------------------------------------------- private

    def _refresh(self) -> None:
        name = self.tr("Stop") if self._running else self.tr("Send")
        self.setAccessibleName(name)
        self.setToolTip(self.tr("Stop (Esc)") if self._running else self.tr("Send ({0})").format(self._send_key))
        self.setEnabled(self._running or self._has_text)
        self.update()
