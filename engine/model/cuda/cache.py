"""The step's cache on a GPU: writes as everywhere, reads through whatever kernels were chosen.

Owns the step function of this lane: run eagerly for steps with chunks, captured for steps without.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from engine.model.cache import StepCache
from engine.model.cuda.paged import PackedChunks, PackedKeys, PagedIndex
from engine.model.geometry import Geometry, call
from engine.model.inputs import StepInputs


class Readers(Protocol):
    """The kernels of a lane. Shapes: query [B or Tq, heads, dim]; keys and values [blocks, key heads, block size, dim or value dim]; sinks
    [heads]. Both give [B or Tq, heads, value dim] in the query's dtype."""

    def singles(
        self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor: ...

    def chunks(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        chunks: PackedChunks,
        seen: PackedKeys,
        scale: float,
        softcap: float | None,
        sinks: Tensor | None,
    ) -> Tensor: ...


class PagedCache(StepCache):
    """`StepCache` for inputs of `PagedBuilder`."""

    def __init__(
        self, geometry: Geometry, keys: dict[int, Tensor], values: dict[int, Tensor], inputs: StepInputs, readers: Readers
    ) -> None:
        super().__init__(geometry, keys, values, inputs)
        self._readers = readers

    def _read_singles(
        self, tokens: Tensor, keys: Tensor, values: Tensor, group: int, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        index: Any = self.inputs.decode[group]
        return self._readers.singles(tokens, keys, values, index, scale, softcap, sinks)

    def _read_chunks(
        self, tokens: Tensor, keys: Tensor, values: Tensor, group: int, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        packed: Any = self.inputs.buckets[0]
        if not isinstance(packed, PackedChunks):
            return super()._read_chunks(tokens, keys, values, group, scale, softcap, sinks)
        first = self.inputs.decode[0].table.shape[0] if self.inputs.decode else 0
        return self._readers.chunks(tokens[first:], keys, values, packed, packed.keys[group], scale, softcap, sinks)


def run_paged(
    model: Any, geometry: Geometry, keys: dict[int, Tensor], values: dict[int, Tensor], inputs: StepInputs, readers: Readers
) -> tuple[Tensor, Tensor]:
    """One forward pass, as `engine.model.step.run_step`, for inputs that lie on the model's device."""
    step = PagedCache(geometry, keys, values, inputs, readers)
    logits = call(model, inputs.ids, inputs.positions, step, inputs.sample)
    assert step.finite is not None
    return logits, step.finite


def gather_keys(store: torch.Tensor, seen: PackedKeys) -> torch.Tensor:
    """[Tk, key heads, dim]: a copy of the keys, or values, that the chunks of a step see."""
    return store[seen.blocks, :, seen.offsets]
