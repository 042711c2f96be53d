"""Swaps a loaded model's linear layers for packed ones, in place, for one class of precision.

Owns the choice of kernel for each layer, which layers share a product, what becomes of a head tied to the embedding, and the report of
all that. Must never change what a layer computes beyond its class's rounding; a class is named by the divergence that
`omnibus bench accuracy` measures, not by hopes. What a class means is in `packed/kernels.py`.

After packing, parameters that are left (norms, biases) are float32, as are activations between layers, and the model can no longer be
trained, saved or moved.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from engine.model.native.modules import GATED, GatedForward, GatedInt4, Native, NativeBFloat16, NativeInt4, NativeInt8, gated_act
from engine.model.native.pages import settle
from engine.model.packed import grid
from engine.model.packed.kernel import Kernel
from engine.model.packed.kernels import FbgemmHalf, FbgemmInt8, Int4, OneDnnBFloat16, OneDnnFloat, Plain, fault, packing, row_exact
from engine.model.packed.modules import HalfEmbedding, SharedProduct, Sibling
from engine.types import ModelError, Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRECISIONS = ("auto", "f32", "16-bit", "8-bit", "4-bit")

# Names of layers that read the same tensor in their parent's forward. A wrong guess costs time, not correctness (see `SharedProduct`).
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("query", "key", "value"), ("w1", "w3"))

# The best kernel first; each class ends where every machine can follow.
_CHOICES: dict[str, tuple[type[Kernel], ...]] = {
    "f32": (OneDnnFloat, Plain),
    "16-bit": (NativeBFloat16, OneDnnBFloat16, FbgemmHalf, OneDnnFloat, Plain),
    "8-bit": (NativeInt8, FbgemmInt8, OneDnnFloat, Plain),
}

# For weights on a 4-bit grid; there is no other way to run them.
_GRID_CHOICES: tuple[type[NativeInt4] | type[Int4], ...] = (NativeInt4, Int4)


@dataclass(frozen=True, slots=True)
class PackReport:
    """What `pack_linears` did.

    Attributes:
        asked: the precision asked for.
        precision: the class the model now is in.
        kernels: how many products run on which kernel, by label.
        layers: linear layers packed; fewer products than layers means that siblings share one.
        row_exact: a row's result does not depend, bit for bit, on how many rows it rides with.
        weight_bytes: all of the model's weights now.
        weight_bytes_before: all of the model's weights before.
        notes: sentences on what was done otherwise than asked, and why.
        seconds: how long it took.
    """

    asked: str
    precision: str
    kernels: dict[str, int]
    layers: int
    row_exact: bool
    weight_bytes: int
    weight_bytes_before: int
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """One line for a log."""
        kernels = ", ".join(f"{count} {label}" for label, count in sorted(self.kernels.items()))
        size = f"{self.weight_bytes_before / 2**20:.0f} to {self.weight_bytes / 2**20:.0f} MiB"
        notes = "".join(f" {note}" for note in self.notes)
        return f"{self.precision}: {self.layers} linear layers as {kernels}; {size} in {self.seconds:.1f} s.{notes}"


def pack_linears(model: PreTrainedModel, precision: str = "auto") -> PackReport:
    """Replace every linear layer of `model`, its head included, by a packed one.

    The model's weights may have any floating dtype. Each original is let go as soon as it is packed, so that memory never holds much more
    than the larger of both.

    Raises ModelError: "bad_precision" for a name not in PRECISIONS; "not_on_grid" for "4-bit" when the weights were never rounded to a
    GGUF 4-bit grid; "no_kernel" for "4-bit" on a machine without the kernel.
    """
    if precision not in PRECISIONS:
        raise ModelError(
            "bad_precision", Sentence("There is no precision {0!r}.", precision), Sentence("Choose one of {0}.", ", ".join(PRECISIONS))
        )
    began = time.perf_counter()
    return _Packing(model, precision).run(began)


def keeps_grids() -> bool:
    """Whether "auto" keeps weights that lie on a 4-bit grid as they are: nothing is lost, and our own kernel is the fastest for them."""
    return fault(NativeInt4) is None


def choose(precision: str) -> tuple[type[Kernel], list[str]]:
    """The kernel for a class on this machine, and why not those that would be better. "auto" is 16-bit where that is fast, else
    f32, for weights that are on no grid (see `keeps_grids`)."""
    if precision == "auto":
        kernel, notes = choose("16-bit")
        return (kernel, []) if kernel.precision == "16-bit" else (kernel, notes)
    passed_over: list[str] = []
    for kernel in _CHOICES[precision]:
        reason = fault(kernel)
        if reason is None:
            return kernel, passed_over
        passed_over.append(f"{kernel.label} cannot run here: {reason}.")
    raise AssertionError("the plain kernel runs everywhere")


@dataclass(slots=True)
class _Group:
    """Layers that become one product: names under one parent, in column order."""

    parent: nn.Module
    names: tuple[str, ...]
    path: str
    head: bool
    layers: list[nn.Module]
    gated: tuple[int, str] | None = None  # see `gated_act`


class _Packing:
    """One run of `pack_linears`."""

    def __init__(self, model: PreTrainedModel, precision: str) -> None:
        self.model = model
        self.asked = precision
        self.notes: list[str] = []
        self.used: Counter[type[Kernel]] = Counter()
        self._gated_kinds: dict[tuple[object, ...], tuple[int, str] | None] = {}
        self.base, passed_over = choose("16-bit" if precision == "4-bit" else precision)
        self.on_grid = next((kernel for kernel in _GRID_CHOICES if fault(kernel) is None), None) if precision == "4-bit" else None
        if self.base.precision != {"auto": "16-bit", "4-bit": "16-bit"}.get(precision, precision):
            self.notes += passed_over

    def run(self, began: float) -> PackReport:
        before = _model_bytes(self.model)
        groups = list(self._groups())
        layers = sum(len(group.layers) for group in groups)
        if self.asked == "4-bit":
            self._check_grid(groups)
        elif self.asked == "auto" and keeps_grids():
            self.on_grid = NativeInt4
            if self._off_grid(groups) > 1 - grid.GRID_SHARE:
                self.on_grid = None
        with torch.no_grad():
            tied = self._tied()
            self._pack_all(groups)
            self._shrink_embedding(tied)
            self._widen_rest()
            settle(module for module in self.model.modules() if isinstance(module, Native))
        precision = self.base.precision if self.on_grid is None else "4-bit"
        return PackReport(
            asked=self.asked,
            precision=precision,
            kernels={kernel.label: count for kernel, count in self.used.items()},
            layers=layers,
            row_exact=all(row_exact(kernel) for kernel in self.used if kernel not in GATED.values()),  # those add as the plain ones do
            weight_bytes=_model_bytes(self.model),
            weight_bytes_before=before,
            notes=tuple(self.notes),
            seconds=time.perf_counter() - began,
        )

    # ----------------------------------------------------------------------------------------------------------- layers

    def _groups(self) -> Iterable[_Group]:
        """Every linear layer once, siblings together."""
        head = self.model.get_output_embeddings()
        for path, parent in list(self.model.named_modules()):
            linears = {name: child for name, child in parent.named_children() if _is_linear(child) and not _reads(parent.__class__, name)}
            for names in SIBLINGS:
                members = [linears[name] for name in names if name in linears]
                if len(members) == len(names) and len({_shape(member)[1] for member in members}) == 1:
                    yield _Group(parent, names, path, False, members, self._gated(parent, names))
                    for name in names:
                        del linears[name]
            for name, child in linears.items():
                yield _Group(parent, (name,), path, child is head, [child])

    def _gated(self, parent: nn.Module, names: tuple[str, ...]) -> tuple[int, str] | None:
        """Asked once a kind of MLP: asking takes a pass through its weights."""
        members = [getattr(parent, name) for name in names]
        if self.base not in GATED or self.on_grid is Int4 or len(names) != 2 or any(each.bias is not None for each in members):
            return None
        kind = (type(parent), names, *map(_shape, members))
        if kind not in self._gated_kinds:
            self._gated_kinds[kind] = gated_act(parent, *names)
        return self._gated_kinds[kind]

    def _pack_all(self, groups: list[_Group]) -> None:
        """Pack on as many threads as torch uses (FBGEMM packs on one), the largest product, usually the head, first."""
        groups.sort(key=lambda group: -sum(_weight(layer).numel() for layer in group.layers))
        with packing(), ThreadPoolExecutor(torch.get_num_threads(), "omnibus-pack") as pool:
            for kernel in pool.map(self._pack, groups):
                self.used[type(kernel)] += 1

    def _pack(self, group: _Group) -> Kernel:
        weights = [_weight(layer) for layer in group.layers]
        if group.gated is not None:
            return self._pack_gated(group, *weights)
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        with torch.no_grad():
            kernel = self._kernel(weight, _bias(group.layers, weights), group)
        if len(group.names) == 1:
            setattr(group.parent, group.names[0], kernel)
        else:
            shared = SharedProduct(kernel, len(group.names))
            start = 0
            for name, part in zip(group.names, weights, strict=True):
                setattr(group.parent, name, Sibling(shared, part.shape[1], start, part.shape[0]))
                start += part.shape[0]
        group.layers.clear()  # the last reference to the originals
        return kernel

    def _pack_gated(self, group: _Group, gate: torch.Tensor, up: torch.Tensor) -> Kernel:
        assert group.gated is not None
        act, down = group.gated
        kernel = self._gated_kernel(gate, up, act)
        first, second = group.names
        setattr(group.parent, first, kernel)
        setattr(group.parent, second, None)
        group.parent.forward = GatedForward(group.parent, kernel, down)
        group.layers.clear()
        return kernel

    def _gated_kernel(self, gate: torch.Tensor, up: torch.Tensor, act: int) -> Kernel:
        if self.on_grid is NativeInt4 and NativeInt4.fits(*gate.shape):
            first, second = grid.find(gate), grid.find(up)
            if first is not None and second is not None:
                with suppress(ValueError):
                    return GatedInt4(first, second, act)
        return GATED[self.base](gate, up, act)

    def _kernel(self, weight: torch.Tensor, bias: torch.Tensor | None, group: _Group) -> Kernel:
        if self.on_grid is not None and not group.head and self.on_grid.fits(*weight.shape):
            found = grid.find(weight)
            if found is not None:
                with suppress(ValueError):
                    return self.on_grid(*found, bias)
        try:
            return self.base(weight, bias)
        except (RuntimeError, ValueError) as reason:
            self.notes.append(f"{group.path}.{group.names[0]} stays float32: {str(reason).splitlines()[0]}.")
            return choose("f32")[0](weight, bias)  # not tried before it is needed: the first try starts a library of its own

    def _check_grid(self, groups: list[_Group]) -> None:
        """Refuse "4-bit" unless it loses nothing: the first row of each layer tells."""
        if self.on_grid is None:
            raise ModelError(
                "no_kernel", Sentence("4-bit weights cannot run on this machine: {0}.", fault(Int4)), "Choose 16-bit or 8-bit."
            )
        off = self._off_grid(groups)
        if off > 1 - grid.GRID_SHARE:
            raise ModelError(
                "not_on_grid",
                Sentence(
                    "Only {0:.0%} of this model's weights were rounded to 4 bits; rounding the others now would change its answers.",
                    1 - off,
                ),
                "Choose 16-bit or 8-bit, or a GGUF file of type Q4_0 or Q4_1.",
            )
        if off:
            self.notes.append(f"{off:.1%} of the layers' weights are not on a 4-bit grid and keep 16 bits.")

    def _off_grid(self, groups: list[_Group]) -> float:
        """The share of the layers' weights, head aside, that `on_grid` cannot keep as they are."""
        assert self.on_grid is not None
        on = off = 0
        for group in groups:
            for layer in () if group.head else group.layers:
                weight = _weight(layer)
                if self.on_grid.fits(*weight.shape) and grid.find(weight[:1]) is not None:
                    on += weight.numel()
                else:
                    off += weight.numel()
        return off / max(on + off, 1)

    # ------------------------------------------------------------------------------------------------- embedding and rest

    def _tied(self) -> bool:
        head, source = self.model.get_output_embeddings(), self.model.get_input_embeddings()
        return head is not None and source is not None and getattr(head, "weight", None) is getattr(source, "weight", 0)

    def _shrink_embedding(self, tied: bool) -> None:
        """Classes below f32 keep the embedding in 16 bits, so that a tied head, which is packed apart from it, costs nothing more."""
        source = self.model.get_input_embeddings()
        scale = _embedding_scale(source)
        if scale is None:
            return
        if self.on_grid is None and self.base.precision == "f32":
            if tied:
                size = source.weight.numel() * 4 / 2**20
                self.notes.append(f"The head is tied to the embedding and packed as a copy of it ({size:.0f} MiB more).")
            return
        self.model.set_input_embeddings(HalfEmbedding(source.weight, source.padding_idx, scale))

    def _widen_rest(self) -> None:
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
            if parameter.is_floating_point() and parameter.dtype != torch.float32:
                parameter.data = parameter.data.float()


# -------------------------------------------------------------------------------------------------------------- helpers


def _is_linear(module: nn.Module) -> bool:
    """nn.Linear itself, or GPT-2's transposed one. Subclasses compute something else, or already hold other weights."""
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def _embedding_scale(module: nn.Module) -> float | None:
    """What an embedding multiplies its rows with: 1 for a plain one, the scale of transformers' scaled ones, None for any other kind."""
    if type(module) is nn.Embedding:
        return 1.0
    scale = getattr(module, "embed_scale", None)
    if isinstance(module, nn.Embedding) and type(module).__name__.endswith("ScaledWordEmbedding") and scale is not None:
        return float(scale)
    return None


@functools.cache
def _reads(parent: type, name: str) -> bool:
    """Does the parent read this layer's weight itself (Mamba's mixers do), rather than call the layer? Such a layer stays as it is."""
    words = f"self.{name}.weight"
    try:
        whole = inspect.getsource(sys.modules[parent.__module__])  # the file is read; to find a class in it, Python takes it all apart
        return words in whole and words in inspect.getsource(parent)
    except (OSError, TypeError, KeyError):  # no source at hand: the check of the lane will tell
        return False


def _weight(layer: nn.Module) -> torch.Tensor:
    """[N, K]"""
    weight = layer.weight.detach()
    return weight.T if type(layer).__name__ == "Conv1D" else weight


def _shape(layer: nn.Module) -> torch.Size:
    return _weight(layer).shape


def _bias(layers: list[nn.Module], weights: list[torch.Tensor]) -> torch.Tensor | None:
    """The layers' biases in a row; zeros stand for those without, None when none has any."""
    biases = [layer.bias for layer in layers]
    if all(bias is None for bias in biases):
        return None
    return torch.cat([weight.new_zeros(weight.shape[0]) if bias is None else bias for bias, weight in zip(biases, weights, strict=True)])


def _model_bytes(model: nn.Module) -> int:
    """Weights of `model` in bytes, each storage once."""
    packed = sum(module.weight_bytes for module in model.modules() if isinstance(module, Kernel))
    inside = {id(tensor) for module in model.modules() if isinstance(module, Kernel) for tensor in module.buffers()}
    tables = {id(module.weight): module.weight for module in model.modules() if isinstance(module, HalfEmbedding)}
    loose = {id(tensor): tensor for tensor in model.parameters() if id(tensor) not in inside} | tables
    return packed + sum(tensor.numel() * tensor.element_size() for tensor in loose.values())
