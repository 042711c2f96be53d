"""Quantised checkpoints come through the same door: they give what their weights say, or one sentence that names what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.model import quantised
from engine.model.lane import config_to_load, pack
from engine.model.loading import load_model
from engine.types import EngineConfig, ModelError
from tests.engine.model.quantised_files import make_compressed, make_fp8, make_mxfp4
from tests.engine.model.tiny_files import make_folder

IDS = torch.arange(5, 40)[None]


def load(place: Path, dtype: str) -> torch.nn.Module:
    config = EngineConfig(device="cpu", dtype=dtype)
    loaded = load_model(str(place), config_to_load(config), lambda share, stage: None, lambda: False)
    return pack(loaded, config).torch_model


@pytest.mark.parametrize("make", [make_compressed, make_fp8, make_mxfp4])
def test_it_is_the_model_that_its_weights_say(make: Callable[[Path], Any], tmp_path: Path) -> None:
    with torch.inference_mode():
        expected = make(tmp_path)(IDS).logits
        exact = load(tmp_path, "float32")(IDS).logits
        rounded = load(tmp_path, "bfloat16")(IDS).logits
    size = expected.abs().max()
    assert (exact - expected).abs().max() < 1e-4 * size
    assert (rounded - expected).abs().mean() < 0.05 * size


@pytest.mark.parametrize("method", sorted(method for method, package in quantised.PACKAGES.items() if package))
def test_a_missing_package_is_named(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method, "bits": 4}}))
    # Not the function itself: the libraries ask it, too, and remember the answer.
    monkeypatch.setattr(quantised, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None)))
    with pytest.raises(ModelError) as caught:
        load(tmp_path, "float32")
    package = quantised.PACKAGES[method]
    assert caught.value.code == "unknown_quantisation"
    assert caught.value.message == f"{tmp_path.name} is quantised with {method!r}, which needs the package {package}."
    assert caught.value.hint.startswith(f"Install {package}")


def test_what_needs_no_package_says_so_in_the_table() -> None:
    assert {method for method, package in quantised.PACKAGES.items() if not package} <= quantised.UNDONE


def test_tensors_of_a_kind_of_their_own_become_plain_ones() -> None:
    """As torchao keeps its weights: a subclass of tensors that knows how to give its numbers."""

    class Odd(torch.Tensor):
        def dequantize(self) -> torch.Tensor:  # type: ignore[override]
            return self.as_subclass(torch.Tensor) * 2

    module = torch.nn.Linear(3, 2)
    before = module.weight.detach().clone()
    module.weight = torch.nn.Parameter(module.weight.data.as_subclass(Odd), requires_grad=False)
    assert type(module.weight.data) is Odd
    quantised.make_plain(module)
    assert type(module.weight.data) is torch.Tensor and torch.equal(module.weight, 2 * before)


@pytest.mark.parametrize(
    ("method", "name", "shape", "stands_for"),
    [
        ("mxfp4", "model.layers.0.mlp.experts.down_proj_blocks", (4, 64, 3, 16), (4, 64, 96)),
        ("mxfp4", "model.layers.0.mlp.experts.down_proj_scales", (4, 64, 3), (4, 64, 3)),
        ("compressed-tensors", "model.layers.0.mlp.up_proj.weight_packed", (96, 8), (96, 64)),
        ("fp8", "model.layers.0.mlp.up_proj.weight", (96, 64), (96, 64)),
        ("", "model.layers.0.mlp.up_proj.weight_packed", (96, 8), (96, 8)),
    ],
)
def test_packed_numbers_are_counted_by_what_they_stand_for(
    method: str, name: str, shape: tuple[int, ...], stands_for: tuple[int, ...]
) -> None:
    told = {"quant_method": method, "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}
    assert quantised.numbers(name, shape, {"quantization_config": told} if method else {}) == stands_for


def test_the_config_asks_for_plain_numbers_where_transformers_can_give_them() -> None:
    told = {"quantization_config": {"quant_method": "fp8"}, "x": 1}
    assert quantised.as_read(told) == {"quantization_config": {"quant_method": "fp8", "dequantize": True}, "x": 1}
    for other in ({}, {"quantization_config": None}, {"quantization_config": {"quant_method": "gptq"}}):
        assert quantised.as_read(other) is other
    assert told["quantization_config"] == {"quant_method": "fp8"}, "what was read is not changed"
