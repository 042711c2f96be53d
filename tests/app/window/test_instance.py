"""A second start shows the first one's window; a folder that nobody can write stops nobody."""

from __future__ import annotations

from pathlib import Path

import apsw

from app.chats.book import ChatBook
from app.chats.store import ChatStore
from app.window import start
from app.window.instance import MOST, Instance
from app.window.library import Library
from tests.app.conftest import settle


def test_the_second_start_is_not_the_first_and_makes_it_come_forward(qapp, qtbot, tmp_path):
    first = Instance(tmp_path)
    second = Instance(tmp_path)
    assert first.first and not second.first
    with qtbot.waitSignal(first.knocked, timeout=30_000):
        assert second.knock()
    first.close()
    third = Instance(tmp_path)
    assert third.first
    third.close()


def test_a_second_start_brings_the_model_that_was_double_clicked(qapp, qtbot, tmp_path):
    first, second = Instance(tmp_path), Instance(tmp_path)
    heard: list[str] = []
    first.brought.connect(heard.append)
    place = str(tmp_path / "Ein größeres Modell (試す).gguf")
    with qtbot.waitSignal(first.brought, timeout=30_000):
        assert second.knock(place)
    for nothing in ("", "x" * (2 * MOST)):  # the latter is cut, and loading it tells that there is no such file
        with qtbot.waitSignal(first.knocked, timeout=30_000):
            assert second.knock(nothing)
    qtbot.waitUntil(lambda: len(heard) == 2, timeout=30_000)
    assert heard[0] == place and len(heard[1]) < MOST
    first.close()


def test_only_a_file_that_is_there_is_brought(tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    assert start._double_clicked("m.gguf") == str(tmp_path / "m.gguf")
    assert start._double_clicked("starter") == start._double_clicked(str(tmp_path)) == ""


def test_two_folders_are_two_programs(qapp, tmp_path):
    one, other = Instance(tmp_path / "a"), Instance(tmp_path / "b")
    assert one.first and other.first
    one.close()
    other.close()


def test_nobody_answers_where_only_the_lock_is_held(qapp, tmp_path):
    holder = Instance(tmp_path)
    holder._server.close()
    assert not Instance(tmp_path).knock()
    holder.close()


def test_a_folder_that_cannot_be_locked_stops_nobody(qapp, tmp_path, monkeypatch):
    def refuse(self, folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("app.chats.lock.FolderLock.__init__", refuse)
    assert Instance(tmp_path).first


def test_a_window_comes_forward(make_window):
    window, _ = make_window()
    window.showMinimized()
    window.come_forward()
    settle()
    assert window.isVisible() and not window.isMinimized()


def test_chats_in_a_folder_that_cannot_be_written_are_shown(qapp, tmp_path, monkeypatch):
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    book.add_user(book.new_chat().id, "an old question")
    assert store.close(60)

    def refuse(*_: object) -> apsw.Connection:
        raise apsw.ReadOnlyError("attempt to write a readonly database")

    monkeypatch.setattr("app.chats.store.open_database", refuse)
    library = Library(tmp_path)
    assert [chat.messages[0].text for chat in library.book.listed()] == ["an old question"]
    assert library._words.startswith(
        f"The folder of chats, {tmp_path}, cannot be written: check its rights. New chats are kept in memory only"
    )
    assert library.close()
