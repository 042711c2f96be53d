"""The quick RMS norm against the models' own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.model.norms import RMSNorm, quicken_norms
from tests.engine.model.tiny import make_model


def make_numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def exact(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e-3, 1.0, 1e6])
def test_it_is_the_textbooks_norm(scale: float) -> None:
    weight = make_numbers(96)
    norm = RMSNorm(weight, 1e-5)
    x = make_numbers(2, 3, 96) * scale
    want = exact(x, weight, 1e-5)
    assert (norm(x) - want).abs().max() <= 1e-6 * max(float(want.abs().max()), 1e-30)


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    norm = RMSNorm(make_numbers(576), 1e-5)
    x = make_numbers(1, 40, 576)
    together = norm(x)
    for start, rows in ((0, 1), (3, 2), (5, 16), (0, 33)):
        assert torch.equal(norm(x[:, start : start + rows]), together[:, start : start + rows])


@pytest.mark.parametrize(("family", "norms"), [("llama", 7), ("qwen3", 13), ("gemma2", 17), ("gemma3", 19), ("gpt2", 0)])
def test_every_family_keeps_its_answers(family: str, norms: int) -> None:
    model = make_model(family)
    for name, parameter in model.named_parameters():
        if "norm" in name and parameter.dim() == 1:
            parameter.data.add_(make_numbers(*parameter.shape) * 0.1)
    ids = torch.arange(9).view(1, 9) + 3
    with torch.inference_mode():
        want = model(ids, use_cache=False).logits
        assert quicken_norms(model) == norms
        got = model(ids, use_cache=False).logits
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()
    assert quicken_norms(model) == 0


class OtherRMSNorm(nn.Module):
    """Named like one, but it adds a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight + 0.01


class GatedRMSNorm(OtherRMSNorm):
    def forward(self, x: torch.Tensor, gate: Any = None) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


@pytest.mark.parametrize("kind", [OtherRMSNorm, GatedRMSNorm])
def test_what_computes_something_else_stays(kind: type[nn.Module]) -> None:
    model = nn.Sequential(kind())
    assert quicken_norms(model) == 0
    assert type(model[0]) is kind
