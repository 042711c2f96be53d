"""The models window: what is loaded, what lies on this machine and how it fits, what the hub has, and downloads under way. Never modal.

Shows what the desk tells and asks the desk; loading and unloading go to the engine through `Chooses`. Everything that takes time happens on
other threads, and comes back here as a signal.
"""

from __future__ import annotations

from typing import Any, Protocol

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from app.models import wording
from app.models.hub_page import HubPage
from app.models.machine_page import MachinePage
from app.models.present import Present
from app.models.servers import ServersPage
from app.models.wording import translate
from app.theme import Theme, resize_to_fit
from app.theme.color import mix
from app.window.bars import InlineBar
from engine import Added, EngineState, Fitted, Found, Listed, ModelDesk, ModelView, Moved, Offered, Said, Snapshot


class Chooses(Protocol):
    """Who carries out what the window is asked for."""

    def choose(self, source: str) -> None: ...
    def unload(self, source: str = "") -> None: ...
    def cancel_load(self, source: str = "") -> None: ...
    def set_idle_minutes(self, minutes: int) -> None: ...
    def ask_form(self, model: ModelView) -> None: ...
    @property
    def source(self) -> str: ...
    @property
    def idle_minutes(self) -> int: ...


class ModelsDialog(QDialog):
    """Attributes: present, machine, hub and servers (its parts), bar."""

    _answered = Signal(object)  # from the desk's threads to the window's

    def __init__(self, chooser: Chooses, theme: Theme, parent: QWidget | None = None, desk: Any = None) -> None:
        super().__init__(parent)
        self._chooser = chooser
        self._theme = theme
        self._to_delete = ""
        self._snapshot: Snapshot | None = None
        self.setWindowTitle(translate("Models", "Models"))
        self.setMinimumSize(560, 440)
        resize_to_fit(self, 820, 620)
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
        shown = (self._snapshot, *self._snapshot.others) if self._snapshot is not None else ()
        self._desk.refresh(sum(each.model.held for each in shown))

    def show_page(self, index: int) -> None:
        """0: this machine; 1: the hub; 2: servers."""
        self.pages.setCurrentIndex(index)
        for place, button in enumerate(self.tabs):
            button.setChecked(place == index)
        if index == 1:
            self.hub.search.setFocus()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """What the engine is doing with its model."""
        before, self._snapshot = self._snapshot, snapshot
        state = snapshot.state
        self.present.show_snapshot(snapshot)
        self.servers.show_present(self._chooser.source)
        gone, coming = (EngineState.FAILED, EngineState.EMPTY), (EngineState.LOADING, EngineState.STARTING)
        there = {each.model.source: each.state for each in snapshot.others} | {self._chooser.source: state}
        for source, row in self.machine.rows.items():
            row.show_present(there.get(source, EngineState.EMPTY) not in gone, there.get(source) in coming)
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
                self.machine.add(url.toLocalFile())
        event.acceptProposedAction()

    def closeEvent(self, event: QCloseEvent) -> None:
        event.accept()  # downloads go on; the window comes back with them

    # -------------------------------------------------------------------------------------------------------- hearing

    @Slot(object)
    def _on_answer(self, answer: object) -> None:
        if isinstance(answer, Listed):
            self.machine.show_list(answer)
            self.servers.show_list(answer.servers)
            self._show_again()
        elif isinstance(answer, Added):
            self._chooser.choose(answer.source)
        elif isinstance(answer, Fitted):
            self.machine.show_fit(answer)
            self._show_again()
        elif isinstance(answer, Found):
            self.hub.show_found(answer)
        elif isinstance(answer, Offered):
            self.hub.show_offers(answer)
        elif isinstance(answer, Moved):
            self.hub.show_download(answer)
        elif isinstance(answer, Said):
            self.bar.ask(answer.words, (("dismiss", translate("Models", "Dismiss"), "quiet"),))
            if answer.failed:
                self.hub.forget_search()
            else:
                self.refresh()

    def _show_again(self) -> None:
        if self._snapshot is not None:
            self.show_snapshot(self._snapshot)

    @Slot(str)
    def _on_arrived(self, name: str) -> None:
        self.bar.ask(translate("Models", "{0} is here.").format(name), (("dismiss", translate("Models", "Dismiss"), "quiet"),))
        self.refresh()

    @Slot(object)
    def _ask_remove(self, entry: Any) -> None:
        if not entry.owned:
            self._desk.remove(entry.name)
            return
        self.bar.ask(
            translate("Models", "Delete {0} and free {1}?").format(entry.name, wording.size(entry.size)),
            (("delete", translate("Models", "Delete"), "danger"), ("keep", translate("Models", "Keep"), "quiet")),
        )
        self._to_delete = entry.name

    @Slot(str)
    def _on_bar(self, key: str) -> None:
        if key == "delete":
            self._desk.remove(self._to_delete)

    # ------------------------------------------------------------------------------------------------------- lay-out

    def _lay_out(self) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 18, 20, 16)
        whole.setSpacing(12)
        self.present = Present(self._theme, self)
        self.present.cancel.connect(self._chooser.cancel_load)
        self.present.unload.connect(self._chooser.unload)
        self.present.form.connect(self._chooser.ask_form)
        whole.addWidget(self.present)
        tabs = QHBoxLayout()
        tabs.setSpacing(6)
        pages = translate("Models", "On this machine"), translate("Models", "Find more"), translate("Models", "Servers")
        self.tabs = [QPushButton(words, self) for words in pages]
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
        self.machine = MachinePage(self._theme, self._desk, self._chooser.idle_minutes, self)
        self.machine.load.connect(self._chooser.choose)
        self.machine.remove.connect(self._ask_remove)
        self.machine.idle_chosen.connect(self._chooser.set_idle_minutes)
        self.hub = HubPage(self._theme, self._desk, self)
        self.hub.arrived.connect(self._on_arrived)
        self.pages.addWidget(self.machine)
        self.pages.addWidget(self.hub)
        self.servers = ServersPage(self._theme, self._desk, self._chooser, self)
        self.pages.addWidget(self.servers)
        whole.addWidget(self.pages, 1)
        self.bar.chosen.connect(self._on_bar)
        whole.addWidget(self.bar)
