"""The textbook: attention over a paged cache, row by row in float64, and the made-up cases that kernels are tried on.

Owns what is right. Slow on purpose; runs on the CPU wherever its arguments lie.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.cuda.paged import PackedChunks, PackedKeys, PagedIndex

FILL = 50.0  # of blocks that are nobody's: reading one of them shows


@dataclass(frozen=True, slots=True)
class Need:
    """What a kernel must serve: one kind of attention in one model.

    Attributes:
        block_size: positions a block.
        window: 0 is all.
        softcap: None is none.
        sinks: whether each head has one.
    """

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    block_size: int
    window: int
    scale: float
    softcap: float | None
    sinks: bool

    @classmethod
    def of(
        cls, query: Tensor, keys: Tensor, values: Tensor, window: int, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Need:
        _, key_heads, block_size, value_dim = values.shape
        has_sinks = sinks is not None
        return cls(query.shape[1], key_heads, keys.shape[3], value_dim, keys.dtype, block_size, window, scale, softcap, has_sinks)

    @property
    def words(self) -> str:
        parts = [f"{self.heads} heads over {self.key_heads}", f"size {self.key_dim}", str(self.dtype).removeprefix("torch.")]
        parts += [f"window {self.window}"] * bool(self.window) + ["soft cap"] * bool(self.softcap) + ["sinks"] * self.sinks
        return ", ".join(parts)


def textbook(query: Tensor, keys: Tensor, values: Tensor, need: Need, sinks: Tensor | None) -> Tensor:
    """Queries [n, heads, dim], the last n of all positions, over keys and values [L, key heads, size]: float64 [n, heads, value dim]."""
    count, length = query.shape[0], keys.shape[0]
    group = need.heads // need.key_heads
    wide_keys, wide_values = keys.double().repeat_interleave(group, 1), values.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query.double(), wide_keys) * need.scale
    if need.softcap is not None:
        scores = need.softcap * torch.tanh(scores / need.softcap)
    at, seen = torch.arange(length - count, length)[:, None], torch.arange(length)[None]
    hidden = (seen > at) | ((seen <= at - need.window) if need.window else torch.zeros_like(seen > at))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, count, 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], wide_values)


@dataclass(frozen=True, slots=True)
class Case:
    """A made-up read: the last `counts` positions of rows of `lengths`, over scattered blocks; `want` is the textbook's answer, float64."""

    query: Tensor
    keys: Tensor
    values: Tensor
    index: PagedIndex
    chunks: PackedChunks
    sinks: Tensor | None
    want: Tensor

    def on(self, device: torch.device) -> Case:
        index = PagedIndex(self.index.table.to(device), self.index.lengths.to(device), self.index.window)
        keys = tuple(
            PackedKeys(part.blocks.to(device), part.offsets.to(device), part.ends.to(device), part.longest, part.window)
            for part in self.chunks.keys
        )
        chunks = PackedChunks(self.chunks.ends.to(device), self.chunks.longest, keys)
        sinks = None if self.sinks is None else self.sinks.to(device)
        return Case(self.query.to(device), self.keys.to(device), self.values.to(device), index, chunks, sinks, self.want)


def make_case(need: Need, lengths: Sequence[int], counts: Sequence[int], seed: int = 0) -> Case:
    """Always the same for the same arguments; `counts` are 1 for a decode step's case."""
    generator = torch.Generator().manual_seed(seed)
    size = need.block_size
    widths = [-(-length // size) for length in lengths]
    blocks = 1 + torch.randperm(sum(widths) + 3, generator=generator)
    shape = (len(blocks) + 1, need.key_heads, size)
    keys, values = torch.full((*shape, need.key_dim), FILL).to(need.dtype), torch.full((*shape, need.value_dim), FILL).to(need.dtype)
    sinks = torch.randn(need.heads, generator=generator) if need.sinks else None
    table = torch.zeros(len(lengths), max(widths), dtype=torch.int32)
    queries, wants, parts = [], [], []
    for row, (length, count, width) in enumerate(zip(lengths, counts, widths, strict=True)):
        own, blocks = blocks[:width], blocks[width:]
        table[row, :width] = own.int()
        at = torch.arange(length)
        own_keys = torch.randn(length, need.key_heads, need.key_dim, generator=generator).to(need.dtype)
        own_values = torch.randn(length, need.key_heads, need.value_dim, generator=generator).to(need.dtype)
        keys[own[at // size], :, at % size] = own_keys
        values[own[at // size], :, at % size] = own_values
        query = torch.randn(count, need.heads, need.key_dim, generator=generator).to(need.dtype)
        queries.append(query)
        wants.append(textbook(query, own_keys, own_values, need, sinks))
        first = max(0, length - count - need.window + 1) if need.window else 0
        parts.append((own[at[first:] // size], at[first:] % size))
    seen = PackedKeys(
        torch.cat([part[0] for part in parts]),
        torch.cat([part[1] for part in parts]),
        _ends([len(part[0]) for part in parts]),
        max(len(part[0]) for part in parts),
        need.window,
    )
    index = PagedIndex(table, torch.tensor(lengths, dtype=torch.int32), need.window)
    chunks = PackedChunks(_ends(counts), max(counts), (seen,))
    return Case(torch.cat(queries), keys, values, index, chunks, sinks, torch.cat(wants))


@functools.lru_cache(maxsize=1)  # several kernels are tried on one after another
def probe_cases(need: Need) -> tuple[Case, Case]:
    """(A decode step's case, a prefill's) that an off-by-one cannot pass: lengths at, before and behind the edges of blocks and windows."""
    size = need.block_size
    edges = {1, 2, size - 1, size, size + 1, 3 * size + size // 2, 5 * size, 97, *((need.window, need.window + 1) if need.window else ())}
    lengths = sorted(edge for edge in edges if 0 < edge <= 4096)
    counts = [min(length, 1 + 7 * place % 23) for place, length in enumerate(lengths)]
    return make_case(need, lengths, [1] * len(lengths)), make_case(need, lengths, counts, seed=1)


def _ends(counts: Sequence[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0).int()
