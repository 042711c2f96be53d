"""The store: what was acknowledged is there again, whatever fails in between."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import uuid
from dataclasses import replace

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.model import AnswerState, Attachment, Chat, ChatSettings, Role, Said, ScrollPlace
from app.chats.schema import MIGRATIONS, VERSION, StoreError, open_database
from app.chats.store import ChatStore
from app.chats.tree import MessageTree
from engine import ErrorInfo, FinishedEvent, FinishReason, TimeSplit, Usage
from tests.app.chats.failing_vfs import FailingVFS


def make_end(reason: FinishReason = FinishReason.STOP) -> FinishedEvent:
    return FinishedEvent("r", reason, Usage(3, 4, 1), TimeSplit(0.1, 0.2, 0.3, 0.0, 0.25))


def picture(chats: list[Chat]) -> list:
    """Chats as comparable values."""
    return sorted(
        (
            chat.id,
            chat.title,
            chat.named,
            chat.draft,
            tuple(chat.follow_ups),
            chat.settings,
            chat.unread,
            tuple((m.id, m.role, m.text, m.state, m.reason, m.usage, m.time, m.error) for m in chat.messages),
            tuple((m.id, m.parent, m.place, m.attachments, m.thought, m.model) for m in chat.tree.everything()),
            (tuple(sorted(chat.tree.choices.items())), chat.draft_files, chat.scroll),
        )
        for chat in chats
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def make_store(path):
    stores = []

    def make(**values) -> ChatStore:
        store = ChatStore(path, **values)
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "omnibus-store"]


def reopened(path) -> list[Chat]:
    store = ChatStore(path)
    chats = store.load()
    assert store.close()
    return chats


def talk(book: ChatBook) -> Chat:
    chat = book.new_chat()
    book.set_settings(chat.id, ChatSettings("Be brief.", 0.2, 0.5, 99))
    book.add_user(chat.id, "Wie geht's? 日本語 \ud83d")
    answer = book.begin_answer(chat.id)
    for piece in ("All ", "is ", "well.\n"):
        book.append(answer, piece)
    book.finish(chat.id, answer, make_end())
    book.add_user(chat.id, "again")
    book.fail(chat.id, book.begin_answer(chat.id), ErrorInfo("code", "No.", "Wait."))
    book.edit(chat.id, chat.messages[2], "once more", (Attachment("a.py", "code", "x = 1\n"),))
    book.show_version(chat.id, chat.messages[2], -1)
    book.set_draft(chat.id, "half a")
    book.set_draft_files(chat.id, (Attachment("notes.txt", "text", "näher"),))
    book.add_follow_up(chat.id, Said("later"))
    book.add_follow_up(chat.id, Said("", (Attachment("b.txt", "text", "b"),)))
    book.set_scroll(chat.id, ScrollPlace(answer.id, 12))
    book.set_unread(chat.id, True)
    return chat


def test_everything_comes_back(make_store, path):
    store = make_store()
    book = ChatBook(store)
    chats = [talk(book) for _ in range(3)]
    book.rename(chats[1].id, "Mine")
    book.delete(chats[2].id)
    assert store.close()
    chats[0].messages[0].text = chats[1].messages[0].text = "Wie geht's? 日本語 ?"  # half a surrogate pair cannot be stored
    for chat in chats[:2]:
        chat.title = chat.title.replace("\ud83d", "?")
    assert picture(reopened(path)) == picture(chats[:2])


def test_an_answer_cut_off_by_the_end_of_the_program_is_there_and_says_so(make_store, path):
    book = ChatBook(make_store())
    chat = book.new_chat()
    book.add_user(chat.id, "go")
    answer = book.begin_answer(chat.id)
    book.append(answer, "one ")
    assert book.commit(5)
    book.append(answer, "two ")
    book.append(answer, "three")
    assert book.commit(5)
    (again,) = reopened(path)
    assert (again.last.text, again.last.state) == ("one two three", AnswerState.INTERRUPTED)


def test_streamed_text_is_folded_at_the_end(make_store, path):
    book = ChatBook(make_store())
    chat = book.new_chat()
    book.add_user(chat.id, "go")
    answer = book.begin_answer(chat.id)
    for _ in range(3):
        book.append(answer, "x")
        assert book.commit(5)
    probe = apsw.Connection(str(path))
    assert probe.execute("SELECT count(*) FROM chunks").get == 3
    book.finish(chat.id, answer, make_end())
    assert book.commit(5)
    assert probe.execute("SELECT count(*) FROM chunks").get == 0
    assert probe.execute("SELECT text FROM messages WHERE id = ?", (answer.id,)).get == "xxx"
    probe.close()


def test_many_pieces_are_few_transactions(make_store):
    store = make_store()
    book = ChatBook(store)
    chat = book.new_chat()
    book.add_user(chat.id, "go")
    answer = book.begin_answer(chat.id)
    assert book.commit(5)
    for _ in range(1000):
        book.append(answer, "x")
    assert len(store._queue) <= 1


def test_text_for_a_message_that_is_gone_is_dropped(make_store, path):
    book = ChatBook(make_store())
    chat = book.new_chat()
    book.add_user(chat.id, "go")
    answer = book.begin_answer(chat.id)
    book.delete(chat.id)
    book.append(answer, "late")
    assert book.commit(5)
    assert reopened(path) == []


def test_the_session_comes_back(make_store, path):
    store = make_store()
    store.load()
    store.save_session("tabs", '["a"]')
    assert store.close()
    store = make_store()
    store.load()
    assert store.session("tabs") == '["a"]' and store.session("other") is None


def test_a_damaged_file_is_set_aside_and_never_deleted(path):
    path.parent.mkdir()
    path.write_bytes(b"this is no database, but somebody's words " * 100)
    assert reopened(path) == []
    aside = [file for file in path.parent.iterdir() if ".damaged-" in file.name]
    assert len(aside) == 1 and aside[0].read_bytes().startswith(b"this is no database")


def test_a_newer_file_is_left_alone(path):
    path.parent.mkdir()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    before = path.read_bytes()
    store = ChatStore(path)
    with pytest.raises(StoreError, match="newer Omnibus"):
        store.load()
    store.close(0.1)
    assert path.read_bytes() == before


def test_a_migration_keeps_a_copy_and_the_data(path, monkeypatch):
    book = ChatBook(store := ChatStore(path))
    chat = talk(book)
    assert store.close()
    monkeypatch.setattr("app.chats.schema.MIGRATIONS", (*MIGRATIONS, "ALTER TABLE chats ADD COLUMN colour INTEGER NOT NULL DEFAULT 0"))
    monkeypatch.setattr("app.chats.schema.VERSION", VERSION + 1)
    connection = open_database(path)
    assert connection.execute("SELECT id, colour FROM chats").get == (chat.id, 0)
    connection.close()
    copy = apsw.Connection(str(path.with_name(f"chats.db.version-{VERSION}.backup")))
    assert copy.execute("SELECT id FROM chats").get == chat.id and copy.pragma("user_version") == VERSION
    copy.close()


def test_a_list_of_messages_becomes_a_tree_without_forks(path, monkeypatch):
    path.parent.mkdir()
    old = apsw.Connection(str(path))
    old.execute(MIGRATIONS[0])
    old.pragma("user_version", 1)
    for chat_id in ("a", "b"):
        old.execute("INSERT INTO chats VALUES(?, 'Old', 0, 1, 2, '', '[\"queued\"]', '{}', 0)", (chat_id,))
        for place, role in enumerate(("user", "assistant", "user", "assistant")):
            values = (f"{chat_id}{place}", chat_id, place, role, f"text {place}")
            old.execute("INSERT INTO messages VALUES(?, ?, ?, ?, ?, 1, 'done', NULL, NULL, NULL, NULL)", values)
    old.close()
    for chat in reopened(path):
        assert [message.text for message in chat.messages] == [f"text {place}" for place in range(4)]
        assert [message.parent for message in chat.messages] == [None, *(f"{chat.id}{place}" for place in range(3))]
        assert chat.follow_ups == [Said("queued")]
    assert path.with_name("chats.db.version-1.backup").exists()


def test_a_failed_migration_changes_nothing(path, monkeypatch):
    book = ChatBook(store := ChatStore(path))
    talk(book)
    assert store.close()
    monkeypatch.setattr("app.chats.schema.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE pins(id); INSERT INTO no_such_table VALUES(1)"))
    monkeypatch.setattr("app.chats.schema.VERSION", VERSION + 1)
    with pytest.raises(apsw.SQLError):
        open_database(path)
    monkeypatch.undo()
    assert len(reopened(path)) == 1


def life(book: ChatBook, rng: random.Random, acknowledged: list) -> None:
    """A little of everything; `acknowledged` holds the picture of the book at the last commit that said yes."""
    open_answers = []
    for _ in range(40):
        chats = book.listed()
        match rng.randrange(11):
            case 0 | 1:
                chat = book.new_chat()
                book.add_user(chat.id, f"hello {rng.random()}")
                open_answers.append((chat.id, book.begin_answer(chat.id)))
            case 2 | 3 | 4 if open_answers:
                book.append(rng.choice(open_answers)[1], f"{rng.random()} " * rng.randrange(1, 200))
            case 5 if open_answers:
                chat_id, answer = open_answers.pop()
                book.finish(chat_id, answer, make_end())
            case 6 if chats:
                book.set_draft(rng.choice(chats).id, f"draft {rng.random()}")
            case 7 if chats and not open_answers:
                book.delete(rng.choice(chats).id)
            case 8 if chats:
                chat = rng.choice(chats)
                book.edit(chat.id, rng.choice(chat.messages), f"edited {rng.random()}")
            case 9 if chats:
                chat = rng.choice(chats)
                book.show_version(chat.id, rng.choice(chat.messages), rng.choice((-1, 1)))
            case 10 if chats:
                book.branch(chat := rng.choice(chats).id, rng.choice(book[chat].messages))
        if rng.random() < 0.3 and book.commit(0.05):
            acknowledged[:] = [picture(as_stored(book))]


def as_stored(book: ChatBook) -> list[Chat]:
    """What a reader of the file must find: running answers are interrupted ones."""
    store_view = []
    for chat in book.listed():
        twins = [replace(message) for message in chat.tree.everything()]
        for twin in twins:
            if twin.state is AnswerState.RUNNING:
                twin.state = AnswerState.INTERRUPTED
        copy = replace(chat, tree=MessageTree())
        copy.tree.load(twins, chat.tree.choices)
        store_view.append(copy)
    return store_view


def contains(found: list, wanted: list) -> bool:
    """Whether nothing acknowledged is missing: every message is there, its text at least as long as it was."""
    texts = {message[0]: message[2] for chat in found for message in chat[7]}
    known = {message[0]: message for chat in found for message in chat[8]}
    assert all(known.get(message[0]) == message for chat in wanted for message in chat[8])
    return all(texts.get(message[0], message[2]).startswith(message[2]) for chat in wanted for message in chat[7])


@pytest.mark.parametrize("times", [1, None], ids=["once", "for good"])
@pytest.mark.parametrize("seed", range(12))
def test_any_failing_write_or_sync_corrupts_nothing_and_loses_nothing_acknowledged(path, monkeypatch, seed, times):
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.01)
    monkeypatch.setattr("app.chats.store.GROUP_S", 0.0)
    rng = random.Random(seed)
    vfs = FailingVFS(f"failing-{uuid.uuid4().hex}")
    vfs.error = rng.choice([apsw.FullError, apsw.IOError])
    vfs.times = times
    told: list[str] = []
    store = ChatStore(path, told.append, vfs=vfs.name_used)
    book = ChatBook(store)
    vfs.fail_at = vfs.calls + rng.randrange(1, 60)
    acknowledged: list = []
    # No chat is deleted here once something was acknowledged in it, so that what was promised only ever grows.
    monkeypatch.setattr(book, "delete", lambda chat_id: None)
    life(book, rng, acknowledged)
    complete = store.close(0.5)
    vfs.fail_at = None
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    found = picture(reopened(path))
    if acknowledged:
        assert contains(found, acknowledged[0])
    if complete:
        assert found == picture(as_stored(book))
    if times is None and not complete:
        assert told and told[0]
    vfs.unregister()


def test_trouble_is_told_and_its_end_too(path, monkeypatch):
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.01)
    vfs = FailingVFS(f"failing-{uuid.uuid4().hex}")
    told: list[str] = []
    store = ChatStore(path, told.append, vfs=vfs.name_used)
    book = ChatBook(store)
    chat = book.new_chat()
    vfs.times = None
    vfs.fail_at = vfs.calls + 1
    book.add_user(chat.id, "kept in memory")
    assert not book.commit(0.2)
    assert len(told) == 1 and "disk is full" in told[0]
    vfs.fail_at = None
    assert book.commit(5)
    assert told[1:] == [""]
    assert store.close()
    assert reopened(path)[0].messages[0].text == "kept in memory"
    vfs.unregister()


WRITER = """
import sys, time
from pathlib import Path
from app.chats.book import ChatBook
from app.chats.store import ChatStore
book = ChatBook(ChatStore(Path(sys.argv[1])))
answers = []
for number in range(8):
    chat = book.new_chat()
    book.add_user(chat.id, f"question {number}")
    answers.append(book.begin_answer(chat.id))
step = 0
while True:
    for answer in answers:
        book.append(answer, f"{step} ")
    if step % 20 == 0 and book.commit(5):
        print(step, flush=True)
    step += 1
    time.sleep(0.001)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
@pytest.mark.parametrize("lines", [1, 4])
def test_kill_9_loses_nothing_that_was_acknowledged(path, lines):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    for _ in range(lines):
        promised = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    chats = reopened(path)
    assert len(chats) == 8
    for chat in chats:
        numbers = [int(word) for word in chat.last.text.split()]
        assert numbers == list(range(len(numbers))) and len(numbers) > promised
        assert chat.last.role is Role.ASSISTANT and chat.last.state is AnswerState.INTERRUPTED
