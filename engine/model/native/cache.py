"""The step's cache on our own kernels: writes and reads blocks in the layout of `attention.c`, which no other lane can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from engine.model import attention, eight
from engine.model.cache import KVStore, StepCache
from engine.model.geometry import Geometry, call, hand_down
from engine.model.inputs import StepInputs
from engine.model.pooling import body_of, heard


class TileCache(StepCache):
    """`StepCache` for inputs of `TileBuilder` and a `KVStore` in bfloat16 or in eight bits, whose rows lie as `attention.c` wants them."""

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hand_down(self, kwargs)
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        where = self._places(self.inputs, self.geometry.in_slots(layer_idx)), self.inputs.write_offset
        rows = _rows(key), _rows(value)
        torch.ops.omnibus.store_(keys, values, *rows, *where, _steps(keys))
        if layer_idx == self._last:
            self._note(torch.ops.omnibus.finite(*rows))
        return key, value

    def attend(self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any) -> torch.Tensor:
        layer = self.geometry.readers[module.layer_idx]
        index: Any = self.inputs.decode[0]
        scale, sinks = kwargs.get("scaling"), kwargs.get("s_aux")
        out: torch.Tensor = torch.ops.omnibus.attend(
            _rows(query),
            self.keys[layer],
            self.values[layer],
            index.tiles,
            index.slots if self.geometry.in_slots(layer) else index.table,
            float(query.shape[3] ** -0.5 if scale is None else scale),
            float(kwargs.get("softcap") or 0.0),
            attention.window_of(module, kwargs),
            torch.empty(0) if sinks is None else sinks.float().contiguous(),
            _steps(self.keys[layer]),
        )
        return out


def _steps(kept: torch.Tensor) -> torch.Tensor:
    return eight.STEPS if kept.dtype == torch.int8 else torch.empty(0)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """[1, heads, T, dim] float32 whose last dimension is dense."""
    tensor = tensor.float()
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def run_tiles(
    model: Any, geometry: Geometry, keys: dict[int, torch.Tensor], values: dict[int, torch.Tensor], inputs: StepInputs
) -> tuple[torch.Tensor, torch.Tensor]:
    """One forward pass, as `engine.model.step.run_step`."""
    step = TileCache(geometry, keys, values, inputs)
    logits = call(model, inputs.ids, inputs.positions, step, inputs.sample)
    assert step.finite is not None
    return logits, step.finite


def tile_function(model: Any, store: KVStore, like: StepInputs) -> Callable[..., tuple[torch.Tensor, ...]]:
    """`run_tiles` over plain tensors: f(*store.tensors(), *inputs.tensors()) -> (logits, finite, states); the hidden states [1, T, size],
    for embeddings, of a model that gives any."""
    geometry, layers, count = store.geometry, tuple(store.keys), len(store.keys)
    gives_states = body_of(model) is not None

    def step(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys = dict(zip(layers, tensors[:count], strict=True))
        values = dict(zip(layers, tensors[count : 2 * count], strict=True))
        inputs = like.with_tensors(tensors[2 * count :])
        if not gives_states:
            return run_tiles(model, geometry, keys, values, inputs)
        with heard(model) as states:
            logits, finite = run_tiles(model, geometry, keys, values, inputs)
        return logits, finite, states[0]

    return step
