"""Several models by turns: requests for another one wait with a reason, nobody waits for ever, and a model can be let go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.engine import Engine
from engine.types import EngineError, EngineState, FinishReason, RequestRefused, SamplingParams, WaitReason
from tests.engine.made_up_model import Workshop, make_engine, read, wait_for

PARAMS = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def engine(workshop: Workshop) -> Iterator[Engine]:
    with make_engine(workshop) as made:
        made.wait_ready(60)
        yield made
        workshop.gate.set()
        workshop.steps.set()


def reason_of(handle: object) -> FinishReason:
    return read(handle)[-1].reason  # type: ignore[arg-type, union-attr]


def test_a_request_for_another_model_waits_with_the_reason_and_then_has_it(engine: Engine, workshop: Workshop) -> None:
    workshop.steps.clear()
    first = engine.submit("abc", PARAMS)
    assert workshop.stepping.wait(60)
    second = engine.submit("abc", PARAMS, model="/models/second")
    workshop.steps.set()
    assert reason_of(first) is FinishReason.LENGTH and reason_of(second) is FinishReason.LENGTH
    assert workshop.opened == ["first", "/models/second"] and workshop.closed == ["first"]
    assert engine.config.model == "/models/second"


def test_the_reason_is_in_the_snapshot(engine: Engine, workshop: Workshop) -> None:
    engine.pause()
    wait_for(engine, lambda: engine.snapshot.state is EngineState.PAUSED)
    one, two = engine.submit("abc", PARAMS), engine.submit("abc", PARAMS, model="/models/second", title="other")
    engine.resume()
    engine.pause()
    wait_for(engine, lambda: engine.snapshot.waiting >= 1 and engine.snapshot.queue[-1].request_id == two.id)
    view = engine.snapshot.queue[-1]
    assert (view.reason, view.title) == (WaitReason.MODEL, "other")
    assert view.detail == "waits for second: first still answers"
    one.cancel()
    two.cancel()
    engine.resume()
    assert reason_of(one) is reason_of(two) is FinishReason.CANCELLED
    assert workshop.opened == ["first"]


def test_nobody_waits_for_ever_and_those_for_one_model_go_together(engine: Engine, workshop: Workshop) -> None:
    workshop.steps.clear()
    riding = engine.submit("a", PARAMS)
    assert workshop.stepping.wait(60)
    models = ["second", "", "second", "first"]  # the later ones for the present model come behind those that wait already
    waiting = [engine.submit("a", PARAMS, model=model) for model in models]
    workshop.steps.set()
    for handle in (riding, *waiting):
        assert reason_of(handle) is FinishReason.LENGTH
    assert workshop.opened == ["first", "second", "first"]


def test_a_model_that_does_not_load_fails_its_own_requests_alone(engine: Engine, workshop: Workshop) -> None:
    workshop.steps.clear()
    riding = engine.submit("a", PARAMS)
    assert workshop.stepping.wait(60)
    workshop.gate.clear()
    missing, back = engine.submit("a", PARAMS, model="missing"), engine.submit("a", PARAMS, model="first")
    workshop.steps.set()
    assert reason_of(riding) is FinishReason.LENGTH
    assert workshop.loading.wait(60)
    workshop.broken = True
    workshop.gate.set()
    end = read(missing)[-1]
    workshop.broken = False
    assert end.reason is FinishReason.ERROR and end.error is not None and "missing" in end.error.message  # type: ignore[union-attr]
    assert reason_of(back) in (FinishReason.LENGTH, FinishReason.ERROR)


def test_unloaded_the_next_request_brings_the_model_back(engine: Engine, workshop: Workshop) -> None:
    engine.unload()
    wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
    assert workshop.closed == ["first"] and engine.snapshot.model.weight_bytes == 0
    assert reason_of(engine.submit("abc", PARAMS)) is FinishReason.LENGTH
    assert workshop.opened == ["first", "first"] and engine.snapshot.state is EngineState.READY


def test_unloading_under_load_ends_what_rides_and_keeps_what_waits(engine: Engine, workshop: Workshop) -> None:
    engine.configure(seats=1)
    workshop.steps.clear()
    riding = engine.submit("abc", SamplingParams(max_tokens=50, ignore_eos=True))
    assert workshop.stepping.wait(60)
    waiting = engine.submit("abc", PARAMS)
    engine.unload()
    workshop.steps.set()
    end = read(riding)[-1]
    assert end.error is not None and end.error.code == "model_changed"  # type: ignore[union-attr]
    assert reason_of(waiting) is FinishReason.LENGTH
    assert workshop.opened == ["first", "first"]


def test_an_idle_model_is_let_go_by_itself(workshop: Workshop) -> None:
    with make_engine(workshop, idle_unload_s=0.05) as engine:
        wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
        assert workshop.closed == ["first"]
        assert reason_of(engine.submit("abc", PARAMS)) is FinishReason.LENGTH
        wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
        assert workshop.opened == ["first", "first"]


def test_the_idle_limit_changes_at_run_time(engine: Engine, workshop: Workshop) -> None:
    engine.let_go_after(0.05)
    wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
    engine.let_go_after(None)
    assert reason_of(engine.submit("abc", PARAMS)) is FinishReason.LENGTH
    with pytest.raises(EngineError):
        engine.let_go_after(0)
    assert engine.config.idle_unload_s is None


def test_a_load_can_be_cancelled(engine: Engine, workshop: Workshop) -> None:
    workshop.gate.clear()
    workshop.loading.clear()
    engine.load("large")
    assert workshop.loading.wait(60)
    early = engine.submit("abc", PARAMS)
    engine.cancel_load()
    end = read(early)[-1]
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "load_cancelled"  # type: ignore[union-attr]
    wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
    workshop.gate.set()
    engine.load("first")
    assert engine.wait_ready(60).model.name == "first"


def test_cancelling_where_nothing_loads_changes_nothing(engine: Engine) -> None:
    engine.cancel_load()
    assert reason_of(engine.submit("abc", PARAMS)) is FinishReason.LENGTH


def test_after_a_failure_another_model_may_be_asked_for(engine: Engine, workshop: Workshop) -> None:
    workshop.broken = True
    engine.load("missing")
    wait_for(engine, lambda: engine.snapshot.state is EngineState.FAILED)
    with pytest.raises(RequestRefused):
        engine.submit("abc", PARAMS)
    workshop.broken = False
    assert reason_of(engine.submit("abc", PARAMS, model="first")) is FinishReason.LENGTH
