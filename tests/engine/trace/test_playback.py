"""A playback shows what the engine had published, wherever one looks, and in bounded memory."""

from __future__ import annotations

import random
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from engine import Playback, Snapshot, Trace, TraceError
from engine.sim import Sim
from engine.snapshot import SnapshotBuilder
from engine.trace.compare import compare_policies
from engine.trace.recorder import Recorder
from engine.types import EngineConfig, EngineState, ModelView, Policy, Priority, SamplingParams


def make_recording(steps: int = 160, seed: int = 4) -> tuple[Trace, list[Snapshot]]:
    """A random run from a fresh core, and the snapshots that an engine would have published after its steps."""
    sim = Sim(EngineConfig(seats=3, token_budget=24, chunk=8, adapt_chunk=False), blocks=20, block_size=4)
    recorder, builder, dice = Recorder(sim.core, "sim"), SnapshotBuilder(), random.Random(seed)
    model = ModelView("sim", context=sim.runner.context, progress=1.0)
    published = []
    for number in range(steps):
        if dice.random() < 0.3:
            tokens = [7] * dice.choice((0, 8)) + [dice.randrange(9) for _ in range(dice.randint(1, 20))]
            params = SamplingParams(max_tokens=dice.randint(1, 12))
            sim.core.submit(
                f"r{number}", tokens, params, chat_id=f"c{number}", title=f"t{number}", priority=Priority(dice.randrange(4)), seed=1
            )
        if dice.random() < 0.04:
            sim.core.configure(seats=dice.randint(2, 4), policy=dice.choice(list(Policy)))
        if sim.core.requests and dice.random() < 0.04:
            sim.core.cancel(dice.choice(list(sim.core.requests)))
        if sim.core.step() is not None:
            published.append(builder.build(sim.core, EngineState.READY, model, sim.clock.now))
    return recorder.stop(), published


def test_it_shows_what_was_published_forwards_and_backwards() -> None:
    trace, published = make_recording()
    playback = Playback(trace)
    assert len(playback) == len(published) > 100 and playback.stride == 1
    assert list(playback.snapshots) == published
    moves = []
    remove = playback.add_listener(lambda: moves.append(playback.position))
    for position in (5, 60, 12, len(published) - 1, 0):
        playback.move(position)
        assert playback.snapshot == published[position]
        assert [record.step for record in playback.history()] == list(range(1, published[position].step + 1))
    playback.move(-4)
    playback.move(10_000)
    assert playback.snapshot == published[-1] and moves == [5, 60, 12, len(published) - 1, 0, len(published) - 1]
    remove()
    playback.move(3)
    assert len(moves) == 6
    assert [record.step for record in playback.history(2)] == [3, 4]


def test_time_and_position_are_one_another() -> None:
    trace, published = make_recording()
    playback = Playback(trace)
    assert playback.elapsed(0) == 0.0 and playback.at(-1.0) == 0 and playback.at(1e9) == len(published) - 1
    for position in range(len(published)):
        assert playback.elapsed(position) == published[position].time - published[0].time
        assert published[playback.at(playback.elapsed(position))].time == published[position].time
    playback.move(90)
    late = playback.before(0.2)
    assert late[-1] == playback.snapshot and late[0].time <= playback.snapshot.time - 0.2 < late[1].time


def test_memory_is_bounded_and_records_stay_whole() -> None:
    trace, published = make_recording()
    playback = Playback(trace, most=20)
    assert playback.stride == 8 and len(playback) <= 20
    assert list(playback.snapshots) == published[::8]
    assert len(playback.records) == len(published)
    playback.move(3)
    assert [record.step for record in playback.history()] == list(range(1, published[24].step + 1))
    slim = Playback(trace, most_owner_bytes=10 * 40)
    kept = {id(snapshot.kv.owners): len(snapshot.kv.owners) for snapshot in slim.snapshots}
    assert sum(kept.values()) <= 10 * 40 and slim.stride > 1


def test_equal_block_maps_are_one_object() -> None:
    sim = Sim(EngineConfig(seats=2, token_budget=64, chunk=32), blocks=40, block_size=16)
    recorder = Recorder(sim.core)
    sim.core.submit("r", [1] * 16, SamplingParams(max_tokens=15, ignore_eos=True), chat_id="c", title="", priority=Priority.API, seed=0)
    sim.run()
    snapshots = Playback(recorder.stop()).snapshots
    pairs = list(zip(snapshots, snapshots[1:], strict=False))
    assert any(a.kv.owners == b.kv.owners for a, b in pairs)
    assert all(a.kv.owners is b.kv.owners for a, b in pairs if a.kv.owners == b.kv.owners)


def test_what_cannot_be_played_is_a_sentence() -> None:
    trace, _ = make_recording(60)
    with pytest.raises(TraceError, match="no step") as caught:
        Playback(replace(trace, entries=[]))
    assert caught.value.hint
    for entries in (
        [entry for entry in trace.entries if entry["k"] != "submit"],
        [{**entry, "t": []} for entry in trace.entries],
        [{**entry, "params": {"nonsense": 1}} if entry["k"] == "submit" else entry for entry in trace.entries],
        [{**entry, "tokens": 5} if entry["k"] == "submit" else entry for entry in trace.entries],
    ):
        with pytest.raises(TraceError, match="cannot be played"):
            Playback(replace(trace, entries=entries))


def test_playing_and_comparing_can_be_called_off() -> None:
    trace, _ = make_recording(60)
    with pytest.raises(CancelledError):
        Playback(trace, cancelled=lambda: True)
    calls = iter([False] * (len(trace.entries) + 10))  # the replay is done, the simulation has begun
    with pytest.raises(CancelledError):
        compare_policies(trace, cancelled=lambda: next(calls, True))
