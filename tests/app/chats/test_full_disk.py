"""A disk that refuses, at every point: what was acknowledged is there, a chat is there whole or not at all, and all is written later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.model import Attachment, Chat
from app.chats.schema import MIGRATIONS
from app.chats.store import ChatStore
from tests.app.chats.failing_vfs import FailingVFS

ERRORS = (apsw.FullError, apsw.IOError)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.002)
    monkeypatch.setattr("app.chats.store.GROUP_S", 0.0)


@pytest.fixture
def vfs():
    made = FailingVFS(f"failing-{uuid.uuid4().hex}")
    yield made
    made.unregister()


def make_chat(words: str, messages: int = 4) -> Chat:
    """A chat with a file, a draft and a fork, as an import or an undone deletion hands it over."""
    book = ChatBook()
    chat = book.new_chat()
    for number in range(messages // 2):
        book.add_user(chat.id, f"{words} {number} " + "x" * 900, (Attachment("a.txt", "text", "y" * 2000),))
        answer = book.begin_answer(chat.id)
        book.append(answer, f"answer {number} " + "z" * 900)
        book.stop(chat.id, answer)
    book.edit(chat.id, chat.messages[0], f"{words}, said otherwise")
    book.set_draft(chat.id, "half a thought")
    return chat


def words_of(chat: Chat) -> list[tuple]:
    return [(message.id, message.text, message.parent, message.attachments) for message in chat.tree.everything()]


def on_disk(path: Path) -> dict[str, Chat]:
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    store = ChatStore(path)
    chats = {chat.id: chat for chat in store.load()}
    for chat in chats.values():
        chat.tree.everything()
    assert store.close(60) and not store.repaired
    return chats


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> tuple[Path, Chat]:
    """A closed file with one chat in it."""
    path = tmp_path_factory.mktemp("template") / "chats.db"
    book = ChatBook(store := ChatStore(path))
    old = make_chat("old")
    book.adopt(old)
    assert store.close(60)
    return path, old


@pytest.mark.parametrize("times", [1, None], ids=["once", "for good"])
def test_a_whole_chat_is_there_whole_or_not_at_all_wherever_writing_fails(template, vfs, tmp_path, times):
    source, old = template
    new = make_chat("new")
    point = 0
    while True:
        point += 1
        path = tmp_path / f"{point}.db"
        shutil.copy(source, path)
        vfs.fail_at = None
        told: list[str] = []
        store = ChatStore(path, told.append, vfs=vfs.name_used)
        book = ChatBook(store)
        start = vfs.calls
        vfs.error, vfs.times, vfs.fail_at = ERRORS[point % 2], times, start + point
        book.adopt(new)
        while not (acknowledged := book.commit(0.02)) and (times or not told):
            pass  # until it is written, or is said to fail
        reached = vfs.calls >= start + point  # or the whole chat took fewer calls than that
        assert acknowledged or told[0]
        store.close(5 if acknowledged else 0.02)
        vfs.fail_at = None
        store._thread.join(60)
        found = on_disk(path)
        assert words_of(found[old.id]) == words_of(old) and found[old.id].draft == "half a thought"
        if acknowledged or new.id in found:
            assert words_of(found[new.id]) == words_of(new) and found[new.id].draft == "half a thought"
            assert found[new.id].tree.path[0].text == "new, said otherwise"
        if not reached:
            break
    assert point > 10


def test_wherever_opening_fails_the_file_is_as_good_as_before(template, vfs, tmp_path):
    """Also where an older version is brought up: the migration, and the copy before it."""
    made, old = template
    first = tmp_path / "first.db"
    connection = apsw.Connection(str(first))
    connection.execute(MIGRATIONS[0])
    connection.pragma("user_version", 1)
    connection.execute("INSERT INTO chats VALUES('c', 'Old', 0, 1, 2, 'a draft', '[]', '{}', 0)")
    connection.execute("INSERT INTO messages VALUES('m', 'c', 0, 'user', 'kept', 1, 'done', NULL, NULL, NULL, NULL)")
    connection.close()
    for source in (made, first):
        point, opened = 0, False
        while not opened:
            point += 1
            path = tmp_path / f"{source.stem}-{point}" / "chats.db"
            path.parent.mkdir()
            shutil.copy(source, path)
            vfs.error, vfs.times, vfs.fail_at = ERRORS[point % 2], None, vfs.calls + point
            store = ChatStore(path, vfs=vfs.name_used)
            try:
                store.load()
                opened = vfs.fail_at > vfs.calls
            except apsw.Error:
                pass
            vfs.fail_at = None
            store.close(60)
            found = on_disk(path)
            if source is made:
                assert words_of(found[old.id]) == words_of(old)
            else:
                assert [message.text for message in found["c"].messages] == ["kept"] and found["c"].draft == "a draft"
        assert point > 2


def test_everything_that_waited_is_written_in_order_when_there_is_room(template, vfs, tmp_path):
    path = tmp_path / "chats.db"
    shutil.copy(template[0], path)
    store = ChatStore(path, vfs=vfs.name_used)
    book = ChatBook(store)
    vfs.times, vfs.fail_at = None, vfs.calls + 1
    chat = book.new_chat()
    book.add_user(chat.id, "question")
    answer = book.begin_answer(chat.id)
    for number in range(500):
        book.append(answer, f"{number} ")
    book.stop(chat.id, answer)
    gone = book.new_chat()
    book.add_user(gone.id, "deleted again")
    book.delete(gone.id)
    book.set_draft(chat.id, "and a draft")
    assert not book.commit(0.05)
    vfs.fail_at = None
    assert book.commit(10) and store.close(60)
    found = on_disk(path)
    assert words_of(found[chat.id]) == words_of(chat) and found[chat.id].draft == "and a draft" and gone.id not in found


# A limit on the size of files is the full disk that any user may make: the kernel refuses the write itself.
LIMITED = """
import resource, sys, time
from pathlib import Path
from app.chats.book import ChatBook
from app.chats.store import ChatStore
path, told = Path(sys.argv[1]), []
book = ChatBook(store := ChatStore(path, told.append))
chat = book.new_chat()
book.add_user(chat.id, "acknowledged before")
assert book.commit(10)
wal = path.with_name(path.name + "-wal")
resource.setrlimit(resource.RLIMIT_FSIZE, (max(path.stat().st_size, wal.stat().st_size) + 30_000, resource.RLIM_INFINITY))
answer = book.begin_answer(chat.id)
for number in range(3000):
    book.append(answer, f"word {number:06} " * 3)
book.set_draft(chat.id, "a draft")
assert not book.commit(0.5), "there was room after all"
assert told and told[0] and "kept in memory" in told[0].lower(), told
print(len(answer.text), flush=True)
if sys.argv[2] == "room":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert book.commit(10) and told[-1] == "", told
    assert store.close(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no limit on the size of files")
@pytest.mark.parametrize("end", ["room", "none"])
def test_a_write_that_the_kernel_refuses_loses_nothing_acknowledged(tmp_path, end):
    path = tmp_path / "chats.db"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), end], capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    (chat,) = on_disk(path).values()
    assert chat.messages[0].text == "acknowledged before"
    if end == "room":
        assert len(chat.messages[1].text) == int(done.stdout) and chat.draft == "a draft"
