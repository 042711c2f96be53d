"""What the window says and asks when the disk refuses: words instead of silence, drafts that stay, and no end that loses something."""

from __future__ import annotations

import functools
import uuid

import apsw
import pytest

from app.chats.store import ChatStore
from app.window.library import Library
from tests.app.chats.failing_vfs import FailingVFS
from tests.app.conftest import settle


@pytest.fixture
def disk(monkeypatch):
    """The disk under a library, which can be made to refuse."""
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.01)
    monkeypatch.setattr("app.window.questions.COMMIT_S", 0.05)
    vfs = FailingVFS(f"failing-{uuid.uuid4().hex}")
    vfs.times = None
    monkeypatch.setattr("app.window.library.ChatStore", functools.partial(ChatStore, vfs=vfs.name_used))
    yield vfs
    vfs.unregister()


def test_a_full_disk_is_told_and_drafts_stay_and_the_end_is_asked_about(make_window, qtbot, tmp_path, disk):
    library = Library(tmp_path)
    window, engine = make_window(book=library.book)
    library.attach(window)
    chat_id = window.new_chat()
    disk.fail_at = disk.calls + 1
    window.page(chat_id).composer.edit.insertPlainText("half a thought")
    window.send(chat_id, "a question")
    engine.run()
    qtbot.waitUntil(lambda: "disk is full" in window.parts.store_bar.words and not window.parts.store_bar.isHidden(), timeout=5000)
    assert window.page(chat_id).composer.text == library.book[chat_id].draft == "half a thought"
    assert [message.text for message in library.book[chat_id].messages][0] == "a question"
    window.close()
    settle()
    assert window.isVisible() and "not saved yet" in window.bar.words and "stay" in window.bar.keys
    window.bar.choose("stay")
    disk.fail_at = None
    qtbot.waitUntil(lambda: window.parts.store_bar.isHidden(), timeout=5000)
    closed = []
    window.closed.connect(lambda: closed.append(True))
    window.close()
    assert closed and library.close(10)
    again = Library(tmp_path)
    assert again.book[chat_id].draft == "half a thought" and again.book[chat_id].messages[0].text == "a question"
    assert again.close()


def test_who_means_it_may_end_all_the_same(make_window, tmp_path, disk):
    library = Library(tmp_path)
    window, _ = make_window(book=library.book)
    library.attach(window)
    disk.fail_at = disk.calls + 1
    library.book.add_user(window.new_chat(), "lost")
    closed = []
    window.closed.connect(lambda: closed.append(True))
    window.close()
    assert not closed
    window.bar.choose("quit")
    assert closed
    disk.fail_at = None
    library.close(5)


def test_a_folder_that_cannot_be_written_is_told_at_once_and_again_at_the_end(make_window, tmp_path, disk):
    disk.error = apsw.ReadOnlyError
    disk.fail_at = disk.calls + 1
    library = Library(tmp_path)
    window, _ = make_window(book=library.book)
    library.attach(window)
    assert "memory only" in window.parts.store_bar.words and not window.parts.store_bar.isHidden()
    closed = []
    window.closed.connect(lambda: closed.append(True))
    library.book.add_user(window.new_chat(), "not on any disk")
    window.close()
    assert not closed and "Export those that matter" in window.bar.words
    window.close()  # closing again means it
    assert closed
    disk.fail_at = None
