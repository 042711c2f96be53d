"""A damaged file of chats: what can be read is saved, the damaged file is kept as it was, and the person is told."""

from __future__ import annotations

import random

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.model import AnswerState
from app.chats.salvage import read_rows
from app.chats.schema import MIGRATIONS
from app.chats.store import ChatStore

CHATS, EACH = 60, 8
PAGE = 4096


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    for number in range(CHATS):
        chat = book.new_chat()
        for turn in range(EACH // 2):
            book.add_user(chat.id, f"question {number} {turn} " + "x" * 700)
            answer = book.begin_answer(chat.id)
            book.append(answer, f"answer {number} {turn}")
            book.stop(chat.id, answer)
    assert store.close(60)
    return path


def damage(path, pages, rng) -> bytes:
    data = bytearray(path.read_bytes())
    for page in pages:
        data[page * PAGE : (page + 1) * PAGE] = rng.randbytes(PAGE)
    path.write_bytes(data)
    return bytes(data)


def unclean(path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE session SET value = '0' WHERE key = 'clean'")
    connection.pragma("wal_checkpoint", "truncate")
    connection.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_can_be_read_is_saved_and_the_damaged_file_is_kept(filled, seed):
    rng = random.Random(seed)
    unclean(filled)
    connection = apsw.Connection(str(filled))
    roots = {row[0] - 1 for row in connection.execute("SELECT rootpage FROM sqlite_master WHERE name IN ('chats', 'messages')")}
    connection.close()
    pages = [page for page in range(1, filled.stat().st_size // PAGE) if page not in roots]
    data = damage(filled, rng.sample(pages, 4), rng)
    store = ChatStore(filled)
    chats = store.load()
    assert len(chats) >= CHATS // 2
    texts = [message.text for chat in chats for message in chat.tree.everything()]
    assert all(text.startswith(("question ", "answer ")) for text in texts)
    assert store.close(60)
    if store.repaired:
        (aside,) = [file for file in filled.parent.iterdir() if ".damaged-" in file.name and not file.name.endswith(("-wal", "-shm"))]
        assert aside.read_bytes() == data and aside.name in store.repaired
    probe = apsw.Connection(str(filled))
    assert probe.pragma("integrity_check") == "ok"
    probe.close()


def test_a_table_whose_root_is_gone_ends_quickly_and_the_rest_is_saved(filled):
    unclean(filled)
    connection = apsw.Connection(str(filled))
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chats'").fetchone()
    connection.close()
    damage(filled, [root - 1], random.Random(6))
    store = ChatStore(filled)
    chats = store.load()
    assert sum(len(chat.tree) for chat in chats) == CHATS * EACH and {chat.title for chat in chats} == {"Recovered chat"}
    assert store.close(60)


def test_undamaged_pages_lose_nothing(filled):
    """Damage in the index alone: every row is saved."""
    unclean(filled)
    connection = apsw.Connection(str(filled))
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    damage(filled, [root - 1], random.Random(1))
    store = ChatStore(filled)
    chats = store.load()
    assert len(chats) == CHATS and sum(len(chat.tree) for chat in chats) == CHATS * EACH
    assert f"{CHATS} chats with {CHATS * EACH} messages were saved. It is kept" in store.repaired
    assert store.close(60)


def test_a_clean_end_spares_the_check_and_an_unclean_one_does_not(filled):
    store = ChatStore(filled)
    store.load()
    assert store.close(60) and store.repaired == ""


def test_an_old_version_is_saved_and_brought_to_the_present(tmp_path):
    path = tmp_path / "chats.db"
    connection = apsw.Connection(str(path))
    connection.execute(MIGRATIONS[0])
    connection.pragma("user_version", 1)
    connection.execute("INSERT INTO chats VALUES('c', 'Old', 1, 1, 2, '', '[]', '{}', 0)")
    for place in range(40):
        role = ("user", "assistant")[place % 2]
        connection.execute(
            "INSERT INTO messages VALUES(?, 'c', ?, ?, ?, 1, 'done', NULL, NULL, NULL, NULL)", (f"m{place}", place, role, "t" * 600)
        )
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    damage(path, [root - 1], random.Random(2))
    store = ChatStore(path)
    (chat,) = store.load()
    assert len(chat.messages) == 40 and chat.title == "Old"  # one line of messages: a tree without forks
    assert store.close(60)


def test_messages_whose_chat_is_lost_get_a_new_one(filled):
    connection = apsw.Connection(str(filled))
    connection.pragma("foreign_keys", False)
    connection.execute("DELETE FROM chats WHERE rowid = 7")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    unclean(filled)
    damage(filled, [root - 1], random.Random(3))
    store = ChatStore(filled)
    chats = store.load()
    (stray,) = [chat for chat in chats if chat.title == "Recovered chat"]
    assert len(stray.messages) == EACH and len(chats) == CHATS
    assert store.close(60)


def test_an_interrupted_answer_keeps_its_streamed_text(tmp_path):
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    chat = book.new_chat()
    for number in range(30):
        book.add_user(chat.id, f"{number} " + "x" * 500)
    answer = book.begin_answer(chat.id)
    book.append(answer, "streamed so far")
    assert store.close(60)
    unclean(path)
    connection = apsw.Connection(str(path))
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    damage(path, [root - 1], random.Random(4))
    again = ChatStore(path)
    (chat,) = again.load()
    assert (chat.last.text, chat.last.state) == ("streamed so far", AnswerState.INTERRUPTED)
    assert again.close(60)


def test_rows_are_read_in_order_across_gaps(tmp_path):
    connection = apsw.Connection("")
    connection.execute("CREATE TABLE messages(a, id, chat_id)")
    rows = [1, 2, 700, 701, 5000, 123_456]
    connection.executemany("INSERT INTO messages(rowid, a) VALUES(?, ?)", [(row, row) for row in rows])
    assert [row[0] for row in read_rows(connection, "messages") if row is not None] == rows
    connection.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_row_id_that_is_far_behind_the_others_is_not_counted_up_to(tmp_path, seed):
    """As a single damaged bit makes one: what lies between would take years to ask for, range by range."""
    rng = random.Random(seed)
    connection = apsw.Connection(str(tmp_path / "t.db"))
    connection.execute(MIGRATIONS[0])
    ids = {rng.randrange(1, 2 ** rng.randint(1, 63)) for _ in range(100)} | set(range(1000, 1700)) | {2**63 - 1}
    for number in ids:
        row = (number, f"c{number}", f"title {number}" + "x" * 200)
        connection.execute(
            "INSERT INTO chats(rowid, id, title, named, created, updated, draft, follow_ups, settings, unread) "
            "VALUES(?, ?, ?, 0, 0, 0, '', '[]', '{}', 0)",
            row,
        )
    assert [row and row[0] for row in read_rows(connection, "chats")] == [f"c{number}" for number in sorted(ids)]
    connection.close()


def test_a_file_that_counts_on_a_damaged_row_id_is_repaired(filled):
    unclean(filled)
    connection = apsw.Connection(str(filled))
    connection.execute("UPDATE messages SET rowid = 1 << 60 WHERE rowid = (SELECT max(rowid) FROM messages)")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    damage(filled, [root - 1], random.Random(1))
    store = ChatStore(filled)
    assert sum(len(chat.tree.everything()) for chat in store.load()) == CHATS * EACH
    assert f"{CHATS * EACH} messages were saved" in store.repaired and "could not be read" not in store.repaired
    assert store.close(60)


def test_damage_that_is_found_late_is_told_and_checked_at_the_next_start(filled):
    told: list[str] = []
    store = ChatStore(filled, told.append)
    chats = store.load()
    connection = apsw.Connection(str(filled), flags=apsw.SQLITE_OPEN_READONLY)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_by_chat'").fetchone()
    connection.close()
    damage(filled, [root - 1], random.Random(5))
    assert chats[0].messages == [] and "cannot be read" in told[0]
    store.close(60)
    again = ChatStore(filled)
    assert sum(len(chat.tree) for chat in again.load()) == CHATS * EACH and again.repaired
    assert again.close(60)


def root_of(path, name: str) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    connection.close()
    return root


@pytest.mark.parametrize("name", ["sqlite_autoindex_messages_1", "unindexed"])
def test_damage_that_a_write_meets_is_repaired_at_once_and_what_is_new_is_saved(filled, name):
    """After an end in order the file is not checked."""
    damage(filled, [root_of(filled, name) - 1], random.Random(6))
    told: list[str] = []
    book = ChatBook(store := ChatStore(filled, told.append))
    assert store.repaired == ""
    book.add_user(book.new_chat().id, "something new")
    assert book.commit(60)
    assert f"{CHATS} chats with {CHATS * EACH} messages were saved" in told[0] and told[1:] == []
    assert sum(len(chat.tree) for chat in book.listed()) == CHATS * EACH + 1
    assert store.close(60)
    again = ChatStore(filled)
    assert "something new" in [message.text for chat in again.load() for message in chat.messages] and not again.repaired
    assert again.close(60)


@pytest.mark.parametrize("name", ["chats", "session", "messages_by_chat"])
def test_a_list_of_chats_that_cannot_be_read_is_repaired_even_after_an_end_in_order(filled, name):
    damage(filled, [root_of(filled, name) - 1], random.Random(7))
    store = ChatStore(filled)
    assert sum(len(chat.tree) for chat in store.load()) == CHATS * EACH and store.repaired
    assert store.close(60)


@pytest.mark.parametrize("name", ["session", "unindexed", "chunks", "words"])
def test_a_schema_whose_names_are_damaged_is_repaired(filled, name):
    unclean(filled)
    filled.write_bytes(filled.read_bytes().replace(f"TABLE {name}".encode(), f"TABLE {name[:-1]}\xff".encode("latin-1")))
    store = ChatStore(filled)
    assert sum(len(chat.tree) for chat in store.load()) == CHATS * EACH and store.repaired
    assert store.close(60)


@pytest.mark.parametrize("entry", [b"tablechats", b"tablemessages", b"TABLE chats", b"TABLE messages"])
def test_of_two_tables_one_whose_name_is_damaged_does_not_cost_the_other(filled, entry):
    unclean(filled)
    data = filled.read_bytes()
    assert entry in data
    filled.write_bytes(data.replace(entry, entry[:-1] + b"\xff"))
    store = ChatStore(filled)
    chats = store.load()
    assert len(chats) == CHATS
    if entry != b"TABLE messages":
        assert sum(len(chat.tree) for chat in chats) == CHATS * EACH
    if entry != b"TABLE chats":
        assert "Recovered chat" not in {chat.title for chat in chats}
    assert store.close(60)


def test_a_repair_that_fails_leaves_everything_as_it_was(filled, monkeypatch):
    damage(filled, [root_of(filled, "chats") - 1], random.Random(8))

    def full(*_):
        raise apsw.FullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("app.chats.schema.salvage", full)
        store = ChatStore(filled)
        with pytest.raises(apsw.FullError):
            store.load()
        store.close(60)
    assert [file.name for file in filled.parent.iterdir() if ".damaged-" in file.name] == []
    again = ChatStore(filled)
    assert sum(len(chat.tree) for chat in again.load()) == CHATS * EACH and again.repaired
    assert again.close(60)


def test_a_repair_that_fails_while_the_store_is_open_is_tried_again(filled, monkeypatch):
    damage(filled, [root_of(filled, "sqlite_autoindex_messages_1") - 1], random.Random(9))
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.01)
    told: list[str] = []
    book = ChatBook(store := ChatStore(filled, told.append))

    def locked(*_):
        raise PermissionError("somebody has it open")

    with monkeypatch.context() as patch:
        patch.setattr("app.chats.schema.move", locked)
        book.add_user(book.new_chat().id, "something new")
        assert not book.commit(0.2)
        assert len(told) == 1 and "could not be saved yet" in told[0]
    assert book.commit(60) and "were saved" in told[1] and told[2:] == [""]
    assert sum(len(chat.tree) for chat in book.listed()) == CHATS * EACH + 1
    assert store.close(60)
