"""Reading a database of chats while somebody else may be writing it: one read-only connection, for one thread at a time.

Sees what was committed. Never changes the file; a file of another version than this program's is refused with a sentence.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from app.chats import cells
from app.chats.model import Chat, ChatMessage
from app.chats.rows import CHAT_COLUMNS, MESSAGE_COLUMNS, chat_from, choices_from, message_from, text_of
from app.chats.schema import VERSION, WAIT_MS, StoreError, refuse_newer
from app.chats.search import LIMIT, Hit, search


class ChatReader:
    """Chats of one file; `immutable` for one that nobody can write, not even SQLite beside it (a read-only folder).

    Raises FileNotFoundError where there is none, StoreError for another version, apsw.Error where it is damaged.
    """

    def __init__(self, path: Path, immutable: bool = False) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"There are no chats in {path.parent}.")
        name = f"{path.resolve().as_uri()}?mode=ro&immutable=1" if immutable else str(path)
        self._connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | (apsw.SQLITE_OPEN_URI if immutable else 0))
        self._connection.set_busy_timeout(WAIT_MS)
        try:
            refuse_newer(self._connection)
            if self._connection.pragma("user_version") != VERSION:
                raise StoreError("These chats were written by an older Omnibus and must be opened by the window once.")
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> ChatReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------- reading

    def chats(self) -> list[Chat]:
        """Every chat without its messages, newest first."""
        rows = cells.read(self._connection, f"SELECT {CHAT_COLUMNS} FROM chats ORDER BY updated DESC")
        return [chat_from(row) for row in rows if text_of(row[0])]

    def counts(self) -> dict[str, int]:
        """How many messages each chat has, all versions counted."""
        return dict(cells.read(self._connection, "SELECT chat_id, count(*) FROM messages GROUP BY chat_id"))

    def chat(self, chat_id: str) -> Chat | None:
        """One chat with its messages; None where there is none of that id."""
        row = next(cells.read(self._connection, f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?", (chat_id,)), None)
        if row is None:
            return None
        chat = chat_from(row)
        chat.tree.load(self.messages(chat_id), choices_from(row))
        return chat

    def messages(self, chat_id: str) -> list[ChatMessage]:
        """The messages of one chat, in the order they were written."""
        return read_messages(self._connection, chat_id)

    def search(self, words: str, limit: int = LIMIT) -> list[Hit]:
        """See `app.chats.search.search`."""
        return search(self._connection, words, limit)


def read_messages(connection: apsw.Connection, chat_id: str) -> list[ChatMessage]:
    """The messages of one chat as rows tell them, with what was streamed after their rows were written."""
    pieces: dict[str, list[str]] = {}
    for message_id, text in cells.read(
        connection,
        "SELECT message_id, text FROM chunks WHERE message_id IN (SELECT id FROM messages WHERE chat_id = ?) ORDER BY message_id, number",
        (chat_id,),
    ):
        pieces.setdefault(message_id, []).append(text_of(text))
    rows = cells.read(connection, f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat_id = ? ORDER BY place, created, rowid", (chat_id,))
    return [message_from(row, "".join(pieces.get(row[0], ()))) for row in rows if text_of(row[0])]
