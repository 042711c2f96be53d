"""Window slots on the bus: what riders hold, what a chat that comes back finds, and that few slots make nobody's answer another."""

from __future__ import annotations

import pytest

from engine.scheduling.plan import CacheRules
from engine.scheduling.window import blocks_behind, last_window_of, slots_beside, slots_for, slots_of_one
from engine.sim import CacheCorruption, Sim, expected_answer
from engine.types import EngineConfig, Priority, SamplingParams, WaitReason

SIZE, WINDOW = 2, 6
SHARE = 4


def make_sim(slots: int, blocks: int = 200, seats: int = 3, window: int = WINDOW, **rules: object) -> Sim:
    settings = {"seats": seats, "token_budget": 40, "chunk": 20, "adapt_chunk": False, "debug_audit": True, **rules}
    return Sim(EngineConfig(**settings), blocks=blocks, block_size=SIZE, rules=CacheRules(slots=slots, slot_window=window))  # type: ignore[arg-type]


def ask(sim: Sim, name: str, prompt: list[int], answer: int = 12, seed: int = 1, priority: Priority = Priority.FOREGROUND) -> None:
    params = SamplingParams(max_tokens=answer, ignore_eos=True)
    sim.core.submit(name, prompt, params, chat_id=name, title="", priority=priority, seed=seed)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [(7 * place + 13 * seed) % 64 for place in range(length)]


def test_a_share_is_enough_for_any_position() -> None:
    for size in (1, 2, 3, 32):
        for window in (1, 2, 5, 32, 33, 512):
            touched = [position // size + 1 - blocks_behind(position, window, size) for position in range(3 * window + 3 * size)]
            assert max(touched) == slots_of_one(window, size)


def test_there_are_slots_only_where_they_are_fewer() -> None:
    beside = slots_beside(window=512, block_size=32, seats=8, token_budget=512)
    assert beside == 8 * 17 + 16 + 1
    assert slots_for(128, beside) == 0 and slots_for(1024, beside) == beside + 341
    assert slots_for(10**6, beside) < 0.34 * 10**6


def test_the_longest_beginning_whose_last_window_is_there() -> None:
    def usable(there: str, window: int) -> int:
        return last_window_of(len(there), window, 2, lambda place: there[place] == "x")

    assert usable("xxxx", 5) == 4 and usable("..xx", 5) == 4 and usable("x..x", 5) == 1 and usable("...x", 5) == 0
    assert usable(".xxx", 9) == 0 and usable("", 5) == 0


def test_a_long_prompt_and_a_long_answer_need_a_window_of_slots() -> None:
    """A rider alone, with its share and nothing else: its prompt is cut into chunks that fit."""
    sim = make_sim(slots=SHARE)
    prompt = prompt_of(100)
    ask(sim, "a", prompt, 60)
    slots = sim.core.pool.slots
    assert slots is not None
    while sim.core.busy:
        sim.core.step()
        (held,) = [len(rider.slots) - rider.slots_gone for rider in sim.core.requests.values()] or [0]
        assert held <= SHARE and slots.claimed <= SHARE
    assert sim.tokens("a") == expected_answer(prompt, 1, 60)
    assert slots.reclaimed > 40 and slots.claimed == 0


def test_a_prompt_takes_large_chunks_where_slots_are_left() -> None:
    def steps(slots: int) -> int:
        sim = make_sim(slots)
        ask(sim, "a", prompt_of(120), 1)
        return sim.run()

    assert steps(SHARE + 20) == 3, "token_budget positions at a time"
    assert steps(SHARE + 1) > 20


@pytest.mark.parametrize("slots", [3 * SHARE, 3 * SHARE + 5, 80])
def test_few_slots_change_no_answer(slots: int) -> None:
    """More chats than seats, with a beginning that they share, twice; some of them the very same prompt."""
    sim = make_sim(slots, blocks=90)
    sim.core.scheduler.growth.blocks = lambda request: 0  # type: ignore[method-assign]
    stem = prompt_of(30)
    prompts = {f"{turn}{number}": stem[: 10 * (number % 4)] + prompt_of(25, seed=number // 2) for turn in "xy" for number in range(8)}
    for turn in "xy":
        for number, (name, prompt) in enumerate(prompts.items()):
            if name.startswith(turn):
                ask(sim, name, prompt, 20, seed=number)
        sim.run()
    for number, (name, prompt) in enumerate(prompts.items()):
        assert sim.tokens(name) == expected_answer(prompt, number, 20)
    slots_ = sim.core.pool.slots
    assert slots_ is not None and slots_.claimed == 0 and (slots_.reclaimed > 0 or slots == 80)


@pytest.mark.parametrize("answer", [19, 20])
def test_a_chat_that_comes_back_goes_on_from_its_last_window(answer: int) -> None:
    """Wherever in a block it ended, and with strangers who took all slots but those meanwhile."""
    sim = make_sim(slots=2 * SHARE)
    first = prompt_of(40)
    ask(sim, "a", first, answer)
    sim.run()
    ask(sim, "stranger", prompt_of(7, seed=9), 1)
    sim.run()
    slots = sim.core.pool.slots
    assert slots is not None and slots.reclaimed > 0
    again = first + sim.tokens("a") + [5, 6, 7]
    ask(sim, "b", again, 4)
    sim.run()
    end = sim.end("b")
    assert end is not None and end.usage.cached_tokens == 40 + answer - 1, "the last token was never computed"
    assert sim.tokens("b") == expected_answer(again, 1, 4)


def test_a_chat_whose_last_window_was_taken_is_read_again() -> None:
    sim = make_sim(slots=SHARE + 2)
    first = prompt_of(40)
    ask(sim, "a", first, 4)
    sim.run()
    ask(sim, "stranger", prompt_of(50, seed=9), 4)
    sim.run()
    ask(sim, "b", first + sim.tokens("a") + [5], 4)
    sim.run()
    end = sim.end("b")
    assert end is not None and end.usage.cached_tokens == 0
    assert sim.tokens("b") == expected_answer([*first, *sim.tokens("a"), 5], 1, 4)
    assert sim.core.pool.referenced == 0


def test_several_answers_to_one_prompt_copy_its_end_in_both_places() -> None:
    sim = make_sim(slots=60, seats=3)
    prompt = prompt_of(32)
    for seed in range(5):
        ask(sim, str(seed), prompt, 9, seed=seed)
    sim.run()
    assert sim.core.scheduler.prefixes.forks == 4
    assert [sim.tokens(str(seed)) for seed in range(5)] == [expected_answer(prompt, seed, 9) for seed in range(5)]


def test_who_finds_no_share_waits_and_is_told_so_but_a_higher_class_gets_one() -> None:
    sim = make_sim(slots=2 * SHARE, seats=4)
    for name in "abc":
        ask(sim, name, prompt_of(20, seed=ord(name)), 30, priority=Priority.BACKGROUND)
    sim.core.step()
    assert len(sim.core.scheduler.seated) == 2
    (waiting,) = sim.core.scheduler.queue
    assert waiting.wait_reason is WaitReason.BLOCKS and f"{SHARE} of the {2 * SHARE} window slots" in waiting.wait_detail
    ask(sim, "urgent", prompt_of(20), 4)
    sim.core.step()
    assert "urgent" in {rider.id for rider in sim.core.scheduler.seated.values()} and sim.core.totals.preemptions == 1
    sim.run()
    assert all(sim.tokens(name) == expected_answer(prompt_of(20, seed=ord(name)), 1, 30) for name in "abc")


def test_the_sim_finds_a_window_that_was_given_away() -> None:
    sim = make_sim(slots=SHARE + 4)
    ask(sim, "a", prompt_of(20), 10)
    sim.core.step()
    (rider,) = sim.core.requests.values()
    sim.runner._slots[rider.slots[-1]][0] = b"a stranger's"
    with pytest.raises(CacheCorruption, match="slot"):
        sim.run()


def test_fewer_slots_than_one_rider_needs_are_refused() -> None:
    with pytest.raises(ValueError, match="may need 4"):
        make_sim(slots=SHARE - 1)
