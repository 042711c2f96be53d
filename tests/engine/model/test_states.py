"""Recurrent, hybrid, latent and odd families ride exactly: chunked, in company, recomputed, run again; no state is shared or left."""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.bench.census import ANSWER, CONTEXT, make_prompts, make_tiny, own_answer
from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.linear import pack_linears
from engine.model.memory import make_plan
from engine.model.runner import TorchRunner, make_runner
from engine.scheduling.plan import Row
from engine.types import EngineConfig, FinishedEvent, Priority, SamplingParams, TokensEvent
from tests.engine.model.tiny import Driver, make_request

RECURRENT = ["mamba", "mamba2"]
HYBRID = ["bamba", "falcon_h1", "jamba", "lfm2", "qwen3_next"]
BY_ROW = ["bloom", "deepseek_v2", "deepseek_v3", "falcon"]

pytestmark = pytest.mark.filterwarnings("ignore")  # a family's own deprecations are not ours


def make_loaded(model: Any) -> Any:
    return SimpleNamespace(codec=SimpleNamespace(eos_ids=frozenset()), context=CONTEXT, torch_model=model, dtype="float32")


@functools.cache
def make_case(family: str) -> tuple[TorchRunner, list[list[int]], list[list[int]]]:
    """(runner, prompts, the answers of an untouched twin)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin, prompts = make_tiny(family), make_prompts(6, seed=7)
        runner = make_runner(make_loaded(make_tiny(family)), EngineConfig(), 120, 4)
        return runner, prompts, [own_answer(twin, prompt) for prompt in prompts]


def make_requests(prompts: list[list[int]]) -> list[Any]:
    return [make_request(prompt, name=f"r{number}") for number, prompt in enumerate(prompts)]


@pytest.mark.parametrize("family", [*RECURRENT, *HYBRID, *BY_ROW])
def test_chunked_in_company_and_recomputed(family: str) -> None:
    runner, prompts, expected = make_case(family)
    assert Driver(runner, 3).answer(make_requests(prompts), ANSWER, seats=4, chunk=9, preempt=0.15) == expected
    assert runner.states is None or not runner.states.holders


@pytest.mark.parametrize("family", ["mamba", "jamba", "qwen3_next"])
def test_a_step_run_again_gives_the_same(family: str) -> None:
    """What a retry after a failure relies on: a state goes forward once, however often its row is computed."""
    runner, prompts, expected = make_case(family)
    first, second = make_requests(prompts[:2])
    driver = Driver(runner)
    for request in (first, second):
        driver.cover(request, request.known)
    half = max(1, first.known // 2)
    rows = [Row(first, 0, half, half == first.known), Row(second, 0, second.known, True)]
    runner.forward(rows)
    runner.forward(rows[:1])  # halved
    again = runner.forward(rows[1:])[0]
    assert again is not None and again.token == expected[1][0]
    if half < first.known:
        runner.forward([Row(first, half, first.known - half, True)])
        last = runner.forward([Row(first, half, first.known - half, True)])[0]
        assert last is not None and last.token == expected[0][0]
    for request in (first, second):
        driver.drop(request)


def test_a_state_cannot_be_had_from_blocks() -> None:
    runner, prompts, _ = make_case("lfm2")
    request = make_request([*prompts[0], 5, 6, 7, 8, 9], name="stranger")
    Driver(runner).cover(request, request.known)
    with pytest.raises(RuntimeError, match="stranger has no state for position 4"):
        runner.forward([Row(request, 4, 1, True)])
    runner.forget(request)


def run_core(runner: TorchRunner, prompts: list[list[int]], pool: BlockPool, **settings: Any) -> tuple[Core, list[list[int]], list[int]]:
    """Answers and cached tokens of all prompts, asked at once."""
    answers: dict[str, list[int]] = {}
    cached: dict[str, int] = {}

    def note(event: Any) -> None:
        if isinstance(event, TokensEvent):
            answers.setdefault(event.request_id, []).extend(event.token_ids)
        elif isinstance(event, FinishedEvent):
            assert event.error is None
            cached[event.request_id] = event.usage.cached_tokens

    ticks = iter(range(1 << 30))
    config = EngineConfig(seats=4, token_budget=24, chunk=16, adapt_chunk=False, debug_audit=True, **settings)
    core = Core(runner, pool, config, clock=lambda: float(next(ticks)), emit=note)
    params = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0)
    core.scheduler.growth.typical = 0.0  # so that too many board, and some give way
    for number, prompt in enumerate(prompts):
        core.submit(str(number), prompt, params, chat_id=str(number), title="", priority=Priority.FOREGROUND, seed=0)
    while core.busy:
        core.step()
    return core, [answers[str(number)] for number in range(len(prompts))], [cached[str(number)] for number in range(len(prompts))]


@pytest.mark.parametrize("family", ["mamba2", "falcon_h1"])
def test_nothing_is_shared_and_a_tight_pool_is_exact(family: str) -> None:
    """The same prompts twice, with a second tier configured and a pool that makes riders give way: no hit, no restored block."""
    runner, prompts, expected = make_case(family)
    core, answers, cached = run_core(runner, [*prompts, *prompts], BlockPool(16, 4), tier_tokens=256)
    assert answers == [*expected, *expected]
    assert cached == [0] * 12 and core.totals.cached_tokens == 0 and core.tier is None
    assert core.totals.preemptions > 0
    assert core.pool.free == core.pool.total and runner.states is not None and not runner.states.holders


def test_others_still_share() -> None:
    """Latent attention keeps its prefix cache."""
    runner, prompts, expected = make_case("deepseek_v3")
    long = max(range(6), key=lambda number: len(prompts[number]))
    _, answers, cached = run_core(runner, [prompts[long]], pool := BlockPool(100, 4))
    core, again, hits = run_core(runner, [prompts[long]], pool)
    assert answers == again == [expected[long]] and cached == [0] and hits[0] >= 4
    assert core.totals.cached_tokens == hits[0]


@pytest.mark.parametrize("family", ["mamba", "jamba", "bamba", "lfm2", "qwen3_next", "deepseek_v3", "bloom"])
def test_packed_weights(family: str) -> None:
    """Some mixers read a layer's weight themselves; those layers stay as they are."""
    _, prompts, expected = make_case(family)
    model = make_tiny(family)
    pack_linears(model, "f32")
    runner = make_runner(make_loaded(model), EngineConfig(), 120, 4)
    assert run_core(runner, prompts, BlockPool(100, 4))[1] == expected


def test_memory_counts_the_states() -> None:
    """A seat's states are taken from what is free; where no layer has keys, blocks cost nothing and seats do."""
    model = make_tiny("mamba")
    few = make_plan(make_loaded(model), EngineConfig(seats=2), free=8 << 30)
    many = make_plan(make_loaded(model), EngineConfig(seats=64), free=8 << 30)
    assert few.bytes_per_block == 0 and few.num_blocks == 2 * CONTEXT // few.block_size
    states = 2 * 3 * (48 * 4 + 48 * 8) * 4  # two of each of three layers' convolution (4 wide) and recurrent state (8 a channel)
    others = 160 * 4 * 6 + (12 * 32 + 4 * 48) * 4  # logits and activations
    assert many.workspace - few.workspace == 62 * (states + others)


def test_not_a_number_stays_with_its_request() -> None:
    """A state that overflowed ends its request; the neighbours' answers are untouched."""
    runner, prompts, expected = make_case("bamba")
    driver = Driver(runner, 5)
    sick, well = make_requests([max(prompts, key=len), prompts[0]])
    driver.step([(sick, sick.known - 1), (well, well.known)])
    assert runner.states is not None
    slot = runner.states.place(Row(sick, sick.known - 1, 1, True))[0]
    with torch.inference_mode():
        for tensor in runner.states.tensors.values():
            tensor[slot] = torch.nan
    results = driver.step([(sick, 1), (well, 1)])
    assert results[0] is not None and results[0].error is not None and results[0].error.code == "nan_logits"
    assert well.output == expected[0][:2]
    driver.drop(sick)
    healthy = make_request(prompts[1], name="next")  # gets the slots of the sick one
    assert driver.answer([healthy], ANSWER) == [expected[1]]
    driver.drop(well)
