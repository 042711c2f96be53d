"""How a step reads the cache through our own kernels: every row by its block table, in tiles of a few positions.

Owns the layout of those inputs and the builder that makes them. Single positions and chunks are read in the same way, so a step has one
form, whatever rides in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.model.batch import BatchBuilder
from engine.model.inputs import Batch, Bucket, DecodeIndex, wide
from engine.model.native.onward import Singles
from engine.scheduling.plan import Row

ROWS = 12  # query heads times positions that a tile holds, as in common.h


@dataclass(frozen=True, slots=True)
class TileIndex:
    """What all rows of a step read.

    Attributes:
        tiles: [n, 4] int32: row, first token in the packed row, how many, position of the first. The longest histories come first, so
            that no thread is left with one at the end.
        table: [rows, W] int32, each row's blocks in order; what lies beyond its end is 0.
        slots: the same of layers that keep blocks in slots, 0 behind their window; None without such layers.
    """

    tiles: torch.Tensor
    table: torch.Tensor
    slots: torch.Tensor | None = None


class TileBuilder(BatchBuilder):
    """Builds steps for `attention.c`.

    Args:
        group: query heads a key head, the most of any layer.
    """

    def __init__(self, block_size: int, windows: Sequence[int], group: int, slotted: bool = False) -> None:
        super().__init__(block_size, windows, torch.device("cpu"), slotted=slotted)
        self._tokens = max(1, ROWS // group)
        self._singles: Singles | None = None  # what the last step was, if all of its rows were one position

    def build(self, rows: Sequence[Row]) -> Batch:
        """As `BatchBuilder.build`; what it gives holds until the next one is asked for."""
        batch = self._singles.follow(rows) if self._singles is not None else None
        if batch is None:
            self._singles = None
            batch = super().build(rows)
            if Singles.suit(batch, rows):
                self._singles = Singles(batch, rows, self.block_size, self._slots_of if self.slotted else None)
        return batch

    def _reads(
        self,
        rows: Sequence[Row],
        singles: list[int],
        chunks: list[int],
        tables: dict[int, np.ndarray],
        slots: dict[int, np.ndarray],
        positions: np.ndarray,
        spans: list[tuple[int, int]],
    ) -> tuple[tuple[DecodeIndex, ...], tuple[Bucket, ...], np.ndarray]:
        order = [*singles, *chunks]
        parts = [np.array([(number, number, 1, rows[place].start) for number, place in enumerate(singles)], dtype=np.int32).reshape(-1, 4)]
        for number, place in enumerate(chunks, len(singles)):
            row, (first, _) = rows[place], spans[place]
            within = np.arange(0, row.count, self._tokens, dtype=np.int32)
            counts = np.minimum(self._tokens, row.count - within)
            parts.append(np.stack((np.full_like(within, number), first + within, counts, row.start + within), axis=1))
        tiles = np.concatenate(parts)
        tiles = tiles[np.argsort(-tiles[:, 3], kind="stable")]
        index: Any = TileIndex(
            torch.from_numpy(np.ascontiguousarray(tiles, dtype=np.int32)),
            wide([tables[place] for place in order]),
            wide([slots[place] for place in order]) if slots else None,
        )
        return (index,), (), np.zeros(0, dtype=np.int64)  # read by TileCache alone, which knows
