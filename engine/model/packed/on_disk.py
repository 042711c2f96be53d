"""How much of a model's weights lies on a 4-bit grid, told from its files before it is loaded.

A GGUF file says it in its header. In a folder the first row of each float32 weight tells, as it does at load (see `linear.py`): other
dtypes have lost the grid.
"""

from __future__ import annotations

import math

from engine.model.checks import ModelFiles
from engine.model.gguf_header import GgufHeader
from engine.model.packed import grid
from engine.model.shape import HEADS, kind_of

ON_GRID = ("Q4_0", "Q4_1")


def share_on_grid(files: ModelFiles | GgufHeader) -> float:
    """Of the weights in linear layers, the head aside: 0 to 1."""
    sizes = _of_gguf(files) if isinstance(files, GgufHeader) else _of_folder(files)
    return sum(size for size, on in sizes if on) / max(1, sum(size for size, _ in sizes))


def _of_gguf(header: GgufHeader) -> list[tuple[int, bool]]:
    tensors = [tensor for tensor in header.tensors if _counts(tensor.name, tensor.shape)]
    return [(math.prod(tensor.shape), tensor.type in ON_GRID) for tensor in tensors]


def _of_folder(files: ModelFiles) -> list[tuple[int, bool]]:
    from safetensors import safe_open

    wanted = {name: spec for name, spec in files.tensors.items() if _counts(name, spec.shape)}
    if not any(spec.dtype == "F32" for spec in wanted.values()):
        return []
    found = []
    for shard in files.shards:
        with safe_open(shard, framework="pt") as tensors:
            for name in tensors.keys() & wanted.keys():
                spec = wanted[name]
                row = tensors.get_slice(name)[:1] if spec.dtype == "F32" else None
                found.append((math.prod(spec.shape), row is not None and grid.find(row) is not None))
    return found


def _counts(name: str, shape: tuple[int, ...]) -> bool:
    return kind_of(name, shape) == "linear" and not name.endswith(HEADS)
