"""A machine that sleeps for hours, or whose clock is set back, finds its engine's timing as it left it."""

from __future__ import annotations

import pytest

from engine.sim import Sim
from engine.snapshot import SnapshotBuilder
from engine.steady import SteadyClock
from engine.types import EngineConfig, EngineState, FinishedEvent, ModelView, Priority, SamplingParams, Snapshot


def test_leaps_are_left_out() -> None:
    readings = iter([100.0, 101.0, 101.0 + 7200.0, 101.5 + 7200.0, 50.0, 51.0, 650.0])
    clock = SteadyClock(readings.__next__)
    assert [clock() for _ in range(7)] == [100.0, 101.0, 101.0, 101.5, 101.5, 102.5, 701.5]
    assert clock.leaps == 2


def make_sim(steady: bool) -> Sim:
    sim = Sim(EngineConfig(seats=1, token_budget=32, chunk=16, aging_s=5.0), blocks=60, block_size=4)
    if steady:
        sim.core.clock = SteadyClock(sim.clock)
    return sim


def ride(sim: Sim, leap: float) -> tuple[Snapshot, list[int], list[FinishedEvent]]:
    """Three requests on one seat; the clock leaps in the middle of the first one's answer, also within a step."""
    for name, priority in (("a", Priority.FOREGROUND), ("b", Priority.BACKGROUND), ("c", Priority.IDLE)):
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        sim.core.submit(name, [1, 2, 3, 4, 5, 6], params, chat_id=name, title="", priority=priority, seed=0)
    for _ in range(20):
        sim.core.step()
    sim.clock.advance(leap)
    sim.core.step()
    sim.runner.fault = lambda rows: sim.clock.advance(leap)
    sim.core.step()
    sim.runner.fault = None
    for _ in range(3):
        sim.core.step()
    snapshot = SnapshotBuilder().build(sim.core, EngineState.READY, ModelView(), sim.core.clock())
    classes = [request.level for request in sim.core.scheduler.queue]
    sim.run()
    ends = [sim.end(name) for name in "abc"]
    assert all(end is not None and end.error is None for end in ends)
    return snapshot, classes, [end for end in ends if end is not None]


@pytest.mark.parametrize("leap", [6 * 3600.0, -6 * 3600.0], ids=["slept", "set back"])
def test_splits_rates_starts_and_classes_are_as_without_the_leap(leap: float) -> None:
    plain, classes, plain_ends = ride(make_sim(steady=False), 0.0)
    leapt, leapt_classes, leapt_ends = ride(make_sim(steady=True), leap)
    assert leapt_classes == classes == [1, 3]
    for before, after in zip(plain_ends, leapt_ends, strict=True):
        assert after.time.total == pytest.approx(before.time.total, abs=0.05)
        assert after.time.decode == pytest.approx(before.time.decode, abs=0.05)
    for theirs, ours in zip(plain.queue, leapt.queue, strict=True):
        assert ours.request_id == theirs.request_id
        assert ours.waited_s == pytest.approx(theirs.waited_s, abs=0.05)
        assert ours.expected_start_s == pytest.approx(theirs.expected_start_s, rel=0.3, abs=0.2)


def test_without_it_a_leap_does_spoil_them() -> None:
    _, classes, ends = ride(make_sim(steady=False), 6 * 3600.0)
    assert sum(classes) < 4  # background and idle, 1 and 3, have aged overnight
    assert ends[0].time.total > 6 * 3600.0
