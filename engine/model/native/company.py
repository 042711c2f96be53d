"""Whether company shows in the numbers of our own kernels: asked of the machine and the model at hand, not taken on trust.

Our kernels are made so that a row's result is the same to the last bit in any company, in a chunk or alone. But a model may have parts that
still run on torch's, such as a router's or an expert's products, whose sums depend on how many rows there are. A few made-up steps may
happen to show nothing of it: so where the step was recorded, its operations are looked at, too.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from engine.model.cache import KVStore
from engine.model.native.lane import TileLane
from engine.model.rehearsal import made_up, vocabulary_of
from engine.scheduling.plan import Row

log = logging.getLogger(__name__)

LENGTHS = (41, 38, 2)  # tokens of each made-up request
TOGETHER = (((0, 33), (0, 1), (0, 1)), ((33, 7), (1, 36), (1, 1)), ((40, 1), (37, 1)))  # (start, count) of each, step by step
THREADS = (1, 2)  # a machine that is busy has fewer of them

# Torch's, whose sums go by how many rows there are.
_NAMES = "_grouped_mm _scaled_mm addbmm addmm addmv baddbmm bmm conv1d dot einsum linear matmul mm mv scaled_dot_product_attention"
PRODUCTS = frozenset(f"aten::{name}" for name in _NAMES.split())


def torch_multiplies(lane: TileLane) -> bool | None:
    """Whether any product of a step is torch's; None where that cannot be seen, since steps were not recorded."""
    return None if lane.recording is None else not PRODUCTS.isdisjoint(lane.recording.kinds())


def same_in_company(lane: TileLane, model: Any, store: KVStore) -> bool:
    """Run made-up requests together, in pieces, and each alone and at once, on caches of their own; are the last logits the same?"""
    if torch_multiplies(lane):
        log.info("company shows in the numbers of this model: some of its products are torch's")
        return False
    vocabulary = vocabulary_of(model)
    blocks = -(-max(LENGTHS) // store.block_size)
    requests = []
    for which, length in enumerate(LENGTHS):
        tokens = [(17 + 7919 * place + 104729 * which) % vocabulary for place in range(length)]
        request = made_up(f"company {which}", tokens, range(1 + which * blocks, 1 + (which + 1) * blocks))
        request.slots = list(request.blocks)  # where there are slots
        requests.append(request)
    slots = len(LENGTHS) * blocks if store.geometry.slotted else 0
    before = torch.get_num_threads()
    found = set()
    try:
        with torch.inference_mode():
            for threads in THREADS:
                torch.set_num_threads(threads)
                together = KVStore(store.geometry, len(LENGTHS) * blocks, store.block_size, slots)
                logits: dict[int, torch.Tensor] = {}
                for step in TOGETHER:
                    rows = [Row(requests[which], start, count, True) for which, (start, count) in enumerate(step)]
                    out = lane(together, lane.builder.build(rows).inputs)[0]
                    logits |= {which: out[which].clone() for which in range(len(rows))}
                for which, length in enumerate(LENGTHS):
                    alone = KVStore(store.geometry, len(LENGTHS) * blocks, store.block_size, slots)
                    row = Row(requests[which], 0, length, True)
                    out = lane.eagerly(alone, lane.builder.build([row]).inputs)[0]
                    found.add(torch.equal(out[0], logits[which]))
    except Exception:  # whatever a model does that a made-up step does not foresee
        log.exception("whether company shows could not be found out")
        return False
    finally:
        torch.set_num_threads(before)
    log.info("company %s in the numbers of this model", "does not show" if found == {True} else "shows")
    return found == {True}
