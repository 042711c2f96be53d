"""What a model asks of the cache, learned by running it once on one token.

Owns the probe: it hands the model a cache that only takes notes and an attention function that only takes notes, and refuses by name
what the block pool cannot serve. No family is known by its name here; what counts is how a model speaks to its cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from engine.model import attention
from engine.model.alone import RowProtocol, call_alone
from engine.model.geometry import Geometry, LayerShape, Ride, call, hand_down
from engine.model.states import GroupCache, StateShape, install, resumes
from engine.types import ModelError, Sentence

# Keyword arguments of an attention call that change nothing, or that the lane serves.
_SERVED = frozenset({"scaling", "dropout", "sliding_window", "softcap", "s_aux", "is_causal"})
_HARMLESS = frozenset({"position_ids", "position_embeddings", "cache", "use_cache", "layer_idx", "cache_position", "target_dtype"})


class _Refused(Exception):
    """The model asked for something the pool cannot serve; the text says what."""


class _Recorder:
    """A cache and a step that take notes. What a model asks for beyond keys, values and recurrent states is a reason to refuse.

    Attributes:
        reaches: by layer that stores, the windows of those that read it.
        mixers: by layer number, the module that asked for a recurrent state, and what it was called with.
    """

    is_sliding: tuple[bool, ...] = ()  # read by transformers' mask functions, which then build none for our attention

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.readers: dict[int, int] = {}
        self.windows: set[int] = set()
        self.reaches: dict[int, set[int]] = {}
        self.heads = 0
        self.group = 1
        self.latent: set[int] = set()
        self.mixers: dict[int, tuple[nn.Module, dict[str, Any]]] = {}
        self._made: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self._states = GroupCache({}, fresh=True)
        self._inside: list[tuple[nn.Module, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        raise _Refused(f"it asks its cache for {name}(), which is neither keys and values nor a recurrent state")

    def to(self, *args: Any, **kwargs: Any) -> _Recorder:
        """accelerate's hooks move whatever says that it can be moved to a layer's device; notes stay where they are."""
        return self

    def __len__(self) -> int:
        return 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return 0

    def update(self, keys: Any, values: Any, layer_idx: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        hand_down(self, kwargs)
        shape = shape_of(keys, values, layer_idx)
        if layer_idx in self.layers:
            raise _Refused(f"it stores keys twice in layer {layer_idx}")
        self.layers[layer_idx] = shape
        self._made.append((keys, values, layer_idx))
        return keys, values

    def attend(self, module: Any, query: torch.Tensor, key: Any, value: Any, mask: Any, **kwargs: Any) -> torch.Tensor:
        index = getattr(module, "layer_idx", None)
        source = next((layer for keys, values, layer in self._made if keys is key and values is value), None)
        if source is None and index in self.layers and self.layers[index].kv_heads == 1:
            self.latent.add(index)
            source = index
        if source is None or index is None:
            raise _Refused("it attends to something that is not its cache")
        if mask is not None:
            raise _Refused("it builds an attention mask of its own")
        if getattr(module, "is_causal", True) is False or kwargs.get("is_causal", True) is False:
            raise _Refused("its attention looks ahead (not causal)")
        odd = sorted(name for name, item in kwargs.items() if name not in _SERVED | _HARMLESS and isinstance(item, torch.Tensor))
        if odd:
            raise _Refused(f"its attention takes {', '.join(odd)}, which this engine does not know")
        self.readers[index] = source
        window = attention.window_of(module, kwargs)
        self.windows.add(window)
        self.reaches.setdefault(source, set()).add(window)
        self.heads = max(self.heads, query.shape[1])
        self.group = max(self.group, query.shape[1] // key.shape[1])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])

    # ------------------------------------------------------------------------------------------------ recurrent layers

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """While open, it is known which layers' modules are running, the innermost last."""
        hooks: list[Any] = []
        for module in model.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.append(module.register_forward_hook(self._leave))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inside.append((module, {**({"hidden_states": args[0]} if args else {}), **kwargs}))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        self._inside.pop()

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        module, given = next((item for item in reversed(self._inside) if item[0].layer_idx == layer_idx), (None, {}))
        if module is None:
            raise _Refused(f"it asks for a recurrent state of layer {layer_idx} from outside that layer")
        self.mixers[layer_idx] = module, given

    get_recurrent_state = get_conv_state

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return False

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        return self._states.update_conv_state(conv_states, layer_idx, state_idx, **kwargs)

    def update_recurrent_state(self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        return self._states.update_recurrent_state(recurrent_states, layer_idx, state_idx, **kwargs)

    def states(self) -> tuple[StateShape, ...]:
        return tuple(
            StateShape(*key, size=tuple(state.shape[1:]), dtype=state.dtype, device=state.device)
            for key, state in sorted(self._states.states.items())
        )


def shape_of(keys: Any, values: Any, layer_idx: Any) -> LayerShape:
    if not isinstance(layer_idx, int) or not all(isinstance(part, torch.Tensor) and part.dim() == 4 for part in (keys, values)):
        raise _Refused("it does not store plain keys and values [batch, heads, positions, size] by layer")
    if keys.shape[:3] != values.shape[:3]:
        raise _Refused(f"its keys {tuple(keys.shape)} and values {tuple(values.shape)} differ in more than size")
    return LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, keys.device)


def probe(model: Any, context: int) -> Geometry:
    """Run `model` (a transformers causal LM) on one token and note what it asks of its cache.

    A model that rides packed has its attention switched to ours and its mixers led by groups; one that rides alone stays as it is.
    Raises ModelError("model_cannot_ride", ...) naming the class and the reason.
    """
    name = type(model).__name__
    attention.register()
    before = model.config._attn_implementation
    try:
        try:
            return _packed(model, context)
        except _Refused as reason:
            if model.config._attn_implementation != before:
                model.set_attn_implementation(before)
            return _alone(model, reason)
    except _Refused as reason:
        raise _error(name, str(reason)) from None
    except (TypeError, AttributeError, KeyError, NotImplementedError) as fault:
        raise _error(name, f"it does not follow the protocol of transformers' caches ({type(fault).__name__}: {fault})") from fault
    except RuntimeError as fault:
        message = Sentence("{0} fails on its first token: {1}", name, fault)
        raise ModelError("model_fails", message, "The model's files may be damaged or incomplete.") from fault


def _packed(model: Any, context: int) -> Geometry:
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    if not model._can_set_attn_implementation():
        raise _Refused("it does not go through transformers' attention interface")
    model.set_attn_implementation(attention.NAME)
    chunk = getattr(config, "attention_chunk_size", None)
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()) and chunk and chunk < context:
        raise _Refused(f"it attends within chunks of {chunk} positions; set context to at most {chunk}")
    recorder = _Recorder()
    with torch.inference_mode(), recorder.watch(model):
        one = torch.zeros(1, 1, dtype=torch.int64)
        call(model, one, one, recorder, one[0])
    expected = _looking_back(config, len(recorder.readers))
    served = recorder.readers.keys() | recorder.mixers.keys()
    if not served or len(served) != expected:
        raise _Refused(f"only {len(served)} of the {expected} layers that look back do so through the interface")
    return Geometry(
        recorder.layers,
        recorder.readers,
        tuple(sorted(recorder.windows)),
        recorder.heads,
        recorder.group,
        frozenset(recorder.latent),
        recorder.states(),
        _lead_mixers(recorder),
        reach=_reach(recorder),
    )


def _reach(recorder: _Recorder) -> dict[int, int]:
    """See `Geometry.reach`. A layer that nobody reads could lie anywhere."""
    if any(0 in windows and len(windows) > 1 for windows in recorder.reaches.values()):
        return {}
    return {layer: max(recorder.reaches.get(layer, {0})) for layer in recorder.layers}


def _looking_back(config: Any, otherwise: int) -> int:
    """How many layers should attend or keep a state: all but those that are feed-forward alone."""
    types = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    count = getattr(config, "num_hidden_layers", otherwise)
    if not isinstance(types, (list, tuple)) or len(types) != count:
        return int(count)
    return sum(kind not in ("mlp", "moe") for kind in types)


def _lead_mixers(recorder: _Recorder) -> bool:
    """Have every mixer take rows by groups. Returns whether one of them goes on from a state with single tokens only."""
    one_by_one = False
    tried: set[type[nn.Module]] = set()
    for layer, (module, given) in recorder.mixers.items():
        hidden = given.get("hidden_states")
        if not isinstance(hidden, torch.Tensor) or given.get("cache") is not recorder:
            raise _Refused(f"the recurrent layer {layer} takes its input in a way that this engine does not know")
        mixing = install(module, layer)
        if type(module) not in tried:
            tried.add(type(module))
            rest = {name: item for name, item in given.items() if name not in ("hidden_states", "cache", "step")}
            with torch.inference_mode():
                one_by_one |= not resumes(mixing, hidden.shape[-1], hidden, rest)
    return one_by_one


def _alone(model: Any, first: _Refused) -> Geometry:
    """For models that keep keys and values, but attend in a way of their own. `first` is why it is not packed."""
    recorder = _RowRecorder()
    try:
        with torch.inference_mode():
            one = torch.zeros(1, 1, dtype=torch.int64)
            call_alone(model, one, one, recorder, one[0])
    except (_Refused, TypeError, AttributeError, NotImplementedError):
        raise first from None
    if not recorder.layers:
        raise first
    heads = max(shape.kv_heads for shape in recorder.layers.values())
    return Geometry(recorder.layers, {layer: layer for layer in recorder.layers}, (0,), heads, 1, ride=Ride.ALONE)


class _RowRecorder(RowProtocol):
    """Notes what a model stores when it rides alone."""

    def __init__(self) -> None:
        super().__init__(start=0, count=1)
        self.layers: dict[int, LayerShape] = {}

    def __getattr__(self, name: str) -> Any:
        raise _Refused(f"it asks its cache for {name}(), which is neither keys and values nor a recurrent state")

    def to(self, *args: Any, **kwargs: Any) -> _RowRecorder:
        return self

    def update(self, keys: Any, values: Any, layer_idx: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.layers[layer_idx] = shape_of(keys, values, layer_idx)
        return keys, values


def _error(name: str, reason: str) -> ModelError:
    hint = "Choose another model, such as one of the Llama, Qwen, Gemma or Mistral families."
    return ModelError("model_cannot_ride", Sentence("{0} cannot share a batch: {1}.", name, reason), hint)
