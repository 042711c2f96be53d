"""The models window: what is loaded, what lies on this machine and how it fits, what the hub has, and downloads under way. Never modal.

Shows what the desk tells and asks the desk; loading and unloading go to the engine through `Chooses`. Everything that takes time happens on
other threads, and comes back here as a signal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.models import wording
from app.models.rows import DownloadRow, HubRow, ModelRow, Row
from app.models.servers import ServersPage
from app.theme import Theme
from app.theme.color import mix
from app.window.bars import InlineBar
from engine import Added, EngineState, Fitted, Found, Listed, ModelDesk, Moved, Offered, Said, Snapshot, TransferState

HINT = "Drop a model folder or a GGUF file here to add it."
HUB_HINT = "Type a name, such as “qwen3 1.7b” or “smollm”, and press Enter. This asks huggingface.co; nothing else here does."


IDLE_CHOICES = (("Never", 0), ("After 10 minutes", 10), ("After 30 minutes", 30), ("After 2 hours", 120))


class Chooses(Protocol):
    """Who carries out what the window is asked for."""

    def choose(self, source: str) -> None: ...
    def unload(self) -> None: ...
    def cancel_load(self) -> None: ...
    def set_idle_minutes(self, minutes: int) -> None: ...
    @property
    def source(self) -> str: ...
    @property
    def idle_minutes(self) -> int: ...


class ModelsDialog(QDialog):
    """Attributes: rows (by source), results, downloads (by name), bar."""

    _answered = Signal(object)  # from the desk's threads to the window's

    def __init__(self, chooser: Chooses, theme: Theme, parent: QWidget | None = None, desk: Any = None) -> None:
        super().__init__(parent)
        self._chooser = chooser
        self._theme = theme
        self.rows: dict[str, ModelRow] = {}
        self.results: dict[str, HubRow] = {}
        self.downloads: dict[str, DownloadRow] = {}
        self._snapshot: Snapshot | None = None
        self.setWindowTitle("Models")
        self.setMinimumSize(560, 440)
        self.resize(820, 620)
        self.setAcceptDrops(True)
        self._answered.connect(self._on_answer, Qt.ConnectionType.QueuedConnection)
        self._desk = desk if desk is not None else ModelDesk(self._answered.emit)
        self.bar = InlineBar(self)
        self._lay_out()
        self.show_page(0)

    # ------------------------------------------------------------------------------------------------------- methods

    def hear(self, answer: object) -> None:
        """An answer of the desk's; may be called from any thread."""
        self._answered.emit(answer)

    def refresh(self) -> None:
        model = self._snapshot.model if self._snapshot is not None else None
        self._desk.refresh(model.weight_bytes + model.kv_bytes if model is not None else 0)

    def show_page(self, index: int) -> None:
        """0: this machine; 1: the hub; 2: servers."""
        self.pages.setCurrentIndex(index)
        for place, button in enumerate(self.tabs):
            button.setChecked(place == index)
        if index == 1:
            self.search.setFocus()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """What the engine is doing with its model."""
        before, self._snapshot = self._snapshot, snapshot
        state = snapshot.state
        loading = state in (EngineState.LOADING, EngineState.STARTING)
        self.present.setText(snapshot.model.name if snapshot.model.name != "starter" else "Starter model")
        self.present_words.setText(wording.present(snapshot))
        self.progress.setVisible(loading)
        self.progress.setValue(int(1000 * snapshot.model.progress))
        self.cancel.setVisible(state is EngineState.LOADING)
        here = snapshot.model.lane != "remote"
        self.unload.setVisible(here and state in (EngineState.READY, EngineState.PAUSED))
        self.servers.show_present(self._chooser.source)
        for source, row in self.rows.items():
            row.show_present(source == self._chooser.source and state not in (EngineState.FAILED, EngineState.EMPTY), loading)
        if before is not None and before.state is not state and state in (EngineState.READY, EngineState.EMPTY) and self.isVisible():
            self.refresh()  # what fits has changed

    def shut_down(self) -> None:
        self._desk.close()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        for url in event.mimeData().urls():
            if url.isLocalFile():
                self.add(url.toLocalFile())
        event.acceptProposedAction()

    def closeEvent(self, event: QCloseEvent) -> None:
        event.accept()  # downloads go on; the window comes back with them

    # --------------------------------------------------------------------------------------------------------- asking

    @Slot(str)
    def add(self, path: str) -> None:
        if path:
            self._desk.add(path)

    def look_up(self) -> None:
        words = self.search.text().strip()
        if words:
            self.hub_words.setText(f"Looking for “{words}” …")
            self._desk.search(words)

    def _ask_folder(self) -> None:
        chooser = QFileDialog(self, "Add a model folder")
        chooser.setFileMode(QFileDialog.FileMode.Directory)
        self._open(chooser)

    def _ask_file(self) -> None:
        chooser = QFileDialog(self, "Add a GGUF file", "", "GGUF files (*.gguf);;All files (*)")
        chooser.setFileMode(QFileDialog.FileMode.ExistingFile)
        self._open(chooser)

    def _ask_download_folder(self) -> None:
        chooser = QFileDialog(self, "Where downloads go")
        chooser.setFileMode(QFileDialog.FileMode.Directory)
        self._open(chooser, self._desk.set_folder)

    def _open(self, chooser: QFileDialog, then: Callable[[str], object] | None = None) -> None:
        chooser.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chooser.fileSelected.connect(then or self.add)
        chooser.open()

    # -------------------------------------------------------------------------------------------------------- hearing

    @Slot(object)
    def _on_answer(self, answer: object) -> None:
        if isinstance(answer, Listed):
            self._show_list(answer)
        elif isinstance(answer, Added):
            self._chooser.choose(answer.source)
        elif isinstance(answer, Fitted):
            if row := self.rows.get(answer.source):
                row.show_fit(answer.fit, f"{answer.error.message} {answer.error.hint}".strip() if answer.error else "")
                if self._snapshot is not None:
                    self.show_snapshot(self._snapshot)
        elif isinstance(answer, Found):
            self._show_found(answer)
        elif isinstance(answer, Offered):
            self._show_offers(answer)
        elif isinstance(answer, Moved):
            self._show_download(answer)
        elif isinstance(answer, Said):
            self.bar.ask(answer.words, (("dismiss", "Dismiss", "quiet"),))
            if answer.failed:
                self.hub_words.setText(HUB_HINT)
            else:
                self.refresh()

    def _show_list(self, listed: Listed) -> None:
        _clear(self.machine_list)
        self.rows = {}
        for entry in listed.entries:
            row = ModelRow(self._theme, entry, self)
            row.load.clicked.connect(lambda _=False, source=entry.source: self._chooser.choose(source))
            row.remove.clicked.connect(lambda _=False, entry=entry: self._ask_remove(entry))
            self.machine_list.insertWidget(self.machine_list.count() - 1, row)
            self.rows[entry.source] = row
        self.folder.setText(f"Downloads go to {listed.folder}")
        self.servers.show_list(listed.servers)
        if self._snapshot is not None:
            self.show_snapshot(self._snapshot)

    def _ask_remove(self, entry: Any) -> None:
        if not entry.owned:
            self._desk.remove(entry.name)
            return
        self.bar.ask(
            f"Delete {entry.name} and free {wording.size(entry.size)}?", (("delete", "Delete", "danger"), ("keep", "Keep", "quiet"))
        )
        self._to_delete = entry.name

    @Slot(str)
    def _on_bar(self, key: str) -> None:
        if key == "delete":
            self._desk.remove(self._to_delete)

    def _show_found(self, found: Found) -> None:
        _clear(self.hub_list)
        self.results = {}
        for model in found.models:
            row = HubRow(self._theme, model, self)
            row.choose.clicked.connect(lambda _=False, name=model.repository: self._desk.offers(name))
            self.hub_list.insertWidget(self.hub_list.count() - 1, row)
            self.results[model.repository] = row
        count = len(found.models)
        self.hub_words.setText(
            f"{count} found for “{found.words}”, those fetched most first." if count else f"Nothing found for “{found.words}”."
        )

    def _show_offers(self, offered: Offered) -> None:
        if row := self.results.get(offered.repository):
            for offer, button in row.show_offers(offered.offers):
                button.clicked.connect(lambda _=False, offer=offer: self._desk.download(offer))

    def _show_download(self, moved: Moved) -> None:
        row = self.downloads.get(moved.name)
        if row is None:
            row = self.downloads[moved.name] = DownloadRow(self._theme, moved.name, self)
            row.pause.clicked.connect(lambda: self._pause_or_go_on(moved.name))
            row.cancel.clicked.connect(lambda: self._cancel_download(moved.name))
            self.download_list.addWidget(row)
        finished = moved.progress.state is TransferState.DONE and row.state is not TransferState.DONE
        row.show_progress(moved.progress)
        if finished:
            self.bar.ask(f"{moved.name} is here.", (("dismiss", "Dismiss", "quiet"),))
            self.refresh()

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

    # ------------------------------------------------------------------------------------------------------- lay-out

    def _lay_out(self) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 18, 20, 16)
        whole.setSpacing(12)
        whole.addWidget(self._make_present())
        tabs = QHBoxLayout()
        tabs.setSpacing(6)
        self.tabs = [QPushButton(words, self) for words in ("On this machine", "Find more", "Servers")]
        accent = mix(self._theme.accent, self._theme.surface, 0.28)
        for place, button in enumerate(self.tabs):
            button.setCheckable(True)
            button.setProperty("kind", "pill")
            button.setStyleSheet(f"QPushButton:checked {{ background: {accent}; color: {self._theme.text}; }}")
            button.clicked.connect(lambda _=False, place=place: self.show_page(place))
            tabs.addWidget(button)
        tabs.addStretch(1)
        whole.addLayout(tabs)
        self.pages = QStackedWidget(self)
        self.pages.addWidget(self._make_machine())
        self.pages.addWidget(self._make_hub())
        self.servers = ServersPage(self._theme, self._desk, self._chooser, self)
        self.pages.addWidget(self.servers)
        whole.addWidget(self.pages, 1)
        self.bar.chosen.connect(self._on_bar)
        whole.addWidget(self.bar)

    def _make_present(self) -> QWidget:
        frame = Row(self._theme, "", "", self)
        self.present, self.present_words = frame.name, frame.words
        self.present.setStyleSheet("font-size: 16px; font-weight: 600;")
        self.progress = QProgressBar(frame)
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(5)
        self.progress.setAccessibleName("Loading")
        line = mix(self._theme.text, self._theme.surface, 0.14)
        self.progress.setStyleSheet(
            f"QProgressBar {{ background: {line}; border: none; border-radius: 2px; }}"
            f"QProgressBar::chunk {{ background: {self._theme.accent}; border-radius: 2px; }}"
        )
        self.progress.hide()
        frame.add_below(self.progress)
        self.cancel = frame.add_button("Cancel")
        self.cancel.clicked.connect(lambda: self._chooser.cancel_load())
        self.unload = frame.add_button("Unload")
        self.unload.setToolTip("Give its memory back; the next message loads it again")
        self.unload.clicked.connect(lambda: self._chooser.unload())
        self.cancel.hide()
        self.unload.hide()
        return frame

    def _make_machine(self) -> QWidget:
        page, layout = _page(self)
        area, self.machine_list = _scroller(page, "Models on this machine")
        layout.addWidget(area, 1)
        foot = QHBoxLayout()
        foot.setSpacing(6)
        buttons = (("Add folder…", self._ask_folder), ("Add GGUF file…", self._ask_file), ("Import Hugging Face cache", self._import))
        for words, action in buttons:
            button = QPushButton(words, page)
            button.clicked.connect(lambda _=False, action=action: action())
            foot.addWidget(button)
        foot.addStretch(1)
        layout.addLayout(foot)
        hint = QLabel(HINT, page)
        hint.setProperty("kind", "small")
        self.folder = QLabel(page)
        self.folder.setProperty("kind", "small")
        self.folder.setTextFormat(Qt.TextFormat.PlainText)
        change = QPushButton("Change…", page)
        change.setProperty("kind", "quiet")
        change.setAccessibleName("Change the folder for downloads")
        change.clicked.connect(lambda: self._ask_download_folder())
        layout.addWidget(hint)
        last = QHBoxLayout()
        last.addWidget(self.folder)
        last.addWidget(change)
        last.addStretch(1)
        last.addWidget(QLabel("Unload when idle", page))
        last.addWidget(self._make_idle(page))
        layout.addLayout(last)
        return page

    def _make_idle(self, page: QWidget) -> QComboBox:
        self.idle = QComboBox(page)
        self.idle.setAccessibleName("Unload when idle")
        for words, minutes in IDLE_CHOICES:
            self.idle.addItem(words, minutes)
        known = self.idle.findData(self._chooser.idle_minutes)
        self.idle.setCurrentIndex(max(0, known))
        self.idle.activated.connect(lambda index: self._chooser.set_idle_minutes(self.idle.itemData(index)))
        return self.idle

    def _import(self) -> None:
        self._desk.import_hub_cache()

    def _make_hub(self) -> QWidget:
        page, layout = _page(self)
        self.search = QLineEdit(page)
        self.search.setPlaceholderText("Search Hugging Face")
        self.search.setAccessibleName("Search the hub")
        self.search.returnPressed.connect(self.look_up)
        self.hub_words = QLabel(HUB_HINT, page)
        self.hub_words.setProperty("kind", "small")
        self.hub_words.setWordWrap(True)
        self.hub_words.setTextFormat(Qt.TextFormat.PlainText)
        self.download_list = QVBoxLayout()
        self.download_list.setSpacing(8)
        area, self.hub_list = _scroller(page, "Models on the hub")
        layout.addWidget(self.search)
        layout.addWidget(self.hub_words)
        layout.addLayout(self.download_list)
        layout.addWidget(area, 1)
        return page


def _page(parent: QWidget) -> tuple[QWidget, QVBoxLayout]:
    page = QWidget(parent)
    layout = QVBoxLayout(page)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(8)
    return page, layout


def _scroller(parent: QWidget, name: str) -> tuple[QScrollArea, QVBoxLayout]:
    area = QScrollArea(parent)
    area.setAccessibleName(name)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    inside = QWidget(area)
    layout = QVBoxLayout(inside)
    layout.setContentsMargins(0, 0, 6, 0)
    layout.setSpacing(8)
    layout.addStretch(1)
    area.setWidget(inside)
    return area, layout


def _clear(layout: QVBoxLayout) -> None:
    """Take all rows out; the stretch at the end stays."""
    while layout.count() > 1:
        item = layout.takeAt(0)
        if item is not None and (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
