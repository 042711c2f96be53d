"""What is kept of a model that rides on our own kernels: its packed weights, its recorded step, its tokenizer, and facts about it.

Owns how these are told and heard, and the stand-in for the model itself: a recording needs no modules. Only models that are all of that
are kept (plain attention, every step from one recording); with those nothing is lost, for what a step gives was hashed when it was kept,
and must be the same to the last bit when it is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from engine.model.geometry import Geometry, LayerShape
from engine.model.graph import Recording, weights_of
from engine.model.kept.file import Damaged
from engine.model.lane import few_threads
from engine.model.loading import LoadedModel
from engine.model.native.lane import TileLane, proof, quicken
from engine.model.pooling import size_of
from engine.model.runner import TorchRunner, reshape_cache
from engine.text.codec import Codec, CodecParts

STEP, TOKENIZER = "step", "tokenizer"  # texts
# What the memory plan, embeddings and made-up steps ask a configuration for.
_ASKED = ("hidden_size", "intermediate_size", "vocab_size", "num_experts_per_tok", "attn_logit_softcapping")


class KeptModel(nn.Module):
    """Stands for a model of which nothing is left but a recording and its weights.

    Attributes:
        config: the few numbers of the configuration that are asked for after a load.
        embedding_size: as `size_of` tells it of the model itself.
    """

    def __init__(self, config: dict[str, Any], embedding_size: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.embedding_size = embedding_size
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)  # tells device and dtype


@dataclass(frozen=True, slots=True)
class Kept:
    """A model that was taken: `loaded` as a load would give it, and the lane for its steps, whose windowed layers keep blocks in slots or
    do not (see `engine/model/slots.py`)."""

    loaded: LoadedModel
    lane: TileLane
    slotted: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into a file, and comes out of one."""

    facts: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    texts: dict[str, bytes]


def told(loaded: LoadedModel, runner: TorchRunner) -> Contents | None:
    """Everything of a model that was just opened; None where there is more to it than can be kept."""
    lane, geometry, codec = runner.fast, runner.store.geometry, loaded.codec.parts()
    if not isinstance(lane, TileLane) or lane.recording is None or not lane.recording.portable or codec is None or not geometry.plain:
        return None
    weights = weights_of(loaded.torch_model)
    chosen = {name: weights[name] for name in lane.recording.names}
    if not all(isinstance(weight, torch.Tensor) for weight in chosen.values()):
        return None
    config = loaded.torch_model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    model = {name: getattr(config, name, None) for name in _ASKED}
    if not all(value is None or isinstance(value, (int, float)) for value in model.values()):
        return None
    facts = {
        "loaded": {name: getattr(loaded, name) for name in ("context", "vocab_size", "dtype", "weight_bytes", "family", "architecture")},
        "config": model,
        "embedding_size": size_of(loaded.torch_model),
        "geometry": _geometry_told(geometry),
        "block_size": runner.store.block_size,
        "codec": {"named": dict(codec.named), "eos_ids": codec.eos_ids, "chat_template": codec.chat_template},
        "proof": proof(loaded.torch_model, geometry, runner.store.block_size, lane.recording),
    }
    return Contents(facts, chosen, {STEP: lane.recording.to_bytes(), TOKENIZER: codec.tokenizer.encode()})


def codec_of(facts: dict[str, Any], tokenizer: str) -> Codec:
    about = facts["codec"]
    return Codec.again(CodecParts(tokenizer, about["named"], tuple(about["eos_ids"]), about["chat_template"]))


def heard(contents: Contents, codec: Codec, name: str, folder: Path, failed: Callable[[], None]) -> Kept:
    """The model again. Raises Damaged where its step gives anything else than when it was kept; RuntimeError, KeyError, TypeError or
    ValueError for contents of another kind. `failed` hears of a step that fails later."""
    facts = contents.facts
    recording = Recording.of_bytes(contents.texts[STEP], contents.tensors)
    geometry, block_size = _geometry_heard(facts["geometry"]), int(facts["block_size"])
    quicken(recording, geometry)
    model = KeptModel(facts["config"], int(facts["embedding_size"]))
    loaded = LoadedModel(name=name, codec=codec, device="cpu", torch_model=model, folder=folder, **facts["loaded"])
    with few_threads(loaded):
        if proof(model, geometry, block_size, recording) != facts["proof"]:
            raise Damaged("its step gives other results than when it was kept")
    reshape_cache(model, replace(geometry, slotted=False))  # as it is before the plan
    return Kept(loaded, TileLane(None, geometry, block_size, recording, failed), geometry.slotted)


def _geometry_told(geometry: Geometry) -> dict[str, Any]:
    layers = {
        number: {**asdict(shape), "dtype": str(shape.dtype).removeprefix("torch."), "device": shape.device.type}
        for number, shape in geometry.layers.items()
    }
    return {
        "layers": layers,
        "readers": geometry.readers,
        "windows": geometry.windows,
        "heads": geometry.heads,
        "group": geometry.group,
        "in_place": geometry.in_place,
        "reach": geometry.reach,
        "slotted": geometry.slotted,
    }


def _geometry_heard(facts: dict[str, Any]) -> Geometry:
    """JSON has made texts of the layers' numbers."""
    layers = {
        int(number): LayerShape(**{**shape, "dtype": getattr(torch, shape["dtype"]), "device": torch.device(shape["device"])})
        for number, shape in facts["layers"].items()
    }
    readers = {int(reader): source for reader, source in facts["readers"].items()}
    plain = Geometry(layers, readers, tuple(facts["windows"]), facts["heads"], facts["group"])
    reach = {int(layer): window for layer, window in facts["reach"].items()}
    return replace(plain, in_place=facts["in_place"], reach=reach, slotted=facts["slotted"])
