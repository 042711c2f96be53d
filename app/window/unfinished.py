"""Answers that were queued or being written when the program ended: remembered while they are, offered again at the next start.

Owns the list of such chats, kept with the session. Nothing is ever asked again by itself: a machine's time and a server's money are the
person's to spend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication

from app.chats.model import AnswerState, Role

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

translate = QCoreApplication.translate

KEY = "under_way"
DEVICE_LOST = "device_lost"  # the engine's code for a device that only a new process can use


class Unfinished:
    """`remember(text)` keeps the list; `offer(text)` takes what another day kept."""

    def __init__(self, window: MainWindow, remember: Callable[[str], None]) -> None:
        self._window, self._remember = window, remember
        self._lost: dict[str, None] = {}  # their answers ended with the device
        self._active: tuple[str, ...] = ()
        self.offered: tuple[str, ...] = ()
        window.answering.on_active = self._note
        window.bar.chosen.connect(self._choose)

    def offer(self, kept: str | None) -> None:
        """Ask about the chats of another day whose answers are still unfinished; nothing if there are none."""
        try:
            names = json.loads(kept or "[]")
        except ValueError:
            names = []
        chats = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        self.offered = tuple(dict.fromkeys(chat for chat in chats if self._cut_off(chat)))
        if not self.offered:
            return
        self._window.add_tabs(list(self.offered))
        count = len(self.offered)
        words = translate("Unfinished", "{0} answers were queued or being written when Omnibus ended.").format(count)
        go_on = translate("Unfinished", "Go on with all")
        if count == 1:
            words = translate("Unfinished", "One answer was queued or being written when Omnibus ended.")
            go_on = translate("Unfinished", "Go on")
        self._window.bar.ask(words, (("go_on", go_on, "primary"), ("leave", translate("Unfinished", "Leave as it is"), "quiet")))

    def _cut_off(self, chat_id: str) -> bool:
        book = self._window.book
        last = book[chat_id].last if chat_id in book else None
        if last is None:
            return False
        if last.role is Role.USER:
            return True  # it ended between the question and its answer
        lost = last.state is AnswerState.FAILED and last.error is not None and last.error.code == DEVICE_LOST
        return last.state is AnswerState.INTERRUPTED or lost

    def _note(self, active: Sequence[str]) -> None:
        """Which chats wait for an answer now."""
        for chat in self._active:
            if chat not in active and self._cut_off(chat):
                self._lost[chat] = None
        for chat in active:
            self._lost.pop(chat, None)
        self._active = tuple(active)
        self._keep()

    def _keep(self) -> None:
        self._remember(json.dumps(list(dict.fromkeys((*self._active, *self._lost, *self.offered)))))

    def _choose(self, key: str) -> None:
        if key not in ("go_on", "leave") or not self.offered:
            return
        chats, self.offered = self.offered, ()
        if key == "go_on":
            for chat in chats:
                if not self._cut_off(chat):
                    continue  # asked again by hand meanwhile
                last = self._window.book[chat].last
                if last is not None and last.role is Role.ASSISTANT and last.text:
                    self._window.go_on(chat)
                else:
                    self._window.retry(chat)
        self._keep()

    def close(self) -> None:
        """The program ends in order: what was not chosen until now is not asked again. What a lost device cut off still is."""
        self.offered = ()
        self._keep()
