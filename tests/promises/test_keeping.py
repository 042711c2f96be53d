"""What you can rely on, part one: nothing that was said is lost. Tests are named after the promises of README.md."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.lock import FolderInUse, FolderLock
from app.chats.model import AnswerState
from app.chats.schema import MIGRATIONS, VERSION, open_database
from app.chats.store import ChatStore
from app.theme import Theme
from app.window.library import Library
from app.window.main_window import MainWindow
from engine import FinishedEvent, FinishReason, TimeSplit, Usage
from tests.app.chats.failing_vfs import FailingVFS
from tests.app.conftest import settle
from tests.app.fakes import FakeEngine, Script

END = FinishedEvent("r", FinishReason.STOP, Usage(3, 4), TimeSplit(0.1, 0.2, 0.3, 0.0))
needs_kill = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")

STREAMER = """
import sys, threading, time
from pathlib import Path
from app.chats.book import ChatBook
from app.chats.store import ChatStore
store = ChatStore(Path(sys.argv[1]))
book = ChatBook(store)
done = book.new_chat()
book.add_user(done.id, "finished question")
answers = []
for number in range(32):
    chat = book.new_chat()
    book.add_user(chat.id, f"question {number}")
    answers.append(book.begin_answer(chat.id))
assert book.commit(20)
def tell(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
gather, taken = store._gather, []
def gathered():
    if taken:
        tell("wrote", *taken, time.monotonic())
    changes = gather()
    taken[:] = [time.monotonic()]
    return changes
store._gather = gathered
def turns():  # how late a thread of this process is when it asks for 10 ms
    while True:
        before = time.monotonic()
        time.sleep(0.01)
        tell("late", time.monotonic() - before - 0.01)
threading.Thread(target=turns, name="test-turns", daemon=True).start()
step = 0
while True:
    moment = time.monotonic()
    for answer in answers:
        book.append(answer, f"{step} ")
    tell("step", step, moment)
    step += 1
    time.sleep(0.005)
"""
LOST_S = 0.4  # of streamed text, at most
WRITE_S = 0.1  # what a write may take for that; a slower disk, or a machine that lets the process wait, adds what it takes longer


@needs_kill
@pytest.mark.parametrize("after_s", [0.05, 0.6, 1.7])
def test_r01_kill_9_loses_at_most_400_ms_of_streamed_text(tmp_path: Path, after_s: float) -> None:
    """By the clock of the process itself: what it took in before the last write it told of is there, and that write is not long ago."""
    program = [sys.executable, "-c", STREAMER, str(tmp_path / "chats.db")]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    steps: list[float] = []
    late = slow = written = 0.0
    while not steps or steps[-1] < steps[0] + after_s:
        kind, *figures = process.stdout.readline().split()
        if kind == "step":
            assert int(figures[0]) == len(steps)
            steps.append(float(figures[1]))
        elif kind == "late":
            late = max(late, float(figures[0]))
        else:
            written = float(figures[0])
            slow = max(slow, float(figures[1]) - written - WRITE_S)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    assert written or steps[-1] - steps[0] < LOST_S + late + slow
    assert steps[-1] - max(written, steps[0]) <= LOST_S + 2 * late + slow
    store = ChatStore(tmp_path / "chats.db")
    chats = ChatBook(store).listed()
    assert len(chats) == 33
    for chat in chats:
        if chat.last is not None and chat.last.state is AnswerState.INTERRUPTED:
            numbers = [int(word) for word in chat.last.text.split()]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= sum(moment < written for moment in steps) - 1  # one may have been under way
    assert store.close(60)


def exchange(book: ChatBook, number: int) -> None:
    chat = book.new_chat()
    book.add_user(chat.id, f"question {number}")
    answer = book.begin_answer(chat.id)
    for piece in ("one ", "two ", "three"):
        book.append(answer, piece)
    book.finish(chat.id, answer, END)


@pytest.mark.parametrize("seed", range(4))
def test_r03_a_full_disk_loses_nothing_and_everything_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("app.chats.store.RETRY_S", 0.01)
    vfs = FailingVFS(f"failing-{uuid.uuid4().hex}")
    vfs.error, vfs.times = apsw.FullError, None
    told: list[str] = []
    store = ChatStore(tmp_path / "chats.db", told.append, vfs=vfs.name_used)
    book = ChatBook(store)
    vfs.fail_at = vfs.calls + random.Random(seed).randrange(1, 30)
    for number in range(6):
        exchange(book, number)
        book.commit(0.05)
    assert len(book.listed()) == 6 and all(chat.last.text == "one two three" for chat in book.listed())  # type: ignore[union-attr]
    vfs.fail_at = None
    assert book.commit(10) and store.close(60)
    assert not told or ("disk is full" in told[0] and told[-1] == "")
    again = ChatStore(tmp_path / "chats.db")
    assert {chat.last.text for chat in ChatBook(again).listed()} == {"one two three"}  # type: ignore[union-attr]
    assert again.close(60)
    vfs.unregister()


def test_r04_damaged_history_never_blocks_the_start_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    for number in range(200):
        exchange(book, number)
    assert store.close(60)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE session SET value = '0' WHERE key = 'clean'")
    connection.pragma("wal_checkpoint", "truncate")
    connection.close()
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    for page in random.Random(4).sample(range(pages // 2, pages), 3):
        data[page * 4096 : page * 4096 + 4096] = os.urandom(4096)
    path.write_bytes(data)
    store = ChatStore(path)
    found = ChatBook(store).listed()
    assert store.close(60)
    aside = [file for file in tmp_path.iterdir() if ".damaged-" in file.name and not file.name.endswith(("-wal", "-shm"))]
    assert not aside or [file.read_bytes() for file in aside] == [bytes(data)]
    assert len(found) >= 100, "what lies on pages that are not damaged is saved"


def test_r05_a_migration_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    exchange(book, 1)
    assert store.close(60)
    broken = "ALTER TABLE chats ADD COLUMN colour TEXT; UPDATE chats SET colour = 'x'; INSERT INTO nowhere VALUES(1)"
    monkeypatch.setattr("app.chats.schema.MIGRATIONS", (*MIGRATIONS, broken))
    monkeypatch.setattr("app.chats.schema.VERSION", VERSION + 1)
    with pytest.raises(apsw.SQLError):
        open_database(path)
    assert path.with_name(f"chats.db.version-{VERSION}.backup").exists()
    monkeypatch.undo()
    again = ChatStore(path)
    assert len(ChatBook(again).listed()) == 1 and again.close(60)


def test_r06_tabs_drafts_and_the_place_come_back(qapp: Any, no_leftovers: None, tmp_path: Path) -> None:
    def day() -> tuple[Library, FakeEngine, MainWindow]:
        library, engine = Library(tmp_path), FakeEngine()
        window = MainWindow(engine, library.book, Theme.dark())
        library.attach(window)
        window.show()
        settle()
        return library, engine, window

    def night(library: Library, engine: FakeEngine, window: MainWindow) -> None:
        engine.close()
        window.shut_down()
        assert library.close()
        window.deleteLater()
        settle()

    library, engine, window = day()
    chats = []
    for number in range(3):
        chat = window.new_chat()
        window.send(chat, f"question {number}")
        engine.run()
        window.bridge.drain()
        chats.append(chat)
    window.open_chat(chats[1])
    window.page(chats[1]).composer.edit.setPlainText("a draft")
    order = window.open_chats
    night(library, engine, window)
    library, engine, window = day()
    assert window.open_chats == order and window.current_chat == chats[1]
    assert window.page(chats[1]).composer.text == "a draft"
    night(library, engine, window)


@needs_kill
def test_r07_an_answer_that_a_crash_cut_off_is_shown_and_can_go_on(tmp_path: Path, make_window: Any) -> None:
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    chat = book.new_chat()
    book.add_user(chat.id, "go")
    book.append(book.begin_answer(chat.id), "so far ")
    assert book.commit(10)
    again = ChatStore(tmp_path / "chats.db")  # the first one never closed
    window, fake = make_window(book=ChatBook(again))
    window.open_chat(chat.id)
    assert window.book[chat.id].last.state is AnswerState.INTERRUPTED and fake.submitted == [], "nothing is asked by itself"
    fake.scripts.append(Script(("and on",)))
    window.go_on(chat.id)
    fake.run()
    window.bridge.drain()
    assert window.book[chat.id].last.text == "so far and on"
    assert again.close(60) and store.close(60)


HOLDER = """
import sys
from pathlib import Path
from app.chats.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
input()
"""


@needs_kill
def test_r20_two_starts_never_write_one_folder(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "held\n"
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdin.close()
    process.stdout.close()
    with FolderLock(tmp_path):
        assert (tmp_path / "omnibus.lock").exists()


def test_r21_closing_with_32_open_answers_keeps_every_word(make_window: Any, tmp_path: Path) -> None:
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    window, fake = make_window(book=book, seats=32)
    chats = []
    for number in range(32):
        fake.scripts.append(Script([f"{number}:{piece} " for piece in range(50)], prefill_ticks=0))
        chat = window.new_chat()
        window.send(chat, f"question {number}")
        chats.append(chat)
    fake.tick(20)
    window.shut_down()
    fake.close()
    settle()
    assert store.close(60)
    again = ChatStore(tmp_path / "chats.db")
    stored = ChatBook(again)
    for number, chat in enumerate(chats):
        said = stored[chat].last.text.split()  # type: ignore[union-attr]
        assert said == [f"{number}:{piece}" for piece in range(len(said))] and len(said) >= 19
        assert stored[chat].last.state is AnswerState.STOPPED  # type: ignore[union-attr]
    assert again.close(60)


def test_r25_every_half_written_exchange_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_window: Any) -> None:
    """What is written together is there together or not at all; between two such changes a crash may fall anywhere."""
    changes: list[list[tuple[str, tuple[Any, ...]]]] = []
    store = ChatStore(tmp_path / "recorded.db")
    put = store._put
    monkeypatch.setattr(store, "_put", lambda key, given: (changes.append(list(given)), put(key, given))[1])
    book = ChatBook(store)
    exchange(book, 1)
    assert store.close(60) and len(changes) > 6
    for count in range(len(changes) + 1):
        path = tmp_path / f"prefix-{count}" / "chats.db"
        connection = open_database(path)
        for sql, values in (statement for change in changes[:count] for statement in change):
            connection.execute(sql, values)
        connection.close()
        again = ChatStore(path)
        half = ChatBook(again)
        for chat in half.listed():
            assert "one two three".startswith(chat.last.text) or chat.last.text == "question 1"  # type: ignore[union-attr]
        if count in (3, len(changes) // 2):
            window, _ = make_window(book=half)
            for chat in half.listed():
                window.open_chat(chat.id)
        assert again.close(60)
