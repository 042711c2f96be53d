"""The panel at the right: the system prompt and the parameters of the chat in view. Closed by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QFrame,
    QLabel,
    QPlainTextEdit,
    QProgressBar,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.chats.model import ChatSettings, Overflow
from app.numbers import fill, locale
from app.theme import Theme, leave_the_wheel, pad_number, tabular, ui_font
from app.theme.color import mix
from app.window.presets import PresetRow

WIDTH = 320


class ParametersPanel(QWidget):
    """Signals:
    changed(ChatSettings): the person changed something; it holds from the next answer on.
    """

    changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._quiet = False
        self._shown = ChatSettings()
        self.setFixedWidth(WIDTH)
        self.setAccessibleName(self.tr("Parameters"))
        self.system = QPlainTextEdit(self)
        self.system.setPlaceholderText(self.tr("How the model should behave in this chat"))
        self.system.setAccessibleName(self.tr("System prompt"))
        self.system.setFrameShape(QFrame.Shape.NoFrame)
        self.system.setTabChangesFocus(True)
        self.system.setFixedHeight(150)
        self.temperature = self._decimal(self.tr("Temperature"), 0.0, 2.0, 0.05, self.tr("0 always takes the likeliest token"))
        self.top_p = self._decimal(
            self.tr("Top-p"), 0.01, 1.0, 0.01, self.tr("Draws from the likeliest tokens that make up this share; 1 is off")
        )
        self.max_tokens = QSpinBox(self)
        self.max_tokens.setRange(1, 1_000_000)
        self.max_tokens.setSingleStep(64)
        self.max_tokens.setAccessibleName(self.tr("Longest answer"))
        self.top_k = QSpinBox(self)
        self.top_k.setRange(0, 1000)
        self.top_k.setSpecialValueText(self.tr("Off"))
        self.top_k.setAccessibleName(self.tr("Top-k"))
        self.min_p = self._decimal(
            self.tr("Min-p"), 0.0, 1.0, 0.01, self.tr("Leaves out tokens less likely than this share of the likeliest; 0 is off")
        )
        self.repetition = self._decimal(
            self.tr("Repetition penalty"), 0.5, 2.0, 0.05, self.tr("Above 1 holds back what was said already; 1 is off")
        )
        self.seed = QSpinBox(self)
        self.seed.setRange(-1, 2**31 - 1)
        self.seed.setSpecialValueText(self.tr("Random"))
        self.seed.setToolTip(self.tr("The same seed gives the same answer"))
        self.seed.setAccessibleName(self.tr("Seed"))
        self.presets = PresetRow(lambda: asdict(self.settings()), theme, self)
        self.overflow = QComboBox(self)
        self.overflow.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.overflow.addItem(self.tr("Stop and say so"), Overflow.STOP.value)
        self.overflow.addItem(self.tr("Forget the oldest turns"), Overflow.DROP_OLDEST.value)
        self.overflow.setToolTip(self.tr("What happens when the chat outgrows the model's context. The system prompt always stays."))
        self.overflow.setAccessibleName(self.tr("When the context is full"))
        self.gauge = QProgressBar(self)
        self.gauge.setTextVisible(False)
        self.gauge.setFixedHeight(6)
        self.gauge.setAccessibleName(self.tr("Context used"))
        self.gauge_words = QLabel(self)
        self.gauge_words.setFont(tabular(ui_font(12)))
        self.gauge_words.setProperty("kind", "small")
        self.gauge_words.setWordWrap(True)
        title = QLabel(self.tr("This chat"), self)
        title.setStyleSheet("font-size: 15px; font-weight: 600;")
        form = QFormLayout()
        form.setHorizontalSpacing(14)
        form.setVerticalSpacing(8)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        form.addRow(self.tr("Temperature"), self.temperature)
        form.addRow(self.tr("Top-p"), self.top_p)
        form.addRow(self.tr("Top-k"), self.top_k)
        form.addRow(self.tr("Min-p"), self.min_p)
        form.addRow(self.tr("Repetition"), self.repetition)
        form.addRow(self.tr("Longest answer"), self.max_tokens)
        form.addRow(self.tr("Seed"), self.seed)
        note = QLabel(self.tr("Changes hold from the next answer on."), self)
        note.setProperty("kind", "small")
        note.setWordWrap(True)
        fields = QWidget(self)
        layout = QVBoxLayout(fields)
        layout.setContentsMargins(18, 14, 18, 14)
        layout.setSpacing(10)
        layout.addWidget(title)
        layout.addWidget(QLabel(self.tr("System prompt"), self))
        layout.addWidget(self.system)
        layout.addWidget(self.presets)
        layout.addLayout(form)
        layout.addWidget(QLabel(self.tr("When the context is full"), self))
        layout.addWidget(self.overflow)
        layout.addWidget(note)
        layout.addSpacing(6)
        layout.addWidget(self.gauge_words)
        layout.addWidget(self.gauge)
        layout.addStretch(1)
        self._scroll(fields)
        self.system.textChanged.connect(self._on_changed)
        for field in (self.temperature, self.top_p, self.min_p, self.repetition, self.top_k, self.max_tokens, self.seed):
            field.valueChanged.connect(self._on_changed)
            pad_number(field)
            form.labelForField(field).setMinimumHeight(field.sizeHint().height())  # so that both stand on one line
        leave_the_wheel(fields)
        self.overflow.currentIndexChanged.connect(self._on_changed)
        self.presets.chosen.connect(self._on_preset)
        self.show_context(0, 0)
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
        self.top_k.setValue(settings.top_k)
        self.min_p.setValue(settings.min_p)
        self.repetition.setValue(settings.repetition_penalty)
        self.seed.setValue(-1 if settings.seed is None else settings.seed)
        self.overflow.setCurrentIndex(max(0, self.overflow.findData(settings.overflow)))
        self._shown = settings
        self._quiet = False

    def show_context(self, used: int, context: int) -> None:
        """Tokens that the chat takes of its model's context; 0: not known."""
        self.gauge.setVisible(context > 0)
        self.gauge.setMaximum(max(1, context))
        self.gauge.setValue(min(used, context))
        words = (
            fill(self.tr("Context: {0:,} of {1:,} tokens"), used, context) if context else self.tr("Context: known once a model is loaded")
        )
        self.gauge_words.setText(words)

    def settings(self) -> ChatSettings:
        return replace(
            self._shown,
            system_prompt=self.system.toPlainText(),
            temperature=round(self.temperature.value(), 2),
            top_p=round(self.top_p.value(), 2),
            max_tokens=self.max_tokens.value(),
            top_k=self.top_k.value(),
            min_p=round(self.min_p.value(), 2),
            repetition_penalty=round(self.repetition.value(), 2),
            seed=self.seed.value() if self.seed.value() >= 0 else None,
            overflow=self.overflow.currentData(),
        )

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.presets.set_theme(theme)
        line = mix(theme.text, theme.surface, 0.14)
        self.system.setStyleSheet(
            f"QPlainTextEdit {{ background: {theme.surface}; border: 1px solid {line}; border-radius: 10px; padding: 6px; }}"
            f"QPlainTextEdit:focus {{ border: 2px solid {theme.accent}; padding: 5px; }}"
        )
        self.gauge.setStyleSheet(
            f"QProgressBar {{ background: {line}; border: none; border-radius: 3px; }}"
            f"QProgressBar::chunk {{ background: {theme.text_dim}; border-radius: 3px; }}"
        )
        self.update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._theme.sidebar))
        painter.fillRect(0, 0, 1, self.height(), QColor(self._theme.hairline))

    # ------------------------------------------------------------------------------------------------------- private

    def _scroll(self, fields: QWidget) -> None:
        """All fields can be reached, however low the window is."""
        scroller = QScrollArea(self)
        scroller.setWidgetResizable(True)
        scroller.setFrameShape(QFrame.Shape.NoFrame)
        scroller.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # its fields have it, and it follows them
        scroller.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroller.setWidget(fields)
        scroller.viewport().setAutoFillBackground(False)
        fields.setAutoFillBackground(False)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(1, 0, 0, 0)
        outer.addWidget(scroller)

    def _decimal(self, name: str, least: float, most: float, step: float, tip: str) -> QDoubleSpinBox:
        field = QDoubleSpinBox(self)
        field.setRange(least, most)
        field.setSingleStep(step)
        field.setDecimals(2)
        field.setLocale(locale())
        field.setToolTip(tip)
        field.setAccessibleName(name)
        field.setAlignment(Qt.AlignmentFlag.AlignLeft)
        return field

    @Slot(object)
    def _on_preset(self, values: Mapping[str, Any]) -> None:
        """A preset sets what it names; what the chat is about stays."""
        self.show_settings(replace(self.settings(), **values))
        self.changed.emit(self.settings())

    @Slot()
    def _on_changed(self) -> None:
        if not self._quiet:
            self.changed.emit(self.settings())
