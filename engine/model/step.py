"""The step function: tensors in, tensors out.

This is the one place where the model runs. Everything it needs comes in as a tensor (weights aside), nothing depends on the values in
them but indices, and what is static is named by `StepInputs.mode`; so the same function runs eagerly, can be traced once a mode, or
captured as a CUDA graph. Owns nothing between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from engine.model.alone import run_alone
from engine.model.cache import KVStore, StepCache
from engine.model.geometry import Geometry, Ride, call
from engine.model.inputs import StepInputs
from engine.model.states import Key


def run_step(
    model: Any,
    geometry: Geometry,
    keys: dict[int, torch.Tensor],
    values: dict[int, torch.Tensor],
    inputs: StepInputs,
    states: dict[Key, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One forward pass: writes keys and values to their blocks, and recurrent states; running it again writes the same.

    Returns (logits [S, vocabulary] in the model's dtype, finite [T] bool: false where a token's keys or values are not numbers).
    """
    if geometry.ride is Ride.ALONE:
        return run_alone(model, keys, values, inputs)
    step = StepCache(geometry, keys, values, inputs, states)
    logits = call(model, inputs.ids, inputs.positions, step, inputs.sample)
    assert step.finite is not None  # the probe saw every layer store its keys
    return logits, step.finite


def step_function(model: Any, store: KVStore, like: StepInputs) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """`run_step` over plain tensors, for tracing and graphs: f(*store.tensors(), *inputs.tensors()) -> (logits, finite).

    `like` gives the structure of the inputs; tensors of other sizes but the same mode may be passed.
    """
    geometry, layers, count = store.geometry, tuple(store.keys), len(store.keys)

    def step(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = dict(zip(layers, tensors[:count], strict=True))
        values = dict(zip(layers, tensors[count : 2 * count], strict=True))
        return run_step(model, geometry, keys, values, like.with_tensors(tensors[2 * count :]))

    return step
