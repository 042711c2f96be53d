"""The whole engine core over real models: greedy answers are transformers' own, however scheduling, caching and preemption fall.

Models are tiny and random, one a kind of attention; the starter model itself is in tests/e2e.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from typing import Any

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.types import EngineConfig, Event, FinishedEvent, FinishReason, Policy, Priority, SamplingParams, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts, reference_answer

FAMILIES = ["llama", "qwen3", "gemma3", "phi3", "gpt_oss", "mixtral"]
SHORTEST, LONGEST = 4, 14
BLOCKS, BLOCK = 120, 4


@functools.cache
def make_case(family: str) -> tuple[Any, list[list[int]], list[list[int]]]:
    """(runner, 24 mixed prompts, the answers of an untouched twin). LongRoPE prompts begin beyond the length it was first trained on."""
    prompts = make_prompts(24, seed=3 * len(family), shortest=17 if family == "phi3" else 1, longest=44)
    twin = make_model(family)
    lengths = [SHORTEST + number % (LONGEST - SHORTEST + 1) for number in range(24)]
    expected = [reference_answer(twin, prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
    return make_lane(make_model(family), blocks=BLOCKS, block_size=BLOCK), prompts, expected


class Bench:
    """A core over a real runner, with what it emitted."""

    def __init__(self, runner: Any, blocks: int = BLOCKS, **config: Any) -> None:
        self.events: dict[str, list[Event]] = {}
        self.pool = BlockPool(blocks, BLOCK)
        ticks = iter(range(10**9))
        settings = EngineConfig(**{"seats": 4, "token_budget": 64, "chunk": 16, "adapt_chunk": False, "debug_audit": True, **config})
        self.core = Core(runner, self.pool, settings, clock=lambda: float(next(ticks)), emit=self._note)

    def _note(self, event: Event) -> None:
        self.events.setdefault(event.request_id, []).append(event)

    def submit(self, name: str, prompt: list[int], length: int) -> None:
        params = SamplingParams(max_tokens=length, temperature=0.0, top_p=1.0, ignore_eos=True)
        self.core.submit(name, prompt, params, chat_id=name, title=name, priority=Priority.FOREGROUND, seed=0)

    def run(self) -> None:
        while self.core.busy:
            self.core.step()
        assert self.pool.referenced == 0

    def answers(self, names: Iterable[str]) -> list[list[int]]:
        for name in names:
            end = self.events[name][-1]
            assert isinstance(end, FinishedEvent) and end.reason is FinishReason.LENGTH, end
        return [[token for event in self.events[name] if isinstance(event, TokensEvent) for token in event.token_ids] for name in names]


def names_of(prompts: list[list[int]]) -> list[str]:
    return [f"r{number}" for number in range(len(prompts))]


@pytest.mark.parametrize("family", FAMILIES)
class TestAnswersAreTransformersOwn:
    def test_alone(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        bench = Bench(runner)
        for name, prompt, answer in zip(names_of(prompts), prompts, expected, strict=True):
            bench.core.clear_cache()
            bench.submit(name, prompt, len(answer))
            bench.run()
        assert bench.answers(names_of(prompts)) == expected

    @pytest.mark.parametrize("policy", list(Policy))
    def test_in_random_company(self, family: str, policy: Policy) -> None:
        runner, prompts, expected = make_case(family)
        bench, rnd = Bench(runner, policy=policy, token_budget=256), random.Random(1)
        for name, prompt, answer in zip(names_of(prompts), prompts, expected, strict=True):
            bench.submit(name, prompt, len(answer))
            for _ in range(rnd.randrange(4)):
                bench.core.step()
        bench.run()
        assert bench.answers(names_of(prompts)) == expected

    def test_chunked(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        bench = Bench(runner, token_budget=9, chunk=5)
        for name, prompt, answer in zip(names_of(prompts), prompts, expected, strict=True):
            bench.submit(name, prompt, len(answer))
        bench.run()
        assert bench.answers(names_of(prompts)) == expected
        prefills = [row.tokens for record in bench.core.history for row in record.rows if row.phase == "prefill"]
        assert max(prefills) <= 9 and len(prefills) > len(prompts)

    def test_preempted_and_resumed(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        bench = Bench(runner, blocks=22)
        bench.core.scheduler.growth.SHARE = 0.0  # board too eagerly, so that riders lose their seats
        bench.core.scheduler.growth.remaining = lambda request: 0.0  # type: ignore[method-assign]
        for name, prompt, answer in zip(names_of(prompts), prompts, expected, strict=True):
            bench.submit(name, prompt, len(answer))
        bench.run()
        assert bench.core.totals.preemptions > 3
        assert bench.answers(names_of(prompts)) == expected

    def test_after_a_prefix_hit(self, family: str) -> None:
        runner, prompts, expected = make_case(family)
        bench = Bench(runner)
        bench.core.clear_cache()
        for turn in ("first", "again"):
            for number in range(0, 24, 4):  # few at a time, so that the first round is still cached in the second
                group = range(number, number + 4)
                for index in group:
                    bench.submit(f"{turn}{index}", prompts[index], len(expected[index]))
                bench.run()
                if turn == "first":
                    for index in group:
                        bench.submit(f"warm{index}", prompts[index] + expected[index][:2], len(expected[index]) - 2)
                    before = bench.core.totals.cached_tokens
                    bench.run()
                    assert bench.core.totals.cached_tokens > before
        assert bench.answers([f"again{index}" for index in range(24)]) == expected
        assert bench.answers([f"warm{index}" for index in range(24)]) == [answer[2:] for answer in expected]
