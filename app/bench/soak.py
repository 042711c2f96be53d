"""`omnibus bench soak`: the engine's soak, with the chats of its people kept on disk as the window keeps them.

Owns the chats' side: what is written while the soak runs, and the comparison with the file after its end. What is driven, and how, is the
engine's (`engine.bench.soak_real`), which knows nothing of chats on disk.
"""

from __future__ import annotations

import argparse
import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from app.chats.book import ChatBook
from app.chats.model import ChatMessage, Role
from app.chats.schema import FILE
from app.chats.store import ChatStore
from engine import ErrorInfo, FinishedEvent

CHATS = 300  # more are deleted, the oldest first: what grows for ever is then a leak
WRITE_S = 30.0


class KeptChats:
    """Chats of many threads in one book on one store. Thread-safe. `close` says whether the file holds what was said."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._troubles: list[str] = []
        self._path = folder / FILE
        self._store = ChatStore(self._path, self._trouble)
        self._book = ChatBook(self._store)
        self._order: list[str] = []
        self._busy: set[str] = set()
        self._largest_log = 0
        self.deleted = 0

    def _trouble(self, words: str) -> None:
        if words:
            self._troubles.append(words)

    def begin(self) -> str:
        with self._lock:
            chat = self._book.new_chat().id
            self._order.append(chat)
            self._busy.add(chat)
            while len(self._order) > CHATS and self._order[0] not in self._busy:
                self._book.delete(self._order.pop(0))
                self.deleted += 1
            return chat

    def ask(self, chat: str, words: str) -> ChatMessage:
        """The question and the answer that is to come."""
        with self._lock:
            self._book.set_draft(chat, "")
            self._book.add_user(chat, words)
            return self._book.begin_answer(chat)

    def append(self, answer: ChatMessage, text: str) -> None:
        with self._lock:
            self._book.append(answer, text)

    def finish(self, chat: str, answer: ChatMessage, end: FinishedEvent | ErrorInfo) -> None:
        with self._lock:
            if isinstance(end, ErrorInfo):
                self._book.fail(chat, answer, end)
            else:
                self._book.finish(chat, answer, end)
            log = self._path.with_name(self._path.name + "-wal")
            self._largest_log = max(self._largest_log, log.stat().st_size if log.exists() else 0)

    def leave(self, chat: str, draft: str) -> None:
        """Nobody is in this chat any more; a draft stays behind."""
        with self._lock:
            self._book.set_draft(chat, draft)
            self._busy.discard(chat)

    def close(self) -> list[str]:
        """What is wrong with what was kept: nothing, if all is well."""
        wrong = list(self._troubles)
        if not self._store.close(WRITE_S):
            wrong.append("the chats' writer did not end")
        again = ChatStore(self._path)
        read = ChatBook(again)
        for chat in self._order:
            if chat not in read:
                wrong.append(f"chat {chat} is not in the file")
                continue
            said = self._told(self._book[chat].messages)
            if said != self._told(read[chat].messages):
                wrong.append(f"chat {chat} is another in the file")
            if self._book[chat].draft != read[chat].draft:
                wrong.append(f"the draft of chat {chat} is another in the file")
        if len(read.listed()) != len(self._book.listed()):
            wrong.append("the file has other chats than the book")
        if not again.close(WRITE_S):
            wrong.append("the chats' reader did not end")
        return wrong

    def figures(self) -> dict[str, Any]:
        """After `close`."""
        size = self._path.stat().st_size / 2**20
        return {
            "chats_kept": len(self._order),
            "chats_deleted": self.deleted,
            "database_mib": round(size, 2),
            "wal_largest_mib": round(self._largest_log / 2**20, 2),
        }

    @staticmethod
    def _told(messages: Sequence[ChatMessage]) -> list[tuple[Role, str, str]]:
        return [(message.role, message.text, str(message.state)) for message in messages]


def add_parser(subparsers: Any) -> None:
    _engines().add_parser(subparsers)


def run(args: argparse.Namespace) -> int:
    """Whatever the engine's returns: 0 nothing stayed and nothing was lost, 1 something, 2 asked for in a wrong way."""
    return cast(int, _engines().run(args, KeptChats))


def _engines() -> Any:
    return importlib.import_module("engine.bench.soak")  # by name, as in app/bench/cli.py: nothing of the engine's inside is used
