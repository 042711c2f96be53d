"""Packed weights side by side: the same numbers, and what they were is let go."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from engine.model.native import pages


class Packed(nn.Module):
    def __init__(self, packed: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("packed", packed, persistent=False)


@pytest.mark.parametrize("chunk", [1 << 20, 3000, 1])
def test_weights_lie_side_by_side_in_their_order(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(pages, "CHUNK", chunk)
    made = [torch.randn(count, 3, 32, 2).bfloat16() for count in (1, 2, 5)] + [torch.randint(0, 255, (7, 3, 65), dtype=torch.uint8)]
    modules = [Packed(tensor.clone()) for tensor in made]
    gone = [weakref.ref(module.packed) for module in modules]
    pages.settle(modules)
    for module, tensor in zip(modules, made, strict=True):
        assert torch.equal(module.packed, tensor) and module.packed.dtype == tensor.dtype and module.packed.is_contiguous()
        assert module.packed.data_ptr() % pages.ALIGNED == 0
        assert dict(module.named_buffers())["packed"] is module.packed
    assert all(old() is None for old in gone)
    ends = [module.packed.data_ptr() + module.packed.numel() * module.packed.element_size() for module in modules]
    gaps = [module.packed.data_ptr() - end for module, end in zip(modules[1:], ends, strict=False)]
    together = [0 <= gap < pages.ALIGNED for gap in gaps]
    assert all(together) if chunk == 1 << 20 else not all(together)


def test_nothing_to_move_is_no_fault() -> None:
    pages.settle([])
    pages.settle([nn.Module()])
