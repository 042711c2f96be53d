"""Search over everything: what a search brings back, from a database or from chats in memory.

The index proposes and the text decides; messages that are not indexed yet are read directly, so that nothing is missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import apsw

from app.chats import cells
from app.chats.indexing import TEXT
from app.chats.model import Chat, Role
from app.chats.rows import text_of
from app.chats.sound import moment
from app.chats.words import Query, find_spans, fold

CANDIDATES = 2000  # of the index's proposals, newest first, that one search looks at
SNIPPET = 160
PIECE, OVERLAP = 64 * 1024, 256  # characters that are looked through at a time, and that two pieces share
LIMIT = 50  # finds of one search
OF_A_CHAT = 5  # of these, in the messages of one chat while others have some, too
_BEFORE = 50  # characters that a snippet shows before what was found

_HIT = f"SELECT m.id, m.chat_id, m.role, m.created, {TEXT} FROM messages m"


@dataclass(frozen=True, slots=True)
class Hit:
    """One find. `message_id` is "" for a chat found by its title; `spans` are the places of the words in `snippet`."""

    chat_id: str
    title: str
    message_id: str
    role: Role | None
    created: float
    snippet: str
    spans: tuple[tuple[int, int], ...]


def search(connection: apsw.Connection, words: str, limit: int = LIMIT) -> list[Hit]:
    """Chats by their titles, then messages, each newest first, that hold every word of `words`. Nothing for no words; never raises
    for what the words are."""
    query = Query.of(words)
    if not query:
        return []
    titles = _titles(connection)
    hits = [
        Hit(chat_id, title, "", None, updated, title, tuple(find_spans(title, query)))
        for chat_id, (title, updated) in titles.items()
        if query.matches(fold(title))
    ]
    hits = sorted(hits, key=lambda hit: hit.created, reverse=True)[:limit]
    found = _Spread(limit)
    seen: set[str] = set()
    for message_id, chat_id, role, created, text in _candidates(connection, query):
        if message_id in seen or not text_of(message_id) or not found.wants(chat_id) or not query.matches(fold(text_of(text))):
            continue
        seen.add(message_id)
        title = titles.get(chat_id, ("", 0.0))[0]
        found.add(message_hit(chat_id, title, message_id, role, moment(created), text, query))
        if found.full:
            break
    return (hits + found.newest_first())[:limit]


def search_chats(chats: Iterable[Chat], words: str, limit: int = LIMIT) -> list[Hit]:
    """The same over chats in memory, for a book without a store."""
    query = Query.of(words)
    if not query:
        return []
    titled: list[Hit] = []
    found = _Spread(limit)
    for chat in chats:
        title = chat.display_title
        if query.matches(fold(title)):
            titled.append(Hit(chat.id, title, "", None, chat.updated, title, tuple(find_spans(title, query))))
        for message in reversed(list(chat.tree.everything())):
            if found.wants(chat.id) and query.matches(fold(message.searchable)):
                found.add(message_hit(chat.id, title, message.id, message.role.value, message.created, message.searchable, query))
    return (sorted(titled, key=lambda hit: hit.created, reverse=True) + found.newest_first())[:limit]


class _Spread:
    """Finds of many chats, so that a long one that is full of them does not leave the others out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shown: list[Hit] = []
        self._more: list[Hit] = []  # further ones of chats that have enough, for what is left of the limit
        self._of: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        return len(self._shown) >= self._limit

    def wants(self, chat_id: str) -> bool:
        """Whether one more of this chat could be shown."""
        return self._of[chat_id] < OF_A_CHAT or len(self._more) < self._limit

    def add(self, hit: Hit) -> None:
        """Take the next newest."""
        (self._shown if self._of[hit.chat_id] < OF_A_CHAT else self._more).append(hit)
        self._of[hit.chat_id] += 1

    def newest_first(self) -> list[Hit]:
        chosen = self._shown + self._more[: max(0, self._limit - len(self._shown))]
        return sorted(chosen, key=lambda hit: hit.created, reverse=True)


def message_hit(chat_id: str, title: str, message_id: str, role: str, created: float, text: str, query: Query) -> Hit:
    snippet = snippet_of(text, query)
    kind = Role(role) if role in set(Role) else Role.ASSISTANT
    return Hit(chat_id, title, message_id, kind, created, snippet, tuple(find_spans(snippet, query)))


def snippet_of(text: str, query: Query) -> str:
    """One line of `text` around the first place at which a word of the query stands."""
    place = first_place(text, query)
    start = 0
    if place > _BEFORE:
        start = text.find(" ", place - _BEFORE, place) + 1 or place - _BEFORE
    line = " ".join(text[start : start + 4 * SNIPPET].split())
    return ("… " if start else "") + (line if len(line) <= SNIPPET else line[:SNIPPET] + " …")


def first_place(text: str, query: Query) -> int:
    """Where the first word of a query stands in a text, of whatever length; 0 where none does."""
    for start in range(0, len(text), PIECE - OVERLAP):
        if spans := find_spans(text[start : start + PIECE], query):
            return start + spans[0][0]
    return 0


def _titles(connection: apsw.Connection) -> dict[str, tuple[str, float]]:
    rows = cells.read(connection, "SELECT id, title, updated FROM chats")
    return {chat_id: (text_of(title), moment(updated)) for chat_id, title, updated in rows if text_of(chat_id)}


def _candidates(connection: apsw.Connection, query: Query) -> Iterable[tuple[str, str, str, float, str]]:
    """Messages that may match: what is not indexed yet, then what the index proposes."""
    yield from cells.read(connection, f"{_HIT} WHERE m.rowid IN (SELECT row FROM unindexed) ORDER BY m.rowid DESC")
    asked = query.index_query()
    if asked:
        sql = f"{_HIT} JOIN words w ON w.rowid = m.rowid WHERE words MATCH ? ORDER BY w.rowid DESC LIMIT {CANDIDATES}"
        yield from cells.read(connection, sql, (asked,))
    else:  # nothing but signs, such as `%` or `=>`: no word of the index, so the texts themselves are read
        conditions = " AND ".join(f"instr({TEXT}, ?)" for _ in query.terms)
        yield from cells.read(connection, f"{_HIT} WHERE {conditions} ORDER BY m.rowid DESC LIMIT {CANDIDATES}", query.terms)
