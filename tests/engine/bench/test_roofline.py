"""The floor of a decode step: bytes from the files' headers, bandwidth from the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.bench import roofline


def make_folder(folder: Path, tied: bool) -> Path:
    weights = {
        "model.embed_tokens.weight": torch.zeros(100, 8),
        "model.layers.0.q.weight": torch.zeros(8, 8),
        "model.norm.weight": torch.zeros(8),
    }
    if not tied:
        weights["lm_head.weight"] = torch.zeros(100, 8)
    save_file(weights, folder / "model-1.safetensors")
    save_file({"model.layers.1.q.weight": torch.zeros(16, 8)}, folder / "model-2.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_every_product_counts_once_and_the_table_only_as_a_head(tied: bool, tmp_path: Path) -> None:
    assert roofline.products(make_folder(tmp_path, tied)) == (64 + 128, 800)


def test_the_floor_is_bytes_over_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "read_bandwidth", lambda threads: 1e6 * threads)
    found = roofline.roofline(make_folder(tmp_path, True), "16-bit", 2)
    assert found.step_ms == pytest.approx(1000 * (192 + 800) * 2 / 2e6) and found.tok_s == pytest.approx(1000 / found.step_ms)
    four = roofline.roofline(tmp_path, "4-bit", 2)
    assert four.weight_mib == pytest.approx((192 * 0.625 + 800 * 2) / 2**20)
    assert "ms a step" in found.words


def test_the_bandwidth_is_measured_and_the_threads_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "READ_MIB", 8)
    before = torch.get_num_threads()
    assert roofline.read_bandwidth(1) > 0 and torch.get_num_threads() == before


def test_a_folder_without_weights_has_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no weights"):
        roofline.products(tmp_path)
