"""What can still be read of a damaged database: rows, one range of row ids after another, halved around what cannot be read.

The damaged file is opened read-only and never changed. Only plain rows are taken over, never its schema, triggers or index: those may be
what is damaged, and the new file has its own.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from app.chats import cells

log = logging.getLogger(__name__)

RUN = 512  # rows that are read in one go where nothing is wrong
LEAST_ROW = 100  # bytes
MOST_FAILURES = 200_000  # reads that fail, before the rest of a table is given up
INDEXED = {"chats": ("id",), "messages": ("id", "chat_id")}  # the tables whose rows are saved, and by which columns they are indexed
CHUNK_FAILURES = 100
_STRAY = """INSERT OR IGNORE INTO chats(id, title, named, created, updated, draft, follow_ups, settings, unread)
    SELECT DISTINCT chat_id, 'Recovered chat', 0, min(created), max(created), '', '[]', '{}', 0 FROM messages
    WHERE chat_id NOT IN (SELECT id FROM chats) GROUP BY chat_id"""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows were saved, and how many row ids in between could not be read."""

    chats: int
    messages: int
    lost: int


def version_of(damaged: Path) -> int:
    """The version of a damaged file; 0 where not even that can be read."""
    try:
        connection = open_damaged(damaged)
    except apsw.Error:
        return 0
    try:
        return int(connection.pragma("user_version")) if any(_is_there(connection, table) for table in INDEXED) else 0
    except apsw.Error:
        return 0
    finally:
        connection.close()


def _is_there(connection: apsw.Connection, table: str) -> bool:
    try:
        connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except apsw.Error:
        return False
    return True


def open_damaged(damaged: Path) -> apsw.Connection:
    """A connection for reading; entries of the schema that make no sense are passed over, the tables of the others can be read."""
    connection = apsw.Connection(str(damaged), flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    return connection


def salvage(damaged: Path, target: apsw.Connection) -> Salvaged:
    """Copy what can be read into `target`, an empty database of the same version, in one transaction."""
    source = open_damaged(damaged)
    counts: dict[str, int] = {}
    lost = 0
    try:
        target.pragma("foreign_keys", False)
        with target:
            for table in INDEXED:
                names = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
                insert = f"INSERT OR IGNORE INTO {table}({', '.join(names)}) VALUES({', '.join('?' * len(names))})"
                found = 0
                for row in read_rows(source, table):
                    if row is None:
                        lost += 1
                    elif _insert(target, insert, row):
                        found += 1
                counts[table] = found
            _copy_chunks(source, target)
            target.execute(_STRAY)
            _copy_session(source, target)
    finally:
        target.pragma("foreign_keys", True)
        source.close()
    return Salvaged(counts["chats"], counts["messages"], lost)


def read_rows(connection: apsw.Connection, table: str) -> Iterator[tuple[Any, ...] | None]:
    """Every row that can be read, by and large in the order of row ids, some perhaps twice; None for a row id that cannot, and may
    have held a row, or for the whole table."""
    if not _is_there(connection, table):
        yield None
        return
    seen: set[int] = set()
    ranges = [(0, _last_row(connection, table), RUN)]  # first, last, and how far to look ahead where there is nothing
    failures = 0
    while ranges and failures < MOST_FAILURES:
        low, high, ahead = ranges.pop()
        try:
            if high - low >= RUN:
                ranges += _parted(low, high, ahead, _first_row(connection, table, low, high))
                continue
            numbers, rows = _read_range(connection, table, low, high)
            if all(before < after for before, after in itertools.pairwise(numbers)):  # else one of them is not its own
                seen.update(numbers)
            yield from rows
        except apsw.Error:
            failures += 1
            if low == high:
                yield None
            else:
                middle = (low + high) // 2
                ranges += [(middle + 1, high, RUN), (low, middle, RUN)]
    # A damaged row id in between, larger than the others, ends a range too early, and nothing says so. The indexes know of the rest.
    for row_id in _indexed_rows(connection, table):
        if row_id not in seen:
            seen.add(row_id)
            with suppress(apsw.Error):
                yield from _read_range(connection, table, row_id, row_id)[1]


def _read_range(connection: apsw.Connection, table: str, low: int, high: int) -> tuple[list[int], list[tuple[Any, ...]]]:
    """The row ids of a range, and the rows, whose cells are told by their places: of a damaged schema a column's name may have gone. A
    single row is looked up: behind it in a range, SQLite would look at the page that comes next, which may be what is damaged."""
    which = "rowid = ?" if low == high else "rowid BETWEEN ? AND ? ORDER BY rowid"
    values = (low,) if low == high else (low, high)
    rows = list(cells.read(connection, f"SELECT rowid, * FROM {table} NOT INDEXED WHERE {which}", values))
    return [row[0] for row in rows], [row[1:] for row in rows]


def _parted(low: int, high: int, ahead: int, first: int | None) -> list[tuple[int, int, int]]:
    """A range of which `first` is said to be the first row id there is: a run that can be read, and the rest, the rest first.

    Of a table that counts on a damaged row id the rest may be millions of times as long as the file. That nothing comes before `first` is
    believed a little further each time, since it may be damaged, too.
    """
    if first is not None and first < low + RUN:
        return [(low + RUN, high, RUN), (low, low + RUN - 1, RUN)]
    if first is not None and first <= low + ahead:
        return [(first, high, RUN)]
    return [(low + ahead, high, 2 * ahead)] if low + ahead <= high else []


def _first_row(connection: apsw.Connection, table: str, low: int, high: int) -> int | None:
    sql = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT 1"
    found: int | None = connection.execute(sql, (low, high)).get
    return found


def _indexed_rows(connection: apsw.Connection, table: str) -> Iterator[int]:
    """The row ids that each index of a table holds, as far as it can be read."""
    for column in INDEXED[table]:
        with suppress(apsw.Error):
            for (row_id,) in cells.read(connection, f"SELECT rowid FROM {table} ORDER BY {column}"):
                yield row_id


def _last_row(connection: apsw.Connection, table: str) -> int:
    """The largest row id: from the table, else from its index, else a bound that the file's size sets."""
    column = INDEXED[table][-1]
    for sql in (f"SELECT max(rowid) FROM {table} NOT INDEXED", f"SELECT max(rowid) FROM (SELECT rowid FROM {table} ORDER BY {column})"):
        try:
            return connection.execute(sql).get or 0
        except apsw.Error:
            continue
    try:
        return int(connection.pragma("page_count")) * int(connection.pragma("page_size")) // LEAST_ROW
    except apsw.Error:
        return 0


def _insert(target: apsw.Connection, sql: str, row: tuple[Any, ...]) -> bool:
    """Whether a row could be taken; one whose cells have lost their types is not."""
    try:
        target.execute(sql, row)
    except apsw.Error:
        return False
    return target.changes() > 0


def _copy_chunks(source: apsw.Connection, target: apsw.Connection) -> None:
    """Streamed text that was not folded into its message yet. There is little of it, and its table has no row ids: it is read from both
    ends, past what cannot be read. Looking a row up would fail on any damaged one that lies on the way to it."""
    running = "SELECT id FROM messages WHERE state NOT IN ('done', 'stopped', 'failed', 'interrupted')"
    ids = {row[0] for row in target.execute(running)}
    for order in ("message_id, number", "message_id DESC, number DESC"):
        sql = f"SELECT message_id, number, text FROM chunks ORDER BY {order} LIMIT -1 OFFSET ?"
        place = failures = 0
        while failures < CHUNK_FAILURES:
            try:
                for row in cells.read(source, sql, (place,)):
                    place += 1
                    if row[0] in ids:
                        _insert(target, "INSERT OR IGNORE INTO chunks(message_id, number, text) VALUES(?, ?, ?)", row)
                break
            except apsw.Error:
                place, failures = place + 1, failures + 1
        if not failures:
            return
    log.warning("some of the text of interrupted answers could not be read")


def _copy_session(source: apsw.Connection, target: apsw.Connection) -> None:
    try:
        for row in list(cells.read(source, "SELECT key, value FROM session")):
            _insert(target, "INSERT OR REPLACE INTO session(key, value) VALUES(?, ?)", row)
    except apsw.Error:
        log.warning("which tabs were open could not be read")
