"""Tiny checkpoints quantised as others quantise them: each maker writes a folder, and gives back the plain model that it stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.engine.model.tiny import make_model
from tests.engine.model.tiny_files import VOCABULARY, make_folder, make_llama, make_tokenizer

Tensors = dict[str, torch.Tensor]


def rewrite(place: Path, told: dict[str, Any], quantise: Any, dims: int = 2) -> Tensors:
    """Put `quantise(name, weight)` -> (tensors, plain weight) in the place of each matrix of a layer, and say how. Gives the plain."""
    written, plain = Tensors(), Tensors()
    for name, weight in load_file(place / "model.safetensors").items():
        if weight.dim() == dims and ".layers." in name:
            tensors, plain[name] = quantise(name, weight)
            written |= tensors
        else:
            written[name] = plain[name] = weight
    save_file(written, place / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"quantization_config": told}))
    return plain


def make_compressed(place: Path) -> Any:
    """Eight bits a weight and one scale a row, as llm-compressor saves them (compressed-tensors)."""

    def quantise(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale = weight.abs().amax(1, keepdim=True) / 127
        levels = (weight / scale).round().clamp(-128, 127).to(torch.int8)
        return {name: levels, f"{name}_scale": scale}, levels.float() * scale

    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    told = {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed"}
    return filled(make_llama(), rewrite(make_folder(place), {**told, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}, quantise))


def make_fp8(place: Path) -> Any:
    """Eight-bit floats and a scale a block of 128 x 128, as DeepSeek and Qwen save them."""

    def quantise(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale = (weight.abs().amax() / 448).reshape(1, 1)
        levels = (weight / scale).to(torch.float8_e4m3fn)
        return {name: levels, f"{name}_scale_inv": scale}, levels.float() * scale

    told = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return filled(make_llama(), rewrite(make_folder(place), told, quantise))


FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def make_mxfp4(place: Path) -> Any:
    """Experts in four-bit floats, two a byte, with an exponent for every 32 of them, as OpenAI saved gpt-oss."""
    dice = torch.Generator().manual_seed(3)

    def quantise(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        experts, columns, rows = weight.shape
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=dice)
        scales = torch.randint(121, 124, blocks.shape[:3], dtype=torch.uint8, generator=dice)
        nibbles = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2).long()
        values = FP4[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0) * torch.exp2(scales.float() - 127)[..., None]
        return {f"{name}_blocks": blocks, f"{name}_scales": scales}, values.reshape(experts, rows, columns).transpose(1, 2)

    model = make_model("gpt_oss", vocab_size=VOCABULARY)
    model.save_pretrained(str(place))
    make_tokenizer().save_pretrained(str(place))
    return filled(model, rewrite(place, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, quantise, dims=3))


def filled(model: Any, plain: Tensors) -> Any:
    model.load_state_dict(plain)
    return model
