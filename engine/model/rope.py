"""Freezes a model's rotary embedding at load, so that a request's values never depend on who shares its batch.

LongRoPE (Ding et al., 2024) and "dynamic NTK" scaling choose their frequencies from the largest position they see, and in a packed batch
that is a neighbour's. Here the choice is made once, from the context the engine is configured for: LongRoPE takes its long factors when
that context exceeds the length the model was first trained on, its short ones otherwise; dynamic NTK is fixed at that context. Touches
rotary modules only, never weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from engine.types import ModelError, Sentence

_PINNED = "_omnibus_context"


def freeze_rope(model: Any, context: int) -> list[str]:
    """Freeze every rotary module of `model` for positions below `context`; returns what was done, one line a choice.

    Calling it again with the same context changes nothing; with another one it raises ModelError("rope_frozen"), since the original
    choice is gone.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    done = []
    for name, module in model.named_modules():
        if not hasattr(module, "rope_type") or not hasattr(module, "config"):
            continue
        pinned = getattr(module, _PINNED, context)
        if pinned != context:
            message = Sentence("The model's positions are set for a context of {0}, not {1}.", pinned, context)
            raise ModelError("rope_frozen", message, "Load the model again with the new context.")
        if hasattr(module, _PINNED):
            continue
        changed = [
            _freeze_variant(module, layer_type, rope_type, context, ROPE_INIT_FUNCTIONS) for layer_type, rope_type in _rope_types(module)
        ]
        if any(_depends_on_neighbours(module, layer_type, context) for layer_type, _ in _rope_types(module)):
            _pin_length(module, context)
            changed.append(f"always told that the longest request has {context} positions")
        if any(changed):
            setattr(module, _PINNED, context)
        done += [f"{name}: {choice}" for choice in changed if choice]
    return done


def _rope_types(module: Any) -> list[tuple[str | None, str]]:
    """(layer type, rope type) of a rotary module; the layer type is None where all layers share one."""
    if isinstance(module.rope_type, dict):
        return list(module.rope_type.items())
    return [(None, module.rope_type)]


def _freeze_variant(module: Any, layer_type: str | None, rope_type: str, context: int, init: dict[str, Callable[..., Any]]) -> str:
    """Choose the frequencies for `context` and mark the module as one that never updates them. Returns the choice in words, or ""."""
    if rope_type != "longrope" and "dynamic" not in rope_type:
        return ""
    prefix = f"{layer_type}_" if layer_type else ""
    parameters = module.config.rope_parameters[layer_type] if layer_type else module.config.rope_parameters
    frequencies = getattr(module, f"{prefix}inv_freq")
    if rope_type == "longrope":
        limit = parameters["original_max_position_embeddings"]
        variant = "long" if context > limit else "short"
        words = f"LongRoPE, {variant} factors (context {context}, first trained on {limit})"
    else:
        limit = module.original_max_seq_len
        words = f"dynamic NTK, fixed at {max(context, limit)} positions"
    if context > limit:
        chosen, scaling = init[rope_type](module.config, frequencies.device, seq_len=context, layer_type=layer_type)
        with torch.no_grad():
            frequencies.copy_(chosen)
        if hasattr(module, f"{prefix}attention_scaling"):
            setattr(module, f"{prefix}attention_scaling", scaling)
    if layer_type:
        module.rope_type[layer_type] = "default"  # the update in the forward pass looks at this name
    else:
        module.rope_type = "default"
    return words


def _rotate(module: Any, positions: torch.Tensor, layer_type: str | None) -> tuple[torch.Tensor, ...]:
    like = torch.zeros(1, dtype=torch.float32, device=positions.device)
    out = module(like, positions) if layer_type is None else module(like, positions, layer_type)
    return out if isinstance(out, tuple) else (out,)


def _depends_on_neighbours(module: Any, layer_type: str | None, context: int) -> bool:
    """Whether the same positions get other values beside a far one: some families carry an update of their own."""
    device = next((buffer.device for buffer in module.buffers()), torch.device("cpu"))
    near = torch.arange(4, device=device)[None]
    far = torch.cat([near, torch.full_like(near[:, :1], context - 1)], dim=1)
    with torch.no_grad():
        try:
            alone, beside = _rotate(module, near, layer_type), _rotate(module, far, layer_type)
        except TypeError:  # other arguments than (x, position_ids): nothing known to depend on the batch
            return False
    return any(not torch.equal(a, b.narrow(-2, 0, 4)) for a, b in zip(alone, beside, strict=True))


def _pin_length(module: Any, context: int) -> None:
    """Append the last position of the context to every call and drop it from the result."""
    inner = module.forward

    def forward(x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        last = torch.full_like(position_ids[..., :1], context - 1)
        out = inner(x, torch.cat([position_ids, last], dim=-1), *args, **kwargs)
        if isinstance(out, tuple):
            return tuple(part.narrow(-2, 0, position_ids.shape[-1]) for part in out)
        return out.narrow(-2, 0, position_ids.shape[-1])

    module.forward = forward
