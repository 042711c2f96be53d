"""Drafts: what is guessed, when, and that no answer is another for it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.scheduling.drafts import STRETCH, shares
from engine.scheduling.lookup import AT_ONCE, FADE, NOTHING, Lookup, may_draft
from engine.scheduling.plan import Row
from engine.sim import CostModel, Sim, expected_answer
from engine.trace.recorder import Recorder
from engine.trace.replay import Replay
from engine.types import EngineConfig, EngineError, FinishReason, Grammar, GrammarKind, Policy, Priority, SamplingParams, TokensEvent
from tests.engine.made_up_model import LetterStream
from tests.engine.scheduling.checked import CheckedRunner

CHEAP = CostModel(step=0.01, decode_row=0.0001)  # a position more costs next to nothing, so most guesses are verified
VOCAB = 2  # so few tokens that every run of them stands somewhere, and that many drafts come true


def test_what_followed_the_same_words_is_the_draft() -> None:
    lookup = Lookup()
    assert lookup.draft([1, 2, 3, 4, 5, 6, 7, 2, 3], 3).tokens == (4, 5, 6)
    assert lookup.draft([1, 2, 3, 4, 5, 6, 7, 2, 3, 4], 9).tokens == (5, 6, 7, 2, 3, 4)
    assert lookup.draft([1, 2, 3, 4, 5, 6, 7, 2, 3, 4, 9], 9) == NOTHING


def test_a_longer_run_is_believed_before_a_later_one() -> None:
    assert Lookup().draft([9, 1, 2, 7, 0, 1, 2, 8, 9, 1, 2], 1).tokens == (7,)
    assert Lookup().draft([9, 1, 2, 7, 0, 1, 2, 8, 5, 1, 2], 1).tokens == (8,)


@pytest.mark.parametrize(("tokens", "most"), [([], 4), ([1], 4), ([1, 2], 4), ([1, 1, 1], 0), ([1, 2, 3, 4], 4)])
def test_nothing_to_go_by(tokens: list[int], most: int) -> None:
    assert Lookup().draft(tokens, most) == NOTHING


def test_a_longer_run_is_believed_more() -> None:
    chances = [Lookup().draft([*range(20), 99, *range(19 - alike, 19)], 1).chance for alike in range(2, 19)]
    assert chances == sorted(chances) and 0 < chances[0] < chances[5] < chances[-1] < 1


def test_what_drafts_have_shown_counts_and_fades() -> None:
    def tokens(known: int) -> list[int]:
        return ([1, 2, 3] * known)[:known]

    wrong, right = Lookup(), Lookup()
    promised = wrong.draft(tokens(60), 4).chance
    for _ in range(20):
        wrong.judge(4, 0, 60)
        right.judge(4, 4, 60)
    low, high = wrong.draft(tokens(60), 4).chance, right.draft(tokens(60), 4).chance
    assert low < promised < high < 1 and (wrong.drafted, wrong.accepted, right.accepted) == (80, 0, 80)
    later = [wrong.draft(tokens(60 + times * FADE), 4).chance for times in (1, 2, 10)]
    assert low < later[0] < later[1] < later[2] == pytest.approx(promised, rel=0.02)


def test_a_long_prompt_is_noted_over_several_steps() -> None:
    tokens = [1, 2, 3, *range(10, 10 + 3 * AT_ONCE), 1, 2, 3]
    lookup = Lookup()
    found = [lookup.draft(tokens, 2).tokens for _ in range(5)]
    assert found == [(), (), (), (10, 11), (10, 11)]
    slow = Lookup()
    steps = next(step for step in range(1, 10_000) if slow.draft(tokens, 2, 64).tokens)
    assert 3 * AT_ONCE // 64 <= steps <= 3 * AT_ONCE // 64 + 1


@pytest.mark.parametrize(("said", "cost", "least"), [(1, 0.06, 5), (8, 0.06, 2), (16, 0.06, 0), (1, 0.9, 0)])
def test_a_guess_is_taken_where_it_gives_more_than_its_share_of_the_step(said: int, cost: float, least: int) -> None:
    (taken,) = shares([(0.8, 20)], said, 100, cost)
    assert taken >= least and (taken > 0) == (least > 0)
    rate, price, tokens = said / 1.0, 1.0, float(said)
    for place in range(1, taken + 1):  # each that was taken raised the tokens a time, and the next would not have
        tokens, price = tokens + 0.8**place, price + cost
        assert tokens / price >= rate
        rate = tokens / price
    assert price + cost > STRETCH or (tokens + 0.8 ** (taken + 1)) / (price + cost) < rate


def test_the_surest_guesses_come_first_within_what_a_step_may_take() -> None:
    assert shares([(0.5, 4), (0.95, 4), (0.0, 0), (0.7, 1)], 4, 5, 0.01) == [0, 4, 0, 1]
    assert shares([(0.5, 4), (0.95, 4), (0.0, 0), (0.7, 1)], 4, 0, 0.01) == shares([(0.9, 3)] * 4, 4, -2, 0.01) == [0, 0, 0, 0]
    assert sum(shares([(0.99, 16)] * 8, 8, 500, 1 / 16)) == 16 * (STRETCH - 1)


def test_penalties_forms_and_what_is_told_of_each_draw_allow_none() -> None:
    assert may_draft(SamplingParams()) and may_draft(SamplingParams(temperature=0.0, min_tokens=3, stop=("x",), logit_bias=((1, 2.0),)))
    for params in (
        SamplingParams(repetition_penalty=1.1),
        SamplingParams(presence_penalty=0.5),
        SamplingParams(frequency_penalty=0.5),
        SamplingParams(logprobs=0),
        SamplingParams(prompt_logprobs=0),
        SamplingParams(grammar=Grammar(GrammarKind.JSON_OBJECT)),
    ):
        assert not may_draft(params)
    for wrong in (-1, 17):
        with pytest.raises(EngineError):
            EngineConfig(draft_tokens=wrong).check()


def make_sim(blocks: int = 60, draft: int | None = 4, cost: CostModel = CHEAP, **rules: Any) -> Sim:
    config = EngineConfig(**{"seats": 3, "token_budget": 32, "draft_tokens": draft, "debug_audit": True, **rules})
    return Sim(config, blocks=blocks, block_size=4, vocab=VOCAB, cost=cost)


def submit(sim: Sim, name: str, seed: int, answer: int = 40, priority: Priority = Priority.FOREGROUND) -> None:
    params = SamplingParams(max_tokens=answer)
    sim.core.submit(name, prompt_of(seed), params, chat_id=name, title=name, priority=priority, seed=seed)


def prompt_of(seed: int) -> list[int]:
    return [seed % 2, 1, 0, 1, 1]


@pytest.mark.parametrize(("riders", "blocks"), [(1, 60), (2, 60), (3, 14), (4, 20)])  # three cannot all stay in 14 blocks
def test_answers_are_the_same_in_fewer_steps(riders: int, blocks: int) -> None:
    sims = {draft: make_sim(blocks, draft) for draft in (0, 4)}
    for sim in sims.values():
        for seed in range(riders):
            submit(sim, f"r{seed}", seed)
        sim.run()
        for seed in range(riders):
            assert sim.tokens(f"r{seed}") == expected_answer(prompt_of(seed), seed, 40, VOCAB)
    plain, drafting = sims[0].core.counters, sims[4].core.counters
    assert plain.drafted_tokens == 0 < drafting.accepted_tokens < drafting.drafted_tokens
    assert drafting.steps < plain.steps and drafting.output_tokens == plain.output_tokens
    assert drafting.prompt_tokens == plain.prompt_tokens or plain.preemptions


def test_company_that_comes_and_goes_and_takes_the_seat() -> None:
    sim = make_sim(20, 8, seats=2, token_budget=6, chunk=3)
    for seed in range(6):
        submit(sim, f"r{seed}", seed, 30, Priority(seed % 4))
        for _ in range(4):
            sim.core.step()
    sim.core.rebuild()
    sim.run()
    assert sim.core.counters.preemptions and sim.core.counters.accepted_tokens
    assert all(sim.tokens(f"r{seed}") == expected_answer(prompt_of(seed), seed, 30, VOCAB) for seed in range(6))


def test_where_a_position_costs_as_much_as_a_token_brings_there_are_none() -> None:
    for dear, seats in ((CostModel(step=0.0, decode_row=0.01), 1), (CostModel(step=0.01, decode_row=0.01), 4)):
        sim = make_sim(200, 4, cost=dear, seats=seats)
        for seed in range(seats):
            submit(sim, f"r{seed}", seed, 60)
        sim.run()
        early = sim.core.counters.drafted_tokens  # before a step's cost was known
        for seed in range(seats):
            submit(sim, f"s{seed}", seed, 300)
        sim.run()
        assert sim.core.counters.drafted_tokens - early < 0.1 * sim.core.counters.output_tokens
        truth = 1 if seats == 1 else 0.5  # of the last rider's steps; what was told long ago fades
        assert 0.5 * truth < sim.core.tuner.draft_cost < 1.2 * truth


def test_a_full_batch_and_a_queue_go_by_the_same_rule() -> None:
    sims = {draft: make_sim(400, draft, seats=4, cost=CostModel(step=0.01, decode_row=0.0002)) for draft in (0, 4)}
    for sim in sims.values():
        for seed in range(8):
            submit(sim, f"r{seed}", seed, 80)
        sim.run()
    assert all(sims[0].tokens(f"r{seed}") == sims[4].tokens(f"r{seed}") for seed in range(8))
    assert sims[4].core.counters.accepted_tokens and sims[4].clock.now < 0.9 * sims[0].clock.now


def test_the_tour_bus_says_one_word_a_step() -> None:
    sim = make_sim(200, 8, seats=2, policy=Policy.STATIC)
    for seed in range(4):
        submit(sim, f"r{seed}", seed)
    sim.run()
    assert sim.core.counters.drafted_tokens == 0


def test_a_step_that_reads_a_prompt_guesses_nothing() -> None:
    sim = make_sim(200, 4, seats=2, chunk=2, adapt_chunk=False)
    submit(sim, "r0", 0, 150)
    while sim.core.counters.drafted_tokens < 10:
        sim.core.step()
    sim.core.submit("long", [0, 1] * 40, SamplingParams(max_tokens=2), chat_id="l", title="", priority=Priority.API, seed=9)
    before, steps = sim.core.counters.drafted_tokens, 0
    while len(sim.core.requests["long"].tokens) == 80:
        sim.core.step()
        steps += 1
    assert steps > 20 and sim.core.counters.drafted_tokens == before


def test_where_nothing_is_configured_the_runner_says_whether_drafts_pay() -> None:
    for drafts in (False, True):
        sim = make_sim(draft=None)
        sim.runner.drafts = drafts
        sim.core.rebuild()
        submit(sim, "r", 1)
        sim.run()
        assert (sim.core.counters.drafted_tokens > 0) is drafts
    EngineConfig(draft_tokens=None).check()


class Lettered:
    """A core with letters for text, that stops at a letter's second... whatever `stop` says."""

    def __init__(self, draft: int, stop: tuple[str, ...] = (), eos: frozenset[int] = frozenset(), vocab: int = VOCAB) -> None:
        self.runner = CheckedRunner(60, 4, vocab=vocab)
        self.events: list[Any] = []
        config = EngineConfig(draft_tokens=draft, debug_audit=True)
        self.core = Core(
            self.runner,
            BlockPool(60, 4),
            config,
            clock=lambda: 0.0,
            emit=self.events.append,
            make_stream=lambda params: LetterStream(params.stop),
            eos_ids=eos,
        )
        self.stop = stop

    def run(self, seed: int, **params: Any) -> tuple[str, list[int], FinishReason, Any]:
        given = SamplingParams(stop=self.stop, **{"max_tokens": 50, **params})
        self.core.submit("r", prompt_of(seed), given, chat_id="r", title="", priority=Priority.API, seed=seed)
        while self.core.busy:
            self.core.step()
        told = [event for event in self.events if isinstance(event, TokensEvent)]
        for event in told:
            several = len(event.token_ids) > 1
            assert event.pieces == () if not several else ("".join(event.pieces) == event.text and len(event.pieces) == event.tokens)
        end = self.events[-1]
        self.events.clear()
        return "".join(event.text for event in told), [token for event in told for token in event.token_ids], end.reason, end.usage


@pytest.mark.parametrize("rules", [{"eos": frozenset({1})}, {"stop": ("c",), "vocab": 3}, {"eos": frozenset({2}), "vocab": 3}])
def test_an_answer_that_ends_within_a_draft_ends_there(rules: dict[str, Any]) -> None:
    cut = 0
    for seed in range(40):
        for params in ({}, {"min_tokens": 9}, {"max_tokens": 13}):
            plain, drafting = Lettered(0, **rules), Lettered(6, **rules)
            assert drafting.run(seed, **params) == plain.run(seed, **params)
            counters = drafting.core.counters
            assert counters.output_tokens == plain.core.counters.output_tokens
            cut += counters.accepted_tokens > 0
    assert cut > 10


def test_a_draft_row_that_fails_fails_alone() -> None:
    case = Lettered(4)
    case.core.submit("r", prompt_of(1), SamplingParams(max_tokens=50), chat_id="r", title="", priority=Priority.API, seed=1)
    while not case.core.counters.drafted_tokens:
        case.core.step()
    case.runner.nan.add("r")
    while case.core.busy:
        case.core.step()
    assert case.events[-1].error.code == "nan_logits" and case.core.pool.referenced == 0


def test_a_trace_with_drafts_and_a_stop_string_replays() -> None:
    case = Lettered(4, ("c",), vocab=3)
    recorder = Recorder(case.core)
    texts = [case.run(seed)[1] for seed in range(12)]
    assert case.core.counters.accepted_tokens
    trace = recorder.stop()
    given: list[int] = []
    player = Replay(trace, lambda event: given.extend(event.token_ids if isinstance(event, TokensEvent) else ()))
    while player.advance():
        pass
    assert given == [token for tokens in texts for token in tokens]
    assert player.core.counters == case.core.counters


def test_a_draft_is_as_wide_as_its_row() -> None:
    sim = make_sim()
    submit(sim, "r", 1)
    rows: list[Row] = []
    forward = sim.runner.forward

    def watched(planned: Any) -> Any:
        rows.extend(planned)
        return forward(planned)

    sim.runner.forward = watched  # type: ignore[method-assign]
    sim.run()
    drafted = [row for row in rows if row.draft]
    assert drafted and all(row.count == 1 + len(row.draft) == len(row.draws) for row in drafted)
    assert all([draw.start for draw in row.draws] == list(range(row.start, row.start + row.count)) for row in drafted)
