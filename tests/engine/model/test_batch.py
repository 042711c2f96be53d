"""The builder: where tokens go, what is read in place, and that every row sees its own positions and no others."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import GATHER, BatchBuilder
from engine.model.inputs import DecodeIndex
from engine.scheduling.plan import Row
from tests.engine.model.tiny import make_request

CPU = torch.device("cpu")


def make_rows(shapes: list[tuple[int, int]], block_size: int, seed: int, pool: int = 400) -> list[Row]:
    """Rows (start, count) over blocks drawn at random; some rows share leading blocks with the one before."""
    rng = random.Random(seed)
    free = rng.sample(range(1, pool), pool - 1)
    rows: list[Row] = []
    for number, (start, count) in enumerate(shapes):
        request = make_request([rng.randrange(100) for _ in range(start + count)], name=str(number))
        request.blocks = [free.pop() for _ in range(-(-(start + count) // block_size))]
        if rows and rng.random() < 0.3:
            shared = min(start // block_size, len(rows[-1].request.blocks))
            request.blocks[:shared] = rows[-1].request.blocks[:shared]
        rows.append(Row(request, start, count, rng.random() < 0.7))
    return rows


def read_positions(index: DecodeIndex, row: int, block_size: int) -> list[tuple[int, int]]:
    """(block, offset) of everything a decode row reads, worked out from the tensors alone."""
    low, extent = len(index.skip), len(index.owner) - len(index.gathered)
    found = []
    for column in range(index.table.shape[1]):
        if index.table_bias[row, column] < 0:
            continue
        pair = int(index.table[row, column])
        assert int(index.owner[pair]) == row
        block = low + pair if pair < extent else int(index.gathered[pair - extent])
        found += [(block, offset) for offset in range(block_size) if index.bias[pair, offset] == 0]
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=7),
    st.sampled_from([1, 3, 4, 16]),
    st.sampled_from([(0,), (0, 5), (7,), (0, 1)]),
    st.integers(0, 999),
    st.sampled_from([0, 40, 10**6]),
)
def test_every_row_writes_and_reads_its_own(
    shapes: list[tuple[int, int]], block_size: int, windows: tuple[int, ...], seed: int, join: int
) -> None:
    rows = make_rows(shapes, block_size, seed)
    batch = BatchBuilder(block_size, windows, CPU, join).build(rows)
    inputs = batch.inputs
    singles = [place for place, row in enumerate(rows) if row.count == 1]
    for row, (first, end) in zip(rows, batch.spans, strict=True):
        assert inputs.ids[0, first:end].tolist() == row.request.tokens[row.start : row.start + row.count]
        assert inputs.positions[0, first:end].tolist() == list(range(row.start, row.start + row.count))
        blocks = row.request.blocks
        slots = [(blocks[position // block_size], position % block_size) for position in range(row.start, row.start + row.count)]
        assert list(zip(inputs.write_block[first:end].tolist(), inputs.write_offset[first:end].tolist(), strict=True)) == slots
    assert inputs.sample.tolist() == [batch.spans[place][1] - 1 for place in batch.sampling]
    assert list(batch.sampling) == [place for place, row in enumerate(rows) if row.samples]
    widest = max((rows[place].start // block_size + 1 for place in singles), default=0)
    joined = bool(singles) and len(singles) * widest * block_size <= join
    assert bool(inputs.decode) == (bool(singles) and not joined)
    for window, index in zip(windows, inputs.decode, strict=False):
        assert index.in_place == (len(index.owner) > len(index.gathered)) and index.copies == (len(index.gathered) > 0)
        for number, place in enumerate(singles):
            row = rows[place]
            oldest = max(0, row.start - window + 1) if window else 0
            expected = [(row.request.blocks[p // block_size], p % block_size) for p in range(oldest, row.start + 1)]
            assert sorted(read_positions(index, number, block_size)) == sorted(expected)
    padded = torch.cat([bucket.tokens for bucket in inputs.buckets]) if inputs.buckets else torch.empty(0)
    assert padded[inputs.unpad].tolist() == list(range(0 if joined else len(singles), inputs.ids.shape[1]))
    for bucket in inputs.buckets:
        assert torch.equal(inputs.positions[0][bucket.tokens].view_as(bucket.positions), bucket.positions)
        for window, keys in zip(windows, bucket.keys, strict=True):
            for slot in range(len(keys.blocks)):
                begin = int(bucket.tokens.view_as(bucket.positions)[slot, 0])
                row = next(row for row, span in zip(rows, batch.spans, strict=True) if span[0] == begin)
                first_key = int(keys.first[slot])
                oldest = max(0, row.start - window + 1) if window else 0
                assert first_key <= oldest and first_key % block_size == 0
                expected_blocks = row.request.blocks[first_key // block_size :]
                assert keys.blocks[slot, : len(expected_blocks)].tolist() == expected_blocks
                assert not keys.blocks[slot, len(expected_blocks) :].any()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 24), min_size=1, max_size=20))
def test_extent_costs_least(blocks: list[int]) -> None:
    """Against every extent there is: reading in place costs 1 a block, gathering GATHER a pair."""

    def cost(low: int, high: int) -> float:
        return (high - low) + GATHER * (len(blocks) - len({block for block in blocks if low <= block < high}))

    low, high, rides = BatchBuilder(4, (0,), CPU)._extent(np.array(blocks))
    best = min(cost(a, b) for a in range(26) for b in range(a, 26))
    assert cost(low, high) == pytest.approx(best)
    ridden = [block for block, ride in zip(blocks, rides, strict=True) if ride]
    assert len(set(ridden)) == len(ridden) and all(low <= block < high for block in ridden)


def test_a_dense_pool_is_read_without_a_copy() -> None:
    rows = make_rows([(40, 1)] * 4, 4, 0)
    for number, row in enumerate(rows):
        row.request.blocks = list(range(5 + 11 * number, 16 + 11 * number))
    index = BatchBuilder(4, (0,), CPU).build(rows).inputs.decode[0]
    assert len(index.skip) == 5 and not index.copies and len(index.owner) == 44


def test_tensors_round_trip() -> None:
    inputs = BatchBuilder(4, (0, 6), CPU).build(make_rows([(5, 1), (9, 1), (0, 7), (3, 30)], 4, 1)).inputs
    twin = inputs.with_tensors(tuple(tensor.clone() for tensor in inputs.tensors()))
    assert twin.mode == inputs.mode and twin.mode[1] == len(inputs.buckets)
    assert all(torch.equal(a, b) for a, b in zip(inputs.tensors(), twin.tensors(), strict=True))


def test_chunks_of_very_different_size_are_not_padded_together() -> None:
    builder = BatchBuilder(4, (0,), CPU)
    assert len(builder.build(make_rows([(0, 30), (0, 32), (4, 28)], 4, 1)).inputs.buckets) == 1
    assert len(builder.build(make_rows([(300, 100), (0, 3)], 4, 1, pool=2000)).inputs.buckets) == 2


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_row_without_its_blocks_is_refused(blocks: int) -> None:
    row = make_rows([(8, 3)], 4, 1)[0]
    row.request.blocks = row.request.blocks[:blocks]
    with pytest.raises(ValueError, match="need 3 blocks"):
        BatchBuilder(4, (0,), CPU).build([row])
    with pytest.raises(ValueError, match="at least one row"):
        BatchBuilder(4, (0,), CPU).build([])


def test_host_work_grows_with_blocks_not_positions() -> None:
    """No wall clock: the tensors of a decode step hold a few numbers a block, however long the context."""
    inputs = BatchBuilder(32, (0,), CPU).build(make_rows([(1023, 1)] * 8, 32, 3, pool=300)).inputs
    assert sum(tensor.numel() for tensor in inputs.tensors()) < 8 * 32 * (32 + 8)
