"""A second start shows the first one's window; a folder that nobody can write stops nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.store import ChatStore
from app.window import start
from app.window.instance import MOST, Instance, Knock
from app.window.library import Library
from tests.app.conftest import settle

SECOND = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.window.instance import Instance
app = QCoreApplication([])
second = Instance(Path(sys.argv[1]))
print(second.first, *(second.knock(model).name for model in sys.argv[2:]))
"""


def second_start(qtbot, folder: Path, *models: str) -> str:
    """Another process starts on the folder and knocks, once a model: whether it was the first, and what came of each."""
    second = subprocess.Popen([sys.executable, "-c", SECOND, str(folder), *models], stdout=subprocess.PIPE, text=True)
    try:
        qtbot.waitUntil(lambda: second.poll() is not None, timeout=30_000)
    finally:
        second.kill()
        said = second.communicate()[0]
    return said.strip()


def test_the_second_start_is_not_the_first_and_makes_it_come_forward(qapp, qtbot, tmp_path):
    first = Instance(tmp_path)
    assert first.first
    with qtbot.waitSignal(first.knocked, timeout=30_000):
        assert second_start(qtbot, tmp_path, "") == "False HEARD"
    first.close()
    third = Instance(tmp_path)
    assert third.first
    third.close()


def test_a_second_start_brings_the_model_that_was_double_clicked(qapp, qtbot, tmp_path):
    first = Instance(tmp_path)
    heard: list[str] = []
    knocks: list[None] = []
    first.brought.connect(heard.append)
    first.knocked.connect(lambda: knocks.append(None))
    place = str(tmp_path / "Ein größeres Modell (試す).gguf")
    models = (place, "", "x" * (2 * MOST))  # the latter is cut, and loading it tells that there is no such file
    assert second_start(qtbot, tmp_path, *models) == "False HEARD HEARD HEARD"
    assert len(knocks) == 3 and heard[0] == place and len(heard) == 2 and len(heard[1]) < MOST
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
    assert Instance(tmp_path).knock() is Knock.NOBODY
    holder.close()


FIRST = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.window.instance import Instance
app = QCoreApplication([])
first = Instance(Path(sys.argv[1]))
print(first.first, flush=True)
app.exec()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a process is stopped by a signal that is Unix's")
def test_a_first_start_that_is_stuck_is_not_said_to_have_come_forward(qapp, tmp_path, capsys):
    first = subprocess.Popen([sys.executable, "-c", FIRST, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None and first.stdout.readline() == "True\n"
        second = Instance(tmp_path)
        assert second.knock(wait_ms=30_000) is Knock.HEARD
        os.kill(first.pid, signal.SIGSTOP)
        assert second.knock(wait_ms=100) is Knock.STUCK
        assert start._point_at_the_first(Knock.STUCK, tmp_path) == 1
        words = capsys.readouterr()
        assert "does not answer" in words.err and "end its process" in words.err and "front" not in words.out + words.err
    finally:
        first.kill()
        first.communicate()


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
