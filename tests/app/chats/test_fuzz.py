"""Chats in a file with random damage: nothing raises, no thread dies, what is new is saved, and what was not touched is whole.

`DAMAGES` small ones a run; hundreds were tried by hand with other seeds.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.model import Attachment
from app.chats.store import ChatStore

CHATS = 60
PAGE, SECTOR = 4096, 512
DAMAGES = 30
INTERIOR = (2, 5)  # the first byte of a page that says where others are
Picture = dict[str, Any]


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    monkeypatch.setattr("app.chats.store.GROUP_S", 0.0)
    yield
    assert not died


def picture(book: ChatBook) -> Picture:
    return {
        chat.id: (chat.title, chat.draft, tuple((one.id, one.text, one.attachments, one.state) for one in chat.tree.everything()))
        for chat in list(book._chats.values())
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[bytes, list[set[str]], Picture]:
    """A file of chats, some longer than a page; of each page the chats that it holds something of; and what the chats are."""
    path = tmp_path_factory.mktemp("whole") / "chats.db"
    rng = random.Random(1)
    book = ChatBook(store := ChatStore(path))
    marks: dict[str, str] = {}
    for number in range(CHATS):
        chat = book.new_chat()
        mark = marks[chat.id] = f"mark{number:02d}"
        for turn in range(3):
            files = (Attachment(mark, "text", f"{mark}ä " * 100),) if number % 7 == 0 else ()
            book.add_user(chat.id, f"{mark}ä " * rng.choice((1, 5, 60)), files)
            answer = book.begin_answer(chat.id)
            book.append(answer, f"{mark}ä " * rng.choice((3, 40, 1500)))
            if turn < 2 or number % 5:
                book.stop(chat.id, answer)
        book.set_draft(chat.id, mark)
    assert book.commit(60) and store.close(60)
    data = path.read_bytes()
    book = ChatBook(store := ChatStore(path))
    wanted = picture(book)
    assert store.close(60)
    pages = [data[start : start + PAGE] for start in range(0, len(data), PAGE)]
    holds = [{chat_id for chat_id, mark in marks.items() if mark.encode() in page or chat_id.encode() in page} for page in pages]
    return data, [set() if page[0] in INTERIOR else held for page, held in zip(pages, holds, strict=True)], wanted


def damage(data: bytearray, rng: random.Random) -> set[int]:
    """Single bits and bytes, heads of pages, whole sectors, or bytes of the first pages. Returns the pages that were touched."""
    kind = rng.randrange(5)
    touched = set()
    for _ in range(rng.choice((1, 3, 20))):
        place = rng.randrange(100, len(data))  # behind the head of the file
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            place = place // PAGE * PAGE + rng.randrange(40) if place >= PAGE else place
            data[place] = rng.randrange(256)
        elif kind == 2:
            place = max(place // SECTOR, 1) * SECTOR
            data[place : place + SECTOR] = rng.choice((bytes(SECTOR), rng.randbytes(SECTOR)))
        else:
            place = rng.randrange(100, 12 * PAGE) if kind == 3 else place
            data[place] = rng.randrange(256)
        touched.add(place // PAGE)
    return touched


@pytest.mark.parametrize("seed", range(DAMAGES))
def test_random_damage(whole, tmp_path: Path, seed: int) -> None:
    data, holds, wanted = whole
    rng = random.Random(seed)
    path = tmp_path / "chats.db"
    path.write_bytes(data)
    if seed % 2:  # as after a crash: the file is checked
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE session SET value = '0' WHERE key = 'clean'")
        connection.pragma("wal_checkpoint", "truncate")
        connection.close()
    damaged = bytearray(path.read_bytes())
    touched = damage(damaged, rng)
    path.write_bytes(damaged)

    book = ChatBook(store := ChatStore(path))
    picture(book)
    for words in ("mark07", "=>", "mark"):
        book.search_everything(words)
    kept = sorted(book._chats)
    book.add_user(book.new_chat().id, "something new")
    if kept:
        book.add_user(kept[0], "more of it")
    assert book.commit(60) and store.close(60)

    book = ChatBook(store := ChatStore(path))
    found = picture(book)
    assert store.close(60)
    texts = {message[1] for chat in found.values() for message in chat[2]}
    assert "something new" in texts and ("more of it" in texts or not kept)
    if all(holds[page] for page in touched):  # else what says where the others are was hit
        untouched = set(wanted) - set().union(*(holds[page] for page in touched)) - set(kept[:1])
        assert {chat_id: found.get(chat_id) for chat_id in untouched} == {chat_id: wanted[chat_id] for chat_id in untouched}
