"""What must be copied before the rows of a step run: plain records, in the order in which the scheduler ordered them.

The ledgers of this folder write them, the runner carries them out. The order counts: a block may give its content away and get other
content within one plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """Move one block's keys and values: to the second tier (`save`) or back from it."""

    block: int
    slot: int
    save: bool


@dataclass(frozen=True, slots=True)
class Fork:
    """Two requests part: what `source` holds goes to `target` as well, and from then on each writes to its own.

    `slots`: where the windowed layers hold the two, if that is not by block.
    """

    source: int
    target: int
    slots: tuple[int, int] | None = None


Move = Copy | Fork


def restores(copies: Sequence[Move]) -> int:
    """How many blocks come back from the second tier."""
    return sum(isinstance(copy, Copy) and not copy.save for copy in copies)
