"""Weights on a 4-bit grid are told from a model's files, as the load will find them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.catalog.fit import MIB, Machine, fit
from engine.model.packed.on_disk import share_on_grid
from engine.model.shape import read_files
from tests.engine.model.test_linear import make_llama, make_numbers
from tests.engine.model.tiny_files import make_gguf, make_tokenizer


def save(model: Any, place: Path) -> Path:
    model.save_pretrained(str(place))
    make_tokenizer().save_pretrained(str(place))
    return place


def test_a_folder_of_float32_is_asked_row_by_row(tmp_path: Path) -> None:
    model = make_llama(on_grid=True)
    assert share_on_grid(read_files(save(model, tmp_path / "on"))) == 1.0
    model.model.layers[0].mlp.up_proj.weight.copy_(make_numbers(96, 64))
    linear = sum(module.weight.numel() for module in model.model.modules() if isinstance(module, torch.nn.Linear))
    assert share_on_grid(read_files(save(model, tmp_path / "mixed"))) == pytest.approx(1 - 96 * 64 / linear)
    assert share_on_grid(read_files(save(model.bfloat16(), tmp_path / "rounded"))) == 0.0


@pytest.mark.parametrize(("kind", "share"), [("Q4_1", 1.0), ("Q8_0", 0.0), ("", 0.0)])
def test_a_gguf_file_says_it_itself(tmp_path: Path, kind: str, share: float) -> None:
    make_gguf(tmp_path / "a.gguf", kind)
    assert share_on_grid(read_files(tmp_path / "a.gguf")) == share


def test_the_estimate_counts_what_the_load_will_keep(tmp_path: Path) -> None:
    make_gguf(tmp_path / "a.gguf", "Q4_1")
    machine = Machine("cpu", "16-bit", free=8 << 30, reserve=512 * MIB, block_size=32)
    plain, kept = fit(tmp_path / "a.gguf", machine, 1, 64), fit(tmp_path / "a.gguf", replace(machine, grids=True), 1, 64)
    assert (plain.precision, kept.precision) == ("16-bit", "4-bit")
    assert kept.weights < plain.weights
