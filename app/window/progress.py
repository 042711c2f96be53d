"""What the engine is doing, as the window shows it: rings and words at tabs and rows, the model's line, its error.

Driven by the monitor's samples, ten times a second while something happens. Owns what was shown last; changes no chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QGuiApplication

from app.numbers import explained
from app.window.states import ChatState, model_words, riding, state_of
from app.window.unfinished import DEVICE_LOST
from engine import EngineState, Snapshot

if TYPE_CHECKING:
    from app.window.main_window import MainWindow


class Progress(QObject):
    """`show` brings everything up to a snapshot, `show_states` only what may have changed without one."""

    def __init__(self, window: MainWindow, engine: Any) -> None:
        super().__init__(window)
        self._window = window
        self._engine = engine
        self._known: dict[str, ChatState] = {}
        self._error = ""
        window.monitor.sampled.connect(self.show)
        window.parts.engine_bar.chosen.connect(self._on_answer)

    @Slot(object)
    def show(self, snapshot: Snapshot) -> None:
        window = self._window
        self._known = riding(snapshot, window.answering.active_chats)
        self.show_states()
        window.sidebar.set_model(
            snapshot.model.name or self.tr("No model"), model_words(snapshot), failed=snapshot.state is EngineState.FAILED
        )
        page = window.page(window.current_chat or "")
        if page:
            loading = snapshot.state in (EngineState.STARTING, EngineState.LOADING)
            later = self.tr("Ask anything; it is answered as soon as the model is loaded")
            page.set_placeholder(later if loading else self.tr("Ask anything"))
            window.parts.panel.show_context(page.chat.tokens_used, snapshot.model.context)
        self._show_error(snapshot)
        window.models.show_snapshot(snapshot)

    def show_states(self) -> None:
        window = self._window
        states: dict[str, ChatState] = {}
        for chat_id in {*self._known, *window.answering.active_chats, *window.book.unread()}:
            if chat_id not in window.book:
                continue  # a request of somebody else's
            chat = window.book[chat_id]
            state = state_of(chat, window.answering.active(chat.id), self._known)
            if state.busy or chat.unread:
                states[chat.id] = state
        window.sidebar.set_states(states)
        for chat_id in window.open_chats:
            window.tabs.set_state(chat_id, states.get(chat_id, ChatState()))
        current = window.current_chat or ""
        if current in states and (page := window.page(current)):
            page.set_state(states[current])

    def _show_error(self, snapshot: Snapshot) -> None:
        error = snapshot.error if snapshot.state is EngineState.FAILED else None
        words = explained(error) if error else ""
        if words == self._error:
            return
        self._error = words
        bar = self._window.parts.engine_bar
        if words:
            first = ("restart", self.tr("Try again"), "primary")
            if error is not None and error.code == DEVICE_LOST:
                first = ("relaunch", self.tr("Restart Omnibus"), "primary")
            bar.ask(words, (first, ("copy", self.tr("Copy"), ""), ("dismiss", self.tr("Dismiss"), "quiet")))
        else:
            bar.hide()

    @Slot(str)
    def _on_answer(self, key: str) -> None:
        if key == "restart":
            self._engine.restart()
            self._window.monitor.wake()
        elif key == "relaunch":
            self._window.starts_again = True
            self._window.questions.end()
            self._window.close()
        elif key == "copy":
            QGuiApplication.clipboard().setText(self._error)
