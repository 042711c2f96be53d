"""The measures of the window's design: its keys, its widths, its surfaces, where an empty chat has its composer."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint

from app.chats.attach import LONG_PASTE
from app.composer.composer import GROW_SHARE, RADIUS
from app.theme import Theme
from app.transcript.reading import FOLLOW_PIXELS
from app.window.keys import KEYS
from tests.app.conftest import settle

PROMISED = {
    "new tab": "Ctrl+T Ctrl+N Ctrl+Shift+O",
    "close tab": "Ctrl+W",
    "reopen tab": "Ctrl+Shift+T",
    "next tab": "Ctrl+Tab",
    "previous tab": "Ctrl+Shift+Tab",
    "command palette": "Ctrl+Shift+P",
    "search": "Ctrl+K",
    "find": "Ctrl+F",
    "find next": "F3",
    "settings": "Ctrl+,",
    "sidebar": "Ctrl+B",
    "parameters": "Ctrl+Shift+B",
    "dashboard": "Ctrl+D F9",
    "models": "Ctrl+M",
    "composer": "Ctrl+L",
    "stop": "Esc",
    "stop all": "Ctrl+Shift+.",
    "regenerate": "Ctrl+R",
    "continue": "Alt+Enter",
    "version before": "Alt+Left",
    "version after": "Alt+Right",
    "copy last answer": "Ctrl+Shift+C",
    "copy last code": "Ctrl+Shift+;",
    "rename": "F2",
    "delete chat": "Ctrl+Shift+Backspace",
    "zoom in": "Ctrl++",
    "zoom out": "Ctrl+-",
    "zoom back": "Ctrl+0",
    "list of keys": "Ctrl+/",
    **{f"tab {number}": f"Alt+{number}" for number in range(1, 10)},
}


@pytest.mark.parametrize("name", PROMISED)
def test_each_promised_key_is_there_and_belongs_to_nobody_else(name):
    for keys in PROMISED[name].split():
        assert [other for other, sequences in KEYS.items() if keys in sequences] == [name]


def test_four_surfaces_in_either_light():
    dark, light = Theme.dark(), Theme.light()
    assert (dark.window, dark.sidebar, dark.surface, dark.raised) == ("#0f1012", "#141518", "#1a1c20", "#22252a")
    assert (light.window, light.sidebar, light.surface, light.raised) == ("#f3f4f6", "#eceef1", "#ffffff", "#ffffff")
    assert (dark.text, dark.text_dim, light.text, light.text_dim) == ("#e8e9eb", "#a4a8b0", "#17191c", "#52575f")


def test_numbers_of_the_composer_and_the_transcript():
    assert 20 <= RADIUS <= 24 and GROW_SHARE == 0.4 and LONG_PASTE == 2_500 and FOLLOW_PIXELS == 10


@pytest.mark.parametrize("width", [1280, 1920])
def test_the_words_stand_in_a_column_in_the_middle_with_the_composer_under_it(make_window, width):
    window, engine = make_window()
    window.resize(width, 900)
    chat = window.new_chat()
    settle()
    page = window.page(chat)
    middle = page.rect().center()
    empty = page.composer.mapTo(page, page.composer.rect().center())
    assert abs(empty.x() - middle.x()) < 3 and abs(empty.y() - middle.y()) < page.height() / 6
    assert 3 <= len(page.suggestions) <= 4 and all(button.isVisible() for button in page.suggestions)
    window.send(chat, "hello")
    engine.run()
    settle()
    column = page.view.column
    assert 720 <= column.width <= 760
    assert abs(column.left + column.width / 2 - page.view.viewport().width() / 2) < 8
    below = page.composer.mapTo(page, QPoint(0, 0)).y()
    assert below > page.height() * 0.8 and not any(button.isVisible() for button in page.suggestions)


def test_the_sides_and_the_strip(make_window):
    window, _ = make_window()
    settle()
    assert window.parts.panel.isHidden() and window.sidebar.width() == 248
    assert window.parts.strip.height() == 26 and window.parts.strip.isVisible()
    window.parts.toggle_panel()
    settle()
    assert window.parts.panel.width() == 320
