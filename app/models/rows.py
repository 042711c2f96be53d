"""The rows of the models window: a model on this machine, one on the hub, a way to have it, and a download."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.models import wording
from app.models.wording import translate
from app.numbers import number
from app.theme import Theme
from app.theme.color import mix
from engine import Fit, HubModel, ModelEntry, Offer, TransferProgress, TransferState


class Row(QFrame):
    """A name, words below it, and on the right a badge and buttons."""

    def __init__(self, theme: Theme, name: str, words: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setProperty("kind", "card")
        self.name = self._label(name, "")
        self.name.setStyleSheet("font-weight: 600;")
        self.words = self._label(words, "small")
        for label in (self.name, self.words):  # they give way to what stands right of them, over several lines if need be
            label.setWordWrap(True)
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.badge = self._label("", "small")
        self.badge.hide()
        self._column = QVBoxLayout()
        self._column.setSpacing(3)
        self._column.addWidget(self.name)
        self._column.addWidget(self.words)
        self.line = QHBoxLayout(self)
        self.line.setContentsMargins(16, 11, 12, 11)
        self.line.setSpacing(8)
        self.line.addLayout(self._column, 1)
        self.line.addWidget(self.badge, 0, Qt.AlignmentFlag.AlignVCenter)
        self.line.addSpacing(4)

    def add_button(self, label: str, kind: str = "") -> QPushButton:
        button = QPushButton(label, self)
        button.setProperty("kind", kind)
        button.setAccessibleName(f"{label} {self.name.text()}")
        self.line.addWidget(button)
        return button

    def add_below(self, widget: QWidget) -> None:
        self._column.addSpacing(4)
        self._column.addWidget(widget)

    def set_badge(self, words: str, color: str) -> None:
        self.badge.setText(words)
        ground = mix(color, self._theme.surface, 0.18)
        self.badge.setStyleSheet(
            f"color: {mix(color, self._theme.text, 0.72)}; background: {ground}; border-radius: 9px; padding: 2px 9px; font-size: 12px;"
        )
        self.badge.setVisible(bool(words))

    def _label(self, words: str, kind: str) -> QLabel:
        label = QLabel(words, self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("kind", kind)
        return label


class ModelRow(Row):
    """A model on this machine. Attributes: entry, load, remove."""

    def __init__(self, theme: Theme, entry: ModelEntry, parent: QWidget | None = None) -> None:
        name = wording.short_name(entry.source) if entry.source == "starter" else entry.name
        super().__init__(theme, name, "", parent)
        self.entry = entry
        self.faulty = False
        where = translate("Models", "comes with Omnibus") if entry.source == "starter" else entry.source
        self._facts = [str(entry.kind).upper() if entry.kind == "gguf" else str(entry.kind).capitalize(), wording.size(entry.size)]
        self._facts += [where if entry.ready else _absent(entry)]
        if entry.source == "starter":
            self._facts = self._facts[1:]
        if not entry.size:
            self._facts.remove(wording.size(0))
        self.words.setText("  ·  ".join(self._facts))
        self.remove = self.add_button(translate("Models", "Delete") if entry.owned else translate("Models", "Remove"), "quiet")
        self.remove.setVisible(entry.source != "starter")
        self.load = self.add_button(translate("Models", "Load"))
        self.load.setEnabled(entry.ready or entry.source == "starter")

    def show_fit(self, fit: Fit | None, problem: str) -> None:
        """The badge, and the numbers behind it as a tip; or why the model cannot be had."""
        if fit is None:
            self.faulty = True
            self.set_badge(translate("Models", "Faulty"), self._theme.danger)
            self.badge.setToolTip(problem)
            self.words.setText(problem)
            self.load.setEnabled(False)
            return
        colors = {"yes": self._theme.good, "tight": "#e0a33c", "no": self._theme.danger}
        self.set_badge(wording.badge(str(fit.verdict)), colors[str(fit.verdict)])
        self.badge.setToolTip(fit.sentence)
        need = translate("Models", "{0} for {1} × {2} tokens").format(wording.size(fit.total), fit.seats, number(fit.context, ","))
        self.words.setText("  ·  ".join([*self._facts[:-1], need, self._facts[-1]]))

    def show_present(self, present: bool, loading: bool) -> None:
        coming, there, absent = translate("Models", "Loading"), translate("Models", "Loaded"), translate("Models", "Load")
        self.load.setText(coming if present and loading else there if present else absent)
        self.load.setEnabled(not present and not self.faulty and (self.entry.ready or self.entry.source == "starter"))


def _absent(entry: ModelEntry) -> str:
    return translate("Models", "not fetched yet") if entry.source == "starter" else translate("Models", "not there (was it moved?)")


class HubRow(Row):
    """A repository on the hub. Attributes: model, choose."""

    def __init__(self, theme: Theme, model: HubModel, parent: QWidget | None = None) -> None:
        facts = [
            model.size,
            "GGUF" if model.gguf else "safetensors",
            model.licence,
            translate("Models", "{0} downloads").format(number(model.downloads, ",")),
        ]
        super().__init__(theme, model.repository, "  ·  ".join(fact for fact in facts if fact), parent)
        self.model = model
        if model.gated:
            self.set_badge(translate("Models", "Terms to accept"), "#e0a33c")
        self.choose = self.add_button(translate("Models", "Sizes"))

    def show_offers(self, offers: Sequence[Offer]) -> list[tuple[Offer, QPushButton]]:
        """A line of buttons, one for each way to have it."""
        self.choose.hide()
        made = []
        line = QHBoxLayout()
        line.setSpacing(6)
        for offer in offers:
            button = QPushButton(f"{offer.word}  ·  {offer.kind}  ·  {wording.size(offer.size)}", self)
            button.setToolTip(translate("Models", "Fetch {0}, {1}; {2}").format(offer.kind, wording.size(offer.size), offer.licence))
            line.addWidget(button)
            made.append((offer, button))
        line.addStretch(1)
        self._column.addSpacing(6)
        self._column.addLayout(line)
        return made


class DownloadRow(Row):
    """A download. Attributes: pause (also goes on), cancel."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, name, translate("Models", "starting"), parent)
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.bar.setFixedHeight(5)
        self.bar.setAccessibleName(translate("Models", "Progress of {0}").format(name))
        line, accent = mix(theme.text, theme.surface, 0.14), theme.accent
        self.bar.setStyleSheet(
            f"QProgressBar {{ background: {line}; border: none; border-radius: 2px; }}"
            f"QProgressBar::chunk {{ background: {accent}; border-radius: 2px; }}"
        )
        self.add_below(self.bar)
        self.pause = self.add_button(translate("Models", "Pause"))
        self.cancel = self.add_button(translate("Models", "Cancel"), "quiet")
        self.state = TransferState.WAITING

    def show_progress(self, progress: TransferProgress) -> None:
        self.state = progress.state
        self.words.setText(wording.transfer(progress))
        self.bar.setValue(1000 * progress.done // max(1, progress.total))
        over = progress.state in (TransferState.DONE, TransferState.CANCELLED)
        stopped = progress.state in (TransferState.PAUSED, TransferState.FAILED)
        self.bar.setVisible(not over)
        self.pause.setVisible(not over)
        self.pause.setText(translate("Models", "Go on") if stopped else translate("Models", "Pause"))
        self.cancel.setText(translate("Models", "Close") if over else translate("Models", "Cancel"))
