"""A trace is played again bit for bit, whatever happened in it; damaged files are a sentence; policies are compared on the same load."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path

import pytest

from engine.sim import CostModel, Sim
from engine.trace.compare import compare_policies, fit_cost
from engine.trace.recorder import Recorder
from engine.trace.replay import Divergence, Replay, replay
from engine.trace.trace import Trace, TraceError
from engine.types import EngineConfig, Event, FinishReason, Phase, Policy, Priority, RequestRefused, SamplingParams, StepRecord, TokensEvent


def make_sim(policy: Policy = Policy.IN_FLIGHT, seed: int = 0, faults_share: float = 0.02, draft: int = 0) -> Sim:
    """With drafts the made-up model has so few tokens that some of them come true."""
    config = EngineConfig(seats=3, token_budget=24, chunk=8, policy=policy, aging_s=0.5, draft_tokens=draft)
    faults = random.Random(seed)

    def fault(rows: object) -> None:
        if faults.random() < faults_share:
            raise RuntimeError("made-up fault")

    return Sim(config, blocks=14, block_size=4, vocab=3 if draft else 64, eos_ids=frozenset({5}), fault=fault)


def drive(sim: Sim, rnd: random.Random, steps: int, prefix: str) -> list[StepRecord]:
    """Random arrivals, cancels, and changes of everything that can change."""
    records = []
    for number in range(steps):
        if rnd.random() < 0.35:
            params = SamplingParams(max_tokens=rnd.randint(1, 12), ignore_eos=rnd.random() < 0.5)
            tokens = [7] * rnd.choice((0, 8)) + [rnd.randrange(9) for _ in range(rnd.randint(1, 20))]
            chat, priority = f"c{rnd.randrange(4)}", Priority(rnd.randrange(4))
            with contextlib.suppress(RequestRefused):
                sim.core.submit(f"{prefix}{number}", tokens, params, chat_id=chat, title="", priority=priority, seed=number)
        live = list(sim.core.requests)
        if live and rnd.random() < 0.05:
            sim.core.cancel(rnd.choice(live))
        if live and rnd.random() < 0.05:
            sim.core.set_priority(rnd.choice(live), Priority(rnd.randrange(4)))
        if rnd.random() < 0.02:
            sim.core.configure(seats=rnd.randint(1, 4), policy=rnd.choice(list(Policy)))
        if rnd.random() < 0.02:
            sim.core.clear_cache()
        if rnd.random() < 0.02:
            sim.core.resize(rnd.randint(10, 18))
        try:
            record = sim.core.step()
        except Exception:
            sim.core.rebuild()
            continue
        if record is not None:
            records.append(record)
    return records


def shifted(record: StepRecord, by: int) -> tuple[object, ...]:
    """A record without its absolute step number; decisions keep their kind, request and words."""
    decisions = tuple((d.kind, d.request_id, d.seat, d.detail) for d in record.decisions)
    return (
        record.step - by,
        record.time,
        record.duration,
        record.seats_total,
        record.rows,
        record.held,
        record.waiting,
        record.free_blocks,
    ) + (decisions,)


@pytest.mark.parametrize("seed", range(25))
def test_replay_is_bit_for_bit(seed: int, tmp_path: Path) -> None:
    rnd = random.Random(seed)
    sim = make_sim(seed=seed, draft=seed % 3)
    drive(sim, rnd, 40, "before")  # the recording starts in the middle of everything
    recorder = Recorder(sim.core, "sim")
    before = sim.core.totals.steps
    recorded = drive(sim, rnd, 150, "after")
    recorder.stop().save(tmp_path / "run.trace")
    again = replay(Trace.load(tmp_path / "run.trace"))
    assert len(recorded) == len(again) > 50
    first = [shifted(record, before) for record in recorded]
    second = [shifted(record, 0) for record in again]
    # Decisions taken before the recording began ride on its first record: they are not part of it.
    assert [item[:8] for item in first[:1]] == [item[:8] for item in second[:1]]
    assert first[1:] == second[1:]


def test_recording_changes_no_answer() -> None:
    plain, taped = make_sim(), make_sim()
    drive(plain, random.Random(3), 120, "r")
    Recorder(taped.core, "sim")
    drive(taped, random.Random(3), 120, "r")
    assert plain.events.keys() == taped.events.keys()
    for request_id in plain.events:
        mine, other = plain.tokens(request_id), taped.tokens(request_id)
        assert mine == other


def test_a_recording_has_a_limit(tmp_path: Path) -> None:
    """One that was forgotten stops growing; what it has is a whole trace, which says that it was cut."""
    sim, rnd = make_sim(), random.Random(5)
    recorder = Recorder(sim.core, most_bytes=20_000)
    records = drive(sim, rnd, 400, "r")
    assert recorder.full and sim.core.recorder is recorder
    kept = len(recorder.trace.entries)
    drive(sim, rnd, 50, "s")
    trace = recorder.stop()
    assert len(trace.entries) == kept and trace.cut and not recorder._readings
    trace.save(tmp_path / "cut.trace")
    again = Trace.load(tmp_path / "cut.trace")
    played = replay(again)
    assert again.cut and 5 < len(played) < len(records) and played == records[: len(played)]


def test_a_tampered_trace_diverges() -> None:
    sim = make_sim()
    recorder = Recorder(sim.core, "sim")
    drive(sim, random.Random(1), 60, "r")
    trace = recorder.stop()
    victim = next(entry for entry in trace.entries if entry["k"] == "step" and len(entry["out"]) >= 2)
    victim["out"].pop(next(iter(victim["out"])))
    with pytest.raises(Divergence):
        replay(trace)


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>no</html>", gzip.compress(b"{}", mtime=0), gzip.compress(b"[1]\n[2]\n", mtime=0), gzip.compress(b"x" * 50, mtime=0)[:-9]],
)
def test_a_damaged_file_is_a_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.trace"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="not a scheduling trace"):
        Trace.load(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.trace"
    path.write_bytes(gzip.compress(b'{"omnibus_trace": 99}\n'))
    with pytest.raises(TraceError, match="newer"):
        Trace.load(path)


def test_policies_are_compared_on_the_same_load() -> None:
    sim = Sim(EngineConfig(seats=4, token_budget=64, chunk=32), blocks=200, block_size=4)
    recorder = Recorder(sim.core, "sim")
    rnd = random.Random(7)
    for number in range(16):
        length = 60 if number % 4 == 0 else rnd.randint(2, 10)
        params = SamplingParams(max_tokens=length, ignore_eos=True)
        sim.core.submit(f"r{number}", [number] * 6, params, chat_id=f"c{number}", title="", priority=Priority.API, seed=number)
    sim.core.cancel("r1")
    sim.run()
    results = compare_policies(recorder.stop())
    static, in_flight = results[Policy.STATIC], results[Policy.IN_FLIGHT]
    assert in_flight.idle_seat_steps < static.idle_seat_steps
    assert in_flight.makespan_s < static.makespan_s
    assert in_flight.tok_s > static.tok_s
    assert in_flight.ttft_p95_s < static.ttft_p95_s
    assert sum(len(r.rows) for r in in_flight.history) > 0
    assert sim.end("r1").reason is FinishReason.CANCELLED  # type: ignore[union-attr]


def test_cost_is_recovered_from_records() -> None:
    sim = make_sim(faults_share=0.0)
    cost = fit_cost(drive(sim, random.Random(5), 300, "r"))
    assert cost.step == pytest.approx(0.010, rel=0.05)
    assert cost.decode_row == pytest.approx(0.001, rel=0.2)
    assert cost.prefill_token == pytest.approx(0.0005, rel=0.2)


def test_guesses_are_positions_of_a_step_and_what_came_true_is_said() -> None:
    """Of one rider, whose steps differ in what it guesses alone; and of an answer that is still open when the recording ends."""
    sim = make_sim(faults_share=0.0, draft=8)
    recorder = Recorder(sim.core)
    sim.core.submit("r", [1, 2, 1], SamplingParams(ignore_eos=True), chat_id="r", title="", priority=Priority.API, seed=0)
    records = [record for record in (sim.core.step() for _ in range(30)) if record is not None]
    assert sim.core.counters.accepted_tokens > 0
    assert fit_cost(records).decode_row == pytest.approx(0.001, rel=0.01)
    results = compare_policies(recorder.stop())
    assert [round(result.tok_s * result.makespan_s) for result in results.values()] == [len(sim.tokens("r"))] * 2


def test_an_answer_that_had_begun_may_guess_before_its_first_token_in_the_recording() -> None:
    """Where all but its last position are read in whole steps."""
    guessed_first = 0
    for said in range(1, 20):
        sim = Sim(EngineConfig(token_budget=8, draft_tokens=6), blocks=30, block_size=4, vocab=2)
        sim.core.submit("r", [1, 0, 1], SamplingParams(max_tokens=40), chat_id="r", title="", priority=Priority.API, seed=said)
        while len(sim.tokens("r")) < said:
            sim.core.step()
        begun, recorder = len(sim.tokens("r")), Recorder(sim.core)
        while len(sim.tokens("r")) == begun:
            record = sim.core.step()
        assert record is not None
        guessed_first += record.rows[0].phase is Phase.DECODE and record.rows[0].tokens > 1
        sim.run()
        told: list[int] = []
        replay(recorder.stop(), lambda event, told=told: told.extend(event.token_ids if isinstance(event, TokensEvent) else ()))  # type: ignore[misc]
        assert told == sim.tokens("r")[begun:]
    assert guessed_first > 0


@pytest.mark.parametrize("seed", range(6))
def test_guesses_replay_where_requests_rode_alone_before_and_where_answers_had_begun(seed: int) -> None:
    """One that came while requests rode alone guesses nothing later; one that goes on may guess before its first token in the recording."""
    rnd = random.Random(seed)
    config = EngineConfig(seats=3, token_budget=8, chunk=3, draft_tokens=6, reproducible=seed % 2 == 0)
    sim = Sim(config, blocks=30, block_size=4, vocab=2, cost=CostModel(step=0.01, decode_row=0.0001))
    core, recorder, begun = sim.core, None, dict[str, int]()
    for step in range(160):
        if rnd.random() < 0.2:
            params, name = SamplingParams(max_tokens=rnd.randint(1, 40)), f"r{step}"
            tokens = [rnd.randrange(2) for _ in range(rnd.randint(2, 12))]
            core.submit(name, tokens, params, chat_id=name, title="", priority=Priority.API, seed=step)
        if rnd.random() < 0.05:
            core.configure(reproducible=rnd.random() < 0.5)
        if rnd.random() < 0.05:
            core.configure(seats=rnd.randint(1, 4), policy=rnd.choice(list(Policy)))
        if step == 40:
            begun = {name: len(sim.tokens(name)) for name in core.requests}
            recorder, before = Recorder(core), core.counters
        core.step()
    sim.run()
    assert recorder is not None
    told: dict[str, list[int]] = {}

    def note(event: Event) -> None:
        if isinstance(event, TokensEvent):
            told.setdefault(event.request_id, []).extend(event.token_ids)

    player = Replay(recorder.stop(), note)
    while player.advance():
        pass
    assert told and all(tokens == sim.tokens(name)[begun.get(name, 0) :] for name, tokens in told.items())
    for counted in ("drafted_tokens", "accepted_tokens", "output_tokens", "steps"):
        assert getattr(player.core.counters, counted) == getattr(core.counters, counted) - getattr(before, counted) > 0
