"""From the pool's owner codes to cells on the screen: one a block, or one a group of blocks where there are too many to see. NumPy, no Qt.

A group shows the owner that holds most of it and how much of it is held; the exact parts are told by `KvCells.parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, KvView

MOST_CELLS = 4096
LEVELS = 4  # how finely a group's fill is told


@dataclass(frozen=True, slots=True, eq=False)
class KvCells:
    """The map of one snapshot.

    Attributes:
        owners: uint16 [blocks], as published.
        codes: uint16 [cells], the owner code a cell shows.
        levels: uint8 [cells], 1..LEVELS, how much of the cell is held by anyone (always LEVELS where a cell is one block).
        group: blocks a cell.
        counts: int64 [codes], blocks of each owner code.
    """

    owners: np.ndarray
    codes: np.ndarray
    levels: np.ndarray
    group: int
    counts: np.ndarray

    @property
    def cells(self) -> int:
        return len(self.codes)

    def count(self, code: int) -> int:
        return int(self.counts[code]) if code < len(self.counts) else 0

    def span(self, cell: int) -> range:
        """The block indices (0-based) of a cell."""
        return range(cell * self.group, min(len(self.owners), (cell + 1) * self.group))

    def parts(self, cell: int) -> dict[int, int]:
        """Owner code → blocks, of one cell."""
        span = self.span(cell)
        codes, counts = np.unique(self.owners[span.start : span.stop], return_counts=True)
        return dict(zip(codes.tolist(), counts.tolist(), strict=True))


def kv_cells(kv: KvView, most: int = MOST_CELLS) -> KvCells:
    """Lay the pool out in at most `most` cells."""
    owners = np.frombuffer(kv.owners, np.uint16)
    if len(owners) != kv.total:  # a server elsewhere tells how many blocks are taken, not by whom
        owners = np.repeat(np.array([OWNER_SHARED, OWNER_CACHED, OWNER_FREE], np.uint16), [kv.referenced, kv.cached, kv.free])
    counts = np.bincount(owners, minlength=OWNER_SEAT0)
    group = 1
    while -(-len(owners) // group) > most:
        group *= 2
    if group == 1:
        return KvCells(owners, owners, np.full(len(owners), LEVELS, np.uint8), 1, counts)
    return KvCells(owners, *_grouped(owners, group, len(counts)), group, counts)


@lru_cache(maxsize=4)
def _cell_of(blocks: int, group: int) -> np.ndarray:
    """int64 [blocks]: the cell of each block."""
    return np.arange(blocks, dtype=np.int64) // group


def _grouped(owners: np.ndarray, group: int, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    cells = -(-len(owners) // group)
    where = _cell_of(len(owners), group) * kinds + owners
    tally = np.bincount(where, minlength=cells * kinds).reshape(cells, kinds)
    held = tally[:, OWNER_SHARED:].sum(axis=1)
    cached = tally[:, OWNER_CACHED]
    most_held = tally[:, OWNER_SHARED:].argmax(axis=1) + OWNER_SHARED
    codes = np.where(held > 0, most_held, np.where(cached > 0, OWNER_CACHED, OWNER_FREE)).astype(np.uint16)
    full = np.where(held > 0, held, np.where(cached > 0, cached, group))
    levels = np.clip(-(-full * LEVELS // group), 1, LEVELS).astype(np.uint8)
    return codes, levels
