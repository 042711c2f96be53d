"""The inputs of the GPU lane: block tables, packed chunks, one flat tensor; each against what it must say, position by position."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.model.cuda.paged import Flat, PackedChunks, PagedBuilder
from engine.scheduling.plan import Row
from tests.engine.model.tiny import make_request

BLOCK = 4


def make_rows(rng: random.Random, spans: list[tuple[int, int]]) -> list[Row]:
    rows = []
    for number, (start, count) in enumerate(spans):
        request = make_request([100 * number + place for place in range(start + count)], name=str(number))
        request.blocks = [rng.randrange(1, 90) for _ in range(-(-(start + count) // BLOCK) + rng.randrange(2))]
        rows.append(Row(request, start, count, True))
    return rows


@pytest.mark.parametrize("window", [0, 1, 3, 6, 40])
def test_every_chunk_sees_its_own_positions(window: int) -> None:
    rows = make_rows(random.Random(window), [(0, 5), (9, 1), (30, 7), (3, 2), (0, 1), (17, 4)])
    batch = PagedBuilder(BLOCK, (0, window) if window else (0,), packed=True).build(rows)
    packed: Any = batch.inputs.buckets[0]
    assert isinstance(packed, PackedChunks) and packed.longest == 7
    seen = packed.keys[-1]
    singles = [row for row in rows if row.count == 1]
    chunks = sorted((row for row in rows if row.count > 1), key=lambda row: batch.spans[rows.index(row)][0])
    assert (packed.ends.diff() == torch.tensor([row.count for row in chunks])).all()
    for number, row in enumerate(chunks):
        first = max(0, row.start - window + 1) if window else 0
        wanted = [(row.request.blocks[at // BLOCK], at % BLOCK) for at in range(first, row.start + row.count)]
        part = slice(*seen.ends[number : number + 2].tolist())
        assert list(zip(seen.blocks[part].tolist(), seen.offsets[part].tolist(), strict=True)) == wanted
        assert seen.longest >= len(wanted)
    index: Any = batch.inputs.decode[-1]
    assert index.lengths.tolist() == [row.start + 1 for row in singles] and index.window == window
    for number, row in enumerate(singles):
        width = row.start // BLOCK + 1
        assert index.table[number, :width].tolist() == row.request.blocks[:width]
        assert not index.table[number, width:].any()


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_flat_tensor_says_the_same_as_the_builder(count: int) -> None:
    rows = make_rows(random.Random(count), [(start, 1) for start in (0, 21, 8, 7)[:count]])
    inputs = PagedBuilder(BLOCK, (0, 6), packed=True).build(rows).inputs
    layout = Flat(4, 9)
    flat = torch.full((layout.size,), 77, dtype=torch.int32)
    layout.pack(flat, inputs)
    told = layout.unpack(flat, BLOCK, (0, 6))
    for name in ("write_block", "write_offset", "sample"):
        assert torch.equal(getattr(told, name)[:count], getattr(inputs, name))
    assert torch.equal(told.ids[:, :count], inputs.ids) and torch.equal(told.positions[:, :count], inputs.positions)
    for index, wanted in zip(told.decode, inputs.decode, strict=True):
        width = wanted.table.shape[1]
        assert index.table.shape == (4, 9) and index.table.dtype == torch.int32 and index.lengths.dtype == torch.int32
        assert torch.equal(index.table[:count, :width], wanted.table) and not index.table[:, width:].any()
        assert torch.equal(index.lengths[:count], wanted.lengths) and index.window == wanted.window
        assert (index.lengths[count:] == 1).all() and not index.table[count:].any()
    assert not told.write_block[count:].any() and not told.write_offset[count:].any()  # padding writes to block 0
