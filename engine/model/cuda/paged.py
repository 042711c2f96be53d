"""How a step reads the cache on a GPU: each single position through its row of a block table, all chunks packed without padding.

Owns the layout of those inputs and the builder that makes them; the packed row of tokens is the one of `engine/model/batch.py`. Everything
here is made on the host and is the same on every device. Which kernel then reads is the business of `choice.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.model.batch import BatchBuilder
from engine.model.inputs import Bucket, DecodeIndex, StepInputs, wide
from engine.scheduling.plan import Row


@dataclass(frozen=True, slots=True)
class PagedIndex:
    """What B single positions read in one window group.

    Attributes:
        table: [B, W] int32, each row's blocks in order; what lies beyond its length is 0.
        lengths: [B] int32, positions that a row has, its own included; at least 1.
        window: how many of the last positions it sees; 0 is all.
    """

    table: torch.Tensor
    lengths: torch.Tensor
    window: int


@dataclass(frozen=True, slots=True)
class PackedKeys:
    """The keys that all chunks of a step read in one window group, one chunk's after another's: Tk in all.

    Attributes:
        blocks, offsets: [Tk] int64, where each key lies.
        ends: [P + 1] int32, where each chunk's keys end, with a 0 in front.
        longest: of the P counts.
        window: as in `PagedIndex`.
    """

    blocks: torch.Tensor
    offsets: torch.Tensor
    ends: torch.Tensor
    longest: int
    window: int


@dataclass(frozen=True, slots=True)
class PackedChunks:
    """All chunks of a step, Tq positions in all, in packed order; they stand behind the single positions.

    Attributes:
        ends: [P + 1] int32, where each chunk's positions end, with a 0 in front.
        longest: positions of the longest chunk.
        keys: one a window group.
    """

    ends: torch.Tensor
    longest: int
    keys: tuple[PackedKeys, ...]


class PagedBuilder(BatchBuilder):
    """Builds steps on the host; nothing is moved to a device here.

    Args:
        packed: chunks are packed; otherwise they are padded, as on the CPU.
    """

    def __init__(self, block_size: int, windows: Sequence[int], packed: bool) -> None:
        super().__init__(block_size, windows, torch.device("cpu"))
        self.packed = packed

    def _decode(self, tables: list[np.ndarray], positions: np.ndarray, window: int) -> DecodeIndex:
        index: Any = PagedIndex(wide(tables), torch.from_numpy((positions + 1).astype(np.int32)), window)
        return index  # type: ignore[no-any-return]  # read by PagedCache alone, which knows

    def _buckets(
        self, groups: list[list[int]], rows: Sequence[Row], tables: Sequence[dict[int, np.ndarray]], spans: list[tuple[int, int]]
    ) -> tuple[tuple[Bucket, ...], np.ndarray]:
        if not self.packed or not groups:
            return super()._buckets(groups, rows, tables, spans)
        members = sorted((member for group in groups for member in group), key=lambda place: spans[place][0])
        counts = [rows[place].count for place in members]
        packed: Any = PackedChunks(
            ends=_ends(counts),
            longest=max(counts),
            keys=tuple(
                self._packed_keys([rows[place] for place in members], [found[place] for place in members], window)
                for window, found in zip(self.windows, tables, strict=True)
            ),
        )
        return (packed,), np.zeros(0, dtype=np.int64)

    def _packed_keys(self, rows: Sequence[Row], tables: Sequence[np.ndarray], window: int) -> PackedKeys:
        firsts = [max(0, row.start - window + 1) if window else 0 for row in rows]
        positions = [np.arange(first, row.start + row.count) for first, row in zip(firsts, rows, strict=True)]
        counts = [len(part) for part in positions]
        blocks = np.concatenate([table[part // self.block_size] for table, part in zip(tables, positions, strict=True)])
        offsets = np.concatenate(positions) % self.block_size
        return PackedKeys(torch.from_numpy(blocks), torch.from_numpy(offsets), _ends(counts), max(counts), window)


def _ends(counts: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


# ------------------------------------------------------------------------------------------------- one tensor for a graph


@dataclass(frozen=True, slots=True)
class Flat:
    """The layout of a decode step of `rows` rows in one int32 tensor: ids, positions, then the table row by row, `width` blocks each.

    One tensor is one copy to the device, and all that a captured step reads besides weights and cache.
    """

    rows: int
    width: int

    @property
    def size(self) -> int:
        return self.rows * (2 + self.width)

    def pack(self, into: torch.Tensor, inputs: StepInputs) -> None:
        """Write a decode step of at most so many rows. Rows that are not there read and write the first position of block 0."""
        index: Any = inputs.decode[0]
        there, wide = index.table.shape
        into.zero_()
        into[:there] = inputs.ids[0]
        into[self.rows : self.rows + there] = inputs.positions[0]
        into[2 * self.rows :].view(self.rows, self.width)[:there, :wide] = index.table

    def unpack(self, flat: torch.Tensor, block_size: int, windows: Sequence[int]) -> StepInputs:
        """The step's inputs, computed where `flat` lies; every row's logits are wanted."""
        positions = flat[self.rows : 2 * self.rows]
        table = flat[2 * self.rows :].view(self.rows, self.width)
        at = positions.long()
        lengths = positions + 1
        indexes: Any = tuple(PagedIndex(table, lengths, window) for window in windows)
        return StepInputs(
            ids=flat[: self.rows].long()[None],
            positions=at[None],
            write_block=table.gather(1, (at // block_size)[:, None]).squeeze(1).long(),
            write_offset=at % block_size,
            sample=torch.arange(self.rows, device=flat.device),
            decode=indexes,
            buckets=(),
            unpad=torch.empty(0, dtype=torch.int64, device=flat.device),
        )
