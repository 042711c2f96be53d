"""The index of the messages' words, and how it is kept up.

Changed messages are noted by triggers in `unindexed` and indexed a little later, when the writer has nothing else to do; a search reads
them directly until then. Row ids of messages tie the index to them; the file is never VACUUMed. Every function works on an open
connection and belongs to the thread that owns it.
"""

from __future__ import annotations

import apsw

from app.chats import cells
from app.chats.words import fold, indexable

BATCH = 200  # messages that are indexed in one transaction

# All that can be found of message `m`: its text, with what was streamed after its row was written, then each file's name and text.
TEXT = (
    "m.text || coalesce((SELECT group_concat(c.text, '' ORDER BY c.number) FROM chunks c WHERE c.message_id = m.id), '')"
    " || CASE WHEN m.attachments IS NULL OR NOT json_valid(m.attachments) THEN '' ELSE coalesce((SELECT group_concat("
    "char(10) || json_extract(f.value, '$[0]') || char(10) || json_extract(f.value, '$[2]'), '')"
    " FROM json_each(m.attachments) f WHERE f.type = 'array'), '') END"
)


def note_streamed(connection: apsw.Connection) -> None:
    """Note answers that were cut off by the end of the program: their text lies in chunks, which no trigger sees."""
    connection.execute(
        "INSERT OR IGNORE INTO unindexed(row) SELECT m.rowid FROM messages m WHERE m.id IN (SELECT DISTINCT message_id FROM chunks)"
    )


def index_some(connection: apsw.Connection, most: int = BATCH) -> int:
    """Index up to `most` noted messages in one transaction; returns how many there were."""
    with connection:
        noted = f"SELECT u.row, {TEXT} FROM unindexed u JOIN messages m ON m.rowid = u.row ORDER BY u.row DESC LIMIT ?"
        rows = list(cells.read(connection, noted, (most,)))
        connection.executemany(
            "INSERT OR REPLACE INTO words(rowid, text) VALUES(?, ?)", [(row, indexable(fold(str(text)))) for row, text in rows if text]
        )
        connection.executemany("DELETE FROM unindexed WHERE row = ?", [(row,) for row, _ in rows])
    return len(rows)
