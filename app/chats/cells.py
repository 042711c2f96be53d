"""Text between Python and SQLite, whichever way it goes: neither damaged text in a file nor half a surrogate pair of ours may raise.

No check of SQLite's sees a damaged byte inside a text, and it hands out whatever lies there. Every cell of a database of chats that
holds bytes holds text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

log = logging.getLogger(__name__)


def read(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, in its order, as they are asked for. Bytes that are no UTF-8 come as replacement characters, and are logged.

    Raises nothing but apsw.Error for what a file holds. The query starts with the first row that is asked for.
    """
    cursor = connection.execute(sql, [storable(value) for value in values])
    given = 0
    while True:
        try:
            row = next(cursor, None)
        except UnicodeDecodeError:
            break  # with the cursor left open: what follows sees the same state of the file
        if row is None:
            return
        given += 1
        yield row
    log.warning("text in the chats' file is damaged; what cannot be read of it is replaced")
    for number, cells in enumerate(connection.execute(_as_bytes(cursor, sql), [storable(value) for value in values])):
        if number >= given:
            yield tuple(cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell for cell in cells)
    cursor.close(True)


def storable(value: Any) -> Any:
    """A value that SQLite takes: in text a lone half of a surrogate pair, which a paste or a file's name may bring, becomes a question
    mark."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _as_bytes(cursor: apsw.Cursor, sql: str) -> str:
    """The same query with its text as bytes."""
    try:
        names = [f"c{number}" for number in range(len(cursor.getdescription()))]
    except UnicodeDecodeError as error:  # in the schema itself
        raise apsw.CorruptError(f"the schema is damaged: {error}") from error
    cells = ", ".join(f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" for name in names)
    return f"WITH rows({', '.join(names)}) AS ({sql}) SELECT {cells} FROM rows"
