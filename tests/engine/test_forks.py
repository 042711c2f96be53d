"""Several answers to one prompt over real models, and a chat's later turns: each is what it would be alone and from the beginning, and what
they share is computed once."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.checked import CheckedRunner
from engine.model.runner import TorchRunner
from engine.types import EngineConfig, Event, Priority, SamplingParams, TokenLogprob, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts

BLOCKS, BLOCK, ANSWER = 120, 4, 9
GREEDY = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, ignore_eos=True)
DRAWN = SamplingParams(max_tokens=ANSWER, temperature=0.9, top_p=0.9, top_k=40, repetition_penalty=1.1, ignore_eos=True)


@functools.cache
def lane(family: str) -> TorchRunner:
    return make_lane(make_model(family), blocks=BLOCKS, block_size=BLOCK)


class Several:
    """A core over a real runner, with what it emitted."""

    def __init__(self, runner: TorchRunner, **config: Any) -> None:
        ticks = iter(range(10**9))
        settings = EngineConfig(**{"seats": 4, "token_budget": 64, "chunk": 16, "adapt_chunk": False, "debug_audit": True, **config})
        self.told: dict[str, list[int]] = {}
        self.logprobs: list[TokenLogprob] = []
        checked = CheckedRunner(runner)
        pool = BlockPool(runner.store.num_blocks, runner.store.block_size)
        self.core = Core(checked, pool, settings, clock=lambda: float(next(ticks)), emit=self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, TokensEvent):
            self.told.setdefault(event.request_id, []).extend(event.token_ids)
            self.logprobs += event.logprobs

    def answers(self, prompt: list[int], params: SamplingParams, seeds: list[int]) -> list[list[int]]:
        """All asked for at once."""
        return self.answers_to([prompt] * len(seeds), params, seeds)

    def answers_to(self, prompts: list[list[int]], params: SamplingParams, seeds: list[int]) -> list[list[int]]:
        """An answer to each prompt, all asked for at once."""
        self.told.clear()
        for prompt, seed in zip(prompts, seeds, strict=True):
            self.core.submit(f"r{seed}", prompt, params, chat_id="several", title="", priority=Priority.API, seed=seed)
        while self.core.busy:
            self.core.step()
        assert self.core.pool.referenced == 0
        return [self.told[f"r{seed}"] for seed in seeds]

    def chat(self, questions: list[list[int]], params: SamplingParams, forgetful: bool) -> tuple[list[list[int]], list[int]]:
        """The answers of a chat, one turn after another, and the positions of each turn that were cached; forgetful, with none kept."""
        self.core.clear_cache()
        self.logprobs.clear()
        prompt, answers, cached = list[int](), [], []
        for question in questions:
            if forgetful:
                self.core.clear_cache()
            before = self.core.totals.cached_tokens
            prompt = prompt + question
            answers += self.answers(prompt, params, [len(answers)])
            prompt = prompt + answers[-1]
            cached.append(self.core.totals.cached_tokens - before)
        return answers, cached


def check_chat(bench: Several, params: SamplingParams, lengths: list[int]) -> tuple[list[TokenLogprob], list[TokenLogprob]]:
    """A chat with questions of these lengths, with the cache and without: the same answers, and all that was computed before is shared.
    Returns what was told of the draws, both times."""
    questions = [make_prompts(1, seed=length, shortest=length, longest=length)[0] for length in lengths]
    fresh, nothing = bench.chat(questions, params, forgetful=True)
    alone = list(bench.logprobs)
    answers, cached = bench.chat(questions, params, forgetful=False)
    assert answers == fresh
    ends = [sum(lengths[: turn + 1]) + (turn + 1) * ANSWER - 1 for turn in range(len(lengths))]
    assert nothing == [0] * len(lengths) and cached == [0, *ends[:-1]]
    return bench.logprobs, alone


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral", "gpt_oss"])
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_chats_later_turns_are_what_they_are_from_the_beginning(family: str, params: SamplingParams) -> None:
    """Answers end anywhere in a block: the next turn goes on from a copy of it."""
    bench = Several(lane(family))
    told, alone = check_chat(bench, replace(params, logprobs=2), [5, 7, 3, 6, 11])
    assert [item.logprob for item in told] == pytest.approx([item.logprob for item in alone], abs=1e-4)
    assert bench.core.scheduler.prefixes.forks == 3, "one of the answers ends with a block"


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral", "gpt_oss"])
@pytest.mark.parametrize("length", [3, 8, 22])
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_each_answer_is_what_it_is_alone(family: str, length: int, params: SamplingParams) -> None:
    (prompt,) = make_prompts(1, seed=length, shortest=length, longest=length)
    bench, seeds = Several(lane(family)), [11, 12, 13, 14, 15]
    alone = []
    for seed in seeds:
        bench.core.clear_cache()
        alone += bench.answers(prompt, params, [seed])
    bench.core.clear_cache()
    before = bench.core.totals.prompt_tokens
    assert bench.answers(prompt, params, seeds) == alone
    assert bench.core.totals.prompt_tokens - before == length + 4, "the prompt, and its last token for each of the others"
    if params is DRAWN:
        assert len({tuple(answer) for answer in alone}) > 1, "else the seeds would show nothing"
