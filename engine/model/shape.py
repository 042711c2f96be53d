"""What a model on disk will need, read from its files' headers alone: how many weights of which kind, and how large its cache is.

Owns the reading of a folder's configuration and safetensors headers, and of a GGUF file's metadata, into one plain description. It must
never read a weight, and never import torch; a folder's configuration is completed by transformers' own defaults, since files leave out
what their family takes for granted. What the numbers cost in memory is in `demand.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.model import quantised
from engine.model.checks import ModelFiles, inspect_folder
from engine.model.gguf_header import GgufHeader, read_header
from engine.model.libraries import LIBRARIES

# Names of the input embedding and of the head, as the families' files call them; the last of each is GGUF's.
EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
    "token_embd.weight",
)
HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
EVERYTHING = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}  # GGUF families in which each so-manieth layer sees everything, the others a window
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class KvLayer:
    """Keys and values of one layer: head count, the sizes of a key and a value, and how far back is looked; 0 is everything."""

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int = 0

    @property
    def elements(self) -> int:
        """A position's."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's dimensions.

    Attributes:
        linear: weights in linear layers, the head included where it has its own.
        embedding: weights of the input embedding; the head is the same tensor if `tied`.
        rest: weights in everything else: norms, biases, position tables, fused experts.
        file_bytes: of all weights as they lie on the disk.
        quantised: how the weights are quantised in a way that stays so on loading ("bitsandbytes"); empty if they are plain numbers.
        layers: those that have a cache.
        context: the model's own longest context; 0 if it does not say.
        recurrent: some layers keep a state instead of keys and values.
    """

    family: str
    linear: int
    embedding: int
    tied: bool
    rest: int
    file_bytes: int
    quantised: str
    layers: tuple[KvLayer, ...]
    hidden: int
    wide: int
    experts_used: int
    vocabulary: int
    heads: int
    unfused: bool
    context: int
    recurrent: bool = False

    @property
    def tiled(self) -> bool:
        """Whether our own CPU kernels read such a cache (see `engine.model.native.lane`)."""
        sizes = [(layer.key_dim, layer.value_dim) for layer in self.layers]
        return not self.recurrent and all(tile_sizes(*pair) for pair in sizes)

    @property
    def elements(self) -> int:
        return self.linear + self.embedding + self.rest

    @property
    def kv_elements(self) -> int:
        """Cached numbers a position, all layers together."""
        return sum(layer.elements for layer in self.layers)

    @property
    def windowed(self) -> tuple[KvLayer, ...]:
        """The layers with a window, where there are others beside them."""
        found = tuple(layer for layer in self.layers if layer.window)
        return found if len(found) < len(self.layers) and not self.recurrent else ()

    def eight_bytes(self, width: int) -> int:
        """A position's in a cache of 8 bits, with those of the widest layer as numbers of `width` bytes, as which they are read; 0 where
        they are read in place."""
        kept = self.kv_elements + sum(2 * layer.kv_heads for layer in self.layers)  # see `eight.py`, which imports torch
        return kept + width * max((layer.elements for layer in self.layers), default=0)

    @property
    def group(self) -> int:
        """Most query heads a key head."""
        return max((-(-self.heads // layer.kv_heads) for layer in self.layers), default=1)


def tile_sizes(key_dim: int, value_dim: int) -> bool:
    """Whether our own CPU kernels take heads of so many numbers."""
    return key_dim % 2 == 0 and value_dim % 16 == 0 and max(key_dim, value_dim) <= 512


def read_files(path: Path) -> ModelFiles | GgufHeader:
    """What the headers of a model folder or GGUF file say, if it is whole.

    Raises:
        ModelError: as `inspect_folder` and `read_header`.
    """
    return inspect_folder(path) if path.is_dir() else read_header(path)


def shape_of(files: ModelFiles | GgufHeader) -> ModelShape:
    """Raises ModelError: "unknown_architecture", "bad_config"."""
    if isinstance(files, GgufHeader):
        return gguf_shape(files)
    from engine.model.loading import model_config

    with LIBRARIES:
        return folder_shape(files, model_config(files))


def read_shape(path: Path) -> ModelShape:
    """The shape of a model folder or GGUF file that is whole. Raises ModelError: as `read_files` and `shape_of`."""
    return shape_of(read_files(path))


# ------------------------------------------------------------------------------------------------------------ folders


def folder_shape(files: ModelFiles, config: Any) -> ModelShape:
    """`config` is a transformers configuration."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    tied = bool(getattr(text, "tie_word_embeddings", False)) or not any(name.endswith(HEADS) for name in files.tensors)
    linear, embedding, rest = _sorted_weights(
        (name, quantised.numbers(name, tensor.shape, files.config))
        for name, tensor in files.tensors.items()
        if not (tied and name.endswith(HEADS))
    )
    heads = _number(text, "num_attention_heads", 1)
    hidden = _number(text, "hidden_size", 1)
    return ModelShape(
        family=files.model_type,
        linear=linear,
        embedding=embedding,
        tied=tied,
        rest=rest,
        file_bytes=files.weight_bytes,
        quantised="" if (method := quantised.method_of(files.config)) in quantised.UNDONE else method,
        layers=_layers(text, heads, hidden),
        hidden=hidden,
        wide=_number(text, "intermediate_size", 4 * hidden),
        experts_used=_number(text, "num_experts_per_tok", 1),
        vocabulary=_number(text, "vocab_size", 1),
        heads=heads,
        unfused=bool(getattr(text, "attn_logit_softcapping", None)),
        context=_number(text, "max_position_embeddings", 0),
        recurrent=any("linear" in kind or "mamba" in kind for kind in getattr(text, "layer_types", None) or ()),
    )


def _layers(text: Any, heads: int, hidden: int) -> tuple[KvLayer, ...]:
    """The layers with keys and values of their own."""
    count = _number(text, "num_hidden_layers", 0)
    kinds = list(getattr(text, "layer_types", None) or ["attention"] * count)[:count]
    own = count - _number(text, "num_kv_shared_layers", 0)  # the last ones read what earlier ones wrote
    configs = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text] * count
    attending = [place for place in range(own) if "linear" not in kinds[place] and "mamba" not in kinds[place]]
    windows = [_number(configs[place], "sliding_window", 0) if kinds[place] == "sliding_attention" else 0 for place in attending]
    return tuple(replace(_layer(configs[place], heads, hidden), window=window) for place, window in zip(attending, windows, strict=True))


def _layer(text: Any, heads: int, hidden: int) -> KvLayer:
    kv_heads = _number(text, "num_key_value_heads", 0) or _number(text, "num_kv_heads", 0) or heads
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        kv_heads = 1
    size = _number(text, "head_dim", 0) or hidden // heads
    if _number(text, "kv_lora_rank", 0) and _number(text, "qk_nope_head_dim", 0):  # expanded before it is cached
        key = _number(text, "qk_nope_head_dim", 0) + _number(text, "qk_rope_head_dim", 0)
        return KvLayer(heads, key, _number(text, "v_head_dim", size))
    return KvLayer(kv_heads, size, size)


def _number(config: Any, name: str, default: int) -> int:
    """A size out of a configuration; the largest where it differs from layer to layer."""
    if getattr(config, "is_heterogeneous", False) and name in config.per_layer_attributes:
        return max(_number(layer, name, default) for layer in config.per_layer_config)
    value = getattr(config, name, None)
    if isinstance(value, (list, tuple)):
        value = max((item for item in value if isinstance(item, int)), default=None)
    return value if isinstance(value, int) and value > 0 else default


# --------------------------------------------------------------------------------------------------------------- GGUF


def gguf_shape(header: GgufHeader) -> ModelShape:
    family = header.architecture
    facts = _Facts(header)
    names = {tensor.name for tensor in header.tensors}
    tied = not any(name in HEADS for name in names)
    linear, embedding, rest = _sorted_weights((tensor.name, tensor.shape) for tensor in header.tensors)
    heads, hidden = facts.number("attention.head_count", 1), facts.number("embedding_length", 1)
    size = hidden // heads
    key, value = facts.number("attention.key_length", size), facts.number("attention.value_length", size)
    kv_heads = facts.per_layer("attention.head_count_kv", heads)
    table = next((tensor for tensor in header.tensors if tensor.name == "token_embd.weight"), None)
    return ModelShape(
        family=family,
        linear=linear,
        embedding=embedding,
        tied=tied,
        rest=rest,
        file_bytes=sum(tensor.size for tensor in header.tensors),
        quantised="",
        layers=tuple(KvLayer(count, key, value, window) for count, window in zip(kv_heads, facts.windows(), strict=True) if count),
        hidden=hidden,
        wide=facts.number("feed_forward_length", 4 * hidden),
        experts_used=facts.number("expert_used_count", 1),
        vocabulary=table.shape[-1] if table is not None and table.shape else 1,
        heads=heads,
        unfused=bool(facts.number("attn_logit_softcapping", 0)),
        context=facts.number("context_length", 0),
    )


class _Facts:
    """The metadata of a GGUF file's own architecture."""

    def __init__(self, header: GgufHeader) -> None:
        self._metadata = header.metadata
        self._family = header.architecture

    def number(self, name: str, default: int) -> int:
        value = self._metadata.get(f"{self._family}.{name}")
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=None)
        return int(value) if isinstance(value, (int, float)) and 0 < value < 1 << 60 else default

    def windows(self) -> list[int]:
        """Each layer's; of a family that is not known to mix them, none is told."""
        count, every = min(self.number("block_count", 0), 100_000), EVERYTHING.get(self._family)
        window = self.number("attention.sliding_window", 0) if every else 0
        return [window if every and (place + 1) % every else 0 for place in range(count)]

    def per_layer(self, name: str, default: int) -> list[int]:
        count = min(self.number("block_count", 0), 100_000)
        value = self._metadata.get(f"{self._family}.{name}")
        if isinstance(value, list) and len(value) == count and all(isinstance(item, int) and 0 <= item < 1 << 30 for item in value):
            return value
        return [self.number(name, default)] * count


# -------------------------------------------------------------------------------------------------------------- shared


def _sorted_weights(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[int, int, int]:
    """(linear, embedding, rest) of named shapes, in elements."""
    counts = {"linear": 0, "embedding": 0, "rest": 0}
    for name, shape in tensors:
        counts[kind_of(name, shape)] += math.prod(shape)
    return counts["linear"], counts["embedding"], counts["rest"]


def kind_of(name: str, shape: tuple[int, ...]) -> str:
    """What a named weight is: "linear" (a head of its own, too), "embedding", or "rest"."""
    if name.endswith(EMBEDDINGS):
        return "embedding"
    if len(shape) != 2 or ".experts." in name or "_exps" in name or "embed" in name or name.endswith("wpe.weight"):
        return "rest"
    return "linear"
