"""Checkpoints whose weights are quantised already: which ways can be read, with which package, and what is done with them.

Owns the table. Where transformers can undo a way while it reads, it is asked to: the weights are plain numbers then, and are packed by us
like all others on the CPU; elsewhere they take the memory of plain numbers. Other ways keep their package's own layers.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from engine.types import ModelError, Sentence

# Packages that transformers needs for each way; "" is none.
PACKAGES = {
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
    "fp8": "",
    "gptq": "gptqmodel",
    "mxfp4": "",
    "torchao": "torchao",
}
UNDONE = frozenset({"compressed-tensors", "fp8", "mxfp4"})


def method_of(config: dict[str, Any]) -> str:
    """How the weights of a folder with this config.json are quantised; empty if they are plain numbers."""
    told = config.get("quantization_config")
    return str(told.get("quant_method", "")) if isinstance(told, dict) else ""


def check_package(folder: str, method: str) -> None:
    """Raises ModelError("unknown_quantisation") naming what is missing."""
    package = PACKAGES.get(method)
    if package is None:
        sentence = Sentence("{0} is quantised with {1!r}, which Omnibus cannot read.", folder, method)
        raise ModelError("unknown_quantisation", sentence, "Choose the unquantised model, or a GGUF file.")
    if package and importlib.util.find_spec(package) is None:
        sentence = Sentence("{0} is quantised with {1!r}, which needs the package {2}.", folder, method, package)
        raise ModelError(
            "unknown_quantisation", sentence, Sentence("Install {0}, or choose the unquantised model or a GGUF file.", package)
        )


def numbers(name: str, shape: tuple[int, ...], config: dict[str, Any]) -> tuple[int, ...]:
    """The shape of what a tensor of such a folder stands for: several small numbers may lie in one element."""
    method = method_of(config)
    if method == "mxfp4" and name.endswith("_blocks"):  # [experts, rows, groups, 16 bytes of two numbers]
        return (*shape[:-2], 2 * shape[-2] * shape[-1])
    if method == "compressed-tensors" and name.endswith("weight_packed"):  # [rows, elements of 32 bits]
        groups = config["quantization_config"].get("config_groups") or {}
        bits = next((group["weights"]["num_bits"] for group in groups.values() if group.get("weights")), 8)
        return (*shape[:-1], shape[-1] * 32 // bits)
    return shape


def as_read(config: dict[str, Any]) -> dict[str, Any]:
    """The config.json with which transformers undoes the quantisation while it reads, where it can."""
    if method_of(config) not in UNDONE:
        return config
    return {**config, "quantization_config": {**config["quantization_config"], "dequantize": True}}


def make_plain(model: Any) -> None:
    """Put plain numbers in the place of torchao's own kind of tensors, one weight at a time. For devices whose layers we pack."""
    import torch

    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if type(weight.data) is not torch.Tensor:
                module.register_parameter(name, torch.nn.Parameter(weight.data.dequantize(), requires_grad=False))
