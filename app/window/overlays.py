"""The cards that lie over the window (search, …): made when they are first asked for, and what they mean to the window."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from app.window.palette import Palette
from app.window.search_card import SearchCard
from app.window.settings_card import SettingsCard

if TYPE_CHECKING:
    from app.theme import Theme
    from app.window.main_window import MainWindow
    from app.window.overlay import Overlay


class Overlays:
    """One card at a time."""

    def __init__(self, window: MainWindow, theme: Theme) -> None:
        self._window = window
        self._theme = theme
        self._made: list[Overlay] = []

    @cached_property
    def search_card(self) -> SearchCard:
        card = SearchCard(self._window.book, self._theme, self._window)
        card.chosen.connect(self._window.go_to)
        self._take(card)
        return card

    @cached_property
    def palette(self) -> Palette:
        card = Palette(self._window.keys, self._theme, self._window)
        self._take(card)
        return card

    @cached_property
    def settings_card(self) -> SettingsCard:
        card = SettingsCard(self._window.preferences, self._window.api, self._window.keys, self._theme, self._window)
        self._take(card)
        return card

    def open_palette(self) -> None:
        self._open(self.palette)

    def open_settings(self, words: str = "") -> None:
        """The settings, narrowed to what `words` name."""
        self._open(self.settings_card)
        self.settings_card.search.setText(words)

    def open_search(self) -> None:
        self._open(self.search_card)

    def close_open(self) -> bool:
        """Close the card that is open. Returns whether there was one."""
        for card in self._made:
            if not card.isHidden():
                card.close_card()
                return True
        return False

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        for card in self._made:
            card.set_theme(theme)

    def shut_down(self) -> None:
        if "search_card" in self.__dict__:
            self.search_card.shut_down()

    # ------------------------------------------------------------------------------------------------------- private

    def _take(self, card: Overlay) -> None:
        self._made.append(card)
        card.closed.connect(self._window.focus_composer)

    def _open(self, card: Overlay) -> None:
        for other in self._made:
            if other is not card:
                other.close_card()
        card.open()
