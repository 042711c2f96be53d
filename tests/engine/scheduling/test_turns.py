"""A chat's next turn goes on where the last one stopped, in the middle of a block: what is shared there, with whom, and for how long."""

from __future__ import annotations

import random

import pytest

from engine.scheduling.plan import CacheRules
from engine.scheduling.request import RequestState
from engine.sim import Sim, expected_answer
from engine.types import DecisionKind, EngineConfig, FinishReason, Priority, SamplingParams, StepRecord
from tests.engine.scheduling.make import make_sim, run_all

SIZE = 8


def ask(sim: Sim, name: str, prompt: list[int], answer: int = 5, salt: bytes = b"", **params: object) -> RequestState:
    asked = SamplingParams(max_tokens=answer, ignore_eos=True, **params)  # type: ignore[arg-type]
    return sim.core.submit(name, prompt, asked, chat_id="chat", title=name, priority=Priority.FOREGROUND, seed=7, salt=salt)


def turn(sim: Sim, name: str, prompt: list[int], answer: int = 5, salt: bytes = b"") -> int:
    """Ask, ride to the end, and check the answer; the positions that were cached."""
    request = ask(sim, name, prompt, answer, salt)
    run_all(sim)
    assert sim.tokens(name) == expected_answer(prompt, 7, answer)
    sim.core.scheduler.audit()
    assert sim.core.pool.referenced == 0
    return request.cached_tokens


def said(sim: Sim, name: str, prompt: list[int]) -> list[int]:
    return prompt + sim.tokens(name)


def computed(records: list[StepRecord]) -> int:
    return sum(row.tokens for record in records for row in record.rows)


@pytest.mark.parametrize("length", range(9, 18))
def test_the_next_turn_computes_what_is_new_and_the_last_token_of_the_answer(length: int) -> None:
    """Wherever in a block the answer ends: its last token was drawn and never computed."""
    sim = make_sim(block_size=SIZE)
    prompt = list(range(length))
    turn(sim, "one", prompt)
    assert turn(sim, "two", [*said(sim, "one", prompt), 50, 51, 52]) == length + 5 - 1
    assert sim.core.scheduler.prefixes.forks == bool((length + 4) % SIZE)


def test_the_cache_holds_no_block_that_holds_only_what_another_does() -> None:
    """Each turn's last block goes on in the next turn's: the first is free again as soon as the second has as much."""
    sim = make_sim(block_size=SIZE)
    prompt: list[int] = list(range(20))
    for number in range(6):
        turn(sim, str(number), prompt, 6)
        prompt = [*said(sim, str(number), prompt), 40 + number, 50 + number]
        assert sim.core.pool.cached == -(-(len(prompt) - 3) // SIZE)


def test_six_turns_compute_each_position_once() -> None:
    """In blocks of the CPU's size, with questions and answers of uneven lengths."""
    chance = random.Random(3)
    sim = make_sim(block_size=32, token_budget=512, chunk=512)
    prompt: list[int] = []
    positions = 0
    for number in range(6):
        prompt = prompt + [chance.randrange(64) for _ in range(chance.randint(20, 60))]
        ask(sim, str(number), prompt, chance.randint(40, 120))
        positions += computed(run_all(sim))
        prompt = said(sim, str(number), prompt)
    assert positions == len(prompt) - 1


@pytest.mark.parametrize(("edited", "cached"), [(16, 16), (18, 18), (21, 21), (25, 24), (3, 3), (0, 0)])
def test_an_edited_message_shares_what_comes_before_the_edit(edited: int, cached: int) -> None:
    """Also within a full block. The answer's last token, at 24, was never computed, if no other turn goes on behind it."""
    sim = make_sim(block_size=SIZE)
    prompt = list(range(20))
    turn(sim, "one", prompt)
    before = said(sim, "one", prompt)
    assert turn(sim, "two", [*before[:edited], 70, 71, 72]) == cached
    assert turn(sim, "three", [*before, 73]) == max(24, edited), "what the edit left behind is there still"


def test_an_answer_asked_for_again_shares_the_prompt() -> None:
    sim = make_sim(block_size=SIZE)
    prompt = list(range(20))
    turn(sim, "one", prompt)
    assert turn(sim, "two", prompt) == 19


def test_the_longest_beginning_is_copied() -> None:
    sim = make_sim(block_size=SIZE)
    stem = list(range(8))
    for number, rest in enumerate(([1, 2, 3], [1, 2, 30, 4, 5], [1, 20])):
        turn(sim, str(number), [*stem, *rest], 1)
    for number, (rest, cached) in enumerate([([1, 2, 3, 9], 11), ([1, 2, 30, 4, 9], 12), ([1, 2, 9], 10), ([1, 20, 9], 10), ([9, 9], 8)]):
        assert turn(sim, f"again {number}", [*stem, *rest], 1) == cached


def test_other_salts_share_nothing() -> None:
    sim = make_sim(block_size=SIZE)
    for prompt in (list(range(5)), list(range(20))):
        turn(sim, f"mine {len(prompt)}", prompt, salt=b"mine")
        again = [*said(sim, f"mine {len(prompt)}", prompt), 50]
        assert turn(sim, f"theirs {len(prompt)}", again, salt=b"theirs") == turn(sim, f"open {len(prompt)}", again) == 0
        assert turn(sim, f"mine again {len(prompt)}", again, salt=b"mine") == len(prompt) + 4
        sim.core.clear_cache()


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_cancelled_answer_leaves_what_it_computed(steps: int) -> None:
    sim = make_sim(block_size=SIZE, token_budget=9, chunk=9)
    prompt = list(range(20))
    request = ask(sim, "one", prompt, 12)
    for _ in range(steps):
        sim.core.step()
    there = request.computed
    sim.core.cancel("one")
    assert sim.core.pool.referenced == 0
    assert turn(sim, "two", [*prompt, *request.output, 50, 51]) == there


def test_a_failed_request_leaves_only_what_was_whole() -> None:
    """What its last block holds nobody should build on."""
    sim = make_sim(block_size=SIZE, token_budget=9, chunk=9)
    prompt = list(range(20))
    request = ask(sim, "one", prompt)
    sim.core.step()
    sim.core.end(request, FinishReason.ERROR, 1.0)
    assert turn(sim, "two", prompt) == 8


def test_who_lost_its_seat_goes_on_where_it_stood() -> None:
    """If its blocks are still there: the urgent one took the seat, and has room beside them."""
    sim = make_sim(block_size=SIZE, seats=1)
    request = ask(sim, "slow", list(range(13)), 12)
    for _ in range(7):
        sim.core.step()
    stood = request.computed
    sim.core.set_priority("slow", Priority.BACKGROUND)
    ask(sim, "urgent", [60] * 6)
    records = run_all(sim)
    assert request.preemptions == 1 and stood % SIZE and sim.tokens("slow") == expected_answer(list(range(13)), 7, 12)
    assert computed(records) == 6 + 5 - 1 + 13 + 12 - 1 - stood
    assert request.cached_tokens == 0, "the figure is of the first boarding"


def test_the_end_of_a_chat_is_evicted_before_its_beginning_and_found_no_more() -> None:
    sim = make_sim(blocks=5, block_size=SIZE, seats=1)
    prompt = list(range(20))
    turn(sim, "one", prompt, 8)
    assert (sim.core.pool.cached, sim.core.pool.free) == (3 + 1, 1)
    turn(sim, "stranger", [60] * 10, 1)
    assert sim.core.pool.cached == 5 and sim.core.pool.evictions == 1
    assert turn(sim, "two", [*said(sim, "one", prompt), 50]) == 24


def test_a_block_that_is_not_full_gives_way_before_whole_ones_of_older_chats() -> None:
    sim = make_sim(blocks=7, block_size=SIZE, seats=1)
    turn(sim, "old", [60] * 17, 1)  # two blocks, and a token in a third
    prompt = list(range(20))
    turn(sim, "one", prompt, 8)
    assert sim.core.pool.free == 0
    turn(sim, "stranger", [61] * 9, 1)  # takes the places of both beginnings of a block
    assert turn(sim, "old again", [60] * 18, 1) == 16
    assert turn(sim, "two", [*said(sim, "one", prompt), 50]) == 24


def test_what_two_answers_left_alike_grows_young_with_the_second() -> None:
    """The first one's block stands for both, so it must not be evicted as if nobody had come by since."""
    sim = make_sim(blocks=8, block_size=SIZE, seats=1)
    prompt = list(range(20))
    turn(sim, "one", prompt, 8)
    turn(sim, "stranger", [60] * 10, 1)
    sim.core.scheduler.prefixes._to_copy = lambda request, found: (0, 0)  # type: ignore[method-assign]
    turn(sim, "two", prompt, 8)
    del sim.core.scheduler.prefixes._to_copy
    assert (sim.core.pool.cached, sim.core.pool.free) == (4 + 2, 2), "nothing is there twice"
    turn(sim, "other", [61] * 17, 1)  # takes what is free, and one more
    assert turn(sim, "three", [*said(sim, "one", prompt), 50]) == 27


def test_a_block_that_would_have_to_give_way_itself_is_not_copied() -> None:
    sim = make_sim(blocks=3, block_size=SIZE, seats=1)
    prompt = list(range(10))
    turn(sim, "one", prompt)
    turn(sim, "stranger", [60] * 7, 1)
    assert sim.core.pool.free == 0
    assert turn(sim, "two", [*said(sim, "one", prompt), *range(40, 44)], 1) == 8


def test_a_prompt_that_is_scored_is_computed_whole() -> None:
    sim = make_sim(block_size=SIZE)
    prompt = list(range(12))
    turn(sim, "one", prompt)
    request = ask(sim, "two", [*prompt, 50], 1, prompt_logprobs=1)
    assert computed(run_all(sim)) == 13 and request.cached_tokens == 0


def test_where_a_layer_keeps_a_state_nothing_is_shared() -> None:
    config = EngineConfig(seats=3, token_budget=64, chunk=64, adapt_chunk=False, debug_audit=True)
    sim = Sim(config, blocks=40, block_size=SIZE, rules=CacheRules(resumable=False))
    prompt = list(range(12))
    turn(sim, "one", prompt)
    assert turn(sim, "two", [*said(sim, "one", prompt), 50]) == 0 and sim.core.pool.cached == 0


@pytest.mark.parametrize("rules", [CacheRules(window=11), CacheRules(slots=9, slot_window=11)], ids=["all layers", "some layers"])
@pytest.mark.parametrize("answer", range(20, 29))
def test_layers_with_a_window_go_on_too(rules: CacheRules, answer: int) -> None:
    config = EngineConfig(seats=2, token_budget=64, chunk=64, adapt_chunk=False, debug_audit=True)
    sim = Sim(config, blocks=40, block_size=SIZE, rules=rules)
    prompt = list(range(20))
    turn(sim, "one", prompt, answer)
    before = said(sim, "one", prompt)
    assert turn(sim, "two", [*before, 70, 71]) == 20 + answer - 1
    if (20 + answer - 1) % SIZE > 3:
        assert turn(sim, "edited", [*before[: 20 + answer - 3], 72, 73]) == 20 + answer - 3


def test_the_second_tier_keeps_whole_blocks_alone() -> None:
    config = EngineConfig(seats=1, token_budget=64, chunk=64, adapt_chunk=False, debug_audit=True, tier_tokens=20 * SIZE)
    sim = Sim(config, blocks=6, block_size=SIZE)
    prompt = list(range(20))
    turn(sim, "one", prompt, 8)
    turn(sim, "stranger", [60] * 40, 1)
    assert sim.core.tier is not None and sim.core.tier.saved == 2 == sim.core.pool.evictions - 1
    assert turn(sim, "two", [*said(sim, "one", prompt), 50]) == 24
    assert sim.core.tier.restored == 2


def test_who_must_ride_alone_shares_nothing() -> None:
    sim = make_sim(block_size=SIZE, reproducible=True)
    prompt = list(range(20))
    turn(sim, "one", prompt)
    assert turn(sim, "two", [*said(sim, "one", prompt), 50]) == 0


def test_what_is_told_of_it() -> None:
    sim = make_sim(block_size=SIZE)
    prompt = list(range(20))
    turn(sim, "one", prompt)
    before = sim.core.totals.cached_tokens
    ask(sim, "two", [*said(sim, "one", prompt), 50, 51])
    records = run_all(sim)
    (told,) = [item.detail for record in records for item in record.decisions if item.kind is DecisionKind.ADMIT]
    assert told == "27 tokens, 1 block, 24 tokens from the prefix cache"
    assert sim.core.totals.cached_tokens - before == 24
    ask(sim, "three", [*said(sim, "one", prompt)[:22], 52])
    (told,) = [item.detail for record in run_all(sim) for item in record.decisions if item.kind is DecisionKind.ADMIT]
    assert told == "23 tokens, 1 block, 22 tokens from the prefix cache, 6 of them copied"
    end = sim.end("three")
    assert end is not None and end.usage.cached_tokens == 22
