"""Layers of a model on our own kernels: products with weights of 16, 8 and 4 bits, and the gated products of an MLP.

Owns how a weight is packed for `products.c`, and the knowledge of which MLPs are of the gated kind (found out on numbers, not by name).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, silu

from engine.model.native import library
from engine.model.packed.kernel import Kernel

COLUMNS = 32  # of a panel, as in common.h
GATES = 16  # of a gated panel; as many others follow
GROUP = 16  # pairs of inputs that share a step, as in sums.h
HALF_OFF = 1e-3  # how far float16 may be from a step or a lowest value, of the larger of both
TINY = 1e-30  # stands for the scale of a column of zeros

Grid = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # levels, steps, lowest values: see `NativeInt4`

ACTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (silu, lambda x: gelu(x, approximate="tanh"))  # in the order of products.c
_SAME = 1e-6  # between an activation and one of ours
_ROUGHLY = 0.02  # of the largest result, between an MLP and a gated one: its weights may have 16 bits


class Native(Kernel):
    """One weight in panels: bfloat16 numbers, bytes with a scale a column, or levels on a grid (see sums.h)."""

    def _keep(self, rows: torch.Tensor) -> None:
        """Pack `rows` [N, K], whose order is that of the panels' columns."""
        self._hold(*self.packed_of(rows))

    def _hold(self, packed: torch.Tensor, scale: torch.Tensor) -> None:
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.weight_bytes = packed.numel() * packed.element_size() + 4 * scale.numel()

    @staticmethod
    def packed_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the panels, the scales of their columns; empty without any)"""
        raise NotImplementedError


class _Halves(Native):
    precision = "16-bit"

    @staticmethod
    def packed_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return panels(rows), torch.empty(0)


class _Bytes(Native):
    precision = "8-bit"

    @staticmethod
    def packed_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return byte_panels(rows)


class _Levels(Native):
    precision = "4-bit"


class _Linear(Native):
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        need_kernels()
        self._keep(weight)
        self._keep_bias(bias)

    def _keep_bias(self, bias: torch.Tensor | None) -> None:
        self.register_buffer("bias", torch.empty(0) if bias is None else bias.detach().float().contiguous(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.omnibus.linear(x.contiguous(), self.packed, self.scale, self.bias, self.out_features)


class NativeBFloat16(_Halves, _Linear):
    """bfloat16 weights and activations, float32 sums, at the speed of the memory for a few rows; a row's result never depends on others."""

    label = "native-bf16"


class NativeInt8(_Bytes, _Linear):
    """int8 weights with a scale an output channel, bfloat16 activations, float32 sums: half the memory traffic of `NativeBFloat16`."""

    label = "native-int8"


class NativeInt4(_Levels, _Linear):
    """Levels of 4 bits with a step and a lowest value for every 32 inputs, both float16, which is what GGUF's Q4_0 and Q4_1 keep: such
    weights lose nothing. bfloat16 activations, float32 sums, a third of the memory traffic of `NativeBFloat16`.

    Args:
        levels: uint8 [N, K] of 0..15.
        step, low: float32 [N, K / 32]; weight = level * step + low, as `grid.find` gives them.
        bias: [N].

    Raises ValueError where float16 cannot hold a step or a lowest value.
    """

    label = "native-int4"

    @classmethod
    def fits(cls, out_features: int, in_features: int) -> bool:
        return in_features % (2 * GROUP) == 0

    def __init__(self, levels: torch.Tensor, step: torch.Tensor, low: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        Kernel.__init__(self, levels)
        need_kernels()
        self._hold(level_panels(levels, step, low), torch.empty(0))
        self._keep_bias(bias)


class _Gated(Native):
    """act(x G^T) * (x U^T) of one pass over both weights: the first half of a gated MLP (Shazeer, 2020)."""

    def __init__(self, gate: torch.Tensor, up: torch.Tensor, act: int) -> None:
        super().__init__(gate)
        need_kernels()
        self.act = act
        self._keep(_alternating(gate, up))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.omnibus.gated(x.contiguous(), self.packed, self.scale, self.act, self.out_features)


class GatedBFloat16(_Halves, _Gated):
    label = "native-gated-bf16"


class GatedInt8(_Bytes, _Gated):
    label = "native-gated-int8"


class GatedInt4(_Levels, _Gated):
    """Takes (levels, step, low) of both weights; see `NativeInt4`."""

    label = "native-gated-int4"

    def __init__(self, gate: Grid, up: Grid, act: int) -> None:
        Kernel.__init__(self, gate[0])
        need_kernels()
        self.act = act
        self._hold(gated_panels(gate, up), torch.empty(0))


# The gated product that goes with a plain one.
GATED: dict[type[Kernel], type[_Gated]] = {NativeBFloat16: GatedBFloat16, NativeInt8: GatedInt8, NativeInt4: GatedInt4}


class GatedForward:
    """The forward pass of an MLP whose gate and up are one product; its last layer stays where it was."""

    def __init__(self, mlp: nn.Module, first: Kernel, down: str) -> None:
        self._mlp, self._first, self._down = mlp, first, down

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = getattr(self._mlp, self._down)(self._first(x))
        return out


def panels(weight: torch.Tensor) -> torch.Tensor:
    """A weight [N, K] of any floating dtype as bfloat16 [ceil(N / 32), ceil(K / 2), 32, 2], padded with zeros."""
    return _in_panels(weight.detach().to(torch.bfloat16))


def byte_panels(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight [N, K] as (uint8 [ceil(N / 32), ceil(K / 2), 64], float32 [ceil(N / 32) * 32]): each byte a sign and a level of 0..127, each
    column with a scale. The order of the 64 is that in which `widen` of products.c takes them apart."""
    weight = weight.detach().float()
    scale = weight.abs().amax(1).clamp_min(TINY) / 127
    levels = (weight / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    signed = (levels.abs() | ((levels < 0).to(torch.int8) << 7)).view(torch.uint8)
    packed = _in_panels(signed)
    count, pairs = packed.shape[:2]
    ordered = packed.view(count, pairs, 2, 4, 8).transpose(2, 3).reshape(count, pairs, 2 * COLUMNS).contiguous()
    scales = torch.ones(count * COLUMNS)
    scales[: len(scale)] = scale
    return ordered, scales


def level_panels(levels: torch.Tensor, step: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """uint8 [ceil(N / 32), K / 32, 640]: for each group of 32 inputs 16 times 32 bytes, whose low halves are the levels of the first 16
    columns and whose high halves those of the others, then 32 steps and 32 lowest values in float16. K must divide by 32.

    Raises ValueError where float16 cannot hold a step or a lowest value.
    """
    scales = torch.stack((step.float(), low.float()))  # [2, N, K / 32]
    halves = scales.half()
    if not bool(((halves.float() - scales).abs() <= HALF_OFF * scales.abs().amax(0)).all()):
        raise ValueError("its steps are too large or too small for 16 bits")
    pairs = _in_panels(levels)  # [panels, K / 2, 32, 2]
    count, groups = pairs.shape[0], pairs.shape[1] // GROUP
    both = pairs.view(count, groups, GROUP, 2, COLUMNS)  # the first 16 columns' pairs, those of the others
    nibbles = (both[..., 0, :] | both[..., 1, :] << 4).reshape(count, groups, GROUP * COLUMNS)
    padded = torch.zeros(2, count * COLUMNS, groups, dtype=torch.float16)
    padded[:, : halves.shape[1]] = halves
    beside = padded.view(2, count, COLUMNS, groups).permute(1, 3, 0, 2).contiguous().view(torch.uint8).view(count, groups, 4 * COLUMNS)
    return torch.cat((nibbles, beside), -1)


def gated_panels(gate: Grid, up: Grid) -> torch.Tensor:
    """`level_panels` of both weights of a gated product. Raises ValueError."""
    return level_panels(*map(_alternating, gate, up))


def _alternating(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Rows of a gated panel, [n * 32, ...]: 16 of `gate`, as many of `up`, and so on; zeros fill the last."""
    columns, inputs = gate.shape
    padded = torch.zeros(2, -(-columns // GATES) * GATES, inputs, dtype=gate.dtype)
    padded[0, :columns], padded[1, :columns] = gate, up
    return padded.view(2, -1, GATES, inputs).transpose(0, 1).reshape(-1, inputs)


def _in_panels(weight: torch.Tensor) -> torch.Tensor:
    rows, inputs = weight.shape
    count, pairs = -(-rows // COLUMNS), -(-inputs // 2)
    if (rows, inputs) != (count * COLUMNS, pairs * 2):
        whole = torch.zeros(count * COLUMNS, pairs * 2, dtype=weight.dtype)
        whole[:rows, :inputs] = weight
        weight = whole
    # A pair moves as one number of twice the width: torch turns those several times as fast as runs of two.
    wide = torch.int32 if weight.element_size() == 2 else torch.int16
    weight = weight.contiguous() if weight.storage_offset() % 2 == 0 else weight.clone(memory_format=torch.contiguous_format)
    turned = weight.view(wide).view(count, COLUMNS, pairs).transpose(1, 2).contiguous()
    return turned.view(weight.dtype).view(count, pairs, COLUMNS, 2)


def need_kernels() -> None:
    """Raises RuntimeError with the reason where our kernels cannot run."""
    reason = library.fault()
    if reason is not None:
        raise RuntimeError(reason)


def gated_act(mlp: nn.Module, gate: str, up: str) -> tuple[int, str] | None:
    """(number of the activation, name of the last layer) if `mlp` computes down(act(gate(x)) * up(x)), else None."""
    first, second = getattr(mlp, gate), getattr(mlp, up)
    last = [name for name, child in mlp.named_children() if name not in (gate, up) and type(child) is nn.Linear]
    if len(last) != 1 or first.bias is not None or second.bias is not None or first.weight.shape != second.weight.shape:
        return None
    act = _act_of(mlp)
    if act is None:
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, first.in_features, generator=generator).to(first.weight.dtype)
    with torch.no_grad():
        try:
            wanted: Any = mlp(x)
        except (TypeError, RuntimeError, ValueError, AttributeError):  # it takes something else than one tensor
            return None
        ours = getattr(mlp, last[0])(ACTS[act](first(x)) * second(x))
    if not isinstance(wanted, torch.Tensor) or wanted.shape != ours.shape:
        return None
    return (act, last[0]) if float((wanted - ours).abs().max()) <= _ROUGHLY * float(ours.abs().max()) else None


def _act_of(mlp: nn.Module) -> int | None:
    points = torch.linspace(-8, 8, 257)
    for name in ("act_fn", "activation_fn", "act"):
        act = getattr(mlp, name, None)
        if callable(act):
            try:
                values = act(points)
            except (TypeError, RuntimeError, ValueError):
                return None
            return next((place for place, ours in enumerate(ACTS) if float((ours(points) - values).abs().max()) <= _SAME), None)
    return None
