"""The model of the chat in view: the menu that changes it, and what a change means for the other chats.

A chat that was given a model keeps it: its next message waits, with the reason, until nothing rides, then the engine changes over. Chats
that were begun with the present model are given that one when another is chosen, so that they come back to it. Owns the models window.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.models import wording
from app.models.wording import translate
from engine import EngineState, ModelView, Snapshot

if TYPE_CHECKING:
    from app.models.dialog import ModelsDialog
    from app.models.form_dialog import FormDialog
    from app.window.main_window import MainWindow


KEY = "models"  # under which the choices are remembered
RECENT = 8


class ModelSwitch(QObject):
    """What the window's model line, Ctrl+M and the models window ask for."""

    def __init__(self, window: MainWindow, engine: Any) -> None:
        super().__init__(window)
        self._window = window
        self._engine = engine
        self._dialog: ModelsDialog | None = None
        self.form_dialog: FormDialog | None = None  # until it was needed once
        self._offered: set[str] = set()  # models for which the choice was shown
        self._recent: list[str] = []
        self._remember: Callable[[str, str], None] = lambda key, value: None
        self.idle_minutes = 0

    def attach(self, remembered: str | None, remember: Callable[[str, str], None]) -> None:
        """Take up what another day left under `KEY`, and keep what is chosen from now on."""
        self._remember = remember
        try:
            kept = json.loads(remembered or "{}")
            self._recent = [item for item in kept.get("recent", []) if isinstance(item, str)][:RECENT]
            self.set_idle_minutes(int(kept.get("idle_minutes", 0)))
        except (ValueError, AttributeError, TypeError):
            return

    def set_idle_minutes(self, minutes: int) -> None:
        """Let the model go after so long without a message; 0 keeps it."""
        if minutes != self.idle_minutes and minutes >= 0:
            self.idle_minutes = minutes
            self._engine.let_go_after(60.0 * minutes if minutes else None)
            self._keep()

    def _keep(self) -> None:
        self._remember(KEY, json.dumps({"recent": self._recent, "idle_minutes": self.idle_minutes}))

    @property
    def source(self) -> str:
        """The model that is loaded, or being loaded."""
        return str(self._engine.config.model)

    @property
    def dialog(self) -> ModelsDialog | None:
        """None until it was opened once."""
        return self._dialog

    def choose(self, source: str) -> None:
        """Give the chat in view this model; the engine changes over at once if nothing is being answered."""
        before = self.source
        book, current = self._window.book, self._window.current_chat
        if source != before:
            for chat in book.listed():
                if not chat.settings.model and not chat.empty and chat.id != current:
                    book.set_settings(chat.id, replace(chat.settings, model=before))
        if current is not None:
            book.set_settings(current, replace(book[current].settings, model=source))
        self._recent = [source, *(other for other in self._recent if other != source)][:RECENT]
        self._keep()
        idle = self._engine.snapshot.state in (EngineState.EMPTY, EngineState.FAILED)
        if (source != before or idle) and not self._window.answering.active_chats:
            self._engine.load(source)
        self._window.monitor.wake()

    def keep_two(self, wanted: bool) -> None:
        """Whether a second model is loaded beside the first where both fit."""
        self._engine.keep_two(wanted)

    def reproduce(self, wanted: bool) -> None:
        """Whether the same prompt and seed are to give the same answer, whoever rides along."""
        self._engine.reproduce(wanted)

    def unload(self, source: str = "") -> None:
        """Let a loaded model go; without a name the present one."""
        self._engine.unload(source)
        self._window.monitor.wake()

    def cancel_load(self, source: str = "") -> None:
        self._engine.cancel_load(source)
        self._window.monitor.wake()

    @Slot()
    def open_dialog(self) -> None:
        """Show the models window."""
        if self._dialog is None:
            from app.models.dialog import ModelsDialog

            self._dialog = ModelsDialog(self, self._window.theme, self._window)
        self._dialog.show_snapshot(self._engine.snapshot)
        self._dialog.refresh()
        self._dialog.show()
        self._dialog.raise_()

    @Slot()
    def open_menu(self) -> None:
        """The models used lately, above the model's line; for more there is the window."""
        menu = self.make_menu()
        place = self._window.sidebar.model_box.mapToGlobal(QPoint(8, 0))
        menu.popup(place - QPoint(0, menu.sizeHint().height() + 4))

    def make_menu(self) -> QMenu:
        menu = QMenu(self._window)
        menu.setAccessibleName(translate("Models", "Model"))
        chosen = self._chosen()
        for source in dict.fromkeys([self.source, *self._recent, *self._of_chats(), "starter"]):
            action = QAction(wording.short_name(source), menu)
            action.setCheckable(True)
            action.setChecked(source == chosen)
            action.triggered.connect(lambda _=False, source=source: self.choose(source))
            menu.addAction(action)
        menu.addSeparator()
        loaded = self._engine.snapshot
        unload = menu.addAction(translate("Models", "Unload"), lambda: self.unload())
        unload.setEnabled(loaded.state is EngineState.READY and loaded.model.lane != "remote")
        menu.addAction(translate("Models", "All models…"), self.open_dialog)
        menu.aboutToHide.connect(menu.deleteLater)
        return menu

    def ask_form(self, model: ModelView) -> None:
        """Show the choice of a chat form for a loaded model that brings no template."""
        if self.form_dialog is None:
            from app.models.form_dialog import FormDialog

            self.form_dialog = FormDialog(self._window.theme, self._window)
            self.form_dialog.chosen.connect(self._engine.use_form)
        self.form_dialog.ask(model)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        for each in (snapshot, *snapshot.others):
            self._offer_form(each)
        if self._dialog is not None:
            self._dialog.show_snapshot(snapshot)

    def shut_down(self) -> None:
        if self._dialog is not None:
            self._dialog.shut_down()
            self._dialog.close()
        if self.form_dialog is not None:
            self.form_dialog.close()

    def _offer_form(self, snapshot: Snapshot) -> None:
        """Once for a model without a template, when it is there and nobody has chosen yet."""
        model = snapshot.model
        ready = snapshot.state is EngineState.READY and self._window.isVisible()
        if ready and model.template not in ("", "model") and not model.form_chosen and model.source not in self._offered:
            self._offered.add(model.source)
            self.ask_form(model)

    def _chosen(self) -> str:
        current = self._window.current_chat
        return (self._window.book[current].settings.model if current else "") or self.source

    def _of_chats(self) -> list[str]:
        return [chat.settings.model for chat in self._window.book.listed() if chat.settings.model][:8]
