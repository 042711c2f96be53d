"""Answers with drafts are the answers without, of a real model: greedy and drawn, alone and in company."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.types import Counters, EngineConfig, Priority, SamplingParams, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts

FEW = tuple((token, 100.0) for token in range(3, 9))  # so few tokens that every run of them comes again
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=40, logit_bias=FEW),
    "drawn": SamplingParams(temperature=0.9, top_p=0.9, max_tokens=40, logit_bias=FEW),
    "held back": SamplingParams(temperature=0.8, top_k=5, min_tokens=20, stop_token_ids=(3,), max_tokens=40, logit_bias=FEW),
}


@pytest.fixture(scope="module")
def runner() -> Any:
    return make_lane(make_model("mistral"), blocks=80)


def answers(runner: Any, draft: int, params: SamplingParams, riders: int, **rules: Any) -> tuple[dict[str, list[int]], Counters]:
    given: dict[str, list[int]] = {}

    def note(event: Any) -> None:
        if isinstance(event, TokensEvent):
            given.setdefault(event.request_id, []).extend(event.token_ids)

    config = EngineConfig(**{"draft_tokens": draft, "seats": 3, "debug_audit": True, **rules})
    core = Core(runner, BlockPool(80, 4), config, clock=lambda: 0.0, emit=note)
    for number, prompt in enumerate(make_prompts(riders, seed=3, shortest=4, longest=20)):
        name, text = f"r{number}", [*prompt, *prompt, *prompt[:3]]
        core.submit(name, text, params, chat_id=name, title=name, priority=Priority(number % 2), seed=number)
    while core.busy:
        core.step()
    return given, core.counters


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("riders", [1, 4])
def test_the_same_tokens(runner: Any, kind: str, riders: int) -> None:
    plain, _ = answers(runner, 0, PARAMS[kind], riders)
    drafting, counters = answers(runner, 5, PARAMS[kind], riders, chunk=7, adapt_chunk=False)
    assert drafting == plain
    assert 0 < counters.accepted_tokens < counters.drafted_tokens
