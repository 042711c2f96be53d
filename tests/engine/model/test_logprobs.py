"""Scores of prompts and of answers are the model's own, however the prompt was cut and whoever rode along."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model import logprobs
from engine.model.runner import TorchRunner
from engine.types import EngineConfig, Event, Priority, SamplingParams, TokenLogprob, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts

SCORED = SamplingParams(max_tokens=6, temperature=0.0, logprobs=2, prompt_logprobs=3)
PLAIN = SamplingParams(max_tokens=20, temperature=0.8, seed=3)


@functools.cache
def make_case() -> tuple[TorchRunner, Any]:
    return make_lane(make_model("mistral"), blocks=40), make_model("mistral")


class Run:
    """A core over the tiny model, with what each request was told."""

    def __init__(self, blocks: int = 40, **rules: Any) -> None:
        self.runner, self._twin = make_case()
        self.events: dict[str, list[Event]] = {}
        config = EngineConfig(debug_audit=True, **rules)
        self.core = Core(self.runner, BlockPool(blocks, 4), config, clock=lambda: 0.0, emit=self._note)

    def _note(self, event: Event) -> None:
        self.events.setdefault(event.request_id, []).append(event)

    def submit(self, name: str, prompt: list[int], params: SamplingParams, priority: Priority = Priority.FOREGROUND) -> None:
        self.core.submit(name, prompt, params, chat_id=name, title=name, priority=priority, seed=1)

    def finish(self) -> None:
        while self.core.busy:
            self.core.step()

    def told(self, name: str) -> tuple[list[int], list[TokenLogprob], list[TokenLogprob]]:
        """(answer, its log-probabilities, the prompt's)"""
        events = [event for event in self.events[name] if isinstance(event, TokensEvent)]
        tokens = [token for event in events for token in event.token_ids]
        own = [item for event in events for item in event.logprobs]
        return tokens, own, [item for event in events for item in event.prompt_logprobs]

    def check(self, name: str, prompt: list[int]) -> None:
        tokens, own, scores = self.told(name)
        assert len(scores) == len(prompt) and len(own) == len(tokens) == 6
        assert scores[0] == TokenLogprob(prompt[0], None)
        with torch.inference_mode():
            wanted = torch.log_softmax(self._twin(torch.tensor([prompt + tokens])).logits[0].double(), -1)
        for place, item in enumerate([*scores[1:], *own]):
            assert item.token_id == (prompt + tokens)[place + 1]
            assert item.logprob == pytest.approx(float(wanted[place, item.token_id]), abs=1e-3)
            best = wanted[place].topk(len(item.top)).values.tolist()
            assert [logprob for _, logprob in item.top] == pytest.approx(best, abs=1e-3)
        assert {len(item.top) for item in scores[1:]} <= {3} and {len(item.top) for item in own} == {2}


@pytest.mark.parametrize("rules", [{}, {"chunk": 5, "token_budget": 7, "adapt_chunk": False}])
def test_alone_and_in_company(rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "AT_A_TIME", 4)
    prompts = make_prompts(4, seed=1, shortest=2, longest=30)
    run = Run(**rules)
    for number, prompt in enumerate(prompts):
        run.submit(f"scored{number}", prompt, SCORED)
        run.submit(f"plain{number}", prompt[::-1], PLAIN)
    run.finish()
    for number, prompt in enumerate(prompts):
        run.check(f"scored{number}", prompt)
        assert run.told(f"plain{number}")[1:] == ([], [])


def test_a_prompt_that_is_cached_and_one_that_lost_its_seat_half_way() -> None:
    prompt = make_prompts(1, seed=2, shortest=30, longest=30)[0]
    run = Run(chunk=6, token_budget=6, adapt_chunk=False, seats=1)
    run.submit("first", prompt, PLAIN)
    run.finish()
    run.submit("scored", prompt, SCORED, Priority.IDLE)
    run.core.step()
    run.core.step()
    assert len(run.core.requests["scored"].scored) == 12
    run.submit("urgent", prompt[:9], PLAIN)
    run.finish()
    assert run.core.totals.preemptions >= 1
    run.check("scored", prompt)


def test_a_prompt_of_one_token() -> None:
    run = Run()
    run.submit("one", [5], SCORED)
    run.finish()
    run.check("one", [5])
