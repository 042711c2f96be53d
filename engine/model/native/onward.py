"""The inputs of a step in which every row is one position, made from those of the last such step.

Most steps are of that kind, and each differs little from the one before. The weights that a step reads push all else out of the processor's
caches, so what the next step's inputs cost is how many objects are touched for them: here the requests and a few arrays that stay.

Owns those arrays, plain ones because the way to numpy's is longer, and writes over them: inputs hold until the next ones are made. Never
says what a step's inputs are: whatever is not plain is left to the builder, and what is made here is equal to what the builder makes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from engine.model.inputs import Batch
from engine.scheduling.plan import Row


class Table:
    """The blocks, or slots, of each row: the tensor, and the lists that were written into it."""

    def __init__(self, tensor: torch.Tensor, held: list[list[int]]) -> None:
        self._numbers = tensor.numpy()
        self._held = held

    def put(self, place: int, blocks: list[int]) -> None:
        """Nearly always the same as in the last step. Whoever rides in this row, and whatever became of its blocks: they are compared."""
        if blocks != self._held[place]:
            self._held[place] = blocks.copy()
            self._numbers[place, : len(blocks)] = blocks
            self._numbers[place, len(blocks) :] = 0


class Singles:
    """So many rows of one position each, all of which are drawn from.

    Args:
        batch: what the builder made of such rows; its tables are taken over.
        slots_of: (row, blocks) -> its slots, checked; None where layers with a window find blocks by their numbers, too.
    """

    def __init__(self, batch: Batch, rows: Sequence[Row], block_size: int, slots_of: Callable[[Row, int], list[int]] | None) -> None:
        index: Any = batch.inputs.decode[0]
        self._size = block_size
        self._slots_of = slots_of
        self._widest = index.table.shape[1]
        needed = [row.start // block_size + 1 for row in rows]
        self._table = Table(index.table, [row.request.blocks[:count] for row, count in zip(rows, needed, strict=True)])
        self._slots = Table(index.slots, [row.request.slots[:count] for row, count in zip(rows, needed, strict=True)]) if slots_of else None
        self._tiles = array("i", bytes(4 * index.tiles.numel()))
        self._numbers = array("q", bytes(8 * len(rows) * (5 if slots_of else 4)))
        ids, positions, blocks, offsets, *slots = torch.frombuffer(self._numbers, dtype=torch.int64).view(-1, len(rows))
        index = replace(index, tiles=torch.frombuffer(self._tiles, dtype=torch.int32).view(-1, 4))
        inputs = replace(
            batch.inputs,
            decode=(index,),
            ids=ids[None],
            positions=positions[None],
            write_block=blocks,
            write_offset=offsets,
            write_slot=slots[0] if slots else None,
        )
        self._batch = replace(batch, inputs=inputs)

    @staticmethod
    def suit(batch: Batch, rows: Sequence[Row]) -> bool:
        """Are these rows of that kind? They are not where a prompt is scored, or an answer's draft verified."""
        return len(batch.sampling) == len(rows) == batch.inputs.ids.shape[1] and not batch.scoring

    def follow(self, rows: Sequence[Row]) -> Batch | None:
        """The same tensors with the numbers of these rows. None if the builder must make others, and then this is of no use any more.

        Raises ValueError for a row that lacks a slot.
        """
        if len(rows) != len(self._batch.spans):
            return None
        size, table, slots_of, slots = self._size, self._table, self._slots_of, self._slots
        ids, starts, blocks, offsets, written = [], [], [], [], []
        for place, row in enumerate(rows):
            request, start = row.request, row.start
            held, known, needed = request.blocks, request.tokens, start // size + 1
            if row.count != 1 or not row.samples or not request.prompt_len <= start < len(known) or len(held) < needed:
                return None
            if needed > self._widest:
                return None
            table.put(place, held if len(held) == needed else held[:needed])
            ids.append(known[start])
            starts.append(start)
            blocks.append(held[needed - 1])
            offsets.append(start % size)
            if slots_of is not None and slots is not None:
                found = slots_of(row, needed)
                slots.put(place, found)
                written.append(found[-1])
        if max(starts) // size + 1 != self._widest:
            return None
        self._numbers[:] = array("q", [*ids, *starts, *blocks, *offsets, *written])
        order = sorted(range(len(rows)), key=starts.__getitem__, reverse=True)
        self._tiles[:] = array("i", [number for place in order for number in (place, place, 1, starts[place])])
        return self._batch
