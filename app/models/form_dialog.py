"""How chats are put to a model that brings no chat template: a choice of safe forms, each with a look at what the model would read.

Never modal. Knows no engine: what is chosen leaves by a signal.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QDialog, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QRadioButton, QVBoxLayout, QWidget

from app.models.layouts import scroller
from app.models.wording import translate
from app.theme import Theme, mono_font, resize_to_fit
from app.theme.color import mix
from app.translations import later
from engine import CHAT_FORMS, ChatForm, ModelView

WORDS = later(
    "Models",
    "It brings no chat template, so somebody has to say how turns are written down for it. A form it was not taught still works, "
    "less well: answers may run on, or repeat the question.",
)
UNKNOWN = later("Models", "Its vocabulary does not have these marks.")


class FormDialog(QDialog):
    """Attributes: buttons (by the key of a form), preview, use.

    Signals:
        chosen(source, key): chats with this model are to have that form.
    """

    chosen = Signal(str, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._source = ""
        self._forms: dict[str, ChatForm] = {form.key: form for form in CHAT_FORMS}
        self.setWindowTitle(translate("Models", "Chat form"))
        self.setMinimumSize(600, 400)
        resize_to_fit(self, 760, 460)
        self.title = QLabel(self)
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setStyleSheet("font-size: 16px; font-weight: 600;")
        self.title.setWordWrap(True)
        words = QLabel(translate("Models", WORDS), self)
        words.setWordWrap(True)
        words.setProperty("kind", "small")
        self.preview = QPlainTextEdit(self)
        self.preview.setReadOnly(True)
        self.preview.setAccessibleName(translate("Models", "What the model would read"))
        self.preview.setFont(mono_font(13))
        line = mix(theme.text, theme.surface, 0.14)
        self.preview.setStyleSheet(
            f"QPlainTextEdit {{ background: {theme.surface}; border: 1px solid {line}; border-radius: 10px; padding: 8px; }}"
        )
        self.use = QPushButton(translate("Models", "Use this form"), self)
        self.use.setProperty("kind", "primary")
        self.use.setDefault(True)
        self.use.clicked.connect(self._on_use)
        later = QPushButton(translate("Models", "Later"), self)
        later.setProperty("kind", "quiet")
        later.clicked.connect(self.close)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 18, 20, 16)
        whole.setSpacing(12)
        whole.addWidget(self.title)
        whole.addWidget(words)
        middle = QHBoxLayout()
        middle.setSpacing(18)
        middle.addWidget(self._make_choices(theme), 4)
        middle.addWidget(self.preview, 5)
        whole.addLayout(middle, 1)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(later)
        foot.addWidget(self.use)
        whole.addLayout(foot)

    # ------------------------------------------------------------------------------------------------------- methods

    def ask(self, model: ModelView) -> None:
        """Show the choice for a loaded model, its present form chosen."""
        self._source = model.source
        self.title.setText(translate("Models", "How should chats be put to {0}?").format(model.name))
        for key, button in self.buttons.items():
            button.setEnabled(key in model.forms)
            self._hints[key].setText(translate("Models", self._forms[key].words if key in model.forms else UNKNOWN))
        self.buttons[model.template if model.template in self.buttons else "plain"].setChecked(True)
        self._show_preview()
        self.show()
        self.raise_()

    # ------------------------------------------------------------------------------------------------------- private

    def _make_choices(self, theme: Theme) -> QWidget:
        """They scroll where the window is low: their words never give way."""
        area, column = scroller(self, translate("Models", "Chat form"))
        column.setSpacing(4)
        self._group = QButtonGroup(self)
        self.buttons: dict[str, QRadioButton] = {}
        self._hints: dict[str, QLabel] = {}
        for form in self._forms.values():
            button = self.buttons[form.key] = QRadioButton(translate("Models", form.title), self)
            hint = self._hints[form.key] = QLabel(translate("Models", form.words), self)
            hint.setWordWrap(True)
            hint.setProperty("kind", "small")
            hint.setContentsMargins(26, 0, 0, 8)
            button.setStyleSheet(f"QRadioButton:disabled {{ color: {mix(theme.text, theme.surface, 0.4)}; }}")
            button.setAccessibleDescription(translate("Models", form.words))
            self._group.addButton(button)
            column.insertWidget(column.count() - 1, button)
            column.insertWidget(column.count() - 1, hint)
        self._group.buttonClicked.connect(lambda _: self._show_preview())
        return area

    @property
    def _key(self) -> str:
        return next(key for key, button in self.buttons.items() if button.isChecked())

    def _show_preview(self) -> None:
        self.preview.setPlainText(self._forms[self._key].preview())

    def _on_use(self) -> None:
        self.chosen.emit(self._source, self._key)
        self.close()
