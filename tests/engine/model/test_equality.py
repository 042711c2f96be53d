"""Greedy answers are transformers' own, alone, in random company, chunked and recomputed, for every kind of attention we serve."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.checked import CheckedRunner
from engine.model.runner import TorchRunner
from engine.types import EngineConfig, Priority, SamplingParams
from tests.engine.model.tiny import Driver, make_lane, make_model, make_prompts, make_request, reference_answer

LENGTH = 10
PLAIN = ["llama", "qwen3", "mistral", "gemma2", "gemma3", "gemma4", "gpt_oss", "mixtral", "gpt2"]


@functools.cache
def make_case(family: str) -> tuple[TorchRunner, list[list[int]], list[list[int]]]:
    """(runner, 24 prompts, the answers of an untouched twin of its model). LongRoPE's are longer than what it was first trained on."""
    shortest = 17 if family == "phi3" else 1
    prompts = make_prompts(24, seed=len(family), shortest=shortest, longest=45)
    twin = make_model(family)
    expected = [reference_answer(twin, prompt, LENGTH) for prompt in prompts]
    return make_lane(make_model(family)), prompts, expected


def make_requests(prompts: list[list[int]]) -> list[Any]:
    return [make_request(prompt, name=f"r{number}") for number, prompt in enumerate(prompts)]


@pytest.mark.parametrize("family", [*PLAIN, "phi3"])
class TestGreedyAnswers:
    def test_alone(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        assert Driver(runner, 1).answer(make_requests(prompts), LENGTH) == expected

    def test_in_random_company(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        assert Driver(runner, 2).answer(make_requests(prompts), LENGTH, seats=7) == expected

    def test_chunked_in_random_company(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        assert Driver(runner, 3).answer(make_requests(prompts), LENGTH, seats=6, chunk=11) == expected

    def test_recomputed_after_losing_blocks(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        assert Driver(runner, 4).answer(make_requests(prompts), LENGTH, seats=5, chunk=16, preempt=0.2) == expected


def test_answers_wander() -> None:
    """The comparison above means something: answers differ from each other and do not repeat one token."""
    _, _, expected = make_case("llama")
    assert len({tuple(answer) for answer in expected}) == len(expected)
    assert sum(len(set(answer)) for answer in expected) > 5 * len(expected)


def test_larger_blocks_and_a_dense_pool() -> None:
    """Blocks of 32, taken in order, as on a quiet machine: the in-place path alone."""
    runner, prompts, expected = make_case("llama")
    lane = make_lane(make_model("llama"), blocks=40, block_size=32)
    driver = Driver(lane)
    driver.free.sort(reverse=True)
    assert driver.answer(make_requests(prompts), LENGTH, seats=8) == expected


def test_shared_prefix_blocks() -> None:
    """Two requests read the same blocks for their common prefix, as after a prefix hit; a third computes it for itself."""
    prefix = make_prompts(1, seed=5, shortest=24, longest=24)[0]
    tails = make_prompts(3, seed=6, shortest=3, longest=9)
    twin, runner = make_model("gemma3"), make_lane(make_model("gemma3"))
    driver = Driver(runner)
    first, second, third = make_requests([prefix + tail for tail in tails])
    driver.step([(first, 24)])
    second.blocks, second.computed = first.blocks[:6], 24
    for _ in range(12):
        driver.step([(request, request.remaining) for request in (first, second, third)])
    for request, tail in zip((first, second, third), tails, strict=True):
        assert request.output[:12] == reference_answer(twin, prefix + tail, 12)


def test_windowed_layers_give_blocks_back_while_they_ride() -> None:
    """Where every layer looks back through a window, riders hold no more than that, answer the same, and their chats are still hit."""
    twin, runner = make_model("mistral"), make_lane(make_model("mistral"), blocks=24)
    assert runner.rules.window == 9 and make_case("gemma3")[0].rules.window == 0
    events: dict[str, list[Any]] = {}
    config = EngineConfig(seats=3, token_budget=24, chunk=12, adapt_chunk=False, debug_audit=True)
    core = Core(
        CheckedRunner(runner),
        BlockPool(24, 4),
        config,
        clock=iter(map(float, range(1 << 20))).__next__,
        emit=lambda event: events.setdefault(event.request_id, []).append(event),
    )
    core.scheduler.growth.typical = 0.0
    prompts = make_prompts(3, seed=9, shortest=10, longest=20)
    answers = [reference_answer(twin, prompt, 40) for prompt in prompts]
    most = 0
    for turn, texts in enumerate((prompts, [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])):
        for number, text in enumerate(texts):
            params = SamplingParams(temperature=0.0, top_p=1.0, max_tokens=40 if turn == 0 else 4)
            core.submit(f"{turn}.{number}", text, params, chat_id=str(number), title="", priority=Priority.FOREGROUND, seed=0)
            while turn and core.busy:
                core.step()
        while core.busy:
            core.step()
            most = max(most, core.pool.referenced)
        for number, text in enumerate(texts):
            *told, ended = events[f"{turn}.{number}"]
            tokens = [token for event in told for token in event.token_ids]
            assert tokens == (answers[number] if turn == 0 else reference_answer(twin, text, 4))
            assert turn == 0 or ended.usage.cached_tokens > 0 or number == 0
    assert core.totals.preemptions == 0 and most <= 3 * 6  # a window and a chunk over blocks of four, where whole answers are 15 blocks
