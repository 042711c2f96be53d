"""What stands in a packed model where linear layers and the embedding stood.

Owns the sharing of one product between sibling layers (query, key and value; gate and up) and the embedding kept in 16 bits. A single
packed layer needs no module of its own here: its kernel takes its place.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import embedding

from engine.model.packed.kernel import Kernel
from engine.model.packed.kernels import beyond_half


class SharedProduct:
    """One product for several layers that read the same input.

    The first sibling asked computes all columns and the others take theirs from it, as long as they are asked with the very same tensor
    object. With another one, as in cross attention, they compute anew: right, though wasteful. Not a module, so that the kernel is
    registered once, by the first sibling.
    """

    def __init__(self, kernel: Kernel, siblings: int) -> None:
        self.kernel = kernel
        self.siblings = siblings
        self._input: torch.Tensor | None = None
        self._output: torch.Tensor | None = None
        self._asked = 0

    def columns(self, x: torch.Tensor, start: int, length: int) -> torch.Tensor:
        """Columns [start, start + length) of the product with `x`, as a view."""
        if x is not self._input or self._output is None:
            self._input, self._output, self._asked = x, self.kernel(x), 0
        part = self._output.narrow(-1, start, length)
        self._asked += 1
        if self._asked == self.siblings:
            self.drop()
        return part

    def drop(self) -> None:
        """Keep nothing of the last product."""
        self._input = self._output = None


class Sibling(nn.Module):
    """One layer of a `SharedProduct`: x [..., K] to its own columns [..., N]."""

    def __init__(self, shared: SharedProduct, in_features: int, start: int, out_features: int) -> None:
        super().__init__()
        self.shared = shared
        self.in_features = in_features
        self.start = start
        self.out_features = out_features
        if start == 0:
            self.kernel = shared.kernel  # registered, so that a trace of the model finds its weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared.columns(x, self.start, self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, columns from {self.start}"


class HalfEmbedding(nn.Module):
    """An embedding whose table is kept in 16 bits and read as float32: ids to [..., size].

    float16 where the values fit (three bits more than bfloat16), else bfloat16. `weight` is a buffer: a model's dtype, which transformers
    reads off its first parameter, stays float32. `scale` multiplies what is read (Gemma's families do that within their embedding).
    """

    def __init__(self, weight: torch.Tensor, padding_idx: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.num_embeddings, self.embedding_dim = weight.shape
        self.padding_idx = padding_idx
        dtype = torch.bfloat16 if beyond_half(weight) else torch.float16
        self.register_buffer("weight", weight.detach().to(dtype), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = embedding(ids, self.weight).float()
        return rows if self.scale == 1.0 else rows * self.scale
