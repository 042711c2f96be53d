"""Chats, drafts and tabs of one day are there the next; a store that cannot be opened stops nobody."""

from __future__ import annotations

import apsw
import pytest

from app.chats.schema import VERSION
from app.theme import Theme
from app.window.library import Library
from app.window.main_window import MainWindow
from tests.app.conftest import settle
from tests.app.fakes import FakeEngine


@pytest.fixture
def make_day(qapp, no_leftovers, tmp_path):
    """Opens the window on a folder; `end()` closes it in order."""
    days = []

    class Day:
        def __init__(self):
            self.engine = FakeEngine()
            self.library = Library(tmp_path)
            self.window = MainWindow(self.engine, self.library.book, Theme.dark())
            self.library.attach(self.window)
            self.window.theme_changed.connect(lambda name: self.library.remember("theme", name))
            self.window.show()
            settle()
            self.open = True
            days.append(self)

        def end(self) -> bool:
            self.open = False
            self.engine.close()
            self.window.shut_down()
            done = self.library.close()
            self.window.deleteLater()
            settle()
            return done

    yield Day
    for day in days:
        if day.open:
            day.end()


def test_the_next_day_looks_like_the_last(make_day):
    day = make_day()
    first = day.window.new_chat()
    day.window.send(first, "remember this")
    day.engine.run()
    settle()
    second = day.window.new_chat()
    day.window.page(second).composer.edit.setPlainText("a draft")
    assert day.library.remembered("theme") is None
    day.window.toggle_theme()
    third = day.window.new_chat()
    day.window.send(third, "cut off")
    day.engine.tick(3)
    settle()
    assert day.end()
    day = make_day()
    assert day.library.remembered("theme") == "light"
    assert day.window.open_chats == (first, second, third) and day.window.current_chat == third
    assert day.window.book[first].last.text == "Hello, world."
    assert day.window.book[third].last.text == "Hello, " and "stopped by you" in day.window.page(third).view.toPlainText()
    day.window.open_chat(second)
    assert day.window.page(second).composer.text == "a draft"
    day.window.send(first, "and this")
    day.engine.run()
    settle()
    assert [message.content for message in day.engine.prompts[0]] == ["remember this", "Hello, world.", "and this"]


def test_a_store_that_cannot_be_opened_is_said_and_the_window_works(make_day, tmp_path):
    connection = apsw.Connection(str(tmp_path / "chats.db"))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    day = make_day()
    assert "newer Omnibus" in day.window.parts.store_bar.words and "memory only" in day.window.parts.store_bar.words
    chat_id = day.window.new_chat()
    day.window.send(chat_id, "hi")
    day.engine.run()
    settle()
    assert day.window.book[chat_id].last.text == "Hello, world."
    assert day.end()
