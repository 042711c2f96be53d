"""Blocks that are copied and blocks that went to the second tier, on our own kernels: the numbers are the same, and so is every answer."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.kv.copies import Copy, Fork
from engine.model.native import library
from engine.model.native.lane import TileLane, make_tile_lane, tile_geometry
from engine.model.runner import TorchRunner, make_runner, reshape_cache
from engine.model.sampler import Sampler
from engine.scheduling.plan import Row
from engine.types import EngineConfig, SamplingParams
from tests.engine.model.native.test_tile_lane import SIZE, packed, request, run
from tests.engine.model.tiny import make_loaded, make_prompts
from tests.engine.test_forks import DRAWN, GREEDY, Several, check_chat

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))


@functools.cache
def riding(family: str, blocks: int) -> TorchRunner:
    """A 16-bit model on our own kernels, its cache in bfloat16."""
    model, geometry = packed(family)
    halved = tile_geometry(model, geometry, SIZE)
    assert halved is not None
    reshape_cache(model, halved)
    runner = make_runner(make_loaded(model), EngineConfig(), blocks, SIZE, checked=True)
    runner.ride(make_tile_lane(model, runner.store))
    assert isinstance(runner.fast, TileLane) and runner.fast.recorded
    assert {tensor.dtype for tensor in runner.store.tensors()} == {torch.bfloat16}
    return runner


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("length", [5, 33, 60])
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_each_of_several_answers_is_what_it_is_alone(family: str, length: int, params: SamplingParams) -> None:
    """The prompt ends within a block, with one, and so that the answers go on in another."""
    (prompt,) = make_prompts(1, seed=length, shortest=length, longest=length)
    bench, seeds = Several(riding(family, 40)), [11, 12, 13, 14, 15]
    alone = []
    for seed in seeds:
        bench.core.clear_cache()
        alone += bench.answers(prompt, params, [seed])
    bench.core.clear_cache()
    before = bench.core.scheduler.prefixes.forks
    assert bench.answers(prompt, params, seeds) == alone
    assert bench.core.scheduler.prefixes.forks - before == (0 if length % SIZE == 1 else 4)
    assert params is GREEDY or len({tuple(answer) for answer in alone}) > 1, "else the seeds would show nothing"


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_chats_later_turns_are_the_same_to_the_last_bit(family: str, params: SamplingParams) -> None:
    """They go on in the middle of a block that another turn filled, token by token; against each turn read at once from its beginning."""
    told, alone = check_chat(Several(riding(family, 40)), replace(params, logprobs=4), [11, 7, 20, 3])
    assert told == alone and len(told) > 4


def test_a_step_on_our_kernels_is_drawn_from_by_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own operations would give the same tokens, in several times the time: they are not asked."""
    monkeypatch.setattr(Sampler, "_draw_all", lambda *_: pytest.fail("drawn by torch"))
    (prompt,) = make_prompts(1, seed=3, shortest=9, longest=9)
    assert len(Several(riding("llama", 40)).answers(prompt, DRAWN, [5])[0]) > 1


def test_a_copied_block_gives_the_same_logits() -> None:
    runner = riding("llama", 40)
    assert isinstance(runner.fast, TileLane)
    tokens = [(7 * place + 3) % 100 for place in range(50)]
    one, other = request("one", tokens, [5, 2]), request("other", tokens, [5, 9])
    wanted = run(runner.fast, runner.store, [Row(one, 0, 50, True)])
    runner.copy([Fork(2, 9)])
    both = run(runner.fast, runner.store, [Row(one, 49, 1, True), Row(other, 49, 1, True)])
    assert torch.equal(both[:1], wanted) and torch.equal(both[1:], wanted)


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
def test_a_block_that_comes_back_from_the_tier_gives_the_same_logits(in_file: bool, tmp_path: Path) -> None:
    """In other places than before, which others had meanwhile."""
    runner = riding("llama", 40)
    lane, store = runner.fast, runner.store
    assert isinstance(lane, TileLane)
    runner.open_tier(5, str(tmp_path) if in_file else None)
    one = request("one", [(7 * place + 3) % 100 for place in range(70)], [5, 2, 9])
    wanted = run(lane, store, [Row(one, 0, 70, True)])
    kept = [tensor[one.blocks].clone() for tensor in store.tensors()]
    runner.copy([Copy(5, 3, save=True), Copy(2, 0, save=True), Copy(9, 4, save=True)])
    run(lane, store, [Row(request("stranger", [(11 * place + 1) % 100 for place in range(96)], [9, 5, 2]), 0, 96, True)])
    assert not torch.equal(run(lane, store, [Row(one, 69, 1, True)]), wanted)  # its blocks are another's now
    runner.copy([Copy(2, 3, save=False), Copy(7, 0, save=False), Copy(1, 4, save=False)])
    one.blocks = [2, 7, 1]
    assert all(torch.equal(tensor[one.blocks], before) for tensor, before in zip(store.tensors(), kept, strict=True))
    assert torch.equal(run(lane, store, [Row(one, 69, 1, True)]), wanted)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_tier_changes_no_answer(family: str) -> None:
    """A pool that all chats together do not fit in, twice the same prompts; against each of them alone in an empty cache."""
    prompts, seeds = make_prompts(9, seed=4, shortest=40, longest=110), list(range(9))
    roomy = Several(riding(family, 40))
    alone = []
    for prompt, seed in zip(prompts, seeds, strict=True):
        roomy.core.clear_cache()
        alone += roomy.answers(prompt, GREEDY, [seed])
    tight = riding(family, 11)
    tight.open_tier(60, None)
    bench = Several(tight, seats=3, tier_tokens=60 * SIZE)
    assert bench.answers_to(prompts, GREEDY, seeds) == alone
    assert bench.answers_to(prompts, GREEDY, seeds) == alone
    assert bench.core.tier is not None and bench.core.tier.saved > 0 and bench.core.tier.restored > 0
