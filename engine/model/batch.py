"""Turns the rows of a step into index tensors: positions, write slots, block pairs, biases and tables.

Owns the choice of how the cache is read; `inputs.py` says what it fills in. Runs on the host with numpy, once a step, well under a
millisecond for a handful of requests; the model's layers only ever see the tensors. Never touches keys, values or weights.

The packed row of T tokens holds the single positions first (decode steps, and prompts with one position left), then the chunks:

    ids        d0 d1 d2 | a5 a6 a7 a8 | b0 b1 b2 ...
    decode rows  0  1  2    bucket 0      bucket 0 or 1

Decode reads blocks in place. A *pair* is one block read by one row. The blocks of one extent [lo, hi) of the pool are used where they
stand, without a copy, each by the one row that owns it; pairs outside the extent, and second readers of a shared block, are
gathered. Reading in place costs 1 a block of the extent, wanted or not; gathering costs `GATHER` a pair. The extent that makes the
sum least is a maximum subarray (Kadane). While all decode rows together read little, they are padded and gathered like a bucket of
one-position chunks instead: a third of the operations, which is what counts then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.model.inputs import Batch, Bucket, ChunkKeys, DecodeIndex, RowSpan, StepInputs
from engine.model.states import SeatStates, StateGroup
from engine.scheduling.plan import Row

GATHER = 2.0  # cost of gathering and reading a pair, against reading a block in place (measured on a CPU, f32: 1.9-2.1)
SPLIT = 1.5  # chunks are padded to one bucket while that costs at most this times their own area
NEVER = float("-inf")


class BatchBuilder:
    """Builds steps for one model.

    Args:
        block_size: positions a block.
        windows: the model's window groups; 0 is full attention.
        device: where the tensors go.
        join: decode rows are gathered as one bucket while their padded keys are at most so many positions.
        by_row: give each row by itself too.
        states: where recurrent layers keep what they know of each request; None for models without any.
        slotted: layers with a window find blocks by slot; rows must say theirs.
    """

    def __init__(
        self,
        block_size: int,
        windows: Sequence[int],
        device: torch.device,
        join: int = 0,
        by_row: bool = False,
        states: SeatStates | None = None,
        slotted: bool = False,
    ) -> None:
        self.block_size = block_size
        self.join = join
        self._by_row = by_row
        self._states = states
        self.slotted = slotted
        self.windows = tuple(windows)
        self.device = device
        self._within = np.arange(block_size, dtype=np.int64)
        self._seen = np.zeros(64, dtype=np.int64)  # scratch: one entry a block, for the extent and for first readers

    def build(self, rows: Sequence[Row]) -> Batch:
        """Raises ValueError for a row whose block table or tokens do not reach its last position."""
        if not rows:
            raise ValueError("a step needs at least one row")
        singles = [place for place, row in enumerate(rows) if row.count == 1]
        chunks = [place for place, row in enumerate(rows) if row.count != 1]
        spans: list[tuple[int, int]] = [(0, 0)] * len(rows)
        ids: list[int] = []
        tables: dict[int, np.ndarray] = {}
        slots: dict[int, np.ndarray] = {}
        for place in (*singles, *chunks):
            row = rows[place]
            end = row.start + row.count
            needed = -(-end // self.block_size)
            if row.count < 1 or end > len(row.request.tokens) + len(row.draft) or needed > len(row.request.blocks):
                raise ValueError(
                    f"request {row.request.id}: positions {row.start}..{end - 1} need {needed} blocks and {end} tokens, "
                    f"it has {len(row.request.blocks)} and {len(row.request.tokens)}"
                )
            spans[place] = (len(ids), len(ids) + row.count)
            ids += row.tokens
            tables[place] = np.array(row.request.blocks[:needed], dtype=np.int64)
            if self.slotted:
                slots[place] = np.array(self._slots_of(row, needed), dtype=np.int64)
        starts = np.array([rows[place].start for place in singles], dtype=np.int64)
        positions = np.concatenate([starts, *(np.arange(rows[place].start, rows[place].start + rows[place].count) for place in chunks)])
        sampling = tuple(place for place, row in enumerate(rows) for _ in (row.draws if row.samples else ()))
        scoring = tuple(place for place, row in enumerate(rows) if row.scored)
        wanted = [spans[place][1] - 1 - back for place, row in enumerate(rows) if row.samples for back in range(len(row.draft), -1, -1)]
        wanted += [spans[place][0] + position - rows[place].start for place in scoring for position in rows[place].scored]
        decode, buckets, unpad = self._reads(rows, singles, chunks, tables, slots, positions, spans)
        inputs = StepInputs(
            ids=_tensor(np.array([ids], dtype=np.int64)),
            positions=_tensor(positions[None]),
            write_block=self._written(singles, chunks, spans, tables, positions),
            write_offset=_tensor(positions % self.block_size),
            sample=_tensor(np.array(wanted, dtype=np.int64)),
            decode=decode,
            buckets=buckets,
            unpad=_tensor(unpad),
            rows=self._rows(rows, spans, tables) if self._by_row else (),
            states=self._state_groups(rows, spans) if self._states is not None else (),
            write_slot=self._written(singles, chunks, spans, slots, positions) if self.slotted else None,
        )
        if self.device.type != "cpu":
            inputs = inputs.to(self.device)
        return Batch(inputs, sampling, scoring, tuple(spans))

    def _slots_of(self, row: Row, needed: int) -> list[int]:
        """Its first slots, of which those must be there that one of its positions sees. Raises ValueError."""
        slots = row.request.slots[:needed]
        first = max(0, row.start - max(self.windows) + 1) // self.block_size
        if len(slots) < needed or not all(slots[first:]):
            raise ValueError(f"request {row.request.id}: no slot for one of its blocks {first} to {needed - 1}, which it reads")
        return slots

    def _written(
        self,
        singles: list[int],
        chunks: list[int],
        spans: list[tuple[int, int]],
        tables: dict[int, np.ndarray],
        positions: np.ndarray,
    ) -> torch.Tensor:
        """[T] int64, the places of a table that each token's key and value go to: of a single position, the table's last."""
        last = np.array([tables[place][-1] for place in singles], dtype=np.int64)
        rest = (tables[place][positions[slice(*spans[place])] // self.block_size] for place in chunks)
        return _tensor(np.concatenate([last, *rest]))

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
        """How the cache is read: `decode`, `buckets` and `unpad` of `StepInputs`. `positions` [T] of all tokens, in packed order; `slots`
        is empty where layers with a window find blocks by their numbers, too."""
        groups = [[chunks[member] for member in group] for group in _group([rows[place] for place in chunks])]
        joined = bool(singles) and len(singles) * max(len(tables[place]) for place in singles) * self.block_size <= self.join
        if joined:
            groups.insert(0, singles)
        by_window = [slots if window and slots else tables for window in self.windows]
        buckets, unpad = self._buckets(groups, rows, by_window, spans)
        if not singles or joined:
            return (), buckets, unpad
        decode = tuple(
            self._decode([found[place] for place in singles], positions[: len(singles)], window)
            for window, found in zip(self.windows, by_window, strict=True)
        )
        return decode, buckets, unpad

    @staticmethod
    def _rows(rows: Sequence[Row], spans: list[tuple[int, int]], tables: dict[int, np.ndarray]) -> tuple[RowSpan, ...]:
        order = sorted(range(len(rows)), key=lambda place: spans[place])
        return tuple(RowSpan(spans[place][0], rows[place].count, rows[place].start, _tensor(tables[place])) for place in order)

    def _state_groups(self, rows: Sequence[Row], spans: list[tuple[int, int]]) -> tuple[StateGroup, ...]:
        """Rows of one length go together, those that begin from nothing apart from those that go on."""
        assert self._states is not None
        groups: dict[tuple[int, bool], list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault((row.count, row.start == 0), []).append(place)
        made = []
        for (count, fresh), places in sorted(groups.items()):
            slots = np.array([self._states.place(rows[place]) for place in places], dtype=np.int64)
            tokens = np.array([spans[place][0] for place in places])[:, None] + np.arange(count)
            made.append(StateGroup(_tensor(tokens.reshape(-1)), _tensor(slots[:, 0]), _tensor(slots[:, 1]), count, fresh))
        return tuple(made)

    # ------------------------------------------------------------------------------------------------------ decode rows

    def _decode(self, tables: list[np.ndarray], positions: np.ndarray, window: int) -> DecodeIndex:
        """`positions` [B] of the single queries; their tables reach exactly to the block of that position."""
        size = self.block_size
        rows = len(tables)
        first_seen = np.maximum(positions - window + 1, 0) if window else np.zeros_like(positions)
        first_block = first_seen // size
        widths = np.fromiter((len(table) for table in tables), np.int64, rows) - first_block
        blocks = np.concatenate([table[skip:] for table, skip in zip(tables, first_block, strict=True)])
        total = len(blocks)
        row_of = np.repeat(np.arange(rows), widths)
        ends = np.cumsum(widths)
        begins = ends - widths

        low, high, rides = self._extent(blocks)
        extent = high - low
        pair = np.where(rides, blocks - low, extent - 1 + np.cumsum(~rides))
        gathered = blocks[~rides]
        owner = np.zeros(extent + len(gathered), dtype=np.int64)
        owner[pair] = row_of

        bias = np.zeros((len(owner), size), dtype=np.float32)
        last = pair[ends - 1]
        bias[last] = np.where(self._within > (positions % size)[:, None], NEVER, 0.0)
        if window:
            bias[pair[begins]] += np.where(self._within < (first_seen % size)[:, None], NEVER, 0.0).astype(np.float32)

        width = int(widths.max())
        table = np.repeat(pair[begins][:, None], width, axis=1)
        table_bias = np.full((rows, width), NEVER, dtype=np.float32)
        column = np.arange(total) - begins[row_of]
        table[row_of, column] = pair
        table_bias[row_of, column] = 0.0
        return DecodeIndex(
            skip=torch.empty(low, dtype=torch.uint8),
            owner=_tensor(owner),
            bias=_tensor(bias),
            gathered=_tensor(gathered),
            table=_tensor(table),
            table_bias=_tensor(table_bias),
            in_place=extent > 0,
            copies=len(gathered) > 0,
        )

    def _extent(self, blocks: np.ndarray) -> tuple[int, int, np.ndarray]:
        """The cheapest extent [low, high) to read in place, and for each pair whether it rides in it.

        Of the pairs that share a block, the first rides; the others are gathered.
        """
        top = int(blocks.max()) + 1
        if len(self._seen) < top:
            self._seen = np.zeros(2 * top, dtype=np.int64)
        order = np.arange(len(blocks))
        gain = np.full(top + 1, -1.0)
        gain[0] = 0.0
        gain[blocks + 1] = GATHER - 1.0
        sums = np.cumsum(gain)
        lowest = np.minimum.accumulate(sums[:-1])
        high = int(np.argmax(sums[1:] - lowest)) + 1
        if sums[high] - lowest[high - 1] <= 0:
            return 0, 0, np.zeros(len(blocks), dtype=bool)
        low = int(np.argmin(sums[:high]))
        reader = self._seen
        reader[blocks[::-1]] = order[::-1]  # the last write wins: the first reader of each block
        return low, high, (reader[blocks] == order) & (blocks >= low) & (blocks < high)

    # ------------------------------------------------------------------------------------------------------------ chunks

    def _buckets(
        self, groups: list[list[int]], rows: Sequence[Row], tables: Sequence[dict[int, np.ndarray]], spans: list[tuple[int, int]]
    ) -> tuple[tuple[Bucket, ...], np.ndarray]:
        """One bucket a group of places in `rows`, and for each of their tokens, in packed order, its place in the buckets' outputs.

        `tables`: the rows', for each window.
        """
        buckets: list[Bucket] = []
        packed: list[np.ndarray] = []
        padded: list[np.ndarray] = []
        padded_before = 0
        for members in groups:
            counts = np.array([rows[place].count for place in members])
            starts = np.array([rows[place].start for place in members])
            begins = np.array([spans[place][0] for place in members])
            within = np.arange(counts.max())
            real = within < counts[:, None]
            offsets = np.where(real, within, 0)  # padding repeats the first position, which always sees a key
            tokens = begins[:, None] + offsets
            keys = tuple(
                self._chunk_keys([found[place] for place in members], starts, window)
                for window, found in zip(self.windows, tables, strict=True)
            )
            buckets.append(Bucket(_tensor(tokens.reshape(-1)), _tensor(starts[:, None] + offsets), keys))
            packed.append(tokens[real])
            padded.append(padded_before + np.flatnonzero(real))
            padded_before += real.size
        if not buckets:
            return (), np.zeros(0, dtype=np.int64)
        return tuple(buckets), np.concatenate(padded)[np.argsort(np.concatenate(packed))]

    def _chunk_keys(self, tables: list[np.ndarray], starts: np.ndarray, window: int) -> ChunkKeys:
        skips = np.maximum(starts - window + 1, 0) // self.block_size if window else np.zeros_like(starts)
        width = max(len(table) - skip for table, skip in zip(tables, skips, strict=True))
        blocks = np.zeros((len(tables), width), dtype=np.int64)
        for slot, (table, skip) in enumerate(zip(tables, skips, strict=True)):
            blocks[slot, : len(table) - skip] = table[skip:]
        return ChunkKeys(_tensor(blocks), _tensor(skips * self.block_size))


def _group(rows: list[Row]) -> list[list[int]]:
    """Chunks that are padded together: neighbours by size, while the padded area stays below SPLIT times their own."""
    order = sorted(range(len(rows)), key=lambda place: (rows[place].count, rows[place].start))
    groups: list[list[int]] = []
    area = 0
    for place in order:
        own = rows[place].count * (rows[place].start + rows[place].count)
        if groups:
            members = [*groups[-1], place]
            longest = max(rows[member].count for member in members)
            furthest = max(rows[member].start + rows[member].count for member in members)
            if len(members) * longest * furthest <= SPLIT * (area + own):
                groups[-1].append(place)
                area += own
                continue
        groups.append([place])
        area = own
    return groups


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
