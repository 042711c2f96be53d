"""What a model asks of the cache, learned by running it once on one token.

Owns the probe: it hands the model a cache that only takes notes and an attention function that only takes notes, and refuses by name
what the block pool cannot serve. No family is known by its name here; what counts is how a model speaks to its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.model import attention
from engine.types import ModelError

# Keyword arguments of an attention call that change nothing, or that the lane serves.
_SERVED = frozenset({"scaling", "dropout", "sliding_window", "softcap", "s_aux", "is_causal"})
_HARMLESS = frozenset({"position_ids", "position_embeddings", "cache", "use_cache", "layer_idx", "cache_position", "target_dtype"})


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer's keys and values: head counts and sizes, dtype and device of the tensors the model produces."""

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device

    def bytes_per_position(self) -> int:
        return self.kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Geometry:
    """The cache a model needs.

    Attributes:
        layers: shapes by the model's own layer number; layers without attention are absent.
        readers: for each layer number that attends, the layer whose keys it reads (itself, or an earlier one it shares with).
        windows: the distinct window sizes, ascending; 0 is full attention and comes first.
        heads: most query heads of a layer.
        group: most query heads a key head.
    """

    layers: dict[int, LayerShape]
    readers: dict[int, int]
    windows: tuple[int, ...]
    heads: int
    group: int

    def bytes_per_position(self) -> int:
        return sum(shape.bytes_per_position() for shape in self.layers.values())


class _Refused(Exception):
    """The model asked for something the pool cannot serve; the text says what."""


class _Recorder:
    """A cache and a step that take notes. Anything beyond `update` and `attend` that a model touches is a reason to refuse."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.readers: dict[int, int] = {}
        self.windows: set[int] = set()
        self.heads = 0
        self.group = 1
        self._made: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    is_sliding: tuple[bool, ...] = ()  # read by transformers' mask functions, which then build none for our attention

    def __getattr__(self, name: str) -> Any:
        raise _Refused(f"it asks its cache for {name}(), which a block pool does not have (recurrent state, latent keys or an index)")

    def __len__(self) -> int:
        return 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def update(self, keys: Any, values: Any, layer_idx: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        hand_down(self, kwargs)
        if not isinstance(layer_idx, int) or not all(isinstance(part, torch.Tensor) and part.dim() == 4 for part in (keys, values)):
            raise _Refused("it does not store plain keys and values [batch, heads, positions, size] by layer")
        if layer_idx in self.layers:
            raise _Refused(f"it stores keys twice in layer {layer_idx}")
        if keys.shape[:3] != values.shape[:3]:
            raise _Refused(f"its keys {tuple(keys.shape)} and values {tuple(values.shape)} differ in more than size (latent attention)")
        self.layers[layer_idx] = LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, keys.device)
        self._made.append((keys, values, layer_idx))
        return keys, values

    def attend(self, module: Any, query: torch.Tensor, key: Any, value: Any, mask: Any, **kwargs: Any) -> torch.Tensor:
        source = next((layer for keys, values, layer in self._made if keys is key and values is value), None)
        index = getattr(module, "layer_idx", None)
        if source is None or index is None:
            raise _Refused("it changes its keys after storing them (latent attention), or attends to something that is not its cache")
        if mask is not None:
            raise _Refused("it builds an attention mask of its own")
        if getattr(module, "is_causal", True) is False or kwargs.get("is_causal", True) is False:
            raise _Refused("its attention looks ahead (not causal)")
        odd = sorted(name for name, item in kwargs.items() if name not in _SERVED | _HARMLESS and isinstance(item, torch.Tensor))
        if odd:
            raise _Refused(f"its attention takes {', '.join(odd)}, which this engine does not know")
        self.readers[index] = source
        self.windows.add(attention.window_of(module, kwargs))
        self.heads = max(self.heads, query.shape[1])
        self.group = max(self.group, query.shape[1] // key.shape[1])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])


def probe(model: Any, context: int) -> Geometry:
    """Run `model` (a transformers causal LM) on one token and note what it asks of its cache; its attention is switched to ours.

    Raises ModelError("model_cannot_ride", ...) naming the class and the reason.
    """
    name = type(model).__name__
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    attention.register()
    try:
        if not getattr(model, "_supports_attention_backend", False) or not model._can_set_attn_implementation():
            raise _Refused("it does not go through transformers' attention interface")
        model.set_attn_implementation(attention.NAME)
        chunk = getattr(config, "attention_chunk_size", None)
        if "chunked_attention" in (getattr(config, "layer_types", None) or ()) and chunk and chunk < context:
            raise _Refused(f"it attends within chunks of {chunk} positions; set context to at most {chunk}")
        recorder = _Recorder()
        with torch.inference_mode():
            one = torch.zeros(1, 1, dtype=torch.int64)
            call(model, one, one, recorder, one[0])
        expected = getattr(config, "num_hidden_layers", len(recorder.readers))
        if not recorder.readers or len(recorder.readers) != expected:
            raise _Refused(f"only {len(recorder.readers)} of its {expected} layers attend through the interface")
    except _Refused as reason:
        raise _error(name, str(reason)) from None
    except (TypeError, AttributeError, KeyError, NotImplementedError) as fault:
        raise _error(name, f"it does not follow the protocol of transformers' caches ({type(fault).__name__}: {fault})") from fault
    except RuntimeError as fault:
        message = f"{name} fails on its first token: {fault}"
        raise ModelError("model_fails", message, "The model's files may be damaged or incomplete.") from fault
    return Geometry(recorder.layers, recorder.readers, tuple(sorted(recorder.windows)), recorder.heads, recorder.group)


def hand_down(step: Any, kwargs: dict[str, Any]) -> None:
    """Give `step` to the attention call that follows an `update(..., kwargs=its keyword arguments)`: some models do not pass on what they
    were given, but every layer hands these to its attention."""
    inner = kwargs.get("kwargs")
    if isinstance(inner, dict):
        inner["step"] = step


def call(model: Any, ids: torch.Tensor, positions: torch.Tensor, step: Any, keep: torch.Tensor) -> torch.Tensor:
    """One forward over the packed row [1, T]; `step` is cache and step in one. Returns logits [S, vocabulary] of the places `keep` [S]."""
    device = next(model.parameters()).device
    ids, positions, keep = ids.to(device), positions.to(device), keep.to(device)
    return model(input_ids=ids, position_ids=positions, cache=step, step=step, use_cache=False, logits_to_keep=keep).logits[0]


def _error(name: str, reason: str) -> ModelError:
    hint = "Choose a model with ordinary attention in every layer."
    return ModelError("model_cannot_ride", f"{name} cannot share a batch: {reason}.", hint)
