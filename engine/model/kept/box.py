"""The starter model as a bundle brings it ready to run, for the first start of all: it need not be unpacked first.

Beside the GGUF file in the box (`engine/catalog/boxed.py`) lies a file as `file.py` has them, without the large tensors: for each of those
it says of which tensors of the GGUF file it is made, and how. That takes a second, with the very code that packs weights at a load. `pack`
writes the file when a bundle is built, out of one that the bundle kept, and tries it: every tensor must come out the same to the bit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from engine.catalog import boxed
from engine.model.kept import file
from engine.model.kept.file import Damaged
from engine.model.native.modules import gated_panels, level_panels, panels
from engine.model.packed import grid

NAME = "ready.model"
SMALL = 1 << 16  # bytes of a tensor that travels as it is

# (name of a packed weight, how it is made, names of what it is made of)
_LAYER = r"(model\.layers\.\d+)"
_MADE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (rf"{_LAYER}\.self_attn\.q_proj\.kernel\.packed", "levels", tuple(rf"\1.self_attn.{part}_proj.weight" for part in "qkv")),
    (rf"{_LAYER}\.(self_attn\.o_proj|mlp\.down_proj)\.packed", "levels", (r"\1.\2.weight",)),
    (rf"{_LAYER}\.mlp\.gate_proj\.packed", "gated levels", (r"\1.mlp.gate_proj.weight", r"\1.mlp.up_proj.weight")),
    (r"lm_head\.packed", "halves", ("model.embed_tokens.weight",)),
    (r"(model\.embed_tokens\.weight)", "float16", (r"\1",)),
)


def file_of(box: Path) -> Path:
    return box / NAME


def complete(box: Path, head: file.Head) -> tuple[dict[str, torch.Tensor], dict[str, bytes]]:
    """All tensors and texts of the file in a box, the large ones made. Raises OSError; Damaged; KeyError or ValueError for a box of another
    kind."""
    tensors, texts = file.read(file_of(box), head)
    return {**tensors, **dict(_make(box, head.facts["made"]))}, texts


def _make(box: Path, made: dict[str, tuple[str, list[str]]]) -> Iterator[tuple[str, torch.Tensor]]:
    with boxed.open_weights(box) as values, ThreadPoolExecutor(min(4, os.cpu_count() or 1), "omnibus-pack") as pool:

        def one(item: tuple[str, tuple[str, list[str]]]) -> tuple[str, torch.Tensor]:
            name, (how, sources) = item
            return name, _WAYS[how]([torch.from_numpy(values(source)) for source in sources])

        yield from pool.map(one, sorted(made.items(), key=lambda item: item[1][0]))


def _levels(weights: list[torch.Tensor]) -> torch.Tensor:
    return level_panels(*_grid(weights[0] if len(weights) == 1 else torch.cat(weights)))


def _grid(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found = grid.find(weight)
    if found is None:
        raise Damaged("a weight is not on its grid")
    return found


_WAYS: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
    "levels": _levels,
    "gated levels": lambda weights: gated_panels(_grid(weights[0]), _grid(weights[1])),
    "halves": lambda weights: panels(weights[0]),
    "float16": lambda weights: weights[0].to(torch.float16),
}


# ------------------------------------------------------------------------------------------------- when a bundle is built


def pack(kept: Path, box: Path, usual: list[object]) -> None:
    """Write the file into the box, out of one that a load kept. Raises ValueError where a tensor cannot be made of the box to the bit."""
    head = file.read_head(kept)
    tensors, texts = file.read(kept, head)
    small = {name: tensor for name, tensor in tensors.items() if tensor.nbytes < SMALL}
    made = {name: _recipe(name) for name in tensors.keys() - small.keys()}
    for name, tensor in _make(box, made):
        if tensor.dtype != tensors[name].dtype or not torch.equal(tensor.view(torch.uint8), tensors[name].view(torch.uint8)):
            raise ValueError(f"{name} cannot be made out of the box")
    if head.facts["asked"] != usual:
        raise ValueError("the model that was kept was not asked for in the usual way")
    depends = {name: head.facts["depends"][name] for name in ("versions", "processor")}
    facts = {"asked": usual, "depends": depends, "model": head.facts["model"], "made": made}
    file.write(file_of(box), facts, small, texts, lambda: False)


def _recipe(name: str) -> tuple[str, list[str]]:
    for pattern, how, sources in _MADE:
        if found := re.fullmatch(pattern, name):
            return how, [found.expand(source) for source in sources]
    raise ValueError(f"nobody knows how {name} is made")
