"""Finds the 4-bit grid that weights were rounded to, from their values alone.

GGUF's Q4_0 and Q4_1 keep 32 neighbouring weights of a row as 4-bit levels q of an arithmetic progression, d q + m (ggml's block formats
of the same names). De-quantised, the progression is still in the values, so a model that was read back as float32 can be packed again
without a second rounding. Owns no state.
"""

from __future__ import annotations

import torch

GRID_SHARE = 0.9  # of the layers' weights, head aside, that must lie on the grid for the class; the rest is packed with 16 bits
GROUP = 32
TOP = 15  # the highest level
OFF = 2e-3  # how far from a level a value may lie, in steps: float32 rounding of d q + m, with m some thousand steps large


def find(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """(levels uint8 [N, K], step float32 [N, K / 32], low float32 [N, K / 32]) with weight = level * step + low, or None if any group of
    32 in a row of `weight` [N, K] does not lie on such a grid."""
    rows, columns = weight.shape
    if columns % GROUP or (rows > 1 and find(weight[:1]) is None):  # the first row tells most other weights apart at once
        return None
    groups = weight.detach().float().reshape(-1, GROUP)
    low = groups.amin(1)
    span = groups.amax(1) - low
    # The extremes of a group are rarely both in use by chance: most groups span all 15 steps, the rest is looked at again.
    levels, good = _levels(groups, low, span / TOP)
    step = span / TOP
    rest = (~good).nonzero().squeeze(1)
    for steps in range(TOP - 1, 0, -1):
        if not len(rest):
            break
        trial = span[rest] / steps
        found, good = _levels(groups[rest], low[rest], trial)
        levels[rest[good]] = found[good]
        step[rest[good]] = trial[good]
        rest = rest[~good]
    if len(rest):
        return None
    return levels.view(rows, columns), step.view(rows, -1), low.view(rows, -1)


def _levels(groups: torch.Tensor, low: torch.Tensor, step: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(nearest levels uint8 [G, 32], whether each group lies on them [G]). A step of 0 is a group of equal values."""
    places = (groups - low[:, None]) / torch.where(step > 0, step, 1.0)[:, None]
    nearest = places.round()
    good = (places - nearest).abs().amax(1) <= OFF
    return nearest.to(torch.uint8), good
