"""A load under one policy: exact steps, against a ten-line model of a bus that knows nothing of the engine."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, EngineError, EngineState, Phase, Policy, RequestRefused
from engine.bench.load import Load, ScriptedRequest, riders, rush_hour
from engine.bench.policy_run import PolicyRun, Progress, run_policy
from engine.sim import expected_answer
from tests.engine.bench.made_up import SIM_VOCAB, make_engine


def make_load(tokens: list[int], seats: int) -> Load:
    requests = tuple(ScriptedRequest(f"q{number}", f"Q{number}", chr(97 + number), n) for number, n in enumerate(tokens))
    return Load("made", "A made-up load", seats, requests)


def ride(tokens: list[int], seats: int, static: bool) -> tuple[dict[str, int], dict[str, int], int]:
    """Boarded step, finished step, and empty seat-steps of requests whose prompts cost nothing."""
    waiting = list(enumerate(tokens))
    riding: dict[int, int] = {}
    boarded, finished, idle = {}, {}, 0
    for step in itertools.count(1):
        if not waiting and not riding:
            return boarded, finished, idle
        if not static or not riding:
            for number, left in waiting[: seats - len(riding)]:
                riding[number] = left
                boarded[f"q{number}"] = step
            waiting = [item for item in waiting if item[0] not in riding]
        idle += seats - len(riding)
        for number in list(riding):
            riding[number] -= 1
            if not riding[number]:
                del riding[number]
                finished[f"q{number}"] = step
    raise AssertionError("unreachable")


@pytest.fixture(scope="module")
def shared_engine():
    with make_engine() as made:
        made.wait_ready(60)
        yield made


def test_the_tour_bus_runs_eight_steps_before_anyone_new_boards(engine: Engine) -> None:
    run = run_policy(engine, riders(), Policy.STATIC)
    assert run.boarded_step == {"A": 1, "B": 1, "C": 1, "D": 9, "E": 9, "F": 9}
    assert run.finished_step == {"A": 8, "B": 2, "C": 6, "D": 16, "E": 10, "F": 14}
    assert (run.steps, run.idle_seat_steps) == (16, 16)


def test_the_city_bus_boards_d_at_the_step_after_b_gets_off(engine: Engine) -> None:
    run = run_policy(engine, riders(), Policy.IN_FLIGHT)
    assert run.finished_step["B"] == 2
    assert run.boarded_step == {"A": 1, "B": 1, "C": 1, "D": 3, "E": 7, "F": 9}
    assert run.finished_step == {"A": 8, "B": 2, "C": 6, "D": 10, "E": 8, "F": 14}
    assert (run.steps, run.idle_seat_steps) == (14, 10)


def test_steps_count_from_one_in_every_run_and_answers_do_not_change(engine: Engine) -> None:
    runs = [run_policy(engine, riders(), policy) for policy in (Policy.STATIC, Policy.IN_FLIGHT) * 2]
    assert runs[0].boarded_step == runs[2].boarded_step and runs[1].boarded_step == runs[3].boarded_step
    for request in riders().requests:
        alone = tuple(expected_answer([ord(char) for char in request.prompt], 0, request.tokens, SIM_VOCAB))
        assert {run.token_ids[request.id] for run in runs} == {alone}


@settings(max_examples=40, deadline=None)
@given(tokens=st.lists(st.integers(1, 12), min_size=1, max_size=12), seats=st.integers(1, 5), static=st.booleans())
def test_steps_are_those_of_a_bus(shared_engine: Engine, tokens: list[int], seats: int, static: bool) -> None:
    run = run_policy(shared_engine, make_load(tokens, seats), Policy.STATIC if static else Policy.IN_FLIGHT)
    boarded, finished, idle = ride(tokens, seats, static)
    assert run.boarded_step == boarded
    assert run.finished_step == finished
    assert run.idle_seat_steps == idle
    assert run.steps == max(finished.values())
    assert {name: len(ids) for name, ids in run.token_ids.items()} == {f"q{number}": n for number, n in enumerate(tokens)}


def test_figures_agree_with_the_engines_own_counters(engine: Engine) -> None:
    before = engine.snapshot.counters
    run = run_policy(engine, rush_hour(), Policy.STATIC, pace=0.0)
    after = engine.snapshot.counters
    assert run.steps == after.steps - before.steps
    assert run.idle_seat_steps == after.idle_seat_steps - before.idle_seat_steps
    assert run.output_tokens == after.output_tokens - before.output_tokens == sum(request.tokens for request in rush_hour().requests)


def test_the_rush_hour_shows_the_difference(engine: Engine) -> None:
    static, in_flight = (run_policy(engine, rush_hour(), policy, pace=0.0) for policy in (Policy.STATIC, Policy.IN_FLIGHT))
    assert static.text == in_flight.text
    assert in_flight.steps < static.steps / 2
    assert in_flight.idle_seat_steps < static.idle_seat_steps / 3


def test_the_shared_system_prompt_is_read_once(engine: Engine) -> None:
    run = run_policy(engine, rush_hour(), Policy.IN_FLIGHT, pace=0.0)
    rosa = next(
        decision for record in run.records for decision in record.decisions if decision.title == "Rosa" and decision.kind == "admit"
    )
    assert "from the prefix cache" in rosa.detail


def test_the_cache_of_one_policy_does_not_serve_the_other(engine: Engine) -> None:
    for policy in (Policy.STATIC, Policy.IN_FLIGHT):
        run = run_policy(engine, make_load([4] * 3, 3), policy)
        prefills = [row for row in run.records[0].rows if row.phase is Phase.PREFILL]
        assert [row.tokens for row in prefills] == [1, 1, 1]
    long = Load("long", "Long", 1, (ScriptedRequest("q", "Q", "x" * 64, 2),))
    for policy in (Policy.STATIC, Policy.IN_FLIGHT):
        run = run_policy(engine, long, policy)
        assert sum(row.tokens for record in run.records for row in record.rows if row.phase is Phase.PREFILL) == 64


def test_a_watcher_sees_the_end(engine: Engine) -> None:
    seen: list[tuple[int, int, int]] = []

    def watch(progress: Progress) -> None:
        seen.append((len(progress.records), progress.finished, progress.tokens))

    run = run_policy(engine, riders(), Policy.IN_FLIGHT, watch=watch)
    assert seen[-1] == (run.steps, 6, 32)


def test_the_engine_is_left_paused_and_usable(engine: Engine) -> None:
    run_policy(engine, riders(), Policy.IN_FLIGHT)
    assert engine.snapshot.state is EngineState.PAUSED
    engine.resume()
    assert engine.submit([1, 2, 3]).result(60).usage.completion_tokens > 0


def test_late_arrivals_are_submitted_late() -> None:
    gate = threading.Event()
    with make_engine(fault=lambda rows: gate.wait(0.002) and None) as engine:
        engine.wait_ready(60)
        load = Load("late", "Late", 2, (ScriptedRequest("a", "A", "x", 40), ScriptedRequest("b", "B", "y", 2, at_s=0.03)))
        run = run_policy(engine, load, Policy.IN_FLIGHT)
        assert run.boarded_step["a"] == 1 < run.boarded_step["b"]
        assert run.steps == 40 or run.boarded_step["b"] > 40  # a machine may sleep through the whole of a


def test_an_engine_that_has_other_work_is_refused(engine: Engine) -> None:
    engine.pause()
    handle = engine.submit([1, 2, 3])
    with pytest.raises(EngineError, match="busy"):
        run_policy(engine, riders(), Policy.STATIC)
    handle.cancel()


def test_a_request_that_cannot_run_ends_the_run_and_leaves_nothing_behind(engine: Engine) -> None:
    pool = 1024 * 16
    load = Load("huge", "Huge", 2, (ScriptedRequest("a", "A", "x", 4), ScriptedRequest("b", "B", "y" * pool, 4)))
    with pytest.raises(RequestRefused):
        run_policy(engine, load, Policy.STATIC)
    engine.resume()
    assert run_policy(engine, riders(), Policy.STATIC).steps == 16


def test_an_answer_that_is_cut_short_is_no_result() -> None:
    with make_engine(context=12) as engine:
        engine.wait_ready(60)
        load = Load("tight", "Tight", 1, (ScriptedRequest("a", "A", "x" * 10, 4),))
        with pytest.raises(EngineError, match="ended after 2 of 4 tokens"):
            run_policy(engine, load, Policy.STATIC)


def test_a_model_that_fails_is_reported() -> None:
    def fail(rows) -> None:
        raise RuntimeError("the weights are soup")

    with make_engine(fault=fail) as engine:
        engine.wait_ready(60)
        with pytest.raises(EngineError, match="soup"):
            run_policy(engine, riders(), Policy.IN_FLIGHT)


def test_json_trace_adds_up(engine: Engine) -> None:
    run: PolicyRun = run_policy(engine, rush_hour(), Policy.IN_FLIGHT, pace=0.0)
    figures = run.as_json(trace=True)
    trace = figures["trace"]
    assert [entry["step"] for entry in trace] == list(range(1, figures["steps"] + 1))
    assert sum(entry["seats"] - len(entry["rows"]) - len(entry["held"]) for entry in trace) == figures["idle_seat_steps"]
    for name, step in figures["finished_step"].items():
        assert name in {row["request"] for row in trace[step - 1]["rows"]}
        assert all(name not in {row["request"] for row in entry["rows"]} for entry in trace[step:])
