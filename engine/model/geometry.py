"""What a model asks of the cache: the facts that the probe found, and how a step is handed to a model.

Owns the shapes of keys, values and states, and which way of riding a model takes. Found out by `probe.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch

from engine.model import eight
from engine.model.states import HELD, StateShape


class Ride(StrEnum):
    """How a step's rows go through a model.

    PACKED: as one row, attention over the pool in our own operations. ALONE: each row by itself through the model's own attention, over
    its blocks gathered; for models that do not go through transformers' attention interface.
    """

    PACKED = "packed"
    ALONE = "row by row"


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer's keys and values: head counts and sizes, dtype and device of the tensors the model produces; whether they are kept in
    eight bits instead (see `eight.py`)."""

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device
    eight: bool = False

    @property
    def kept_as(self) -> torch.dtype:
        return torch.int8 if self.eight else self.dtype

    def kept(self, size: int) -> int:
        """Elements of the cache that a row of `size` numbers takes."""
        return eight.width(size) if self.eight else size

    def bytes_per_position(self) -> int:
        return self.kv_heads * (self.kept(self.key_dim) + self.kept(self.value_dim)) * self.kept_as.itemsize

    def plain_bytes(self) -> int:
        """A position's as the attention computes with them."""
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
        latent: layers that store latents and make keys and values of a whole history anew in each step (multi-head latent attention).
        states: what recurrent layers keep of a request.
        one_by_one: recurrent layers go on from a state with one token at a time only.
        ride: how rows go through the model.
        in_place: our own kernels read the cache where it lies, whatever it is kept in.
        reach: by layer that stores, how far back those that read its keys look, themselves included; 0 is everything. Empty where a layer
            is read both ways.
        slotted: layers with a reach keep blocks in slots of their own (see `engine/kv/slots.py`), not each in the place of its number.
    """

    layers: dict[int, LayerShape]
    readers: dict[int, int]
    windows: tuple[int, ...]
    heads: int
    group: int
    latent: frozenset[int] = frozenset()
    states: tuple[StateShape, ...] = ()
    one_by_one: bool = False
    ride: Ride = Ride.PACKED
    in_place: bool = False
    reach: dict[int, int] = field(default_factory=dict)
    slotted: bool = False

    def in_slots(self, layer: int) -> bool:
        """Are the blocks of this layer, which stores, found by slot?"""
        return self.slotted and self.reach.get(layer, 0) > 0

    def windowed_bytes(self) -> int:
        """A position's, in the layers whose readers all have a window."""
        return sum(shape.bytes_per_position() for layer, shape in self.layers.items() if self.reach.get(layer))

    def bytes_per_position(self, device: torch.device | None = None) -> int:
        """Of all layers, or of those on one device."""
        return sum(shape.bytes_per_position() for shape in self.layers.values() if device in (None, shape.device))

    def unpacked_bytes(self) -> int:
        """A position's, in the widest of the layers that are turned into numbers again to be read, one layer after another; else 0."""
        return 0 if self.in_place else max((shape.plain_bytes() for shape in self.layers.values() if shape.eight), default=0)

    def in_eight_bits(self) -> Geometry:
        """The same with all keys and values in eight bits."""
        return replace(self, layers={number: replace(shape, eight=True) for number, shape in self.layers.items()})

    @property
    def eight(self) -> bool:
        """Are keys and values kept in eight bits?"""
        return any(shape.eight for shape in self.layers.values())

    @property
    def kv_class(self) -> str:
        """What keys and values are kept in, for a person; "" without any."""
        names = ["8-bit" if shape.eight else str(shape.dtype).removeprefix("torch.") for shape in self.layers.values()]
        return ", ".join(dict.fromkeys(names))

    def bytes_per_seat(self) -> int:
        """Of the states; 0 without recurrent layers."""
        return HELD * sum(shape.bytes() for shape in self.states)

    @property
    def by_row(self) -> bool:
        """Do steps need each row's blocks by themselves?"""
        return bool(self.latent) or self.ride is Ride.ALONE

    @property
    def plain(self) -> bool:
        """Nothing but packed attention: a step is the same operations whatever its rows, so it can be recorded."""
        return not self.by_row and not self.states

    @property
    def device(self) -> torch.device:
        return self.devices[0]

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Each that holds a layer's cache, in the order of the layers."""
        of_layers = [shape.device for shape in self.layers.values()]
        return tuple(dict.fromkeys(of_layers + [shape.device for shape in self.states]))


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
