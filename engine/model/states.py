"""States of recurrent layers: one row a request beside the KV blocks, and the way a mixer meets only the rows it can take together.

A mixer (a convolution, Mamba, a gated delta rule) has no keys to look back at: what it knows of a request is a state of fixed size, which
each token changes. Rows of a ragged step cannot go through one in a single call, so they go in groups of one length, every group with its
own states; the rest of the layer stays one packed row. Owns the states' tensors and who holds which; speaks transformers' protocol for
linear-attention caches (5.24: get_conv_state, update_conv_state, and their recurrent twins). Knows no family.

A request holds two states: the one its row starts from, and the one its row leads to. Running a row again therefore starts from the same
place, as the runner promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState

Key = tuple[int, str, int]  # layer, "conv" or "recurrent", number of the state within the layer
HELD = 2  # states a request may hold


@dataclass(frozen=True, slots=True)
class StateShape:
    """One state of one layer: its size for a single request [...], dtype and device."""

    layer: int
    kind: str
    number: int
    size: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def key(self) -> Key:
        return self.layer, self.kind, self.number

    def bytes(self) -> int:
        return torch.Size(self.size).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StateGroup:
    """Rows of one length: P rows of `count` tokens.

    Attributes:
        tokens: [P * count] int64, places in the packed row, a row's tokens together.
        source: [P] int64, the states they start from; unused content where `fresh`.
        target: [P] int64, the states they lead to.
        count: tokens a row.
        fresh: the rows begin at position 0, from no state.
    """

    tokens: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    count: int
    fresh: bool


class SeatStates:
    """The states of all layers and requests.

    Attributes:
        tensors: by key, [slots, ...].
    """

    def __init__(self, shapes: Iterable[StateShape], slots: int = 2 * HELD) -> None:
        self.shapes = tuple(shapes)
        self.tensors = {shape.key: torch.zeros((slots, *shape.size), dtype=shape.dtype, device=shape.device) for shape in self.shapes}
        self._slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._held: dict[str, dict[int, int]] = {}  # request -> position reached -> slot

    @property
    def holders(self) -> int:
        """Requests that hold a state."""
        return len(self._held)

    def place(self, row: Row) -> tuple[int, int]:
        """(the slot the row starts from, the slot it leads to); the first means nothing for a row that starts at 0.

        Raises RuntimeError for a row whose beginning was never computed here: a state cannot be had from KV blocks.
        """
        held = self._held.setdefault(row.request.id, {})
        if row.start and row.start not in held:
            raise RuntimeError(f"request {row.request.id} has no state for position {row.start}")
        source = held.get(row.start, 0) if row.start else 0
        for position in [position for position in held if not row.start or position != row.start]:
            self._free.append(held.pop(position))
        if not self._free:
            self._grow()
        target = held[row.start + row.count] = self._free.pop()
        return source, target

    def forget(self, request: RequestState) -> None:
        self._free += self._held.pop(request.id, {}).values()

    def close(self) -> None:
        self.tensors.clear()
        self._held.clear()

    def _grow(self) -> None:
        for key, old in self.tensors.items():
            self.tensors[key] = torch.cat((old, torch.zeros_like(old)))
        self._free += range(2 * self._slots - 1, self._slots - 1, -1)
        self._slots *= 2


class GroupCache:
    """What one mixer takes for its cache while it computes one group: transformers' protocol over a few states.

    `fresh` is seen as "nothing before". Afterwards `states` holds, by key, what the group leads to.
    """

    def __init__(self, states: dict[Key, torch.Tensor], fresh: bool) -> None:
        self.states = states
        self._fresh = fresh

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return None if self._fresh else self.states.get((layer_idx, "conv", state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return None if self._fresh else self.states.get((layer_idx, "recurrent", state_idx))

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return not self._fresh

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any
    ) -> torch.Tensor:
        """Append [P, channels, tokens]; returns all there is to see, at least as long as the kernel."""
        key = (layer_idx, "conv", state_idx)
        before = None if self._fresh else self.states.get(key)
        length = conv_kernel_size or conv_states.shape[-1]
        if before is None:
            full = pad(conv_states, (max(0, length - conv_states.shape[-1]), 0))
        else:
            length = before.shape[-1]
            full = torch.cat((before, conv_states.to(before.dtype)), -1)
        self.states[key] = full[..., -length:]
        return full

    def update_recurrent_state(self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        self.states[layer_idx, "recurrent", state_idx] = recurrent_states
        return recurrent_states


class Mixing:
    """Stands in for a mixer's forward: a step is asked to lead the rows through it, anything else goes straight to the mixer."""

    def __init__(self, module: nn.Module, layer: int) -> None:
        self.own: Callable[..., Any] = module.forward
        self.layer = layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        lead = getattr(kwargs.get("cache"), "mix", None)
        if lead is None:
            return self.own(*args, **kwargs)
        if args:
            kwargs["hidden_states"], *rest = args
            if rest:
                raise TypeError("a mixer was given more by place than its input")
        return lead(self, **kwargs)

    def through(self, cache: GroupCache, hidden: torch.Tensor, one_by_one: bool, kwargs: dict[str, Any]) -> torch.Tensor:
        """The mixer over one group: hidden [P, count, size] to [P, count, size].

        one_by_one: it drops the state it is given when it gets several tokens at once (Mamba without its kernels), so it gets one.
        """
        if one_by_one and hidden.shape[1] > 1:
            return torch.cat([self.through(cache, token, False, kwargs) for token in hidden.split(1, 1)], 1)
        out = self.own(hidden_states=hidden, cache=cache, **kwargs)
        return out[0] if isinstance(out, tuple) else out


def resumes(mixer: Mixing, hidden_size: int, like: torch.Tensor, kwargs: dict[str, Any]) -> bool:
    """Does the mixer go on from a state when it gets several tokens at once? Tried on six made-up tokens."""
    generator = torch.Generator().manual_seed(0)
    made_up = torch.randn(1, 6, hidden_size, generator=generator).to(like)
    whole = mixer.through(GroupCache({}, True), made_up, False, dict(kwargs))
    first = GroupCache({}, True)
    mixer.through(first, made_up[:, :3], False, dict(kwargs))
    rest = mixer.through(GroupCache(first.states, False), made_up[:, 3:], False, dict(kwargs))
    allowed = (2e-3 if like.dtype == torch.float32 else 0.1) * float(whole.abs().max())
    return float((whole[:, 3:] - rest).abs().max()) <= allowed


def install(module: nn.Module, layer: int) -> Mixing:
    """Lead the rows of a step through this mixer in groups, from now on; again is harmless."""
    present = module.__dict__.get("forward")
    if isinstance(present, Mixing):
        return present
    mixing = Mixing(module, layer)
    module.forward = mixing  # type: ignore[method-assign]
    return mixing
