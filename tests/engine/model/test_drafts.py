"""Answers with drafts are the answers without, of a real model: greedy and drawn, alone and in company."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.scheduling.lookup import Guess, Lookup
from engine.scheduling.plan import Row
from engine.types import Counters, EngineConfig, FinishedEvent, Priority, SamplingParams, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts, make_request

FEW = tuple((token, 100.0) for token in range(3, 9))  # so few tokens that every run of them comes again
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=40, logit_bias=FEW),
    "drawn": SamplingParams(temperature=0.9, top_p=0.9, max_tokens=40, logit_bias=FEW),
    "held back": SamplingParams(temperature=0.8, top_k=5, min_tokens=20, stop_token_ids=(3,), max_tokens=40, logit_bias=FEW),
}


@pytest.fixture(scope="module")
def runner() -> Any:
    return make_lane(make_model("mistral"), blocks=80)


def answers(runner: Any, draft: int, params: SamplingParams, riders: int, **rules: Any) -> tuple[dict[str, list[Any]], Counters]:
    """The tokens of each answer, behind them how it ended, and what was counted."""
    given: dict[str, list[Any]] = {}

    def note(event: Any) -> None:
        if isinstance(event, TokensEvent):
            given.setdefault(event.request_id, []).extend(event.token_ids)
        elif isinstance(event, FinishedEvent):
            given.setdefault(event.request_id, []).append(event.error.code if event.error else event.reason.name)

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


POISON = 2  # of no prompt; a token whose keys and values are no numbers


def guess_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every draft holds the token somewhere."""
    draft, rnd = Lookup.draft, random.Random(1)

    def poisoned(self: Lookup, tokens: Any, most: int, places: int = 512) -> Guess:
        guessed, chance = draft(self, tokens, most, places)
        return Guess(tuple({rnd.randrange(len(guessed)): POISON}.get(at, token) for at, token in enumerate(guessed)), chance)

    monkeypatch.setattr(Lookup, "draft", lambda self, *given: poisoned(self, *given) if given[1] > 0 else draft(self, *given))


@pytest.fixture
def sick() -> Any:
    """A runner with the token in its vocabulary."""
    model = make_model("mistral")
    runner = make_lane(model, blocks=80)
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON] = float("nan")
    return runner


def test_a_guess_that_is_no_number_ends_nothing(sick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guess_poison(monkeypatch)
    plain, _ = answers(sick, 0, PARAMS["drawn"], 4)
    drafting, counters = answers(sick, 5, PARAMS["drawn"], 4)
    assert drafting == plain and {told[-1] for told in plain.values()} == {"LENGTH"}
    assert counters.drafted_tokens > counters.accepted_tokens > 0


def test_what_is_no_number_ends_a_request_where_it_does_without_guesses(sick: Any) -> None:
    """One that says it anyway: not before it is said, and what came true before it is given."""
    params = SamplingParams(temperature=0.0, logit_bias=((POISON, 100.0),))
    request = make_request(make_prompts(1, seed=3)[0], params)
    request.blocks = list(range(1, 20))
    known = request.known
    sick.forward([Row(request, 0, known - 1, False)])
    (plain,) = sick.forward([Row(request, known - 1, 1, True)])
    for draft in ((POISON,), (POISON, 5), (5, POISON)):
        assert sick.forward([Row(request, known - 1, 1 + len(draft), True, draft)]) == [plain]
    assert plain.token == POISON and plain.error is None
    request.tokens.append(POISON)
    (plain,) = sick.forward([Row(request, known, 1, True)])
    assert sick.forward([Row(request, known, 3, True, (5, 6))]) == [plain] and plain.error.code == "nan_logits"
    assert all(tensor.isfinite().all() for tensor in sick.store.tensors())
