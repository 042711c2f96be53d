"""What one step feeds the model, as tensors: the layout that `batch.py` fills in and the cache, the lanes and recordings read.

Owns the shapes and their meaning, and the order in which the tensors are handed to a recording or a graph. Makes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from engine.model.states import StateGroup


@dataclass(frozen=True, slots=True)
class DecodeIndex:
    """How the decode rows of one window group read the cache: B rows, n pairs (the extent's first, then the gathered), bs a block's size.

    Attributes:
        skip: [lo], content unused: its size is the extent's first block, so that a trace reads it as a size.
        owner: [n] int64, the row that reads the pair; 0 for blocks of the extent that nobody reads.
        bias: [n, bs] float32, 0 or -inf: hides positions the row must not see.
        gathered: [n - (hi - lo)] int64, block numbers of the gathered pairs.
        table: [B, W] int64, each row's pairs; padded with its own first pair.
        table_bias: [B, W] float32, 0 or -inf where the table is padding.
        in_place, copies: whether there is an extent, whether there are gathered pairs; static for a trace.
    """

    skip: torch.Tensor
    owner: torch.Tensor
    bias: torch.Tensor
    gathered: torch.Tensor
    table: torch.Tensor
    table_bias: torch.Tensor
    in_place: bool
    copies: bool


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """The keys that one bucket of chunks reads in one window group: P chunks, W blocks each.

    Attributes:
        blocks: [P, W] int64, padded with block 0.
        first: [P] int64, the position of each chunk's first key.
    """

    blocks: torch.Tensor
    first: torch.Tensor


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prefill chunks padded to one length: P chunks of at most Tc positions.

    Attributes:
        tokens: [P * Tc] int64, places in the packed row; padding repeats the chunk's first.
        positions: [P, Tc] int64, of the queries; padding repeats the chunk's first.
        keys: one ChunkKeys a window group.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    keys: tuple[ChunkKeys, ...]


@dataclass(frozen=True, slots=True)
class RowSpan:
    """One row by itself: `count` tokens from place `first` of the packed row, the first at position `start`; `blocks` [W] int64 hold its
    history, itself included."""

    first: int
    count: int
    start: int
    blocks: torch.Tensor


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Everything a step feeds the model, as tensors.

    Attributes:
        ids, positions: [1, T] int64.
        write_block, write_offset: [T] int64, where each token's key and value go.
        sample: [S] int64, places in the packed row whose logits are wanted: the sampling rows' last, then the scored positions.
        decode: one DecodeIndex a window group; empty without decode rows.
        buckets: prefill chunks; empty without any.
        unpad: int64, for each token of a bucket, in packed order, its place in the buckets' padded outputs, one after another.
        rows: every row by itself, in packed order; only for models that need it (see `Geometry.by_row`).
        states: the groups in which rows go through recurrent layers; empty for models without any.
        write_slot: [T] int64, where layers that keep blocks in slots put what the others put in `write_block`; None without such layers.
            Their block numbers, in `decode` and `buckets`, are slots, too.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    write_block: torch.Tensor
    write_offset: torch.Tensor
    sample: torch.Tensor
    decode: tuple[DecodeIndex, ...]
    buckets: tuple[Bucket, ...]
    unpad: torch.Tensor
    rows: tuple[RowSpan, ...] = ()
    states: tuple[StateGroup, ...] = ()
    write_slot: torch.Tensor | None = None

    def to(self, device: torch.device) -> StepInputs:
        return self.changed(lambda tensor: tensor.to(device, non_blocking=True))

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> StepInputs:
        """The same structure with every tensor replaced by change(tensor)."""
        return _rebuild(self, change)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All tensors in a fixed order: the arguments of a traced or captured step."""
        found: list[torch.Tensor] = []
        _gather(self, found)
        return tuple(found)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> StepInputs:
        """The same structure over other tensors, in the order of `tensors()`."""
        supply = iter(tensors)
        return _rebuild(self, lambda _: next(supply))

    @property
    def mode(self) -> tuple[Any, ...]:
        """What is static in a trace of this step: which kinds of reads there are, not how many."""
        return tuple((index.in_place, index.copies) for index in self.decode), len(self.buckets)


def _rebuild(item: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of nested dataclasses and tuples with every tensor replaced by change(tensor)."""
    if isinstance(item, torch.Tensor):
        return change(item)
    if isinstance(item, tuple):
        return tuple(_rebuild(part, change) for part in item)
    if is_dataclass(item) and not isinstance(item, type):
        return type(item)(*(_rebuild(getattr(item, part.name), change) for part in fields(item)))
    return item


def _gather(item: Any, found: list[torch.Tensor]) -> None:
    """Add the tensors of nested dataclasses and tuples, in the order of `_rebuild`. Done in every step, so names are not looked up anew."""
    if isinstance(item, torch.Tensor):
        found.append(item)
    elif isinstance(item, tuple):
        for part in item:
            _gather(part, found)
    else:
        kind: Any = type(item)
        for name in _parts_of(kind):
            _gather(getattr(item, name), found)


@cache
def _parts_of(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind)) if is_dataclass(kind) else ()


def wide(tables: Sequence[np.ndarray]) -> torch.Tensor:
    """[rows, longest] int32 of each row's blocks, filled up with 0."""
    table = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
    for number, blocks in enumerate(tables):
        table[number, : len(blocks)] = blocks
    return torch.from_numpy(table)


@dataclass(frozen=True, slots=True)
class Batch:
    """A step's inputs and the way back.

    Attributes:
        sampling: the places in `rows` that sample, once a draw, in the order of the logits.
        scoring: those that score positions of their prompt, whose logits follow.
        spans: each row's (first, end) in the packed row.
    """

    inputs: StepInputs
    sampling: tuple[int, ...]
    scoring: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def one_each(self) -> bool:
        """Every row samples once, and nothing is scored: the logits are the rows', in their order."""
        return self.sampling == tuple(range(len(self.spans))) and not self.scoring
