"""Text that is no text: damaged bytes inside a cell, and halves of surrogate pairs, stop nobody from reading and saving the rest."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import apsw
import pytest

from app.chats import cells
from app.chats.book import ChatBook
from app.chats.model import AnswerState, Attachment, Chat, ChatMessage, ChatSettings, Role
from app.chats.reader import ChatReader
from app.chats.store import ChatStore

BAD = "CAST(x'62ff61c3' AS TEXT)"  # b, a byte that stands in no text, a, and the first half of a letter
READ = "b\ufffda\ufffd"


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert not died


@pytest.fixture
def table():
    connection = apsw.Connection("")
    connection.execute("CREATE TABLE t(number INTEGER, text TEXT) STRICT")
    for number in (3, 1, 4, 1, 5):
        connection.execute("INSERT INTO t VALUES(?, ?)", (number, f"text {number}"))
    yield connection
    connection.close()


@pytest.mark.parametrize("bad", [1, 3, 4, 5])
def test_rows_come_in_order_and_each_once_around_a_damaged_one(table, bad):
    table.execute(f"UPDATE t SET text = {BAD} WHERE number = ?", (bad,))
    numbers = [5, 4, 3, 1, 1]
    wanted = [(number, READ if number == bad else f"text {number}") for number in numbers]
    assert list(cells.read(table, "SELECT number, text FROM t ORDER BY number DESC")) == wanted
    assert list(cells.read(table, "SELECT number, text FROM t WHERE number > ? ORDER BY number DESC LIMIT 3", (0,))) == wanted[:3]
    assert list(cells.read(table, "SELECT t.*, NULL, 0.5 FROM t ORDER BY number DESC")) == [(*row, None, 0.5) for row in wanted]


def test_a_reader_sees_one_state_of_the_file_whatever_is_written_meanwhile(tmp_path):
    writer = apsw.Connection(str(tmp_path / "t.db"))
    writer.pragma("journal_mode", "wal")
    writer.execute("CREATE TABLE t(text TEXT)")
    writer.execute(f"INSERT INTO t VALUES('a'), ({BAD}), ('c')")
    reader = apsw.Connection(str(tmp_path / "t.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = cells.read(reader, "SELECT text FROM t ORDER BY rowid")
    assert next(rows) == ("a",)
    writer.execute("DELETE FROM t WHERE text = 'a'")
    assert list(rows) == [(READ,), ("c",)]
    writer.close()
    reader.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three chats, each a question with a file and an answer that was still being written."""
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    for name in ("first", "second", "third"):
        chat = book.new_chat()
        chat.id = name  # by which the tests find it
        book._chats[name] = chat
        book.add_user(name, f"question {name}", (Attachment(f"{name}.txt", "text", "inside"),))
        book.append(book.begin_answer(name), f"answer {name}")
        book.set_draft(name, "half a")
        book.set_draft_files(name, (Attachment("draft.txt", "text", "inside"),))
    store.save_session("key", "value")
    store.save_session("other", "as it was")
    assert store.close(60)
    return path


DAMAGED = {
    "title": "UPDATE chats SET title = {bad} WHERE id = 'second'",
    "draft": "UPDATE chats SET draft = {bad} WHERE id = 'second'",
    "draft files": "UPDATE chats SET draft_files = {bad} WHERE id = 'second'",
    "settings": "UPDATE chats SET settings = {bad}, follow_ups = {bad}, choices = {bad}, scroll = {bad} WHERE id = 'second'",
    "folder": "UPDATE chats SET folder = {bad} WHERE id = 'second'",
    "text": "UPDATE messages SET text = {bad} WHERE chat_id = 'second' AND role = 'user'",
    "attachment": "UPDATE messages SET attachments = replace(attachments, 'inside', {bad}) WHERE chat_id = 'second'",
    "chunk": "UPDATE chunks SET text = {bad} WHERE message_id = (SELECT id FROM messages WHERE chat_id = 'second' AND role = 'assistant')",
    "kinds": "UPDATE messages SET state = {bad}, role = {bad}, model = {bad}, parent = {bad}, usage = {bad} WHERE chat_id = 'second'",
    "session": "UPDATE session SET value = {bad} WHERE key IN ('key', 'clean')",
    "key": "UPDATE session SET key = {bad} WHERE key = 'key'",
}


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.parametrize("repaired", [False, True])
def test_damaged_text_hides_nothing_else_and_stops_nothing(path, what, repaired):
    connection = apsw.Connection(str(path))
    connection.execute(DAMAGED[what].format(bad=BAD))
    assert connection.changes()
    connection.execute("INSERT OR IGNORE INTO unindexed SELECT rowid FROM messages")
    if repaired:  # an index that the check finds damaged: every row is copied into a new file
        connection.execute("UPDATE session SET value = '0' WHERE key = 'clean'")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    if repaired:
        data = bytearray(path.read_bytes())
        data[(root - 1) * 4096 : root * 4096] = random.Random(0).randbytes(4096)
        path.write_bytes(data)

    told: list[str] = []
    book = ChatBook(store := ChatStore(path, told.append))
    assert bool(store.repaired) is repaired and not told
    for name in ("first", "third"):
        chat = book[name]
        assert (chat.title, chat.draft, chat.folder) == (f"question {name}", "half a", "")
        assert [message.text for message in chat.messages] == [f"question {name}", f"answer {name}"]
        assert chat.messages[0].attachments == (Attachment(f"{name}.txt", "text", "inside"),)
    chat = book["second"]
    texts = [message.text for message in chat.messages]
    assert texts == [READ if what == "text" else "question second", READ if what == "chunk" else "answer second"]
    assert chat.title == (READ if what == "title" else "question second")
    assert chat.draft == (READ if what == "draft" else "half a")
    assert chat.folder == (READ if what == "folder" else "")
    if what == "attachment":
        assert chat.messages[0].attachments == (Attachment("second.txt", "text", READ),)
    assert store.session("other") == "as it was"
    assert store.session("key") == {"session": READ, "key": None}.get(what, "value")

    book.add_user("second", "something new")
    assert book.commit(60)
    assert {hit.chat_id for hit in store.search("question")} >= {"first", "third"}
    assert [hit.snippet for hit in store.search("something new")] == ["something new"]
    assert store.search("==>") == []
    assert store.close(60) and not told
    with ChatReader(path) as reader:
        assert {chat.id for chat in reader.chats()} == {"first", "second", "third"}
        whole = reader.chat("second")
        assert whole is not None and whole.messages[-1].text == "something new"
        assert next(reader._connection.execute("SELECT count(*) FROM unindexed"))[0] == 0, "indexing went on"


def test_half_a_surrogate_pair_anywhere_is_stored_as_a_question_mark(tmp_path):
    half = "x\ud83d"
    path = tmp_path / "chats.db"
    told: list[str] = []
    book = ChatBook(store := ChatStore(path, told.append))
    chat = Chat(half, title=half, created=1.0, updated=1.0, draft=half, folder=half, settings=ChatSettings(half, model=half))
    message = ChatMessage(f"{half}1", Role.USER, half, attachments=(Attachment(half, half, half),), model=half)
    chat.tree.add(message, None)
    chat.tree.add(ChatMessage(f"{half}2", Role.ASSISTANT, state=AnswerState.RUNNING, parent=message.id), message)
    chat.draft_files = (Attachment(half, "text", half),)
    assert book.adopt(chat)
    book.append(chat.messages[1], half)
    store.save_session(half, half)
    book.set_draft(half, half + half)
    assert book.commit(60) and not told
    with ChatReader(path) as reader:
        assert [message.text for message in reader.messages(half)] == ["x?", "x?"], "found by the id that the book knows, too"
    assert store.close(60) and not told
    again = ChatStore(path)
    (back,) = again.load()
    assert (back.id, back.title, back.draft, back.folder) == ("x?", "x?", "x?x?", "x?")
    assert [(one.id, one.text, one.model) for one in back.messages] == [("x?1", "x?", "x?"), ("x?2", "x?", "")]
    assert again.session("x?") == "x?"
    assert again.close(60)


def test_what_can_never_be_written_is_left_out_and_told_and_the_rest_is_saved(tmp_path, caplog):
    path = tmp_path / "chats.db"
    told: list[str] = []
    book = ChatBook(store := ChatStore(path, told.append))
    chat = book.new_chat()
    book.add_user(chat.id, "before")
    assert book.commit(60)
    for number, wrong in enumerate((10**30, object(), "no number")):  # too large, no value at all, of the wrong type
        lost = ChatMessage(f"lost {number}", Role.ASSISTANT, thought=wrong)
        store.save_message(chat.id, 1, lost)
        book.add_user(chat.id, f"after {number}")
    store.save_message("no such chat", 0, ChatMessage("astray", Role.USER, "hello"))
    book.add_user(chat.id, "at last")
    assert book.commit(60)
    assert told and all(words.startswith("One change could not be saved (") for words in told)
    assert caplog.text.count("can never be written") == 4
    assert store.close(60)
    again = ChatStore(path)
    assert [message.text for message in again.load()[0].messages] == ["before", "after 0", "after 1", "after 2", "at last"]
    assert again.close(60)


def test_neither_a_listener_nor_the_index_ends_the_thread(tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("gone")

    monkeypatch.setattr("app.chats.store.index_some", fails)
    book = ChatBook(store := ChatStore(tmp_path / "chats.db", fails))
    chat = book.new_chat()
    book.add_user(chat.id, "before")
    store.save_message("no such chat", 0, ChatMessage("astray", Role.USER, "hello"))
    assert book.commit(60)
    book.add_user(chat.id, "after")
    assert store.close(60)
    again = ChatStore(store.path)
    assert [message.text for message in again.load()[0].messages] == ["before", "after"]
    assert again.close(60)
