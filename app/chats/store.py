"""Chats on disk: one connection on one named thread, changes of all chats written together a few times a second.

The window's thread only appends to a queue. The writer takes what has gathered, in order, as one durable transaction; what cannot be
written (a full disk) stays in the queue and is tried again, and `on_trouble` is told. Text that streams is appended as chunks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from app.chats import cells
from app.chats.changes import Change, write
from app.chats.indexing import index_some
from app.chats.model import Attachment, Chat, ChatMessage
from app.chats.reader import ChatReader, read_messages
from app.chats.rows import (
    CHAT_COLUMNS,
    MESSAGE_COLUMNS,
    attachments_cell,
    chat_from,
    chat_row,
    choices_from,
    message_row,
    text_of,
)
from app.chats.schema import CLEAN, DAMAGE, DAMAGED, WAIT_MS, mark, open_database, open_repaired
from app.chats.search import LIMIT, Hit
from engine import Sentence

log = logging.getLogger(__name__)

GROUP_S = 0.2  # how long changes gather before they are written together
RETRY_S = 1.0
OPEN_S = 30.0


def _marks(columns: str) -> str:
    return ",".join("?" for _ in columns.split(","))


_SAVE_CHAT = f"INSERT INTO chats({CHAT_COLUMNS}) VALUES({_marks(CHAT_COLUMNS)}) ON CONFLICT(id) DO UPDATE SET " + ", ".join(
    f"{name}=excluded.{name}" for name in CHAT_COLUMNS.split(", ")[1:]
)
_SAVE_MESSAGE = f"INSERT INTO messages({MESSAGE_COLUMNS}) VALUES({_marks(MESSAGE_COLUMNS)}) ON CONFLICT(id) DO UPDATE SET " + ", ".join(
    f"{name}=excluded.{name}" for name in MESSAGE_COLUMNS.split(", ")[1:]
)
_SAVE_FILES = "UPDATE chats SET draft_files = ? WHERE id = ?"
_APPEND = """INSERT INTO chunks(message_id, number, text)
    SELECT ?1, (SELECT coalesce(max(number) + 1, 0) FROM chunks WHERE message_id = ?1), ?2
    WHERE EXISTS (SELECT 1 FROM messages WHERE id = ?1)"""


class ChatStore:
    """The store of one database file. Thread-safe. `close` writes what is left.

    `on_trouble(words)` is called from the writer's thread when writing fails (a sentence for a person), and with "" when it works again.
    """

    def __init__(self, path: Path, on_trouble: Callable[[str], None] | None = None, vfs: str | None = None) -> None:
        self.path = path
        self.repaired = ""  # what had to be repaired when the file was opened, for a person; known after `load`
        self._vfs = vfs
        self._on_trouble = on_trouble or (lambda words: None)
        self._lock = threading.Condition()
        self._queue: list[Change] = []
        self._texts: dict[str, Change] = {}  # of the queue, those that append text, since anything else came
        self._hurry = False
        self._closing = False
        self._taken = 0  # changes handed to the queue
        self._written = 0  # of these, durable
        self._loaded: list[Chat] | None = None
        self._session: dict[str, str] = {}
        self._error: BaseException | None = None
        self._reading = threading.Lock()
        self._damaged = False  # found while it was open: the next start must repair the file
        self._mended = False  # while it was open; once, for a disk that goes on damaging what is written would have it done for ever
        self._reader: apsw.Connection | None = None  # of chats whose messages are asked for later; made when it is needed
        self._thread = threading.Thread(target=self._main, name="omnibus-store", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------------- reading

    def load(self) -> list[Chat]:
        """All chats as they were when the file was opened. Raises what kept it from being opened."""
        with self._lock:
            self._lock.wait_for(lambda: self._loaded is not None or self._error is not None, OPEN_S)
            if self._error is not None:
                raise self._error
            if self._loaded is None:
                raise TimeoutError(Sentence("The chats' database did not open within {0:.0f} s.", OPEN_S))
            loaded, self._loaded = self._loaded, []
            return loaded

    def read_messages(self, chat_id: str) -> list[ChatMessage]:
        """The messages of one chat, as they are on disk, in the order they were written. What cannot be read is left out, and logged."""
        with self._reading:
            if self._reader is None:
                self._reader = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs)
                self._reader.set_busy_timeout(WAIT_MS)
            try:
                return read_messages(self._reader, chat_id)
            except (*DAMAGE, apsw.SQLError):
                log.exception("messages of a chat could not be read")
                self._damaged = True
                self._tell(
                    Sentence("Some messages of this chat cannot be read: its file is damaged. Start again: what can be is repaired then.")
                )
                return []
            finally:
                if self._closing:
                    self._close_reader()

    def search(self, words: str, limit: int = LIMIT) -> list[Hit]:
        """See `app.chats.search.search`; for whatever thread searches. Sees what is on disk; finds nothing in a
        damaged file, and says so."""
        if not self.path.is_file():
            return []
        try:
            with ChatReader(self.path) as reader:
                return reader.search(words, limit)
        except (*DAMAGE, apsw.SQLError):
            log.exception("chats could not be searched")
            self._damaged = True
            self._tell(Sentence("Chats cannot be searched: their file is damaged. Start again: what can be is repaired then."))
            return []

    def session(self, key: str) -> str | None:
        """A value of the window's own, such as which tabs are open. Call after `load`."""
        with self._lock:
            return self._session.get(key)

    # ------------------------------------------------------------------------------------------------------- writing

    def save_chat(self, chat: Chat) -> None:
        self._put(("chat", chat.id), [(_SAVE_CHAT, chat_row(chat))])

    def save_whole(self, chat: Chat) -> None:
        """A chat with all its messages, in one piece: after whatever crash it is there whole or not at all."""
        statements = [(_SAVE_CHAT, chat_row(chat))]
        if chat.draft_files:
            statements.append((_SAVE_FILES, (attachments_cell(chat.draft_files), chat.id)))
        statements += [(_SAVE_MESSAGE, message_row(chat.id, message.place, message)) for message in chat.tree.everything()]
        self._put(("whole", chat.id), statements)

    def save_draft_files(self, chat_id: str, files: tuple[Attachment, ...]) -> None:
        self._put(("files", chat_id), [(_SAVE_FILES, (attachments_cell(files), chat_id))])

    def save_message(self, chat_id: str, place: int, message: ChatMessage) -> None:
        statements = [(_SAVE_MESSAGE, message_row(chat_id, place, message)), ("DELETE FROM chunks WHERE message_id = ?", (message.id,))]
        self._put(("message", message.id), statements)

    def append_text(self, message_id: str, text: str) -> None:
        self._put(("text", message_id), [(_APPEND, (message_id, text))])

    def delete_message(self, message_id: str) -> None:
        self._put(("delete", message_id), [("DELETE FROM messages WHERE id = ?", (message_id,))])

    def delete_chat(self, chat_id: str) -> None:
        self._put(("delete", chat_id), [("DELETE FROM chats WHERE id = ?", (chat_id,))])

    def save_session(self, key: str, value: str) -> None:
        with self._lock:
            self._session[key] = value
        self._put(("session", key), [("INSERT OR REPLACE INTO session(key, value) VALUES(?, ?)", (key, value))])

    def commit(self, timeout: float) -> bool:
        """Write now what is queued, and wait for it. False if that took longer (it is still tried) or the store cannot be written."""
        with self._lock:
            wanted = self._taken
            self._hurry = True
            self._lock.notify_all()
            return self._lock.wait_for(lambda: self._written >= wanted, timeout)

    def close(self, timeout: float = 2.0) -> bool:
        """Write what is left and close the file. False if something could not be written."""
        done = self.commit(timeout)
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        with self._reading:
            self._close_reader()  # before the writer, which then tidies up the write-ahead log as the last one
        self._thread.join(timeout)
        return done and not self._thread.is_alive()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # ------------------------------------------------------------------------------------------------- writer's thread

    def _put(self, key: tuple[str, str], statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        statements = [(sql, tuple(cells.storable(value) for value in values)) for sql, values in statements]
        with self._lock:
            self._taken += 1
            last = self._queue[-1] if self._queue else None
            if key[0] == "text" and (before := self._texts.get(key[1])) is not None:
                (sql, (message_id, text)), (_, (_, more)) = before.statements[0], statements[0]
                before.statements = [(sql, (message_id, text + more))]
            elif last is not None and last.key == key and key[0] in ("chat", "files", "message", "session"):
                last.statements = statements
            else:
                self._queue.append(change := Change(key, statements))
                if key[0] == "text":
                    self._texts[key[1]] = change
                else:
                    self._texts.clear()
            self._lock.notify_all()

    def _note_repair(self, words: str) -> None:
        self.repaired = words

    def _main(self) -> None:
        try:
            self._connection = open_database(self.path, self._vfs, self._note_repair)
            try:
                chats, session = self._read_all(self._connection)
            except (*DAMAGE, apsw.SQLError):  # after an end in order the check is spared
                log.exception("the chats' database is damaged")
                self._connection.close(True)
                self._connection = open_repaired(self.path, self._vfs, self._note_repair)
                chats, session = self._read_all(self._connection)
        except BaseException as error:
            log.exception("the chats' database could not be opened")
            with self._lock:
                self._error = error
                self._lock.notify_all()
            return
        with self._lock:
            self._loaded, self._session = chats, session
            self._lock.notify_all()
        try:
            all_written = self._write_on()
            if self._damaged or all_written:
                mark(self._connection, DAMAGED if self._damaged else CLEAN)
            self._connection.close()
        except apsw.Error:  # the disk refuses; what was acknowledged lies in the write-ahead log, and the next start checks the file
            log.exception("the chats' database could not be closed in order")
            with suppress(apsw.Error):  # it refuses this, too: the process lets go of the file all the same
                self._connection.close(True)

    def _read_all(self, connection: apsw.Connection) -> tuple[list[Chat], dict[str, str]]:
        """Every chat, its messages still asleep, and the session."""
        files = dict(cells.read(connection, "SELECT id, draft_files FROM chats WHERE draft_files IS NOT NULL"))
        begun = "SELECT id FROM chats WHERE EXISTS (SELECT 1 FROM messages WHERE chat_id = chats.id)"
        talked = {row[0] for row in cells.read(connection, begun)}
        chats: list[Chat] = []
        for row in cells.read(connection, f"SELECT {CHAT_COLUMNS} FROM chats"):
            if not text_of(row[0]):
                continue  # its record is damaged
            chat = chat_from(row, files.get(row[0]))
            if chat.id in talked:
                chat.tree.load_later(partial(self.read_messages, chat.id), choices_from(row))
            chats.append(chat)
        session = {text_of(key): text_of(value) for key, value in cells.read(connection, "SELECT key, value FROM session")}
        return chats, session

    def _write_on(self) -> bool:
        """Write until the store closes. Returns whether everything was written."""
        trouble = False
        while True:
            if not trouble:
                self._index()
            changes, count = self._gather()
            if not changes:
                return not trouble
            try:
                dropped = self._write(changes)
            except Exception as error:  # this thread ends with the store and never before: nothing would be saved any more
                if not trouble:
                    log.exception("chats could not be written")
                    self._tell(trouble_words(error))
                trouble = True
                if not self._put_back(changes):
                    return False
                continue
            if trouble:
                trouble = False
                self._tell("")
            if dropped is not None:
                self._tell(Sentence("One change could not be saved ({0}). Everything else is saved.", dropped))
            with self._lock:
                self._written += count
                self._lock.notify_all()

    def _write(self, changes: list[Change]) -> Exception | None:
        """See `changes.write`. Damage that shows here, or was met before, is repaired first, so that what is new can be read again."""
        if self._mended or not self._damaged:
            try:
                return write(self._connection, changes)
            except (*DAMAGE, apsw.SQLError, apsw.ConnectionClosedError):  # a trigger that makes no sense; a repair that failed before
                if self._mended:
                    raise
                log.exception("the chats' database is damaged")
        with self._reading:
            self._close_reader()
            self._connection.close(True)
            self._connection = open_repaired(self.path, self._vfs, self._tell)
        self._mended, self._damaged = True, False
        return write(self._connection, changes)

    def _index(self) -> None:
        """Index what has changed for as long as there is nothing to write. What is left over is indexed another time."""
        try:
            while not (self._queue or self._closing) and index_some(self._connection):
                pass
        except Exception as error:  # a full disk, say: searching reads what is not indexed directly
            log.warning("messages could not be indexed yet", exc_info=True)
            self._damaged |= isinstance(error, DAMAGE)

    def _tell(self, words: str) -> None:
        """Tell of trouble; nothing that happens to who is told may end the thread."""
        try:
            self._on_trouble(words)
        except Exception:
            log.exception("nobody could be told: %s", words)

    def _gather(self) -> tuple[list[Change], int]:
        """Wait for changes, let them gather, and take them, with their number. Nothing when the store closes."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._queue) or self._closing)
            end = time.monotonic() + GROUP_S
            while not (self._hurry or self._closing) and (left := end - time.monotonic()) > 0:
                self._lock.wait(left)
            self._hurry = False
            changes, self._queue = self._queue, []
            self._texts.clear()
            return changes, self._taken - self._written

    def _put_back(self, changes: list[Change]) -> bool:
        """Keep what could not be written, in its order, and wait a while. False when the store closes."""
        with self._lock:
            self._queue[:0] = changes
            self._lock.wait_for(lambda: self._closing, RETRY_S)
            return not self._closing


def trouble_words(error: Exception) -> str:
    """What keeps chats from being written, and what to do, for a person."""
    if isinstance(error, apsw.FullError):
        return Sentence(
            "The disk is full: new messages are kept in memory only. Free some space; they are written as soon as there is room."
        )
    if isinstance(error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)):
        return Sentence("The chats' file cannot be written: new messages are kept in memory only. Check the rights of its folder.")
    return Sentence("New messages could not be saved yet ({0}). They are kept in memory and tried again.", error)
