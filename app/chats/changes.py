"""What is to be written to a database of chats, and how: all that has gathered in one transaction, and nothing in the way of the rest."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import apsw

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Change:
    """One statement to come. Neighbours with the same `key` become one: rows are replaced. Appended text is joined to what else is to be
    appended to the same message, if only text came in between: so however many answers stream, each is one row a write."""

    key: tuple[str, str]
    statements: list[tuple[str, tuple[Any, ...]]]


def write(connection: apsw.Connection, changes: list[Change]) -> Exception | None:
    """Write changes as one transaction. One that can never be written is left out alone, and why is returned: the others, and all that
    come later, must not wait for it. Raises apsw.Error, with nothing written, where the disk or the file refuses."""
    try:
        with connection:
            for change in changes:
                _execute(connection, change)
        return None
    except Exception as error:
        if not _hopeless(error):
            raise
    why = None
    with connection:
        for change in changes:
            try:
                with connection:  # a savepoint
                    _execute(connection, change)
            except Exception as error:
                if not _hopeless(error):
                    raise
                log.exception("a change (%s) can never be written; it is left out", change.key[0])
                why = error
    return why


def _execute(connection: apsw.Connection, change: Change) -> None:
    for sql, values in change.statements:
        connection.execute(sql, values)


def _hopeless(error: Exception) -> bool:
    """Whether trying again cannot help: values that SQLite cannot hold or the tables refuse, or a mistake of ours."""
    return not isinstance(error, apsw.Error) or isinstance(error, (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError))
