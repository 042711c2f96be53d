"""Checks the lane against the model's own attention, once at load, on a few tokens.

The probe refuses what it can see; this catches what it cannot: a model that ignores the positions it is given, that hides a bias in its
attention, or that remembers something outside its cache. Owns nothing; leaves the model as it was.
"""

from __future__ import annotations

from typing import Any

import torch

from engine.model import attention
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.geometry import Geometry, Ride
from engine.model.rehearsal import made_up, vocabulary_of
from engine.model.states import SeatStates
from engine.model.step import run_step
from engine.scheduling.plan import Row
from engine.types import ModelError, Sentence

PROMPT = 7  # positions: a chunk of four, a chunk of two and a decode step, beside a second request
BLOCK = 4

# How far rounding alone may lie apart, as a share of the largest logit, by the precision that the weights are used in. Packed weights leave
# the model's parameters in float32, but their products are rounded, and a row's rounding differs with the rows beside it.
TOLERANCE = {"float32": 2e-3, "float64": 2e-3, "float16": 0.05}
ROUNDED = 0.1  # every other precision


def check_lane(model: Any, geometry: Geometry, precision: str = "float32") -> float:
    """Raise ModelError("lane_mismatch", ...) unless the lane gives the logits of the model's own eager attention.

    Returns the largest difference as a share of the largest logit. `precision` names a dtype or a class of packed weights, as
    `LoadedModel.dtype` does. The tolerance is 0.002 in float32, 0.05 in float16, 0.1 in all others: an error of method shows as a
    difference of the order of 1.
    """
    worst = difference(model, geometry)
    limit = TOLERANCE.get(precision, ROUNDED)
    if not worst <= limit:
        raise ModelError(
            "lane_mismatch",
            Sentence(
                "{0} gives other logits in a shared batch than alone (off by {1:.3g} of the largest, {2} allowed).",
                type(model).__name__,
                worst,
                limit,
            ),
            "Choose another model, or report this one.",
        )
    return worst


def difference(model: Any, geometry: Geometry) -> float:
    """The largest difference between the lane's logits and the model's own, as a share of the largest; 0 where those are no numbers."""
    vocabulary = vocabulary_of(model)
    tokens = [(17 + 7919 * place) % vocabulary for place in range(PROMPT)]
    other = [(5 + 104729 * place) % vocabulary for place in range(PROMPT)]
    with torch.inference_mode():
        ours = _lane_logits(model, geometry, tokens, other)
        theirs = _plain_logits(model, geometry, tokens)
    if not bool(theirs.isfinite().all()):
        return 0.0
    return float(((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6)).item())


def _plain_logits(model: Any, geometry: Geometry, tokens: list[int]) -> torch.Tensor:
    """[2, vocabulary] float32: the model's own logits at the last two positions."""
    device = next(model.parameters()).device
    packed = geometry.ride is Ride.PACKED
    if packed:
        model.set_attn_implementation("eager")
    try:
        ids = torch.tensor([tokens], device=device)
        positions = torch.arange(len(tokens), device=device)[None]
        keep = torch.tensor([len(tokens) - 2, len(tokens) - 1], device=device)
        if not packed:
            return model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits[0].float()
        return model(input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=keep).logits[0].float()
    finally:
        if packed:
            model.set_attn_implementation(attention.NAME)


def _lane_logits(model: Any, geometry: Geometry, tokens: list[int], other: list[int]) -> torch.Tensor:
    """The same from the lane: prefill in two chunks, then a decode step, always beside another request."""
    blocks = -(-PROMPT // BLOCK)
    store = KVStore(geometry, 2 * blocks, BLOCK)
    states = SeatStates(geometry.states) if geometry.states else None
    builder = BatchBuilder(BLOCK, geometry.windows, next(model.parameters()).device, by_row=geometry.by_row, states=states)
    one, two = made_up("check", tokens, range(2, 2 * blocks + 1, 2)), made_up("other", other, range(1, 2 * blocks, 2))
    found = []
    for rows in (
        [Row(one, 0, 4, False), Row(two, 0, 3, False)],
        [Row(two, 3, 1, False), Row(one, 4, 2, True)],
        [Row(one, 6, 1, True), Row(two, 4, 3, False)],
    ):
        batch = builder.build(rows)
        logits, _ = run_step(model, geometry, store.keys, store.values, batch.inputs, states.tensors if states else None)
        found.append(logits)
    return torch.cat(found).float()
