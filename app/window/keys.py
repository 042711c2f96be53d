"""The window's keys: one table from a name to its sequences, so that they can be listed and rebound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from app.chats.model import Chat
    from app.window.main_window import MainWindow

KEYS: dict[str, tuple[str, ...]] = {
    "new tab": ("Ctrl+T", "Ctrl+N", "Ctrl+Shift+O"),
    "close tab": ("Ctrl+W",),
    "reopen tab": ("Ctrl+Shift+T",),
    "next tab": ("Ctrl+Tab", "Ctrl+PgDown"),
    "previous tab": ("Ctrl+Shift+Tab", "Ctrl+PgUp"),
    **{f"tab {number}": (f"Alt+{number}",) for number in range(1, 10)},
    "all tabs": ("Ctrl+Shift+A",),
    "search": ("Ctrl+K",),
    "command palette": ("Ctrl+Shift+P",),
    "list of keys": ("Ctrl+/",),
    "settings": ("Ctrl+,",),
    "light or dark": (),
    "import chats": (),
    "export this chat": (),
    "export all chats": (),
    "sidebar": ("Ctrl+B",),
    "parameters": ("Ctrl+Shift+B",),
    "dashboard": ("Ctrl+D", "F9"),
    "dashboard full": ("Ctrl+Shift+D", "Shift+F9"),
    "models": ("Ctrl+M",),
    "composer": ("Ctrl+L",),
    "zoom in": ("Ctrl++", "Ctrl+="),
    "zoom out": ("Ctrl+-",),
    "zoom back": ("Ctrl+0",),
    "stop": ("Esc",),
    "stop all": ("Ctrl+Shift+.",),
    "regenerate": ("Ctrl+R",),
    "continue": ("Alt+Return", "Alt+Enter"),
    "version before": ("Alt+Left",),
    "version after": ("Alt+Right",),
    "message before": ("Alt+Up",),
    "message after": ("Alt+Down",),
    "find": ("Ctrl+F",),
    "find next": ("F3",),
    "find before": ("Shift+F3",),
    "copy last code": ("Ctrl+Shift+;", "Ctrl+Shift+:"),
    "copy last answer": ("Ctrl+Shift+C",),
    "rename": ("F2",),
    "pin or unpin": (),
    "delete chat": ("Ctrl+Shift+Backspace",),
    "about": ("F1",),
    "quit": ("Ctrl+Q",),
}


class Keys:
    """The actions of a window under their keys, which may be changed while it is open.

    Attributes:
        actions: what each name does.
    """

    def __init__(self, window: QWidget, actions: Mapping[str, Callable[[], object]]) -> None:
        self.actions = dict(actions)
        self._window = window
        self._changed: dict[str, tuple[str, ...]] = {}
        self._shortcuts: list[QShortcut] = []
        self._bind()

    def of(self, name: str) -> tuple[str, ...]:
        """The sequences of an action, as Qt writes them portably."""
        return self._changed.get(name, KEYS.get(name, ()))

    def change(self, changed: Mapping[str, tuple[str, ...]]) -> None:
        """Use these sequences instead of the defaults; names that are not known are passed over."""
        self._changed = {name: tuple(keys) for name, keys in changed.items() if name in self.actions}
        self._bind()

    def taken_by(self, sequence: str, but: str) -> str | None:
        """The action, other than `but`, that has this sequence."""
        wanted = QKeySequence(sequence)
        names = (name for name in self.actions if name != but)
        return next((name for name in names if any(QKeySequence(keys) == wanted for keys in self.of(name))), None)

    def _bind(self) -> None:
        for shortcut in self._shortcuts:
            shortcut.setEnabled(False)
            shortcut.deleteLater()
        self._shortcuts = []
        for name, action in self.actions.items():
            for keys in self.of(name):
                shortcut = QShortcut(QKeySequence(keys), self._window)
                shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
                shortcut.setAutoRepeat(name in ("next tab", "previous tab"))
                shortcut.activated.connect(lambda action=action: action())
                self._shortcuts.append(shortcut)


def in_words(sequences: Sequence[str]) -> str:
    """Sequences as this system writes them."""
    return "  ".join(QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText) for keys in sequences)


def window_actions(window: MainWindow) -> dict[str, Callable[[], object]]:
    """What each name does."""
    tabs = window.tabs

    def step(by: int) -> None:
        window.switch((tabs.currentIndex() + by) % tabs.count())

    def here() -> Chat | None:
        return window.book[window.current_chat] if window.current_chat else None

    def mark(by: int) -> None:
        if page := window.page(window.current_chat or ""):
            page.view.bars.step(by)
            page.view.setFocus()

    def find(by: int) -> None:
        if page := window.page(window.current_chat or ""):
            page.find_bar.step(by) if by else page.find_bar.open_bar()

    return {
        "new tab": window.new_chat,
        "close tab": lambda: window.close_tab(tabs.currentIndex()),
        "reopen tab": window.open_tabs.reopen,
        "next tab": lambda: step(1),
        "previous tab": lambda: step(-1),
        **{f"tab {number}": lambda number=number: window.switch(number - 1) for number in range(1, 10)},  # type: ignore[misc]
        "all tabs": window.tab_list.open,
        "search": window.overlays.open_search,
        "command palette": window.overlays.open_palette,
        "list of keys": lambda: window.overlays.open_settings("keys"),
        "settings": window.overlays.open_settings,
        "light or dark": window.toggle_theme,
        "import chats": window.files.ask_import,
        "export this chat": lambda: window.files.ask_export([window.current_chat or ""]),
        "export all chats": lambda: window.files.ask_export([chat.id for chat in window.book.listed()]),
        "sidebar": window.parts.toggle_sidebar,
        "parameters": window.parts.toggle_panel,
        "dashboard": window.parts.toggle_dashboard,
        "dashboard full": window.parts.toggle_full_dashboard,
        "models": window.models.open_menu,
        "composer": window.focus_composer,
        "zoom in": lambda: window.preferences.zoom(1),
        "zoom out": lambda: window.preferences.zoom(-1),
        "zoom back": lambda: window.preferences.zoom(0),
        "stop": window.escape,
        "stop all": window.stop_all,
        "regenerate": lambda: window.retry(window.current_chat or ""),
        "continue": lambda: window.go_on(window.current_chat or ""),
        "version before": lambda: window.messages.step_version(window.current_chat or "", -1),
        "version after": lambda: window.messages.step_version(window.current_chat or "", 1),
        "message before": lambda: mark(-1),
        "message after": lambda: mark(1),
        "find": lambda: find(0),
        "find next": lambda: find(1),
        "find before": lambda: find(-1),
        "copy last code": window.messages.copy_last_code,
        "copy last answer": window.messages.copy_last_answer,
        "rename": lambda: window.sidebar.rename(window.current_chat or ""),
        "pin or unpin": lambda: window.chats.pin([chat.id for chat in [here()] if chat], not getattr(here(), "pinned", False)),
        "delete chat": lambda: window.chats.delete([window.current_chat or ""]),
        "about": window.show_about,
        "quit": window.close,
    }
