"""resources/kernels/paged_decode.cu, statement by statement in Python, run with tiny shapes by threads that go on in any order.

Each line of the kernels stands above the line that does the same; a test compares these comments with the source, so that neither changes
without the other. A thread is a generator: it yields at a barrier and at a shuffle, and reads what its neighbours brought there. Shared
memory starts as NaN, and a place is written by one thread only between two barriers, or the run ends with an error.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

F = np.float32
WARPS, TEAM = 4, 8
TEAMS = 32 // TEAM
STRIDE = WARPS * TEAMS
NEVER = F(-math.inf)
Thread = Generator[Any, Any, None]


class Memory:
    """Memory in which every place is checked to exist, and to be written at most once between two barriers."""

    def __init__(self, *shape: int, holding: Any = None) -> None:
        self.data = np.full(shape, np.nan, dtype=F) if holding is None else holding
        self._written: set[Any] = set()

    def __getitem__(self, place: Any) -> Any:
        self._check(place)
        return self.data[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._check(place)
        assert place not in self._written, f"two threads write to {place}"
        self._written.add(place)
        self.data[place] = value

    def load8(self, start: int) -> Any:
        """Eight neighbours, which must begin at a multiple of eight, as a 16-byte load must."""
        assert start % 8 == 0 and 0 <= start <= len(self.data) - 8, f"a load of 8 at {start} of {len(self.data)}"
        return self.data[start : start + 8]

    def barrier(self) -> None:
        self._written.clear()

    def _check(self, place: Any) -> None:
        for index, size in zip(place if isinstance(place, tuple) else (place,), self.data.shape, strict=True):
            assert 0 <= index < size, f"place {place} of {self.data.shape}"


def launch(grid: tuple[int, int, int], threads: int, make: Callable[[int, int, int], tuple[list[Memory], Callable[[int], Thread]]]) -> None:
    """Run every thread block of a grid. `make(x, y, z)` gives a block's shared memory and its threads."""
    rng = random.Random(threads)
    for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0])):
        shared, body = make(x, y, z)
        running = {number: body(number) for number in range(threads)}
        ready: dict[int, Any] = dict.fromkeys(running)  # and what each is handed
        stands: dict[int, tuple[Any, ...]] = {}  # where those who are not ready stand
        while running:
            for number in rng.sample(sorted(ready), len(ready)):
                try:
                    stands[number] = running[number].send(ready[number])
                except StopIteration:
                    del running[number]
            ready = {}
            for first in range(0, threads, 32):
                warp = [stands.get(number, ("ended",)) for number in range(first, first + 32)]
                if all(what[0] == "shuffle" and what[2] == warp[0][-1] for what in warp):
                    ready |= {first + lane: warp[lane ^ warp[0][2]][1] for lane in range(32)}
            if not ready and running:
                assert len(stands) == threads and {what[0] for what in stands.values()} == {"barrier"}, "they wait for each other for ever"
                ready = dict.fromkeys(stands)
                for part in shared:
                    part.barrier()
            for number in ready:
                del stands[number]


def rescale(start: Any, to: Any) -> Any:
    # __device__ float rescale(float from, float to) { return from == to ? 1.0f : expf(from - to); }
    return F(1) if start == to else np.exp(F(start - to))


def shuffle(value: Any, mask: int) -> tuple[str, Any, int]:
    return "shuffle", value, mask


BARRIER = ("barrier",)


@dataclass(frozen=True)
class Sizes:
    """What is fixed when the kernels are compiled."""

    DIM: int
    VALUE_DIM: int
    BLOCK: int
    GROUP: int
    TILE: int


def paged_partials(
    sizes: Sizes,
    grid: tuple[int, int, int],
    query: Memory,
    keys: Memory,
    values: Memory,
    table: Memory,
    lengths: Memory,
    tops: Memory,
    sums: Memory,
    outs: Memory,
    width: int,
    key_heads: int,
    window: int,
    scale: float,
    softcap: float,
) -> None:
    DIM, VALUE_DIM, BLOCK, GROUP, TILE = sizes.DIM, sizes.VALUE_DIM, sizes.BLOCK, sizes.GROUP, sizes.TILE
    KEY_CHUNKS, VALUE_CHUNKS = (DIM // 8 + TEAM - 1) // TEAM, (VALUE_DIM // 8 + TEAM - 1) // TEAM

    def block(blockIdx_x: int, blockIdx_y: int, blockIdx_z: int) -> tuple[list[Memory], Callable[[int], Thread]]:
        # __shared__ float asked[TILE][DIM];
        asked = Memory(TILE, DIM)
        # __shared__ float warp_top[WARPS][TILE], warp_sum[WARPS][TILE], warp_out[WARPS][TILE][VALUE_DIM];
        warp_top, warp_sum, warp_out = Memory(WARPS, TILE), Memory(WARPS, TILE), Memory(WARPS, TILE, VALUE_DIM)

        def thread(threadIdx_x: int) -> Thread:
            # const int tiles = (GROUP + TILE - 1) / TILE;
            tiles = (GROUP + TILE - 1) // TILE
            # const int splits = gridDim.x, split = blockIdx.x, key_head = blockIdx.y / tiles, row = blockIdx.z;
            splits, split, key_head, row = grid[0], blockIdx_x, blockIdx_y // tiles, blockIdx_z
            # const int first = blockIdx.y % tiles * TILE;
            first = blockIdx_y % tiles * TILE
            # const int heads = key_heads * GROUP;
            heads = key_heads * GROUP
            # const int warp = threadIdx.x / 32, team = threadIdx.x % 32 / TEAM, member = threadIdx.x % TEAM;
            warp, team, member = threadIdx_x // 32, threadIdx_x % 32 // TEAM, threadIdx_x % TEAM
            # const int length = lengths[row];
            length = int(lengths[row])
            # const int seen = window > 0 && length > window ? length - window : 0;
            seen = length - window if window > 0 and length > window else 0
            # const int share = ((length - seen + splits - 1) / splits + STRIDE - 1) / STRIDE * STRIDE;
            share = ((length - seen + splits - 1) // splits + STRIDE - 1) // STRIDE * STRIDE
            # const int begin = seen + split * share;
            begin = seen + split * share
            # const int end = begin + share < length ? begin + share : length;
            end = begin + share if begin + share < length else length

            # for (int place = threadIdx.x; place < TILE * DIM; place += 32 * WARPS) {
            for place in range(threadIdx_x, TILE * DIM, 32 * WARPS):
                # const int head = first + place / DIM;
                head = first + place // DIM
                # const long long from = ((long long)row * heads + key_head * GROUP + head) * DIM + place % DIM;
                start = (row * heads + key_head * GROUP + head) * DIM + place % DIM
                # asked[place / DIM][place % DIM] = head < GROUP ? widen(query[from]) * (float)scale : 0.0f;
                asked[place // DIM, place % DIM] = query[start] * F(scale) if head < GROUP else F(0)
            # __syncthreads();
            yield BARRIER

            # float top[TILE], sum[TILE], out[TILE][VALUE_CHUNKS * 8];
            top, sum, out = np.empty(TILE, F), np.empty(TILE, F), np.empty((TILE, VALUE_CHUNKS * 8), F)
            # UNROLL for (int head = 0; head < TILE; head++) {
            for head in range(TILE):
                # top[head] = NEVER, sum[head] = 0.0f;
                top[head], sum[head] = NEVER, F(0)
                # UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) out[head][i] = 0.0f;
                out[head] = F(0)
            # for (int base = begin + warp * TEAMS; base < end; base += STRIDE) {
            for base in range(begin + warp * TEAMS, end, STRIDE):
                # const int position = base + team;
                position = base + team
                # const bool there = position < end;
                there = position < end
                # const long long block = there ? table[(long long)row * width + position / BLOCK] : 0;
                block = int(table[row * width + position // BLOCK]) if there else 0
                # const long long slot = (block * key_heads + key_head) * BLOCK + position % BLOCK;
                slot = (block * key_heads + key_head) * BLOCK + position % BLOCK
                # float score[TILE], value[VALUE_CHUNKS * 8];
                score, value = np.empty(TILE, F), np.empty(VALUE_CHUNKS * 8, F)
                # UNROLL for (int head = 0; head < TILE; head++) score[head] = 0.0f;
                score[:] = F(0)
                # UNROLL for (int chunk = 0; chunk < KEY_CHUNKS; chunk++) {
                for chunk in range(KEY_CHUNKS):
                    # const int at = (chunk * TEAM + member) * 8;
                    at = (chunk * TEAM + member) * 8
                    # float key[8];
                    # if (there && at < DIM) {
                    if there and at < DIM:
                        # load8(keys + slot * DIM + at, key);
                        key = keys.load8(slot * DIM + at)
                        # UNROLL for (int head = 0; head < TILE; head++)
                        for head in range(TILE):
                            # UNROLL for (int i = 0; i < 8; i++) score[head] += asked[head][at + i] * key[i];
                            score[head] += np.dot(asked.data[head, at : at + 8], key)
                # UNROLL for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++) {
                for chunk in range(VALUE_CHUNKS):
                    # const int at = (chunk * TEAM + member) * 8;
                    at = (chunk * TEAM + member) * 8
                    # UNROLL for (int i = 0; i < 8; i++) value[chunk * 8 + i] = 0.0f;
                    value[chunk * 8 : chunk * 8 + 8] = F(0)
                    # if (there && at < VALUE_DIM) load8(values + slot * VALUE_DIM + at, value + chunk * 8);
                    if there and at < VALUE_DIM:
                        value[chunk * 8 : chunk * 8 + 8] = values.load8(slot * VALUE_DIM + at)
                # UNROLL for (int head = 0; head < TILE; head++) {
                for head in range(TILE):
                    # UNROLL for (int mask = TEAM / 2; mask > 0; mask /= 2) score[head] += __shfl_xor_sync(WHOLE_WARP, score[head], mask);
                    mask = TEAM // 2
                    while mask > 0:
                        score[head] += yield shuffle(score[head], mask)
                        mask //= 2
                    # if (softcap > 0.0) score[head] = (float)softcap * tanhf(score[head] / (float)softcap);
                    if softcap > 0.0:
                        score[head] = F(softcap) * np.tanh(score[head] / F(softcap))
                    # const float best = there && score[head] > top[head] ? score[head] : top[head];
                    best = score[head] if there and score[head] > top[head] else top[head]
                    # const float keep = rescale(top[head], best);
                    keep = rescale(top[head], best)
                    # const float weight = there ? expf(score[head] - best) : 0.0f;
                    weight = np.exp(score[head] - best) if there else F(0)
                    # top[head] = best, sum[head] = sum[head] * keep + weight;
                    top[head], sum[head] = best, sum[head] * keep + weight
                    # UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) out[head][i] = out[head][i] * keep + weight * value[i];
                    out[head] = out[head] * keep + weight * value

            # UNROLL for (int head = 0; head < TILE; head++) {
            for head in range(TILE):
                # UNROLL for (int mask = TEAM; mask < 32; mask *= 2) {
                mask = TEAM
                while mask < 32:
                    # const float other = __shfl_xor_sync(WHOLE_WARP, top[head], mask);
                    other = yield shuffle(top[head], mask)
                    # const float best = other > top[head] ? other : top[head];
                    best = other if other > top[head] else top[head]
                    # const float mine = rescale(top[head], best), theirs = rescale(other, best);
                    mine, theirs = rescale(top[head], best), rescale(other, best)
                    # top[head] = best, sum[head] = sum[head] * mine + __shfl_xor_sync(WHOLE_WARP, sum[head], mask) * theirs;
                    top[head], sum[head] = best, sum[head] * mine + (yield shuffle(sum[head], mask)) * theirs
                    # UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++)
                    # out[head][i] = out[head][i] * mine + __shfl_xor_sync(WHOLE_WARP, out[head][i], mask) * theirs;
                    out[head] = out[head] * mine + (yield shuffle(out[head].copy(), mask)) * theirs
                    mask *= 2
                # if (team == 0) {
                if team == 0:
                    # warp_top[warp][head] = top[head], warp_sum[warp][head] = sum[head];
                    if member == 0:  # the others write the same value, which hardware allows
                        warp_top[warp, head], warp_sum[warp, head] = top[head], sum[head]
                    # UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) {
                    for i in range(VALUE_CHUNKS * 8):
                        # const int at = (i / 8 * TEAM + member) * 8 + i % 8;
                        at = (i // 8 * TEAM + member) * 8 + i % 8
                        # if (at < VALUE_DIM) warp_out[warp][head][at] = out[head][i];
                        if at < VALUE_DIM:
                            warp_out[warp, head, at] = out[head, i]
            # __syncthreads();
            yield BARRIER

            # for (int place = threadIdx.x; place < TILE * VALUE_DIM; place += 32 * WARPS) {
            for place in range(threadIdx_x, TILE * VALUE_DIM, 32 * WARPS):
                # const int head = place / VALUE_DIM, at = place % VALUE_DIM;
                head, at = place // VALUE_DIM, place % VALUE_DIM
                # if (first + head >= GROUP) continue;
                if first + head >= GROUP:
                    continue
                # float best = NEVER, total = 0.0f, gathered = 0.0f;
                best, total, gathered = NEVER, F(0), F(0)
                # UNROLL for (int w = 0; w < WARPS; w++) best = warp_top[w][head] > best ? warp_top[w][head] : best;
                for w in range(WARPS):
                    best = warp_top[w, head] if warp_top[w, head] > best else best
                # UNROLL for (int w = 0; w < WARPS; w++) {
                for w in range(WARPS):
                    # const float factor = rescale(warp_top[w][head], best);
                    factor = rescale(warp_top[w, head], best)
                    # total += warp_sum[w][head] * factor, gathered += warp_out[w][head][at] * factor;
                    total, gathered = total + warp_sum[w, head] * factor, gathered + warp_out[w, head, at] * factor
                # const long long part = ((long long)row * heads + key_head * GROUP + first + head) * splits + split;
                part = (row * heads + key_head * GROUP + first + head) * splits + split
                # outs[part * VALUE_DIM + at] = gathered;
                outs[part * VALUE_DIM + at] = gathered
                # if (at == 0) tops[part] = best, sums[part] = total;
                if at == 0:
                    tops[part], sums[part] = best, total

        return [asked, warp_top, warp_sum, warp_out], thread

    launch(grid, 32 * WARPS, block)


def paged_merge(
    sizes: Sizes,
    grid: tuple[int, int, int],
    tops: Memory,
    sums: Memory,
    outs: Memory,
    sinks: Memory,
    result: Memory,
    splits: int,
    has_sinks: int,
) -> None:
    VALUE_DIM, blockDim_x = sizes.VALUE_DIM, 32

    def block(blockIdx_x: int, blockIdx_y: int, blockIdx_z: int) -> tuple[list[Memory], Callable[[int], Thread]]:
        def thread(threadIdx_x: int) -> Thread:
            # const int head = blockIdx.x;
            head = blockIdx_x
            # const long long place = (long long)blockIdx.y * gridDim.x + head;
            place = blockIdx_y * grid[0] + head
            # float best = has_sinks ? sinks[head] : NEVER;
            best = sinks[head] if has_sinks else NEVER
            # for (int split = 0; split < splits; split++) best = tops[place * splits + split] > best ? tops[place * splits + split] : best;
            for split in range(splits):
                best = tops[place * splits + split] if tops[place * splits + split] > best else best
            # float total = has_sinks ? expf(sinks[head] - best) : 0.0f;
            total = np.exp(sinks[head] - best) if has_sinks else F(0)
            # for (int split = 0; split < splits; split++)
            for split in range(splits):
                # total += sums[place * splits + split] * rescale(tops[place * splits + split], best);
                total += sums[place * splits + split] * rescale(tops[place * splits + split], best)
            # for (int at = threadIdx.x; at < VALUE_DIM; at += blockDim.x) {
            for at in range(threadIdx_x, VALUE_DIM, blockDim_x):
                # float gathered = 0.0f;
                gathered = F(0)
                # for (int split = 0; split < splits; split++)
                for split in range(splits):
                    # gathered += outs[(place * splits + split) * VALUE_DIM + at] * rescale(tops[place * splits + split], best);
                    gathered += outs[(place * splits + split) * VALUE_DIM + at] * rescale(tops[place * splits + split], best)
                # result[place * VALUE_DIM + at] = narrow(gathered / total);
                result[place * VALUE_DIM + at] = gathered / total
            yield from ()

        return [], thread

    launch(grid, blockDim_x, block)
