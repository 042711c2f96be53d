"""Riding row by row: each row of a step goes through the model by itself, with the model's own attention over its gathered blocks.

For families that compute their attention in a way of their own (ALiBi added to the scores, no attention interface). Right for any model
that stores keys and values in a cache by layer; the price is that the weights are read once a row instead of once a step. Owns the cache
that a model sees for one row.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from engine.model import eight
from engine.model.inputs import RowSpan, StepInputs


class RowProtocol:
    """What transformers (5.24) asks of a cache beyond `update`, for one row of positions [start, start + count)."""

    is_sliding: tuple[bool, ...] = (False,)
    is_linear: tuple[bool, ...] = (False,)
    is_dummy: tuple[bool, ...] = (False,)
    is_compileable = False
    is_initialized = True

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count

    def __len__(self) -> int:
        return 1

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.start

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.start

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.start + self.count, 0


class RowCache(RowProtocol):
    """Writes one row's keys and values to its blocks and hands out its whole history.

    Attributes:
        finite: [count] bool once the last layer has stored its keys.
    """

    def __init__(self, keys: dict[int, torch.Tensor], values: dict[int, torch.Tensor], inputs: StepInputs, row: RowSpan) -> None:
        super().__init__(row.start, row.count)
        self._keys, self._values = keys, values
        self._inputs, self._row = inputs, row
        self._last = max(keys)
        self.finite: torch.Tensor | None = None

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = slice(self._row.first, self._row.first + self._row.count)
        block, offset = (part[places].to(key.device) for part in (self._inputs.write_block, self._inputs.write_offset))
        both = []
        for pool, new in ((self._keys[layer_idx], key), (self._values[layer_idx], value)):
            pool[block, :, offset] = eight.packed(new[0].transpose(0, 1), pool)
            both.append(gather(pool, self._row.blocks.to(pool.device), self.start + self.count, new.dtype).unsqueeze(0))
        if layer_idx == self._last:
            self.finite = (key.sum((0, 1, 3), dtype=torch.float32) + value.sum((0, 1, 3), dtype=torch.float32)).isfinite()
        return both[0], both[1]


def gather(pool: torch.Tensor, blocks: torch.Tensor, length: int, dtype: torch.dtype) -> torch.Tensor:
    """The first `length` positions of a history [heads, length, size], from its blocks [W] of a pool [blocks, heads, bs, size]; in `dtype`
    where the pool is in eight bits."""
    heads, size = pool.shape[1], pool.shape[3]
    return eight.plain(pool.index_select(0, blocks).transpose(0, 1).reshape(heads, -1, size)[:, :length], dtype)


def call_alone(model: Any, ids: torch.Tensor, positions: torch.Tensor, cache: Any, keep: torch.Tensor) -> torch.Tensor:
    """One forward over one row [1, count]. Returns logits [S, vocabulary] of the places `keep` [S]."""
    device = next(model.parameters()).device
    given = {"position_ids": positions.to(device)} if _takes_positions(model) else {}
    logits = model(input_ids=ids.to(device), cache=cache, use_cache=False, logits_to_keep=keep.to(device), **given).logits[0]
    return logits


def _takes_positions(model: Any) -> bool:
    return "position_ids" in inspect.signature(model.forward).parameters


def run_alone(
    model: Any, keys: dict[int, torch.Tensor], values: dict[int, torch.Tensor], inputs: StepInputs
) -> tuple[torch.Tensor, torch.Tensor]:
    """A step, row by row: (logits [S, vocabulary] in the order of `inputs.sample`, finite [T] bool)."""
    wanted: dict[int, torch.Tensor] = {}
    finite = []
    sample = inputs.sample.tolist()
    for row in inputs.rows:
        places = slice(row.first, row.first + row.count)
        cache = RowCache(keys, values, inputs, row)
        asked = [place for place in sample if row.first <= place < row.first + row.count]
        keep = torch.tensor([place - row.first for place in asked] or [row.count - 1])
        logits = call_alone(model, inputs.ids[:, places], inputs.positions[:, places], cache, keep)
        assert cache.finite is not None  # the probe saw the model store its keys
        finite.append(cache.finite)
        wanted.update(zip(asked, logits, strict=False))
    told = torch.stack([wanted[place] for place in sample]) if sample else logits[:0]
    return told, torch.cat(finite)
