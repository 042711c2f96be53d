"""What this machine's memory allows: a decode step can be no faster than its weights can be read once.

Owns the measurement of the bandwidth and the count of the bytes, from the header of the model's own files. A floor, not a forecast: the
keys and values that a step reads come on top, and so does the arithmetic of many rows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

# Bytes a weight, scales and zero points included: int8 has one float32 scale a row, int4 a bfloat16 scale and zero for 32 weights.
BYTES = {"32-bit": 4.0, "16-bit": 2.0, "8-bit": 1.0, "4-bit": 0.5 + 4 / 32}
HEAD_BYTES_4_BIT = 2.0  # the head is no 4-bit product
MIB = 2**20
READ_MIB = 512
LOOKS = 7


@dataclass(frozen=True, slots=True)
class Roofline:
    """The floor of a decode step.

    Attributes:
        weight_mib: read in each step.
        gb_s: measured read bandwidth of all threads, 10^9 bytes a second.
        step_ms: the floor; tok_s: what it allows one chat alone.
    """

    weight_mib: float
    gb_s: float
    step_ms: float
    tok_s: float

    @property
    def words(self) -> str:
        return (
            f"roofline: {self.weight_mib:.0f} MiB of weights at {self.gb_s:.1f} GB/s are {self.step_ms:.1f} ms a step, "
            f"{self.tok_s:.0f} tok/s for one chat"
        )


def roofline(folder: Path, precision: str, threads: int) -> Roofline:
    """For a folder of safetensors in a class of `engine.types.CLASS_DTYPES`. Raises OSError or ValueError for a damaged folder."""
    layers, head = products(folder)
    per_head = HEAD_BYTES_4_BIT if precision == "4-bit" else BYTES[precision]
    size = layers * BYTES[precision] + head * per_head
    speed = read_bandwidth(threads)
    seconds = size / speed
    return Roofline(size / MIB, speed / 1e9, 1000 * seconds, 1 / seconds)


def products(folder: Path) -> tuple[int, int]:
    """(Weights of the layers' matrices, weights of the head): what is multiplied in every step. Experts all count."""
    layers = head = table = 0
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        for name, entry in header.items():
            shape = entry.get("shape") or ()
            if name == "__metadata__" or len(shape) < 2:
                continue
            count = 1
            for size in shape:
                count *= size
            if "embed" in name or "wte" in name:
                table = max(table, count)
            elif "head" in name:
                head += count
            else:
                layers += count
    if not layers:
        raise ValueError(f"no weights in {folder}")
    return layers, head or table  # a tied head is the embedding's table


def read_bandwidth(threads: int) -> float:
    """Bytes a second that `threads` threads read from memory together: the best of a few passes over more than any cache holds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        block = torch.ones(READ_MIB * MIB // 4)
        best = float("inf")
        for _ in range(LOOKS):
            began = time.perf_counter()
            block.sum()
            best = min(best, time.perf_counter() - began)
    finally:
        torch.set_num_threads(before)
    return READ_MIB * MIB / best
