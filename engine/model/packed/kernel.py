"""What every packed weight is: a module with one matrix in it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn


class Kernel(nn.Module):
    """One packed weight.

    Attributes:
        label: the kernel's name in reports.
        precision: the class it belongs to, "f32", "16-bit", "8-bit" or "4-bit".
        in_features, out_features: K and N.
        weight_bytes: what the packed weight occupies.
    """

    label: ClassVar[str]
    precision: ClassVar[str]

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """`weight` [N, K] and `bias` [N] of any floating dtype; a subclass packs both."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = 0

    def extra_repr(self) -> str:
        return f"{self.label}, in_features={self.in_features}, out_features={self.out_features}"
