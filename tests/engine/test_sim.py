"""The simulator: its made-up model is a pure function, its cache sees a wrong read, and a whole core over it runs to the end."""

from __future__ import annotations

import pytest

from engine.scheduling.plan import Row
from engine.sim import CacheCorruption, CostModel, Sim, SimRunner, VirtualClock, expected_answer
from engine.types import EngineConfig, FinishedEvent, Priority, SamplingParams
from tests.engine.scheduling.make import Stop, make_request, make_sim


def test_the_answer_depends_on_prompt_and_seed_alone() -> None:
    assert expected_answer([1, 2, 3], 5, 20) == expected_answer([1, 2, 3], 5, 20)
    assert expected_answer([1, 2, 3], 5, 20) != expected_answer([1, 2, 3], 6, 20)
    assert expected_answer([1, 2, 3], 5, 20) != expected_answer([1, 2, 4], 5, 20)
    assert expected_answer([1, 2, 3], 5, 20)[:7] == expected_answer([1, 2, 3], 5, 7)


def test_an_end_of_text_ends_the_expected_answer() -> None:
    whole = expected_answer([1], 1, 200, vocab=8)
    assert expected_answer([1], 1, 200, vocab=8, eos_ids={3}) == whole[: whole.index(3) + 1]


def test_chunks_give_what_one_go_gives() -> None:
    request = make_request("r", tokens=7)
    request.blocks = [1, 2, 3, 4]
    whole = SimRunner(4, 2).forward([Row(request, 0, 7, True)])
    runner = SimRunner(4, 2)
    assert runner.forward([Row(request, 0, 3, False)]) == [None]
    assert runner.forward([Row(request, 3, 3, False)]) == [None]
    assert runner.forward([Row(request, 6, 1, True)]) == whole
    assert runner.forward([Row(request, 6, 1, True)]) == whole  # running a row again gives the same


def test_reading_what_was_not_written_is_seen() -> None:
    request = make_request("r", tokens=4)
    request.blocks = [1, 2]
    with pytest.raises(CacheCorruption, match=r"r would read positions 0\.\.1 from block 1"):
        SimRunner(4, 2).forward([Row(request, 2, 2, True)])


def test_reading_what_another_wrote_over_is_seen() -> None:
    runner = SimRunner(4, 2)
    victim, thief = make_request("victim", tokens=4), make_request("thief", tokens=4)
    victim.blocks, thief.blocks = [1, 2], [1, 3]
    runner.forward([Row(victim, 0, 3, False)])
    runner.forward([Row(thief, 0, 4, True)])
    with pytest.raises(CacheCorruption):
        runner.forward([Row(victim, 3, 1, True)])


def test_a_shared_beginning_is_no_corruption_but_a_like_looking_middle_is() -> None:
    runner = SimRunner(6, 2)
    one, other, late = (make_request(name, tokens=4) for name in ("one", "other", "late"))
    one.tokens, other.tokens, late.tokens = [1, 2, 3, 4], [1, 2, 5, 6], [9, 9, 3, 4, 7]
    one.blocks, other.blocks, late.blocks = [1, 2], [1, 3], [4, 2, 5]
    runner.forward([Row(one, 0, 4, True)])
    runner.forward([Row(other, 2, 2, True)])
    with pytest.raises(CacheCorruption):  # the same two tokens, after other ones: other values
        runner.forward([Row(late, 4, 1, True)])


def test_a_corruption_is_not_blamed_on_a_request() -> None:
    sim = make_sim()
    stop = Stop(sim)
    stop("r", answer=9)
    stop("other", answer=9)
    sim.core.step()
    sim.core.requests["r"].blocks.reverse()
    sim.core.requests["r"].blocks += sim.core.requests["other"].blocks
    sim.core.requests["r"].blocks.reverse()
    with pytest.raises(CacheCorruption):
        sim.core.step()


def test_forgetting_and_resizing_leave_nothing_behind() -> None:
    runner = SimRunner(2, 2)
    request = make_request("r", tokens=6)
    request.blocks = [1, 2, 3]
    with pytest.raises(IndexError):
        runner.forward([Row(request, 0, 6, True)])
    runner.resize(3)
    runner.forward([Row(request, 0, 6, True)])
    runner.resize(1)
    runner.forget(request)
    runner.forget(request)
    assert not runner._histories and len(runner._blocks) == 2


def test_the_clock_moves_by_what_a_step_costs() -> None:
    clock = VirtualClock()
    runner = SimRunner(20, 4, clock=clock, cost=CostModel(step=1.0, decode_row=0.1, prefill_token=0.01))
    reads, decodes = make_request("reads", tokens=11), make_request("decodes", tokens=1)
    reads.blocks, decodes.blocks = [1, 2, 3], [4]
    runner.forward([Row(decodes, 0, 1, True), Row(reads, 0, 11, True)])
    assert clock() == pytest.approx(1.0 + 0.1 + 0.11)


def test_a_run_ends_or_says_that_it_does_not() -> None:
    sim = make_sim()
    stop = Stop(sim)
    stop("r", answer=10)
    with pytest.raises(RuntimeError, match="1 requests are still there after 3 steps"):
        sim.run(3)
    assert sim.run() == 7
    end = sim.end("r")
    assert isinstance(end, FinishedEvent) and sim.end("nobody") is None
    assert sim.events["r"][-1] is end


def test_many_requests_over_a_small_pool_say_what_they_say_alone() -> None:
    sim = Sim(EngineConfig(seats=4, token_budget=32, chunk=8), blocks=12, block_size=4, eos_ids=frozenset({1}))
    asked = {}
    for number in range(40):
        prompt = [number % 3] * 9 + [number]
        asked[f"r{number}"] = (prompt, number)
        sim.core.submit(
            f"r{number}", prompt, SamplingParams(max_tokens=20), chat_id=f"c{number % 7}", title="", priority=Priority.API, seed=number
        )
    sim.run()
    for name, (prompt, seed) in asked.items():
        assert sim.tokens(name) == expected_answer(prompt, seed, 20, eos_ids={1})
    assert sim.core.pool.referenced == 0
