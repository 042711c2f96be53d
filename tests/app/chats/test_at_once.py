"""Several open one file at the same moment: one makes it or migrates it, the others wait, and nobody fails or takes it for damaged."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.chats.schema import MIGRATIONS, VERSION, StoreError, open_database

ROUNDS = 60
MANY = 3


def make_old(path: Path, version: int = 1) -> None:
    """A file that an older program left behind, with one chat."""
    old = apsw.Connection(str(path))
    for migration in MIGRATIONS[:version]:
        old.execute(migration)
    old.pragma("user_version", version)
    row = ("a", "", 0, 1, 2, "", "[]", "{}", 0)
    old.execute(f"INSERT INTO chats VALUES({', '.join('?' * len(row))})", row)
    old.close()


def make_files(folder: Path, kind: str) -> list[Path]:
    paths = [folder / str(number) / "chats.db" for number in range(ROUNDS)]
    for path in paths:
        path.parent.mkdir(parents=True)
        if kind == "old":
            make_old(path)
    return paths


def open_each(paths: list[Path], barrier: Any, failed: Any) -> None:
    """Open each file at the moment when the others do; what goes wrong is put into the queue `failed`."""
    for path in paths:
        barrier.wait(60)
        try:
            open_database(path).close()
        except Exception as error:
            failed.put(f"{path.parent.name}: {type(error).__name__}: {error}")


def look_at(paths: list[Path], kind: str) -> None:
    for path in paths:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        assert (connection.pragma("user_version"), connection.pragma("integrity_check")) == (VERSION, "ok")
        assert connection.execute("SELECT count(*) FROM chats").get == (kind == "old")
        connection.close()
        beside = {other.name for other in path.parent.iterdir()} - {"chats.db", "chats.db-wal", "chats.db-shm"}
        assert beside == ({"chats.db.version-1.backup"} if kind == "old" else set())
        if kind == "old":
            copy = apsw.Connection(str(path.with_name("chats.db.version-1.backup")))
            assert (copy.pragma("user_version"), copy.execute("SELECT id FROM chats").get) == (1, "a")
            copy.close()


@pytest.mark.parametrize("kind", ["new", "old"])
def test_threads_that_open_one_file_at_once(tmp_path: Path, kind: str) -> None:
    paths, barrier, failed = make_files(tmp_path, kind), threading.Barrier(MANY), queue.SimpleQueue[str]()
    threads = [threading.Thread(target=open_each, args=(paths, barrier, failed), name=f"opener-{number}") for number in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed.empty() or failed.get() == ""
    look_at(paths, kind)


@pytest.mark.parametrize("kind", ["new", "old"])
def test_processes_that_open_one_file_at_once(tmp_path: Path, kind: str) -> None:
    """SQLite's locks between processes are the system's, those within one its own."""
    paths, context = make_files(tmp_path, kind), multiprocessing.get_context("spawn")
    barrier, failed = context.Barrier(2), context.SimpleQueue()
    others = [context.Process(target=open_each, args=(paths, barrier, failed)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(120)
    assert [other.exitcode for other in others] == [0, 0]
    assert failed.empty() or failed.get() == ""
    failed.close()
    look_at(paths, kind)


@pytest.mark.parametrize("vfs", sorted({None, *apsw.vfs_names()} & {None, "unix-dotfile", "unix-none"}, key=str))
def test_an_old_file_is_migrated_also_where_locks_are_of_whole_files_or_there_are_none(tmp_path: Path, vfs: str | None) -> None:
    """As on a Mac's drive that knows no others: whoever is about to write shuts out even itself."""
    path = tmp_path / "chats.db"
    make_old(path)
    open_database(path, vfs).close()
    look_at([path], "old")


def test_where_a_newer_program_is_first_the_file_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It migrates while we wait for our turn: its version is read anew, and nothing of ours is written into it."""
    path, waiting, told = tmp_path / "chats.db", threading.Event(), []
    make_old(path)
    newer = apsw.Connection(str(path))
    newer.pragma("journal_mode", "wal")
    newer.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("app.chats.schema.check", lambda connection: waiting.set())  # the last thing before the turn is waited for

    def open_it() -> None:
        try:
            open_database(path).close()
        except StoreError as error:
            told.append(str(error))

    thread = threading.Thread(target=open_it, name="opener")
    thread.start()
    assert waiting.wait(60)
    newer.pragma("user_version", VERSION + 1)
    newer.execute("COMMIT")
    thread.join(60)
    assert len(told) == 1 and "newer" in told[0]
    assert [row[1] for row in newer.execute("PRAGMA table_info(chats)")][-1] == "unread"  # as it was in version 1
    assert not path.with_name("chats.db.version-1.backup").exists()
    newer.close()
