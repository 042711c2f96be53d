"""Window slots on our own kernels: the bits of a cache by block, with slots that are used again as soon as a window has gone by."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.native import library
from engine.model.native.company import same_in_company
from engine.model.native.lane import TileLane, make_tile_lane, tile_geometry
from engine.model.runner import TorchRunner
from engine.scheduling.plan import Row
from engine.scheduling.window import blocks_behind, slots_of_one
from engine.types import SamplingParams
from tests.engine.model.native.test_tile_lane import CONTEXT, SIZE, packed, request, run
from tests.engine.model.tiny import make_prompts
from tests.engine.test_forks import Several

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

WINDOW, ANSWER = 40, 20
SHARE = slots_of_one(WINDOW, SIZE)
PARAMS = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, ignore_eos=True)


@functools.cache
def case(family: str, in_eight: bool) -> tuple[Any, Geometry]:
    """A packed model whose window is longer than a block and shorter than a tile, and its cache on our own kernels."""
    model, geometry = packed(family, sliding_window=WINDOW)
    halved = tile_geometry(model, geometry.in_eight_bits() if in_eight else geometry, SIZE)
    assert halved is not None
    return model, halved


@functools.cache
def lanes(family: str, in_eight: bool, slots: int) -> tuple[TileLane, Geometry]:
    model, geometry = case(family, in_eight)
    geometry = replace(geometry, slotted=slots > 0)
    lane = make_tile_lane(model, KVStore(geometry, 8, SIZE, slots))
    assert lane.recorded
    return lane, geometry


KINDS = [("gemma3", False), ("gpt_oss", False), ("gemma3", True), ("gpt_oss", True)]


@pytest.mark.parametrize(("family", "in_eight"), KINDS)
def test_a_ring_of_slots_gives_the_same_bits(family: str, in_eight: bool) -> None:
    """A request goes through its whole context in uneven chunks beside another; its blocks behind the window hand their slots on."""
    tokens = [[(17 * place + 31 * which) % 300 for place in range(250)] for which in range(2)]
    chunks = [30, 1, 31, 2, 40, 1, 1, 60, 3, 50, 1, 29, 1]
    found = []
    for slots in (0, 8):
        lane, geometry = lanes(family, in_eight, 8 if slots else 0)
        store = KVStore(geometry, 17, SIZE, slots)
        riders = [request(str(which), text, list(range(1 + 8 * which, 9 + 8 * which))) for which, text in enumerate(tokens)]
        free, start, logits = list(range(8, 0, -1)), 0, []
        for count in chunks:
            for rider in riders if slots else ():
                for place in range(blocks_behind(start, WINDOW, SIZE)):
                    if rider.slots[place]:
                        free.append(rider.slots[place])
                        rider.slots[place] = 0
                while len(rider.slots) * SIZE < start + count:
                    rider.slots.append(free.pop())
            logits.append(run(lane, store, [Row(rider, start, count, True) for rider in riders]))
            start += count
        assert start == 250 and (not slots or {rider.slots.count(0) for rider in riders} == {6})
        found.append(torch.cat(logits))
    assert torch.equal(*found)


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss"])
def test_whether_company_shows_is_found_out_as_without_slots(family: str) -> None:
    model, _ = case(family, False)
    found = []
    for slots in (0, 8):
        lane, geometry = lanes(family, False, slots)
        found.append(same_in_company(lane, model, KVStore(geometry, 8, SIZE, slots)))
    assert found[0] == found[1] and (found[0] or family == "gpt_oss"), "experts run on torch's products"


@pytest.mark.parametrize(("family", "in_eight"), KINDS)
def test_few_slots_change_no_answer(family: str, in_eight: bool) -> None:
    """Long prompts, shared beginnings, the same prompt twice, and chats that come back; against a cache by block, each alone."""
    model, _ = case(family, in_eight)
    long, other, short = make_prompts(3, seed=7, shortest=180, longest=200)
    prompts = [long, other, short[:20], long[:100] + other[:40], other[:150], long[:100] + short[:50], long]
    numbers = list(range(len(prompts)))

    def bench(slots: int, **config: Any) -> Several:
        lane, geometry = lanes(family, in_eight, slots)
        runner = TorchRunner(model, KVStore(geometry, 48, SIZE, slots), frozenset(), CONTEXT)
        runner.ride(lane)
        return Several(runner, **config)

    expected = []
    for number in numbers:
        alone = bench(0, seats=1)
        expected += alone.answers_to([prompts[number]], PARAMS, [number])
    assert len({tuple(answer) for answer in expected}) >= 6, "else equality would show nothing"
    tight = bench(3 * SHARE + 2, seats=3, token_budget=64, chunk=32)
    for _ in range(2):
        assert tight.answers_to(prompts, PARAMS, numbers) == expected
    slots = tight.core.pool.slots
    assert slots is not None and slots.reclaimed > 0 and slots.claimed == 0
