"""The window: sidebar, tabs, the page of the chat in view, the dashboard beside it, the engine strip below.

Wires the parts together and owns no state of a chat: chats live in the book, answers in `Answering`, and both go on whatever is shown.
Everything a test or a script needs is a plain method (`new_chat`, `send`, `stop`, `close_tab`, `switch`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QWidget

from app.bridge import EngineBridge
from app.chats.answering import Answering
from app.chats.book import ChatBook
from app.chats.model import Attachment, ChatMessage, ChatSettings
from app.chats.titling import Titling
from app.composer.editor import is_typing
from app.dashboard import DashboardPage
from app.models.switch import ModelSwitch
from app.numbers import said
from app.theme import Theme, app_icon, apply_theme
from app.window.about import AboutBox
from app.window.api_switch import ApiSwitch
from app.window.chat_actions import ChatActions
from app.window.chat_files import ChatFiles
from app.window.demo import DemoRun
from app.window.demo_chats import DemoChats
from app.window.keys import Keys, window_actions
from app.window.messages import MessageActions
from app.window.monitor import EngineMonitor
from app.window.open_tabs import OpenTabs
from app.window.overlays import Overlays
from app.window.page import ChatPage
from app.window.pages import Pages
from app.window.parts import WindowParts
from app.window.preferences import Preferences
from app.window.progress import Progress
from app.window.questions import Questions
from app.window.tab_list import TabList
from app.window.tab_menu import TabMenu
from engine import RequestHandle


class MainWindow(QMainWindow):
    """The program's one window.

    Signals:
        closed: the window is on its way out; whoever owns the engine and the loop shuts them down.
        theme_changed(name): "dark" or "light" was chosen here.

    Attributes:
        starts_again: the program is to begin anew once this window is gone.
    """

    closed = Signal()
    theme_changed = Signal(str)

    def __init__(self, engine: Any, book: ChatBook, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._theme = theme
        self.book = book
        self.bridge = EngineBridge(self._on_ready, parent=self)
        self.answering = Answering(book, engine, self.bridge.ready)
        self.titling = Titling(book, self.answering, engine, self.bridge.ready)
        self.monitor = EngineMonitor(engine, self)
        self._shut = False
        self.starts_again = False
        self.setWindowTitle("Omnibus")
        self.setWindowIcon(app_icon())
        self.setMinimumSize(540, 420)
        self.resize(1280, 840)
        self.parts = WindowParts(engine, book, theme, self)
        self.tabs = self.parts.tabs
        self.sidebar = self.parts.sidebar
        self.bar = self.parts.bar
        self.setCentralWidget(self.parts)
        self.messages = MessageActions(self)
        self.chats = ChatActions(self)
        self.open_tabs = OpenTabs(self)
        self.pages = Pages(self, self.parts.stack)
        self.models = ModelSwitch(self, engine)
        self.questions = Questions(self)
        self.tab_menu = TabMenu(self)
        self.tab_list = TabList(self)
        self.demo_chats = DemoChats(self)
        self.demo = DemoRun(self.demo_chats.arrive, lambda: engine.snapshot.rates.step_s, self)
        self.progress = Progress(self, engine)
        self._connect()
        self.overlays = Overlays(self, theme)
        self.files = ChatFiles(self)
        self.keys = Keys(self, window_actions(self))
        self.api = ApiSwitch(engine, parent=self)
        self.preferences = Preferences(self)
        self.api.changed.connect(self.preferences.note_api)
        self.new_chat()
        self.progress.show(engine.snapshot)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def current_chat(self) -> str | None:
        """The chat in view."""
        return self.tabs.chat_at(self.tabs.currentIndex())

    @property
    def open_chats(self) -> tuple[str, ...]:
        """Chats that have a tab, in the order of the tabs."""
        return tuple(chat for index in range(self.tabs.count()) if (chat := self.tabs.chat_at(index)))

    def page(self, chat_id: str) -> ChatPage | None:
        """The page of a chat, None until it was shown once."""
        return self.pages.get(chat_id)

    # --------------------------------------------------------------------------------------------------------- chats

    def new_chat(self) -> str:
        """Open a new chat in a new tab and return its id. An empty one that is open already is used instead."""
        for chat_id in self.open_chats:
            if self.book[chat_id].empty and not self.book[chat_id].drafted:
                self.open_chat(chat_id)
                return chat_id
        chat_id = self.book.new_chat().id
        self.open_chat(chat_id)
        return chat_id

    @Slot(str)
    def open_chat(self, chat_id: str) -> None:
        """Show a chat, in its tab or a new one. Unknown ids (a request of somebody else's) are passed over."""
        if chat_id not in self.book:
            return
        self.add_tabs([chat_id])
        if self.parts.dashboard_mode == "full":
            self.parts.set_dashboard("off")
        self.switch(self.tabs.index_of(chat_id))

    @Slot(str, str, str)
    def go_to(self, chat_id: str, message_id: str, words: str = "") -> None:
        """Show a chat, and a message of it ("" for none) in whatever version it is, where these words of a search stand in it."""
        self.open_chat(chat_id)
        page = self.pages.get(chat_id)
        message = self.book[chat_id].tree.get(message_id) if chat_id in self.book else None
        if page is None or message is None:
            return
        if message not in self.book[chat_id].messages:
            self.book.show_version(chat_id, message, 0)
            self.after_change(chat_id)
        page.view.finder.show(message_id, words)

    def add_tabs(self, chat_ids: list[str], place: int | None = None) -> None:
        """Give these chats tabs, behind the others or from a place on, without showing them."""
        for chat_id in chat_ids:
            if chat_id in self.book and self.tabs.index_of(chat_id) < 0:
                index = self.tabs.count() if place is None else min(place, self.tabs.count())
                self.tabs.add(chat_id, self.book[chat_id].title or self.tr("New chat"), index)

    def send(self, chat_id: str, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Say something in a chat, in view or not. Nothing at all sends the first held follow-up."""
        self.titling.drop()
        if text.strip() or attachments:
            self.answering.send(chat_id, text, attachments)
        else:
            self.answering.send_follow_up(chat_id)
        self.after_change(chat_id, to_end=True)
        self.monitor.wake()

    def stop(self, chat_id: str) -> None:
        """Stop the answer of a chat; a second time drops its queue."""
        self.answering.stop(chat_id)
        self.after_change(chat_id)

    def stop_all(self) -> None:
        for chat_id in self.answering.active_chats:
            self.stop(chat_id)

    def retry(self, chat_id: str, answer: ChatMessage | None = None) -> None:
        """Ask again for an answer, by default the last one; the old one stays as a version."""
        self.titling.drop()
        self.answering.retry(chat_id, answer)
        self.after_change(chat_id, to_end=True)
        self.monitor.wake()

    def go_on(self, chat_id: str) -> None:
        """Continue an answer that was cut short."""
        self.titling.drop()
        self.answering.go_on(chat_id)
        self.after_change(chat_id, to_end=True)
        self.monitor.wake()

    # ---------------------------------------------------------------------------------------------------------- tabs

    def switch(self, index: int) -> None:
        """Show the tab at a place, counted from 0."""
        if not 0 <= index < self.tabs.count():
            return
        if index != self.tabs.currentIndex():
            self.tabs.setCurrentIndex(index)
        elif self.pages.get(self.tabs.chat_at(index) or "") is None:
            self._on_current(index)

    def close_tab(self, index: int, choice: str | None = None) -> None:
        """Close the tab at a place, see `OpenTabs.close`."""
        if chat_id := self.tabs.chat_at(index):
            self.open_tabs.close([chat_id], choice)

    # ----------------------------------------------------------------------------------------------------- the window

    def set_theme(self, theme: Theme) -> None:
        """The person chose this look."""
        self.dress(theme)
        self.theme_changed.emit(theme.name)

    def dress(self, theme: Theme) -> None:
        """Change the look of everything at once."""
        self._theme = theme
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        apply_theme(app, theme)
        self.parts.set_theme(theme)
        self.overlays.set_theme(theme)
        for page in self.pages.all():
            page.set_theme(theme)

    @Slot()
    def come_forward(self) -> None:
        """Be seen: another start asked for it."""
        self.questions.stay()
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    @Slot()
    def toggle_theme(self) -> None:
        self.set_theme(Theme.light() if self._theme.is_dark else Theme.dark())

    @Slot(object)
    def show_store_trouble(self, words: str) -> None:
        """Say why chats cannot be saved; "" when they can be again."""
        if words:
            self.parts.store_bar.ask(said(words), (("dismiss", self.tr("Dismiss"), "quiet"),))
        else:
            self.parts.store_bar.hide()

    @Slot()
    def run_demo(self) -> None:
        """Let a scripted crowd come, a chat each, in tabs that are not shown."""
        self.demo_chats.begin()
        self.demo.start()

    def shut_down(self) -> None:
        """Let go of the engine: no more events, no more samples. The engine itself belongs to somebody else. Twice is once."""
        if self._shut:
            return
        self._shut = True
        self.questions.end()
        self.titling.drop()
        self.demo.stop()
        self.answering.stop_all()
        self.monitor.close()
        self.models.shut_down()
        self.api.shut_down()
        self.bridge.close()
        self.files.close()
        self.overlays.shut_down()
        self.parts.shut_down()
        self.hide()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """What nobody took: typing anywhere is writing."""
        page = self.page(self.current_chat or "")
        if page and page.isVisible() and is_typing(event):
            page.composer.type(event.text())
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self.questions.may_end():
            event.ignore()
            return
        event.accept()
        self.closed.emit()

    # -------------------------------------------------------------------------------------------------------- engine

    def _on_ready(self, handles: list[RequestHandle]) -> None:
        """Requests have something to say: into the chats with it, and into the page in view."""
        if titled := self.titling.deliver(handles):
            self.after_change(titled)
        ended = False
        for progress in self.answering.deliver(handles):
            if progress.finished:
                ended = True
                self.preferences.note_end(progress.chat_id)
                self.bridge.forget(progress.request_id)
                self.titling.answered(progress.chat_id)
                self.after_change(progress.chat_id)
            elif progress.chat_id == self.current_chat and (page := self.pages.get(progress.chat_id)):
                page.sync_text()
        if ended:
            self.monitor.wake()
            self.questions.note_end()

    # ------------------------------------------------------------------------------------------------------- private

    def after_change(self, chat_id: str, to_end: bool = False) -> None:
        """A chat has changed: bring up to it what shows it."""
        if chat_id not in self.book:
            self.sidebar.refresh()
            return
        self.tabs.set_title(chat_id, self.book[chat_id].title or self.tr("New chat"))
        self.sidebar.refresh()
        page = self.pages.get(chat_id)
        if page and chat_id == self.current_chat:
            page.refresh(self.answering.active(chat_id))
            if to_end:
                page.view.scroll_to_end()
        self.progress.show_states()
        self.demo_chats.look()

    @Slot(int)
    def _on_current(self, index: int) -> None:
        chat_id = self.tabs.chat_at(index)
        if chat_id is None:
            self.answering.look_at(None)
            return
        page = self.pages.show(chat_id, self._theme)
        self.book.set_unread(chat_id, False)
        self.answering.look_at(chat_id)
        self.parts.panel.show_settings(page.chat.settings)
        self.sidebar.select(chat_id)
        self.progress.show(self._engine.snapshot)
        page.focus_composer()

    @Slot(object)
    def _on_settings(self, settings: ChatSettings) -> None:
        if self.current_chat:
            self.book.set_settings(self.current_chat, replace(settings, model=self.book[self.current_chat].settings.model))

    @Slot(object)
    def _on_dashboard(self, page: DashboardPage) -> None:
        page.open_chat.connect(self.open_chat)
        page.run_demo.connect(self.run_demo)

    def _connect(self) -> None:
        parts = self.parts
        parts.dashboard_made.connect(self._on_dashboard)
        parts.strip.clicked.connect(parts.toggle_dashboard)
        parts.row.plus.clicked.connect(self.new_chat)
        parts.row.panel_button.clicked.connect(parts.toggle_panel)
        parts.row.dashboard_button.clicked.connect(parts.toggle_dashboard)
        parts.panel.changed.connect(self._on_settings)
        self.tabs.currentChanged.connect(self._on_current)
        self.tabs.close_asked.connect(self.close_tab)
        self.sidebar.new_chat_asked.connect(self.new_chat)
        self.sidebar.model_asked.connect(self.models.open_menu)
        self.sidebar.chat_opened.connect(self.open_chat)
        self.sidebar.rename_asked.connect(self.chats.rename)
        self.sidebar.menu.deleted.connect(self.chats.delete)
        self.sidebar.menu.pinned.connect(self.chats.pin)
        self.sidebar.menu.moved.connect(self.chats.move)
        self.sidebar.menu.exported.connect(lambda ids: self.files.ask_export(ids))
        self.sidebar.search_asked.connect(lambda: self.overlays.open_search())
        self.sidebar.settings_asked.connect(lambda: self.overlays.open_settings())
        self.sidebar.theme_asked.connect(self.toggle_theme)
        self.sidebar.collapse_asked.connect(parts.toggle_sidebar)

    def show_about(self) -> None:
        AboutBox(self).show()

    def focus_composer(self) -> None:
        if page := self.pages.get(self.current_chat or ""):
            page.focus_composer()

    def escape(self) -> None:
        """Closes what was asked, else stops the answer in view, and the second time its queue."""
        page = self.pages.get(self.current_chat or "")
        if self.overlays.close_open() or (page and page.escape()):
            return
        if not self.questions.escape() and self.current_chat:
            self.stop(self.current_chat)
