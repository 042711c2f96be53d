"""Keys and values in eight bits: how a head's row of numbers is written to the cache, and read back.

A row [size] is kept as its numbers in whole steps from -127 to 127, followed by the length of the step as a place in a fixed table: in all
[size + 1] of an int8 tensor. A step for each position and head hangs on nothing but that position's own numbers, so what is kept of one
request never depends on its company, and blocks are forked, swapped and resized as bytes like any others. (vLLM keeps int8 caches with a
scale for each token and head, too.) The table's lengths lie an eighth of an octave apart, so a step is at most 9 % longer than it need be;
whatever is kept is a finite number. Owns that layout; every other module asks here. `omnibus bench accuracy` measures what it costs.
"""

from __future__ import annotations

import functools

import torch

MOST = 127.0
MIDDLE = 128  # place in the table that is kept as 0
STEPS = torch.exp2((torch.arange(256, dtype=torch.float64) - 176) / 8).float()  # rows up to 119,000; below 3e-5 to 1e-7


def width(size: int) -> int:
    """Bytes that a row of `size` numbers takes."""
    return size + 1


def packed(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """[..., size] as the tensor `like` of a cache keeps it: in its dtype, or in eight bits."""
    if like.dtype != torch.int8:
        return rows.to(like.dtype)
    rows, steps = rows.float(), _steps(rows.device)
    place = torch.bucketize(rows.abs().amax(-1, keepdim=True) / MOST, steps).clamp_max(len(STEPS) - 1)  # by comparison alone: exact
    whole = (rows / steps[place]).round().clamp(-MOST, MOST).to(torch.int8)
    return torch.cat((whole, (place - MIDDLE).to(torch.int8)), -1)


def plain(kept: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[..., size] of what a cache keeps, as numbers: in `dtype` where they are kept in eight bits, else as they are."""
    if kept.dtype != torch.int8:
        return kept
    return (kept[..., :-1].float() * _steps(kept.device)[kept[..., -1:].long() + MIDDLE]).to(dtype)


@functools.cache
def _steps(device: torch.device) -> torch.Tensor:
    return STEPS.to(device)
