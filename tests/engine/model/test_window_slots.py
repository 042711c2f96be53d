"""Models in which only some layers have a window, with few slots for those: the same answers, to the bit where the lane promises it."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.kv.copies import Fork
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.demand import demand
from engine.model.geometry import Geometry
from engine.model.memory import make_plan
from engine.model.probe import probe
from engine.model.runner import TorchRunner, make_runner, prepare
from engine.model.shape import read_shape
from engine.model.slots import refusal
from engine.model.step import run_step
from engine.model.trace import FastStep, record_steps
from engine.scheduling.plan import Row
from engine.scheduling.window import slots_of_one
from engine.sim import CacheCorruption
from engine.types import EngineConfig, SamplingParams
from tests.engine.model.test_trace import ALL, BLOCK, make_packed, make_rows
from tests.engine.model.tiny import CONTEXT, make_loaded, make_model, make_prompts, make_request, reference_answer
from tests.engine.model.tiny_files import make_tokenizer
from tests.engine.test_forks import Several

MIXED = ["gemma2", "gemma3", "gemma4", "gpt_oss"]
BLOCKS, ANSWER = 220, 24
SHARE = slots_of_one(9, BLOCK)
GREEDY = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, ignore_eos=True)


@functools.cache
def make_case(family: str) -> tuple[list[list[int]], list[list[int]]]:
    """(Prompts of up to fifteen windows, some with the same beginning; what transformers answers)."""
    model = make_model(family)
    long, other, short = make_prompts(3, seed=len(family), shortest=120, longest=140)
    prompts = [long, other, short[:7], long[:60] + other[:11], other[:45], long[:60] + short[:30], long[:100]]
    return prompts, [reference_answer(model, prompt, ANSWER) for prompt in prompts]


def slotted(family: str, slots: int, blocks: int = BLOCKS, kv_class: str = "auto") -> TorchRunner:
    return make_runner(make_loaded(make_model(family)), EngineConfig(kv_class=kv_class), blocks, BLOCK, slots=slots)


def core_slots(bench: Several) -> Any:
    slots = bench.core.pool.slots
    assert slots is not None
    return slots


@pytest.mark.parametrize("family", MIXED)
class TestAnswersAreTransformersOwn:
    """The checking runner verifies every block and slot that is read, by its history and by its bytes."""

    def test_alone_in_one_riders_share_of_slots(self, family: str) -> None:
        prompts, expected = make_case(family)
        bench = Several(slotted(family, SHARE), seats=1)
        for number, prompt in enumerate(prompts):
            assert bench.answers_to([prompt], GREEDY, [number]) == [expected[number]]
        assert core_slots(bench).reclaimed > 100

    def test_together_in_chunks_and_again(self, family: str) -> None:
        """Few slots beyond the shares, so that chats that come back find some of their windows, and not others."""
        prompts, expected = make_case(family)
        bench = Several(slotted(family, 3 * SHARE + 8), seats=3, token_budget=24, chunk=11)
        for _ in range(2):
            assert bench.answers_to(prompts, GREEDY, list(range(len(prompts)))) == expected
        assert core_slots(bench).reclaimed > 0 and core_slots(bench).claimed == 0
        assert bench.core.totals.cached_tokens > 0

    def test_with_blocks_running_out(self, family: str) -> None:
        prompts, expected = make_case(family)
        bench = Several(slotted(family, 4 * SHARE + 3, blocks=52), seats=4)
        bench.core.scheduler.growth.blocks = lambda request: 0  # type: ignore[method-assign]
        assert bench.answers_to(prompts, GREEDY, list(range(len(prompts)))) == expected
        assert bench.core.totals.preemptions > 0

    def test_several_answers_to_one_prompt(self, family: str) -> None:
        """They share all of its blocks, and copy the one in which it ends, in both kinds of layers."""
        prompts, expected = make_case(family)
        bench = Several(slotted(family, 4 * SHARE + 80))
        assert len(prompts[3]) % BLOCK != 1
        assert bench.answers(prompts[3], GREEDY, [1, 2, 3, 4, 5]) == [expected[3]] * 5
        assert bench.core.scheduler.prefixes.forks == 4 + bench.core.totals.preemptions, "who lost its seat goes on where it stood"

    def test_with_drafts(self, family: str) -> None:
        prompts, _ = make_case(family)
        model, quoting = make_model(family), prompts[4][:20] * 3
        bench = Several(slotted(family, 2 * SHARE), seats=2, draft_tokens=5)
        params = replace(GREEDY, max_tokens=40)
        assert bench.answers_to([quoting, prompts[2]], params, [1, 2]) == [reference_answer(model, p, 40) for p in (quoting, prompts[2])]


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss"])
def test_in_eight_bits_slots_change_nothing(family: str) -> None:
    prompts, _ = make_case(family)
    numbers = list(range(len(prompts)))
    by_block = make_runner(make_loaded(make_model(family)), EngineConfig(kv_class="8-bit"), BLOCKS, BLOCK)
    wanted = [answer for number in numbers for answer in Several(by_block, seats=1).answers_to([prompts[number]], GREEDY, [number])]
    runner = slotted(family, 3 * SHARE + 2, kv_class="8-bit")
    assert runner.store.geometry.eight and runner.store.slots
    assert Several(runner, seats=3, token_budget=24).answers_to(prompts, GREEDY, numbers) == wanted


def test_a_pool_of_another_size_keeps_its_slots() -> None:
    prompts, expected = make_case("gemma3")
    bench = Several(slotted("gemma3", 2 * SHARE + 4, blocks=120), seats=2)
    for number, blocks in enumerate((120, 60, 200, 90)):
        bench.core.resize(blocks)
        assert bench.answers_to(prompts, GREEDY, list(range(len(prompts)))) == expected, f"pool number {number}"
    assert bench.core.pool.total == 90


def test_what_is_no_number_is_cleaned_out_of_slots_too() -> None:
    runner = slotted("gemma3", 10)
    request = make_request(list(range(3, 12)))
    request.blocks, request.slots = [5, 6, 7], [2, 9, 4]
    layer = next(layer for layer in runner.store.keys if runner.store.geometry.in_slots(layer))
    runner.store.values[layer][2, 0, 1] = float("nan")  # of a position that all others see
    (outcome,) = runner.forward([Row(request, 4, 5, True)])
    assert outcome is not None and outcome.error is not None and outcome.error.code == "nan_logits"
    assert all(tensor.isfinite().all() for tensor in runner.store.tensors())


def test_a_copy_goes_to_the_block_in_one_layer_and_to_the_slot_in_the_other() -> None:
    store = slotted("gemma3", 10).store
    for number, tensor in enumerate(store.tensors()):
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(number)))
    before = {layer: tensor.clone() for layer, tensor in store.keys.items()}
    store.fork([Fork(3, 200, (1, 8)), Fork(200, 4, (8, 8))])
    for layer, tensor in store.keys.items():
        old = before[layer]
        in_slots = store.geometry.in_slots(layer)
        assert tensor.shape[0] == (11 if in_slots else BLOCKS + 1)
        moved = {8: old[8]} if in_slots else {200: old[3], 4: old[200]}
        if not in_slots:
            assert all(torch.equal(tensor[place], wanted) for place, wanted in moved.items())


def test_a_stray_write_to_a_slot_is_found() -> None:
    prompts, _ = make_case("gemma3")
    bench = Several(slotted("gemma3", 3 * SHARE + 8))
    bench.core.submit("a", prompts[0], GREEDY, chat_id="a", title="", priority=0, seed=0)  # type: ignore[arg-type]
    bench.core.step()
    (rider,) = bench.core.requests.values()
    store = bench.core.runner.store  # type: ignore[attr-defined]
    layer = next(layer for layer in store.keys if store.geometry.in_slots(layer))
    store.values[layer][rider.slots[rider.slots_gone], 0, 1, 3] += 1e-3
    with pytest.raises(CacheCorruption, match="slot .* bytes"):
        bench.core.step()


def test_a_row_without_its_slots_is_refused() -> None:
    runner = slotted("gemma3", 10)
    request = make_request(list(range(3, 30)))
    request.blocks, request.slots = [1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 4, 0, 6, 7]
    with pytest.raises(ValueError, match="no slot for one of its blocks 4 to 6"):
        runner.forward([Row(request, 26, 1, True)])


# ------------------------------------------------------------------------------------------------------ recorded steps


def give_slots(rng: random.Random, rows: list[Row], blocks: int, slots: int, window: int) -> None:
    """What rows still see lies in random slots, one a block; the rest nowhere."""
    free = rng.sample(range(1, slots + 1), slots)
    lies: dict[int, int] = {}
    for row in rows:
        first = max(0, row.start - window + 1) // BLOCK
        for block in row.request.blocks[first:]:
            if block not in lies:
                lies[block] = free.pop()
        row.request.slots = [0] * first + [lies[block] for block in row.request.blocks[first:]]


def filled(geometry: Geometry, blocks: int, slots: int) -> KVStore:
    store = KVStore(geometry, blocks, BLOCK, slots)
    generator = torch.Generator().manual_seed(blocks)
    for tensor in store.tensors():
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return store


@functools.cache
def recorded(family: str) -> tuple[Any, Geometry, FastStep]:
    model, geometry = make_packed(family)
    geometry = replace(geometry, slotted=True)
    return model, geometry, record_steps(model, geometry, BLOCK)


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss"])
def test_every_recorded_form_gives_the_eager_steps_bits(family: str) -> None:
    model, geometry, fast = recorded(family)
    assert fast.forms == set(ALL)
    rng = random.Random(5)
    work = [(1, ()), (7, ()), (16, ()), (0, (9,)), (0, (3, 3, 4)), (0, (2, 57)), (3, (8,)), (1, (2, 57)), (4, (3, 2, 70))]
    for singles, chunks in work:
        for blocks, slots in ((131, 90), (150, 71)):
            rows = make_rows(rng, singles, chunks, blocks)
            give_slots(rng, rows, blocks, slots, max(geometry.windows))
            inputs = BatchBuilder(BLOCK, geometry.windows, torch.device("cpu"), slotted=True).build(rows).inputs
            ours, theirs = filled(geometry, blocks, slots), filled(geometry, blocks, slots)
            with torch.inference_mode():
                logits, finite = fast(ours, inputs)
                wanted, wanted_finite = run_step(model, geometry, theirs.keys, theirs.values, inputs)
            assert torch.equal(logits, wanted) and torch.equal(finite, wanted_finite)
            assert all(torch.equal(left, right) for left, right in zip(ours.tensors(), theirs.tensors(), strict=True))
    assert fast.eager_steps == 0


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss"])
def test_recorded_steps_answer_as_transformers_does(family: str) -> None:
    prompts, expected = make_case(family)
    model, geometry, fast = recorded(family)
    slots = 3 * SHARE + 8
    runner = TorchRunner(model, KVStore(geometry, BLOCKS, BLOCK, slots), frozenset(), CONTEXT)
    runner.fast = fast
    bench = Several(runner, seats=3)
    assert bench.answers_to(prompts, GREEDY, list(range(len(prompts)))) == expected


# -------------------------------------------------------------------------------------------------------------- memory


def test_every_mixed_family_has_slots_and_others_say_why_not() -> None:
    plain, config = EngineConfig(), EngineConfig(seats=2)
    for family, why in (("llama", "alike"), ("mistral", "alike"), *((family, None) for family in MIXED)):
        geometry = probe(make_model(family), CONTEXT)
        said = refusal(geometry, config)
        assert said is None if why is None else said is not None and why in said
    assert refusal(geometry, replace(plain, tier_tokens=64)) == "the second tier copies blocks by their numbers"
    assert refusal(geometry, replace(plain, plain=True)) == "it runs as transformers does"
    shapes = {layer: replace(shape, device=torch.device("cuda:0")) for layer, shape in geometry.layers.items()}
    assert "GPU" in str(refusal(replace(geometry, layers=shapes), plain))


@pytest.mark.parametrize("kv_class", ["auto", "8-bit"])
def test_the_plan_is_what_the_store_takes(kv_class: str) -> None:
    """Positions for the same memory, and never more memory than was asked for."""
    config = EngineConfig(seats=2, token_budget=32, block_size=4, kv_tokens=4096, kv_class=kv_class)
    loaded = make_loaded(make_model("gemma3"))
    geometry = prepare(loaded, config)
    plan = make_plan(loaded, config, free=2 << 30)
    assert (plan.num_blocks, plan.block_size, plan.slots) == (1024, 4, 2 * SHARE + 8 + 1 + 341)
    runner = make_runner(loaded, config, plan.num_blocks, plan.block_size, slots=plan.slots)
    by_block = plan.num_blocks * plan.block_size * geometry.bytes_per_position()
    assert runner.store.kv_bytes == plan.bytes_of(plan.num_blocks) - plan.num_blocks * 4 * geometry.unpacked_bytes()
    assert runner.store.kv_bytes < 0.57 * by_block, "two of the three layers have the window"
    assert runner.rules.slots == plan.slots and runner.rules.slot_window == 9
    short = make_plan(loaded, replace(config, kv_tokens=64), free=2 << 30)
    assert (short.num_blocks, short.slots) == (16, 0), "too short to pay"


@pytest.mark.parametrize("family", MIXED)
@pytest.mark.parametrize("eight", [False, True])
def test_the_estimate_before_loading_counts_the_same(family: str, eight: bool, tmp_path: Path) -> None:
    model = make_model(family)
    model.save_pretrained(str(tmp_path))
    make_tokenizer().save_pretrained(str(tmp_path))
    seats, length = 2, 252
    config = EngineConfig(seats=seats, token_budget=8, block_size=4, kv_tokens=seats * length, kv_class="8-bit" if eight else "auto")
    plan = make_plan(make_loaded(model), config, free=2 << 30)
    assert 0 < plan.slots < plan.num_blocks
    settings: dict[str, Any] = {"seats": seats, "context": length, "block_size": 4, "token_budget": 8, "eight": eight}
    assert demand(read_shape(tmp_path), device="cpu", precision="f32", **settings).kv == plan.bytes_of(plan.num_blocks)


def test_more_positions_fit_into_the_memory_that_there_is() -> None:
    loaded = make_loaded(make_model("gemma3"))
    free = 700 << 20
    both = [make_plan(loaded, EngineConfig(seats=2, tier_tokens=tier), free=free) for tier in (0, 64)]
    with_slots, without = both
    assert without.most_blocks < 0.56 * with_slots.most_blocks, "a third of the layers and a third of the rest"
    for plan in both:
        room = plan.free - plan.workspace - plan.reserve
        assert plan.bytes_of(plan.most_blocks) + plan.bytes_per_block <= room < plan.bytes_of(plan.most_blocks + 2) + plan.bytes_per_block
