"""Memory that runs out in a step makes the step smaller, then the pool; every request gets the answer that it would have got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from engine.books import HISTORY
from engine.relief import CALM_STEPS, SHRINKS, ran_out_of_memory
from engine.scheduling.plan import Row
from engine.sim import Sim, expected_answer
from engine.trace.recorder import Recorder
from engine.trace.replay import replay
from engine.types import EngineConfig, EngineError, FinishReason, Priority, SamplingParams


class OutOfMemoryError(RuntimeError):
    """As torch calls it on an accelerator."""


FAULTS = [
    OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to get 9 bytes."),
    MemoryError(),
]


def make_sim(blocks: int = 40) -> Sim:
    config = EngineConfig(seats=4, token_budget=16, chunk=16, adapt_chunk=False, debug_audit=True)
    return Sim(config, blocks=blocks, block_size=2)


def ask(sim: Sim, name: str, length: int = 9, answer: int = 12) -> None:
    params = SamplingParams(max_tokens=answer, ignore_eos=True)
    sim.core.submit(name, list(range(length)), params, chat_id=name, title="", priority=Priority.FOREGROUND, seed=len(name))


def positions(rows: Sequence[Row]) -> int:
    return sum(row.count for row in rows)


def test_what_counts_as_running_out_of_memory() -> None:
    assert all(ran_out_of_memory(fault) for fault in FAULTS)
    assert ran_out_of_memory(EngineError("out_of_memory", "…"))
    assert not any(ran_out_of_memory(fault) for fault in (RuntimeError("shapes differ"), ValueError("out of memory"), KeyError(1)))


@pytest.mark.parametrize("fault", FAULTS, ids=["accelerator", "cpu", "python"])
def test_a_smaller_step_serves_everyone(fault: Exception) -> None:
    sim = make_sim()
    tried: list[int] = []

    def short(rows: Sequence[Row]) -> None:
        tried.append(positions(rows))
        if tried[-1] > 3:
            raise fault

    sim.runner.fault = short
    names = ["a", "bb", "ccc", "dddd", "eeeee"]
    for name in names:
        ask(sim, name)
    sim.run()
    for name in names:
        assert sim.tokens(name) == expected_answer(list(range(9)), len(name), 12)
    assert 0 < sim.core.relief.times <= 3 * (2 + len(tried) // CALM_STEPS)
    assert sim.core.pool.total == 40 and sim.core.totals.failed == 0
    assert sim.core.pool.referenced == 0


def test_the_step_grows_back_when_there_is_room_again() -> None:
    sim = make_sim()
    sim.runner.fault = lambda rows: _raise(MemoryError()) if positions(rows) > 4 else None
    ask(sim, "a", length=30, answer=3)
    sim.run()
    assert sim.core.relief.cap is not None and sim.core.scheduler.token_budget == sim.core.relief.cap <= 4
    sim.runner.fault = None
    work(sim, lambda: sim.core.relief.cap is None)
    assert sim.core.scheduler.token_budget == 16
    assert told(sim)[-1] == "memory was enough for a while: steps of up to 16 positions again"


def work(sim: Sim, done: Callable[[], bool] = lambda: False, requests: int = 600) -> list[int]:
    """Answer one small request after another until all is well; the steps, counted from now, at which memory ran out."""
    shortages, steps = [], 0
    for number in range(requests):
        ask(sim, f"work{number}", answer=20)
        while sim.core.busy:
            times = sim.core.relief.times
            sim.core.step()
            steps += 1
            if sim.core.relief.times > times:
                shortages.append(steps)
        assert sim.tokens(f"work{number}") == expected_answer(list(range(9)), len(f"work{number}"), 20)
        sim.events.clear()
        if done():
            return shortages
    return shortages


def told(sim: Sim) -> list[str]:
    """What the log of decisions says of it."""
    return [item.detail for record in sim.core.history for item in record.decisions if "memory" in item.detail]


def test_the_pool_grows_back_to_what_was_asked_a_little_at_a_time() -> None:
    sim, room = make_sim(blocks=40), 25
    sim.runner.fault = lambda rows: _raise(MemoryError()) if sim.core.pool.total > room else None
    ask(sim, "a")
    sim.run()
    assert sim.core.pool.total <= 25
    room, sizes = 100, [sim.core.pool.total]

    def whole() -> bool:
        if sizes[-1] != sim.core.pool.total:
            sizes.append(sim.core.pool.total)
        return sim.core.relief.whole

    assert work(sim, whole) == []
    assert sizes == [22, 30, 40] and sim.core.totals.failed == 0
    assert told(sim)[-1] == "memory was enough for a while: the pool went from 30 to 40 blocks"
    ask(sim, "long", length=60, answer=19)
    assert sim.core.requests["long"].limit == 79
    sim.run()


def test_who_was_given_less_for_a_smaller_pool_may_have_it_again() -> None:
    sim = make_sim(blocks=40)
    ask(sim, "a", length=9, answer=60)
    sim.core.resize(20, asked=False)
    assert sim.core.requests["a"].limit == 40
    sim.core.resize(40, asked=False)
    assert sim.core.requests["a"].limit == 69


def test_on_a_machine_that_is_too_small_attempts_become_rare() -> None:
    sim = make_sim(blocks=40)
    sim.runner.fault = lambda rows: _raise(MemoryError()) if sim.core.pool.total > 25 else None
    ask(sim, "a")
    sim.run()
    small = sim.core.pool.total
    shortages = work(sim, requests=900)
    gaps = [later - earlier for earlier, later in pairwise(shortages)]
    assert len(gaps) >= 3 and all(later > 1.8 * earlier for earlier, later in pairwise(gaps)), shortages
    assert sim.core.pool.total == small, "each attempt is undone at once"
    assert sim.core.relief.patience == 2 ** len(shortages)


def test_after_a_long_calm_patience_is_short_again() -> None:
    sim = make_sim()
    sim.core.relief.patience = 4
    work(sim, lambda: sim.core.relief.patience == 1)
    assert sim.core.relief.patience == 1


def test_a_pool_that_cannot_be_made_larger_serves_on_and_replays() -> None:
    sim = make_sim(blocks=40)
    recorder = Recorder(sim.core)
    resize, tried = sim.runner.resize, []

    def resized(blocks: int) -> None:
        if blocks > 31:
            tried.append(blocks)
            raise MemoryError
        resize(blocks)

    sim.runner.resize = resized  # type: ignore[method-assign]
    sim.runner.fault = lambda rows: _raise(MemoryError()) if sim.core.pool.total > 31 else None
    work(sim, lambda: len(tried) == 3)
    assert len(tried) == 3 and sim.core.pool.total <= 31 and sim.core.totals.failed == 0
    assert replay(recorder.stop())[-HISTORY:] == list(sim.core.history)


def test_what_a_person_asks_for_is_what_it_grows_back_to() -> None:
    sim = make_sim(blocks=40)
    sim.core.resize(20, asked=False)
    sim.core.resize(30)
    assert sim.core.relief.blocks == 30 and sim.core.relief.whole


def test_a_smaller_pool_when_no_step_is_small_enough() -> None:
    """Memory that the pool takes is missing to the step: it shrinks until one position fits, and the answers are the same."""
    sim = make_sim(blocks=40)
    sim.runner.fault = lambda rows: _raise(MemoryError()) if sim.core.pool.total > 25 else None
    for name in ("a", "bb"):
        ask(sim, name)
    sim.run()
    for name in ("a", "bb"):
        assert sim.tokens(name) == expected_answer(list(range(9)), len(name), 12)
    assert sim.core.pool.total <= 25 and sim.core.totals.failed == 0


def test_when_nothing_helps_the_request_is_told() -> None:
    sim = make_sim()
    sim.runner.fault = lambda rows: _raise(MemoryError())
    ask(sim, "a")
    sim.run(most_steps=100)
    end = sim.end("a")
    assert end is not None and end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "out_of_memory"
    assert sim.core.relief.times <= 5 + SHRINKS
    sim.runner.fault = None
    ask(sim, "bb")
    sim.run()
    assert sim.tokens("bb") == expected_answer(list(range(9)), 2, 12)


def test_a_recording_of_it_is_replayed() -> None:
    sim = make_sim()
    recorder = Recorder(sim.core)
    sim.runner.fault = lambda rows: _raise(MemoryError()) if positions(rows) > 2 or sim.core.pool.total > 31 else None
    for name in ("a", "bb", "ccc"):
        ask(sim, name)
    sim.run()
    assert sim.core.totals.failed == 0 and sim.core.pool.total <= 31
    assert replay(recorder.stop()) == list(sim.core.history)


def _raise(error: Exception) -> None:
    raise error
