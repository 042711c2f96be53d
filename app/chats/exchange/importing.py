"""Chats of a file into a book: whole or not at all, each told of that could not be taken over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.chats.book import ChatBook
from app.chats.exchange import chatgpt, jan, lmstudio, openwebui, own
from app.chats.exchange.reading import Entry, read_entries
from app.chats.exchange.records import BadEntry, as_text
from app.chats.model import Chat
from engine import Sentence

log = logging.getLogger(__name__)

NAMES = {"omnibus": "Omnibus", "chatgpt": "ChatGPT", "openwebui": "Open WebUI", "lmstudio": "LM Studio", "jan": "Jan"}
_READERS = {"chatgpt": chatgpt.read, "openwebui": openwebui.read, "lmstudio": lmstudio.read, "jan": jan.read}
COMMIT_EVERY = 200  # chats; bounds what waits in memory to be written
COMMIT_S = 60.0


@dataclass(slots=True)
class Report:
    """What one import did. `skipped` holds (where, why)."""

    added: list[Chat] = field(default_factory=list)
    known: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    unsaved: bool = False

    def words(self) -> str:
        """The report in a sentence or two, without the list of what was skipped."""
        many = len(self.added) != 1
        if self.kinds:
            source = ", ".join(sorted(NAMES[kind] for kind in self.kinds))
            parts = [Sentence("{0} chats imported from {1}." if many else "{0} chat imported from {1}.", len(self.added), source)]
        else:
            parts = [Sentence("{0} chats imported." if many else "{0} chat imported.", len(self.added))]
        if self.known:
            parts.append(Sentence("{0} chat was here already." if self.known == 1 else "{0} chats were here already.", self.known))
        if self.skipped:
            count = len(self.skipped)
            parts.append(Sentence("{0} entry was skipped." if count == 1 else "{0} entries were skipped.", count))
        if self.unsaved:
            parts.append(Sentence("They could not be written to disk yet."))
        return Sentence(" ".join(f"{{{number}}}" for number in range(len(parts))), *parts)


def read_chats(path: Path, clock: Callable[[], float] = time.time) -> tuple[list[Chat], Report]:
    """The chats of a file, touching no book; a report of what was skipped. Raises UnreadableFile."""
    report = Report()
    chats: list[Chat] = []
    for entry in read_entries(path):
        report.kinds.add(entry.kind)
        try:
            chats.append(_chat(entry, clock()))
        except BadEntry as error:
            report.skipped.append((_where(entry), error.args[0]))
        except Exception as error:  # an importer met something that it did not foresee: that entry only
            log.exception("an entry of %s could not be read", path.name)
            report.skipped.append((_where(entry), Sentence("it cannot be understood ({0})", type(error).__name__)))
    return chats, report


def add_chats(book: ChatBook, chats: list[Chat], report: Report) -> Report:
    """Put chats that were read into a book, each in one piece, and see that they are stored."""
    for number, chat in enumerate(chats, 1):
        if book.adopt(chat):
            report.added.append(chat)
        else:
            report.known += 1
        if number % COMMIT_EVERY == 0:
            book.commit(COMMIT_S)
    report.unsaved = not book.commit(COMMIT_S)
    return report


def _chat(entry: Entry, now: float) -> Chat:
    if entry.kind == "omnibus":
        chat = own.read(entry.value)
        chat.created = chat.created or now
        chat.updated = chat.updated or chat.created
        return chat
    return _READERS[entry.kind](entry.value).to_chat(now)


def _where(entry: Entry) -> str:
    """Which entry it was, with its title where it has one."""
    value = entry.value if isinstance(entry.value, dict) else {}
    title = as_text(value.get("title")) or as_text(value.get("name"))
    return Sentence("{0} (“{1}”)", entry.where, title[:60]) if title else entry.where
