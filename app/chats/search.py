"""Search over everything: what a search brings back, from a database or from chats in memory.

The index proposes and the text decides; messages that are not indexed yet are read directly, so that nothing is missed.
"""

from __future__ import annotations

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


def search(connection: apsw.Connection, words: str, limit: int = 50) -> list[Hit]:
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
    found: list[Hit] = []
    seen: set[str] = set()
    for message_id, chat_id, role, created, text in _candidates(connection, query):
        if message_id in seen or not text_of(message_id) or not query.matches(fold(text_of(text))):
            continue
        seen.add(message_id)
        title = titles.get(chat_id, ("", 0.0))[0]
        found.append(message_hit(chat_id, title, message_id, role, moment(created), text, query))
        if len(found) >= limit:
            break
    found.sort(key=lambda hit: hit.created, reverse=True)
    return (hits + found)[:limit]


def search_chats(chats: Iterable[Chat], words: str, limit: int = 50) -> list[Hit]:
    """The same over chats in memory, for a book without a store."""
    query = Query.of(words)
    if not query:
        return []
    titled: list[Hit] = []
    found: list[Hit] = []
    for chat in chats:
        title = chat.display_title
        if query.matches(fold(title)):
            titled.append(Hit(chat.id, title, "", None, chat.updated, title, tuple(find_spans(title, query))))
        found += [
            message_hit(chat.id, title, message.id, message.role.value, message.created, message.searchable, query)
            for message in chat.tree.everything()
            if query.matches(fold(message.searchable))
        ]
    found.sort(key=lambda hit: hit.created, reverse=True)
    return (sorted(titled, key=lambda hit: hit.created, reverse=True) + found)[:limit]


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
