"""What the window says and asks when the disk refuses: words instead of silence, drafts that stay, and no end that loses something."""

from __future__ import annotations

import functools
import uuid

import apsw
import pytest

from app.chats.store import ChatStore
from app.window.library import Library
from engine import Priority
from tests.app.chats.failing_vfs import FailingVFS
from tests.app.conftest import settle
from tests.app.fakes import Script


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
    qtbot.waitUntil(lambda: "disk is full" in window.parts.store_bar.words and not window.parts.store_bar.isHidden(), timeout=30_000)
    assert window.page(chat_id).composer.text == library.book[chat_id].draft == "half a thought"
    assert [message.text for message in library.book[chat_id].messages][0] == "a question"
    window.close()
    settle()
    assert window.isVisible() and "could not be saved yet" in window.bar.words and "stay" in window.bar.keys
    window.bar.choose("stay")
    disk.fail_at = None
    qtbot.waitUntil(lambda: window.parts.store_bar.isHidden(), timeout=30_000)
    closed = []
    window.closed.connect(lambda: closed.append(True))
    window.close()
    assert closed and library.close(60)
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
    library.close(60)


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


def test_the_window_ends_when_the_last_answer_is_written_if_one_wants_that(make_window):
    window, engine = make_window()
    chat_id = window.new_chat()
    engine.scripts.append(Script(("one ", "two ", "three")))
    window.send(chat_id, "question")
    engine.tick(2)
    settle()
    closed = []
    window.closed.connect(lambda: closed.append(True))
    window.close()
    assert window.isVisible() and window.bar.keys == ("finish", "quit", "stay")
    window.bar.choose("finish")
    assert not window.isVisible() and not closed and window.answering.active(chat_id)
    window.come_forward()  # another start: the window is wanted after all
    assert window.isVisible()
    window.close()
    window.bar.choose("finish")
    engine.run()
    settle()
    assert closed and window.book[chat_id].last.text == "one two three"


def test_how_soon_a_chat_is_answered_can_be_chosen_at_its_tab(make_window):
    window, engine = make_window()
    first = window.new_chat()
    window.book.add_user(first, "words")
    second = window.new_chat()

    def actions():
        found = {action.text(): action for action in window.tab_menu.menu(first).actions()}
        return {action.text(): action for action in found["Priority"].menu().actions()}

    automatic = "Automatic: first while it is in view"
    assert [words for words, action in actions().items() if action.isChecked()] == [automatic]
    actions()["Only when nobody else waits"].trigger()
    assert engine.priorities[-1] == (first, Priority.IDLE) and window.answering.priority_of(first) is Priority.IDLE
    count = len(engine.priorities)
    window.open_chat(first)
    window.open_chat(second)
    assert (first, Priority.FOREGROUND) not in engine.priorities[count:]  # the choice holds, in view or not
    window.send(first, "again")
    assert engine.submitted[-1].priority is Priority.IDLE
    actions()["Always first"].trigger()
    assert engine.priorities[-1] == (first, Priority.FOREGROUND)
    actions()[automatic].trigger()
    assert engine.priorities[-1] == (first, Priority.BACKGROUND) and window.answering.priority_of(first) is None


def busy_tabs(window, engine, lengths) -> list[str]:
    chats = []
    for length in lengths:
        engine.scripts.append(Script(["x "] * length, prefill_ticks=0))
        chats.append(window.new_chat())
        window.send(chats[-1], f"question {length}")
    return chats


def tick(window, engine, count) -> None:
    engine.tick(count)
    window.bridge.drain()
    settle()


def test_a_question_about_answers_follows_them_and_goes_with_the_last(make_window):
    window, engine = make_window()
    busy_tabs(window, engine, [5, 15, 30])
    tick(window, engine, 2)
    window.close()
    assert window.bar.words.startswith("3 answers") and not window.bar.isHidden()
    tick(window, engine, 10)
    assert window.bar.words.startswith("2 answers")
    engine.run()
    window.bridge.drain()
    settle()
    assert window.bar.isHidden() and window.isVisible(), "nobody chose to quit"


def test_so_does_the_one_about_tabs(make_window):
    window, engine = make_window()
    chats = busy_tabs(window, engine, [5, 15, 30])
    tick(window, engine, 2)
    window.open_tabs.close(chats[:2])
    assert window.bar.words.startswith("2 of these chats")
    tick(window, engine, 10)
    assert window.bar.words == "“question 15” is still being answered."
    tick(window, engine, 10)
    assert window.bar.isHidden() and window.answering.active(chats[2])
    assert window.open_chats == tuple(chats), "the tabs are there to be read"
