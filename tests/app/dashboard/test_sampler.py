"""The sampler looks while it is watched, sleeps when nothing happens, and is gone when it is hidden."""

from __future__ import annotations

import threading

from app.dashboard.sampler import STILL_AFTER, STILL_MS, Sampler
from tests.app.dashboard.sim_engine import SimEngine


def make_sampler(engine: SimEngine, clock, settled=lambda: True) -> tuple[Sampler, list[tuple]]:
    sampler = Sampler(engine, clock=clock, settled=settled)
    seen: list[tuple] = []
    sampler.sampled.connect(lambda snapshot, time: seen.append((snapshot, time)))
    return sampler, seen


def test_each_snapshot_once(qapp, clock):
    engine = SimEngine()
    sampler, seen = make_sampler(engine, clock)
    assert engine.listeners == 0 and not sampler.running
    sampler.start()
    sampler.sample()
    engine.load(2)
    engine.step(5)
    sampler.sample()
    assert [snapshot.step for snapshot, _ in seen] == [0, 5] and seen[-1][1] == engine.snapshot.time
    sampler.stop()
    assert engine.listeners == 0 and not sampler.running


def test_it_stops_when_the_engine_is_still_and_wakes_with_it(qapp, qtbot, clock):
    engine = SimEngine()
    sampler, seen = make_sampler(engine, clock)
    sampler.start()
    for _ in range(STILL_AFTER + 1):
        sampler.sample()
    assert not sampler.running and sampler.watching
    thread = threading.Thread(target=engine.load, args=(1,))
    thread.start()
    thread.join()
    qtbot.waitUntil(lambda: sampler.running, timeout=30_000)
    assert seen[-1][0] is engine.snapshot
    sampler.stop()
    engine.step()
    qtbot.wait(30)
    assert not sampler.running and seen[-1][0] is not engine.snapshot


def test_it_only_slows_down_while_something_still_moves(qapp, clock):
    engine, flat = SimEngine(), []
    sampler, _ = make_sampler(engine, clock, settled=lambda: bool(flat))
    ages = []
    sampler.aged.connect(lambda snapshot, time: ages.append(time))
    sampler.start()
    for _ in range(20):
        clock.now += 0.5
        sampler.sample()
    assert sampler.running and sampler._timer.interval() == STILL_MS
    assert ages[-1] == engine.snapshot.time + 10.0
    flat.append(1)
    sampler.sample()
    assert not sampler.running
    sampler.stop()


def test_a_snapshot_published_between_look_and_sleep_is_not_missed(qapp, clock):
    engine = SimEngine()
    sampler, seen = make_sampler(engine, clock)
    sampler.start()
    for _ in range(STILL_AFTER - 1):
        sampler.sample()
    sampler.aged.connect(lambda *_: engine.publish())
    sampler.sample()
    assert sampler.running
    sampler.sample()
    assert seen[-1][0] is engine.snapshot
    sampler.stop()
