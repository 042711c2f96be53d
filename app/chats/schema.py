"""The database of chats: its tables, its versions, and how a file is opened so that nothing in it is ever thrown away.

Uses apsw, whose bundled SQLite is free of the WAL-reset fault of older ones. Opening never resets data: a file of a newer version is left
alone, a migration is preceded by a copy, and of a damaged file, which is kept under another name, everything is saved that can be read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from app.chats import cells
from app.chats.indexing import note_streamed
from app.chats.rows import CHAT_COLUMNS, MESSAGE_COLUMNS
from app.chats.salvage import salvage, version_of
from app.chats.words import TOKENIZER
from app.private import private_file, private_folder
from engine import Sentence

log = logging.getLogger(__name__)

FILE = "chats.db"  # in the folder of chats
CLEAN, OPEN, DAMAGED = "1", "0", "damaged"  # how the program that had it open ended
WAIT_MS = 5000  # for somebody else who reads or writes
OPENING_S = 25.0  # for somebody else who brings the file to a new version, which copies all of it
DAMAGE = (apsw.NotADBError, apsw.CorruptError, UnicodeDecodeError)  # the last for names in the schema, which a check's words may hold

# One entry a version; entry n brings version n to n + 1. Never edit an entry that was released: add one.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE chats(
        id TEXT PRIMARY KEY, title TEXT NOT NULL, named INTEGER NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        draft TEXT NOT NULL, follow_ups TEXT NOT NULL, settings TEXT NOT NULL, unread INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE messages(
        id TEXT PRIMARY KEY, chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE, place INTEGER NOT NULL,
        role TEXT NOT NULL, text TEXT NOT NULL, created REAL NOT NULL, state TEXT NOT NULL,
        reason TEXT, usage TEXT, time TEXT, error TEXT
    ) STRICT;
    CREATE INDEX messages_by_chat ON messages(chat_id, place);
    -- Text of an answer as it streams: appended, and folded into its message at the end.
    CREATE TABLE chunks(
        message_id TEXT NOT NULL REFERENCES messages(id) ON DELETE CASCADE, number INTEGER NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY(message_id, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE session(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    """,
    # Messages become a tree; what was a list is a tree without forks.
    """
    ALTER TABLE messages ADD COLUMN parent TEXT;
    ALTER TABLE messages ADD COLUMN attachments TEXT;
    ALTER TABLE messages ADD COLUMN thought REAL;
    ALTER TABLE messages ADD COLUMN model TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN choices TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE chats ADD COLUMN draft_files TEXT;
    ALTER TABLE chats ADD COLUMN scroll TEXT;
    UPDATE messages SET parent = (
        SELECT before.id FROM messages AS before
        WHERE before.chat_id = messages.chat_id
            AND (before.place, before.created, before.rowid) < (messages.place, messages.created, messages.rowid)
        ORDER BY before.place DESC, before.created DESC, before.rowid DESC LIMIT 1);
    """,
    f"""
    ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
    -- The index of the messages' words by row id, without the texts themselves, and the rows that it does not know yet.
    CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, tokenize="{TOKENIZER}");
    CREATE TABLE unindexed(row INTEGER PRIMARY KEY) STRICT;
    CREATE TRIGGER message_came AFTER INSERT ON messages WHEN new.text <> '' BEGIN
        INSERT OR IGNORE INTO unindexed(row) VALUES(new.rowid);
    END;
    CREATE TRIGGER message_changed AFTER UPDATE OF text ON messages WHEN new.text IS NOT old.text BEGIN
        INSERT OR IGNORE INTO unindexed(row) VALUES(new.rowid);
    END;
    CREATE TRIGGER message_went AFTER DELETE ON messages BEGIN
        DELETE FROM words WHERE rowid = old.rowid;
        DELETE FROM unindexed WHERE row = old.rowid;
    END;
    INSERT INTO unindexed(row) SELECT rowid FROM messages;
    """,
    # Files that go along with a message are found, too.
    """
    DROP TRIGGER message_came;
    DROP TRIGGER message_changed;
    CREATE TRIGGER message_came AFTER INSERT ON messages WHEN new.text <> '' OR new.attachments IS NOT NULL BEGIN
        INSERT OR IGNORE INTO unindexed(row) VALUES(new.rowid);
    END;
    CREATE TRIGGER message_changed AFTER UPDATE OF text, attachments ON messages
        WHEN new.text IS NOT old.text OR new.attachments IS NOT old.attachments BEGIN
        INSERT OR IGNORE INTO unindexed(row) VALUES(new.rowid);
    END;
    INSERT OR IGNORE INTO unindexed(row) SELECT rowid FROM messages WHERE attachments IS NOT NULL;
    """,
)
VERSION = len(MIGRATIONS)


class StoreError(Exception):
    """The database cannot be used. `args[0]` is a sentence for a person."""


def open_database(path: Path, vfs: str | None = None, on_repair: Callable[[str], None] = lambda words: None) -> apsw.Connection:
    """Open or make the database, durable (WAL, synchronous EXTRA) and of the present version.

    A file that is damaged, or no database, is kept as `<name>.damaged-<time>`, and what can be read of it is copied into a new one;
    `on_repair(words)` is told, for a person. Several may open one file, or make it, at the same moment: one of them migrates it, the others
    wait. Raises StoreError for a database of a newer version of this program, apsw.Error where the disk refuses.
    """
    private_folder(path.parent)
    try:
        return _open(path, vfs)
    except DAMAGE:
        log.exception("the chats' database is damaged")
        return open_repaired(path, vfs, on_repair)


def open_repaired(path: Path, vfs: str | None = None, on_repair: Callable[[str], None] = lambda words: None) -> apsw.Connection:
    """The same for a file that is known to be damaged, and that nobody here has open. Where no new file can be written (a full disk), all
    is as it was. Raises OSError where the old one cannot be renamed."""
    aside = set_aside(path)
    try:
        words = repair(aside, path, vfs)
    except BaseException:
        move(aside, path)
        raise
    log.warning(words)
    on_repair(words)
    return _open(path, vfs)


def set_aside(path: Path) -> Path:
    """Rename a database, with its write-ahead log, to a name that is free."""
    stem = f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    aside = path.with_name(stem)
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{stem}-{number}")
    move(path, aside)
    return aside


def move(path: Path, target: Path) -> None:
    """Rename a database, with what belongs to it; what lies at `target` is replaced."""
    for suffix in ("", "-wal", "-shm"):
        part, new = path.with_name(path.name + suffix), target.with_name(target.name + suffix)
        if part.exists():
            part.replace(new)
        else:
            new.unlink(missing_ok=True)


def repair(damaged: Path, path: Path, vfs: str | None) -> str:
    """Make a new database at `path` out of what can be read of a damaged one; says in a sentence what came of it."""
    version = min(version_of(damaged), VERSION)
    if not version:
        return Sentence("The file of chats could not be read at all. It is kept as {0}; a new one was begun.", damaged.name)
    private_file(path)
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        with connection:
            for number in range(version):
                connection.execute(MIGRATIONS[number])
            connection.pragma("user_version", version)
        saved = salvage(damaged, connection)
        mark(connection, CLEAN)
    finally:
        connection.close()
    words = Sentence("The file of chats was damaged: {0} chats with {1} messages were saved", saved.chats, saved.messages)
    if saved.lost:
        words = Sentence("{0}; about {1} {2} could not be read", words, saved.lost, Sentence("entry" if saved.lost == 1 else "entries"))
    return Sentence("{0}. It is kept as {1}.", words, damaged.name)


def _open(path: Path, vfs: str | None) -> apsw.Connection:
    private_file(path)  # SQLite gives its own rights to the files beside it
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        connection.set_busy_timeout(round(1000 * OPENING_S))
        refuse_newer(connection)
        connection.pragma("foreign_keys", True)
        # Full, and before anything is written: the folder is synced, too, when the journal of a new file's first write is deleted. Without
        # that a power cut may bring the journal back, and it would roll everything back to the empty file.
        connection.pragma("synchronous", "extra")
        use_wal(connection)
        with missing_is_damage():
            if not ended_cleanly(connection):
                check(connection)
        migrate(connection, path, vfs)
        with missing_is_damage():
            connection.execute(f"SELECT {CHAT_COLUMNS} FROM chats LIMIT 0")
            connection.execute(f"SELECT {MESSAGE_COLUMNS} FROM messages LIMIT 0")
            note_streamed(connection)
            mark(connection, OPEN)
        connection.set_busy_timeout(WAIT_MS)
    except BaseException:
        connection.close()
        raise
    return connection


def check(connection: apsw.Connection) -> None:
    """Raises CorruptError for a file that is damaged; a search index that cannot be read says so as an SQLError."""
    if connection.pragma("quick_check") != "ok":
        raise apsw.CorruptError("quick_check found damage")


@contextmanager
def missing_is_damage() -> Iterator[None]:
    """For statements that every file of ours understands: where a table is missing, its schema is damaged."""
    try:
        yield
    except apsw.SQLError as error:
        raise apsw.CorruptError(str(error)) from error


def refuse_newer(connection: apsw.Connection) -> None:
    """Raise StoreError for a file that a newer program has written, before anything in it is touched."""
    version = connection.pragma("user_version")
    if version > VERSION:
        raise StoreError(
            Sentence("These chats were written by a newer Omnibus (version {0} of the file; this program knows {1}).", version, VERSION)
        )


def ended_cleanly(connection: apsw.Connection) -> bool:
    """Whether the program that had this file open closed it in order; the check of a whole file is spared then. Raises CorruptError where
    that program has met damage, which not every check finds."""
    if connection.pragma("user_version") == 0:
        return False
    ended = next(cells.read(connection, "SELECT value FROM session WHERE key = 'clean'"), None)
    if ended == (DAMAGED,):
        raise apsw.CorruptError("damage was met while it was open")
    return ended == (CLEAN,)


def mark(connection: apsw.Connection, how: str) -> None:
    """Note how the program ends, or that it has begun and not ended."""
    connection.execute("INSERT OR REPLACE INTO session(key, value) VALUES('clean', ?)", (how,))


def use_wal(connection: apsw.Connection) -> None:
    """Switch to the write-ahead log. Of two that do so at once SQLite tells one that the file is busy, and does not wait as it does
    elsewhere: it holds a lock already that the other waits for."""
    patience = time.monotonic() + OPENING_S
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.01)


def migrate(connection: apsw.Connection, path: Path, vfs: str | None) -> None:
    """Bring the database to VERSION after a copy of what was there, all of it in one transaction. The version is read within it: whoever
    comes second waits here, and finds the work done, or StoreError where a newer program was first."""
    if connection.pragma("user_version") == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        refuse_newer(connection)
        version = connection.pragma("user_version")
        if 0 < version < VERSION:
            back_up(connection, path, path.with_name(f"{path.name}.version-{version}.backup"), vfs)
        for number in range(version, VERSION):
            connection.execute(MIGRATIONS[number])
            connection.pragma("user_version", number + 1)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some failures have ended it
            connection.execute("ROLLBACK")
        raise


def back_up(connection: apsw.Connection, path: Path, target: Path, vfs: str | None) -> None:
    """A consistent copy of what is committed; an older copy of that name is replaced once the new one is whole. For one at a time.

    connection: about to write to `path`, and nothing is written yet.
    """
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    private_file(part)
    try:
        _copy(path, part, vfs)
    except apsw.BusyError:  # where the system has no locks but of whole files, the one that is about to write shuts out all others
        with part.open("wb") as file:
            file.write(connection.serialize("main"))
            file.flush()
            os.fsync(file.fileno())
    part.replace(target)


def _copy(path: Path, part: Path, vfs: str | None) -> None:
    """Raises apsw.BusyError where it cannot be read beside one that is about to write."""
    copy = apsw.Connection(str(part))
    try:
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)  # SQLite copies none that is about to write
        try:
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(1000)
        finally:
            source.close()
    finally:
        copy.close()
