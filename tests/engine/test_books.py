"""The books of an engine, read while they are written."""

from __future__ import annotations

from typing import Any

import pytest

from engine.books import Books, Totals


class Record:
    """Like a step's record. `while_read` happens when somebody looks at its number, as a step may come in between."""

    def __init__(self, step: int, while_read: Any = None) -> None:
        self._step, self._while_read = step, while_read

    @property
    def step(self) -> int:
        if self._while_read is not None:
            do, self._while_read = self._while_read, None
            do()
        return self._step


def steps(records: Any) -> list[int]:
    return [record.step for record in records]


@pytest.mark.parametrize("after, expected", [(0, [3, 4, 5, 6]), (1, [3, 4, 5, 6]), (4, [5, 6]), (6, []), (9, [])])
def test_the_records_after_a_step_in_order(after: int, expected: list[int]) -> None:
    books: Any = Books(Totals())
    books.history.extend(Record(step) for step in (3, 4, 5, 6))
    assert steps(books.records_after(after)) == expected


def test_a_step_that_comes_while_they_are_read_leaves_no_gap() -> None:
    books: Any = Books(Totals())
    books.history.extend(Record(step) for step in (3, 4, 5))
    books.history.append(Record(6, lambda: books.history.append(Record(7))))
    assert steps(books.records_after(3)) == [4, 5, 6, 7]
