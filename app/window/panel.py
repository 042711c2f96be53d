"""The panel at the right: the system prompt and the parameters of the chat in view. Closed by default."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QDoubleSpinBox, QFormLayout, QFrame, QLabel, QPlainTextEdit, QSpinBox, QVBoxLayout, QWidget

from app.chats.model import ChatSettings
from app.theme import Theme
from app.theme.color import mix

WIDTH = 320


class ParametersPanel(QWidget):
    """Signals:
    changed(ChatSettings): the person changed something; it holds from the next answer on.
    """

    changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._quiet = False
        self.setFixedWidth(WIDTH)
        self.setAccessibleName("Parameters")
        self.system = QPlainTextEdit(self)
        self.system.setPlaceholderText("How the model should behave in this chat")
        self.system.setAccessibleName("System prompt")
        self.system.setFrameShape(QFrame.Shape.NoFrame)
        self.system.setTabChangesFocus(True)
        self.system.setFixedHeight(150)
        self.temperature = self._decimal("Temperature", 0.0, 2.0, 0.05, "0 always takes the likeliest token")
        self.top_p = self._decimal("Top-p", 0.01, 1.0, 0.01, "Draws from the likeliest tokens that make up this share; 1 is off")
        self.max_tokens = QSpinBox(self)
        self.max_tokens.setRange(1, 1_000_000)
        self.max_tokens.setSingleStep(64)
        self.max_tokens.setAccessibleName("Longest answer")
        title = QLabel("This chat", self)
        title.setStyleSheet("font-size: 15px; font-weight: 600;")
        form = QFormLayout()
        form.setHorizontalSpacing(14)
        form.setVerticalSpacing(8)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        form.addRow("Temperature", self.temperature)
        form.addRow("Top-p", self.top_p)
        form.addRow("Longest answer, tokens", self.max_tokens)
        note = QLabel("Changes hold from the next answer on.", self)
        note.setProperty("kind", "small")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 14, 18, 14)
        layout.setSpacing(10)
        layout.addWidget(title)
        layout.addWidget(QLabel("System prompt", self))
        layout.addWidget(self.system)
        layout.addLayout(form)
        layout.addWidget(note)
        layout.addStretch(1)
        self.system.textChanged.connect(self._on_changed)
        for field in (self.temperature, self.top_p, self.max_tokens):
            field.valueChanged.connect(self._on_changed)
        self.set_theme(theme)

    # ------------------------------------------------------------------------------------------------------- methods

    def show_settings(self, settings: ChatSettings) -> None:
        """Show what a chat has; tells nobody."""
        self._quiet = True
        if self.system.toPlainText() != settings.system_prompt:
            self.system.setPlainText(settings.system_prompt)
        self.temperature.setValue(settings.temperature)
        self.top_p.setValue(settings.top_p)
        self.max_tokens.setValue(settings.max_tokens)
        self._quiet = False

    def settings(self) -> ChatSettings:
        return ChatSettings(
            system_prompt=self.system.toPlainText(),
            temperature=round(self.temperature.value(), 2),
            top_p=round(self.top_p.value(), 2),
            max_tokens=self.max_tokens.value(),
        )

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        line = mix(theme.text, theme.surface, 0.14)
        self.system.setStyleSheet(
            f"QPlainTextEdit {{ background: {theme.surface}; border: 1px solid {line}; border-radius: 10px; padding: 6px; }}"
            f"QPlainTextEdit:focus {{ border: 1px solid {theme.accent}; }}"
        )
        self.update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._theme.sidebar))
        painter.fillRect(0, 0, 1, self.height(), QColor(self._theme.hairline))

    # ------------------------------------------------------------------------------------------------------- private

    def _decimal(self, name: str, least: float, most: float, step: float, tip: str) -> QDoubleSpinBox:
        field = QDoubleSpinBox(self)
        field.setRange(least, most)
        field.setSingleStep(step)
        field.setDecimals(2)
        field.setToolTip(tip)
        field.setAccessibleName(name)
        field.setAlignment(Qt.AlignmentFlag.AlignLeft)
        return field

    @Slot()
    def _on_changed(self) -> None:
        if not self._quiet:
            self.changed.emit(self.settings())
