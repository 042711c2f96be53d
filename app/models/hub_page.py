"""The page "Find more" of the models window: the hub's answers to a search, the ways to have each, and downloads under way."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QLineEdit, QVBoxLayout, QWidget

from app.models.layouts import clear, column, scroller
from app.models.rows import DownloadRow, HubRow
from app.models.wording import translate
from app.theme import Theme
from app.translations import later
from engine import Found, Moved, Offered, TransferState

HINT = later("Models", "Type a name, such as “qwen3 1.7b” or “smollm”, and press Enter. This asks huggingface.co; nothing else here does.")


class HubPage(QWidget):
    """Attributes: results (by repository), downloads (by name).

    Signals:
        arrived: a download is complete, by its name.
    """

    arrived = Signal(str)

    def __init__(self, theme: Theme, desk: Any, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._desk = desk
        self.results: dict[str, HubRow] = {}
        self.downloads: dict[str, DownloadRow] = {}
        layout = column(self)
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(translate("Models", "Search Hugging Face"))
        self.search.setAccessibleName(translate("Models", "Search the hub"))
        self.search.returnPressed.connect(self.look_up)
        self.words = QLabel(translate("Models", HINT), self)
        self.words.setProperty("kind", "small")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self._under_way = QVBoxLayout()
        self._under_way.setSpacing(8)
        area, self._list = scroller(self, translate("Models", "Models on the hub"))
        layout.addWidget(self.search)
        layout.addWidget(self.words)
        layout.addLayout(self._under_way)
        layout.addWidget(area, 1)

    # ------------------------------------------------------------------------------------------------------- methods

    def look_up(self) -> None:
        words = self.search.text().strip()
        if words:
            self.words.setText(translate("Models", "Looking for “{0}” …").format(words))
            self._desk.search(words)

    def forget_search(self) -> None:
        """A question failed: nothing is being looked for."""
        self.words.setText(translate("Models", HINT))

    def show_found(self, found: Found) -> None:
        clear(self._list)
        self.results = {}
        for model in found.models:
            row = HubRow(self._theme, model, self)
            row.choose.clicked.connect(lambda _=False, name=model.repository: self._desk.offers(name))
            self._list.insertWidget(self._list.count() - 1, row)
            self.results[model.repository] = row
        count = len(found.models)
        some = translate("Models", "{0} found for “{1}”, those fetched most first.").format(count, found.words)
        self.words.setText(some if count else translate("Models", "Nothing found for “{0}”.").format(found.words))

    def show_offers(self, offered: Offered) -> None:
        if row := self.results.get(offered.repository):
            for offer, button in row.show_offers(offered.offers):
                button.clicked.connect(lambda _=False, offer=offer: self._desk.download(offer))

    def show_download(self, moved: Moved) -> None:
        row = self.downloads.get(moved.name)
        if row is None:
            row = self.downloads[moved.name] = DownloadRow(self._theme, moved.name, self)
            row.pause.clicked.connect(lambda: self._pause_or_go_on(moved.name))
            row.cancel.clicked.connect(lambda: self._cancel_download(moved.name))
            self._under_way.addWidget(row)
        finished = moved.progress.state is TransferState.DONE and row.state is not TransferState.DONE
        row.show_progress(moved.progress)
        if finished:
            self.arrived.emit(moved.name)

    def _pause_or_go_on(self, name: str) -> None:
        stopped = self.downloads[name].state in (TransferState.PAUSED, TransferState.FAILED)
        (self._desk.go_on if stopped else self._desk.pause)(name)

    def _cancel_download(self, name: str) -> None:
        row = self.downloads[name]
        if row.state in (TransferState.DONE, TransferState.CANCELLED):
            del self.downloads[name]
            row.deleteLater()
        else:
            self._desk.cancel(name)
