"""Two models of this machine at once where they fit, by turns where they do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from engine.engine import Engine
from engine.engines import Engines
from engine.handle import RequestHandle
from engine.types import EngineConfig, EngineState, FinishedEvent, FinishReason, SamplingParams, WaitReason
from tests.engine.made_up_model import Workshop, answer, read, said, wait_for

PARAMS = SamplingParams(max_tokens=3, seed=7, ignore_eos=True)
SLOWLY = 0.1  # seconds a step: an answer of 60 tokens is not over before the other has begun, on a busy machine either
LONG = SamplingParams(max_tokens=60, seed=7, ignore_eos=True)


class Space:
    """Room as a test wants it. Attributes: full (models that do not fit beside another), low (memory is short), asked."""

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.low = False
        self.asked: list[str] = []

    def refusal(self, config: EngineConfig) -> str:
        self.asked.append(config.model)
        return "Does not fit." if config.model in self.full else ""

    def short(self, config: EngineConfig) -> bool:
        return self.low


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def space() -> Space:
    return Space()


@pytest.fixture
def engines(workshop: Workshop, space: Space) -> Iterator[Engines]:
    made = Engines(Engine(EngineConfig(model="first", seats=4, debug_audit=True), opener=workshop.open), room=space)
    made.start()
    made.wait_ready(60)
    yield made
    workshop.gate.set()
    workshop.pace = 0
    assert made.close(60)


def until(engines: Engines, holds: Callable[[], bool]) -> None:
    wait_for(engines, holds)  # type: ignore[arg-type]


def loaded(engines: Engines) -> list[str]:
    return [snapshot.model.source for snapshot in engines.loaded if snapshot.state is EngineState.READY]


def text_of(handle: RequestHandle) -> str:
    return said(read(handle))


def end_of(handle: RequestHandle) -> FinishedEvent:
    end = read(handle)[-1]
    assert isinstance(end, FinishedEvent)
    return end


def test_two_that_fit_are_loaded_side_by_side_and_each_answers_as_alone(engines: Engines, workshop: Workshop) -> None:
    workshop.offsets["second"] = 5
    workshop.pace = SLOWLY
    one = engines.submit("abc", LONG)
    two = engines.submit("abc", LONG, model="second")
    until(engines, lambda: len(loaded(engines)) == 2 and all(snapshot.seated == 1 for snapshot in engines.loaded))
    workshop.pace = 0
    assert text_of(one) == answer("abc", 7, 60) and text_of(two) == answer("abc", 7, 60, offset=5)
    assert workshop.opened == ["first", "second"] and workshop.closed == [] and one.id != two.id


def test_each_ones_seats_are_in_the_snapshot(engines: Engines, workshop: Workshop) -> None:
    assert engines.snapshot.others == ()
    workshop.pace = SLOWLY
    one = engines.submit("abc", LONG, title="one")
    two = engines.submit("abc", LONG, model="second", title="two")
    until(engines, lambda: engines.snapshot.seated == 1 and [other.seated for other in engines.snapshot.others] == [1])
    snapshot = engines.snapshot
    # The same while nothing changes, so that who looks need not look twice. (A step may end between two looks, but not between all.)
    assert any(engines.snapshot is engines.snapshot for _ in range(1000))
    assert (snapshot.model.source, snapshot.others[0].model.source) == ("second", "first")
    assert snapshot.seats[0] is not None and snapshot.seats[0].title == "two"
    workshop.pace = 0
    read(one), read(two)


def test_what_does_not_fit_waits_its_turn_with_the_reason(engines: Engines, workshop: Workshop, space: Space) -> None:
    space.full = {"first", "second"}
    workshop.pace = SLOWLY
    one = engines.submit("abc", LONG)
    until(engines, lambda: engines.snapshot.seated == 1)
    two = engines.submit("abc", PARAMS, model="second")
    until(engines, lambda: engines.snapshot.waiting == 1 and engines.snapshot.queue[0].reason is WaitReason.MODEL)
    assert engines.snapshot.queue[0].detail == "waits for second: first still answers"
    assert loaded(engines) == ["first"]
    workshop.pace = 0
    assert end_of(one).reason is end_of(two).reason is FinishReason.LENGTH
    assert workshop.opened == ["first", "second"] and workshop.closed == ["first"] and loaded(engines) == ["second"]
    assert end_of(engines.submit("abc", PARAMS, model="first")).reason is FinishReason.LENGTH
    assert workshop.closed == ["first", "second"]


def test_a_load_that_does_not_fit_takes_the_idle_ones_place(engines: Engines, workshop: Workshop, space: Space) -> None:
    space.full = {"second"}
    engines.load("second")
    assert engines.wait_ready(60).model.source == "second"
    assert loaded(engines) == ["second"] and workshop.closed == ["first"] and engines.config.model == "second"


def test_who_waits_for_a_model_that_moves_is_not_told_of_the_one_before(
    engines: Engines, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes from the move to what follows it."""
    space.full = {"second"}
    move = engines.here._moved

    def slowly(engine: Engine, other: Engine) -> None:
        move(engine, other)
        time.sleep(0.3)

    monkeypatch.setattr(engines.here, "_moved", slowly)
    engines.load("second")
    assert engines.wait_ready(60).model.source == "second"


def test_a_third_takes_the_place_of_the_one_unused_the_longest(engines: Engines, workshop: Workshop) -> None:
    for model in ("second", "first", "third"):
        assert end_of(engines.submit("abc", PARAMS, model=model)).reason is FinishReason.LENGTH
    assert workshop.closed == ["second"] and sorted(loaded(engines)) == ["first", "third"]


def test_a_third_waits_for_the_idle_one_of_two(engines: Engines, workshop: Workshop) -> None:
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    workshop.pace = SLOWLY
    busy = engines.submit("abc", LONG, model="second")
    until(engines, lambda: engines.snapshot.seated == 1)
    engines.load("third")  # "second" was used last, and it answers: "first" goes
    until(engines, lambda: "third" in loaded(engines))
    workshop.pace = 0
    assert end_of(busy).reason is FinishReason.LENGTH and workshop.closed == ["first"]


def test_one_at_a_time_if_that_is_wanted(engines: Engines, workshop: Workshop, space: Space) -> None:
    engines.keep_two(False)
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    assert workshop.closed == ["first"] and space.asked == []
    engines.keep_two(True)
    assert end_of(engines.submit("abc", PARAMS, model="first")).reason is FinishReason.LENGTH
    assert sorted(loaded(engines)) == ["first", "second"]
    engines.keep_two(False)
    until(engines, lambda: len(loaded(engines)) == 1)
    assert loaded(engines) == ["first"]


def test_short_memory_lets_the_idle_one_go_and_nothing_that_answers(engines: Engines, workshop: Workshop, space: Space) -> None:
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    engines.here._clock = lambda: 1e9  # the next look is due
    workshop.pace = SLOWLY
    busy = engines.submit("abc", LONG, model="first")
    until(engines, lambda: engines.snapshot.seated == 1)
    space.low = True
    engines.here._clock = lambda: 2e9
    workshop.pace = 0
    assert end_of(busy).reason is FinishReason.LENGTH
    until(engines, lambda: workshop.closed == ["second"])
    assert loaded(engines) == ["first"]


def test_each_is_let_go_by_itself_and_comes_back(engines: Engines, workshop: Workshop) -> None:
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    engines.unload("first")
    until(engines, lambda: loaded(engines) == ["second"])
    assert end_of(engines.submit("abc", PARAMS, model="first")).reason is FinishReason.LENGTH
    assert sorted(loaded(engines)) == ["first", "second"] and workshop.opened == ["first", "second", "first"]
    engines.let_go_after(0.02)
    until(engines, lambda: loaded(engines) == [])


def test_reproducible_answers_are_every_models_and_are_not_asked_for_twice(engines: Engines, workshop: Workshop) -> None:
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    told = []
    for engine in engines.here.engines:
        engine.configure = lambda engine=engine, **given: (told.append(given), type(engine).configure(engine, **given))  # type: ignore
    for _ in range(2):
        engines.reproduce(True)
    assert told == [{"reproducible": True}] * 2
    for model in ("first", "second"):
        assert end_of(engines.submit("abc", PARAMS, model=model)).reason is FinishReason.LENGTH
    assert all(engine.snapshot.alone for engine in engines.here.engines)


def test_a_cancel_is_heard_wherever_its_request_has_gone(engines: Engines, workshop: Workshop, space: Space) -> None:
    space.full = {"second"}
    looking, go_on = threading.Event(), threading.Event()

    def look(config: EngineConfig) -> str:
        looking.set()
        assert go_on.wait(60)
        return "Does not fit."

    space.refusal = look  # type: ignore[method-assign]
    workshop.pace = SLOWLY
    busy = engines.submit("abc", PARAMS)
    early, late, kept = (engines.submit("abc", PARAMS, model="second") for _ in range(3))
    assert looking.wait(60)
    early.cancel()  # while it is looked whether it fits
    assert end_of(early).reason is FinishReason.CANCELLED
    go_on.set()
    until(engines, lambda: len(engines.snapshot.queue) == 2)
    late.cancel()  # when it waits with the other engine
    assert end_of(late).reason is FinishReason.CANCELLED
    workshop.pace = 0
    assert end_of(busy).reason is end_of(kept).reason is FinishReason.LENGTH


def test_a_model_that_cannot_be_loaded_does_not_harm_the_other(engines: Engines, workshop: Workshop) -> None:
    workshop.broken = True
    end = end_of(engines.submit("abc", PARAMS, model="missing"))
    assert end.error is not None and "missing" in end.error.message
    assert end_of(engines.submit("abc", PARAMS, model="first")).reason is FinishReason.LENGTH
    workshop.broken = False
    assert end_of(engines.submit("abc", PARAMS, model="third")).reason is FinishReason.LENGTH
    assert sorted(loaded(engines)) == ["first", "third"] and workshop.closed == []


def test_two_asked_for_at_the_start_are_loaded_one_after_the_other(workshop: Workshop, space: Space) -> None:
    engines = Engines(Engine(EngineConfig(model="first", seats=4), opener=workshop.open), room=space)
    workshop.gate.clear()
    one = engines.submit("abc", PARAMS)
    two = engines.submit("abc", PARAMS, model="second")
    until(engines, lambda: any("waiting for another" in snapshot.model.stage for snapshot in engines.loaded))
    assert space.asked == []  # not before the first has taken its memory
    workshop.gate.set()
    assert end_of(one).reason is end_of(two).reason is FinishReason.LENGTH
    assert len(space.asked) == 1 and len(loaded(engines)) == 2
    assert engines.close(60)


def test_with_one_engine_nobody_is_asked_what_may_be_picked(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard wants to know it ten times a second."""
    monkeypatch.setattr(Engines, "loaded", property(lambda self: pytest.fail("the engines were asked")))
    assert engines.shown.choices == ()


def test_the_dashboard_may_look_at_either(engines: Engines, workshop: Workshop) -> None:
    shown = engines.shown
    assert shown.snapshot.model.source == "first" and shown.choices == ()
    assert end_of(engines.submit("abc", PARAMS, model="second")).reason is FinishReason.LENGTH
    assert shown.snapshot.model.source == "second" and len(shown.choices) == 2
    shown.pick("first")
    shown.configure(seats=2)
    until(engines, lambda: len(shown.snapshot.seats) == 2)
    assert shown.snapshot.model.source == "first" and len(engines.snapshot.seats) == 4
    engines.unload("first")
    until(engines, lambda: shown.snapshot.model.source == "second")
