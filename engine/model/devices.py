"""Which device a model runs on, or which several, and in which numbers: what is asked for, against what this machine has.

Owns the names of devices ("cpu", "cuda", "cuda:1", "mps"; several with commas between them, over which the layers are spread) and the
questions to torch about them. Loads nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from engine.types import ModelError, Sentence

log = logging.getLogger(__name__)


def choose_device(asked: str) -> str:
    """ "auto" takes CUDA (or ROCm, which goes by that name), of several cards the one with most free memory, then MPS, then the CPU.

    Raises:
        ModelError: "no_device" if the one asked for, or one of several, is not there.
    """
    import torch

    if "," in asked:
        several = [choose_device(name.strip()) for name in asked.split(",")]
        if len({torch.device(name) for name in several}) < len(several):
            raise ModelError("no_device", Sentence("{0!r} names a device twice.", asked), "Name each device once.")
        return ",".join(several)

    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked == "auto":
        return next(device for device in (best_card() if have["cuda"] else "", "mps", "cpu") if device and have[device.partition(":")[0]])
    kind, _, number = asked.partition(":")
    known = have.get(kind, False) and (not number or (number.isdigit() and kind == "cuda" and int(number) < torch.cuda.device_count()))
    if not known:
        there = ", ".join(device for device, present in have.items() if present)
        raise ModelError(
            "no_device", Sentence("There is no device {0!r} on this machine.", asked), Sentence("Choose auto or one of: {0}.", there)
        )
    return asked


def best_card() -> str:
    """The card with most free memory among those that this torch has programs for: "cuda" where there is one, "cuda:1" and so on among
    several. Empty, and told to the log, where none can be used.
    """
    import torch

    count = torch.cuda.device_count()
    free: dict[int, int] = {}
    for number in range(count):
        try:
            oldest = min(
                (int(arch.rpartition("_")[2].rstrip("af")) for arch in torch.cuda.get_arch_list() if arch.startswith("sm_")), default=0
            )
            major, minor = torch.cuda.get_device_capability(number)
            if 10 * major + minor >= oldest:
                free[number] = torch.cuda.mem_get_info(number)[0]
            else:
                log.warning("card %d is too old for this torch: compute capability %d.%d", number, major, minor)
        except (RuntimeError, AssertionError, ValueError) as error:  # a driver that is too old, or one that is broken
            log.warning("card %d cannot be used: %s", number, error)
    if not free:
        return ""
    best = max(free, key=lambda number: (free[number], -number))
    log.info("card %d of %d is used: it has most free memory, %.1f GB", best, count, free[best] / 1e9)
    return "cuda" if count == 1 else f"cuda:{best}"


def choose_dtype(asked: str, device: str) -> Any:
    """ "auto" is float32 on the CPU and bfloat16 elsewhere, float16 on a GPU that has no bfloat16.

    Raises:
        ModelError: "bad_dtype" for a name that is none.
    """
    import torch

    if asked == "auto":
        if device == "cpu":
            return torch.float32
        return torch.float16 if device.startswith("cuda") and not torch.cuda.is_bf16_supported() else torch.bfloat16
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if asked not in known:
        raise ModelError(
            "bad_dtype", Sentence("{0!r} is no dtype a model can run in.", asked), Sentence("Choose auto, {0}.", ", ".join(known))
        )
    return known[asked]


# --------------------------------------------------------------------------------------------------------- several devices


def spread(layers: Sequence[int], rest: int, room: Sequence[int]) -> list[int]:
    """Which device each layer goes to, in order, so that every one holds a share of the bytes that goes by its room.

    Args:
        layers: their bytes.
        rest: bytes of what is not a layer (embedding, last norm, head); all of it goes to the first device, so that a step begins and
            ends there.
        room: free bytes of each device.
    """
    total = rest + sum(layers)
    ends, end = [], 0.0
    for free in room:
        end += total * free / max(1, sum(room))
        ends.append(end)
    chosen, before = [], rest
    for size in layers:
        middle = before + size / 2
        chosen.append(next((place for place, end in enumerate(ends) if middle <= end), len(room) - 1))
        before += size
    return chosen


def place(model: Any, devices: Sequence[str], room: Sequence[int], width: int) -> dict[str, str]:
    """accelerate's device map for a model without its weights: names of modules and the device of each.

    Args:
        room: free bytes of each device. width: bytes of a number.

    Raises:
        ModelError: "out_of_memory" if the weights do not fit, "cannot_be_split" if the model is not a row of layers.
    """
    from torch import nn

    name = type(model).__name__
    rows = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) > 1]
    if not rows:
        raise ModelError("cannot_be_split", Sentence("{0} is not a row of layers.", name), "Choose one device.")
    path, row = max(rows, key=lambda item: sum(weight.numel() for weight in item[1].parameters()))
    sizes = [width * sum(weight.numel() for weight in layer.parameters()) for layer in row]
    rest = width * sum(weight.numel() for weight in model.parameters()) - sum(sizes)
    chosen = spread(sizes, rest, room)
    for number, device in enumerate(devices):
        held = sum(size for size, place in zip(sizes, chosen, strict=True) if place == number) + (0 if number else rest)
        if held > room[number]:
            sentence = Sentence(
                "{0} needs about {1:.1f} GB on {2}, where {3:.1f} GB are free.",
                name,
                held / 1e9,
                device,
                room[number] / 1e9,
            )
            raise ModelError("out_of_memory", sentence, "Close other programs, name more devices, or choose a smaller model.")
    found = {f"{path}.{number}": devices[place] for number, place in enumerate(chosen)}
    return {**_around(model, path, devices[0]), **found}


def _around(model: Any, path: str, device: str) -> dict[str, str]:
    """Everything that is not below `path`, as few names as tell it."""
    found, prefix, module = {}, "", model
    for part in path.split("."):
        for name, child in module.named_children():
            if name != part:
                found[prefix + name] = device
            else:
                inner = child
        for name, _ in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            found[prefix + name] = device
        module, prefix = inner, f"{prefix}{part}."
    return found
