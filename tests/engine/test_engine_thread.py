"""The engine's thread over a made-up model: submitting, cancelling and closing in every state, failures, pauses, changes of model."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from engine import (
    Engine,
    EngineError,
    EngineState,
    Event,
    FinishedEvent,
    FinishReason,
    Message,
    Policy,
    Priority,
    RequestHandle,
    RequestRefused,
    SamplingParams,
    TokensEvent,
    WaitReason,
)
from tests.engine.made_up_model import PATIENCE, Workshop, answer, make_engine, read, rests, said, the_end, wait_for

THREAD = "omnibus-engine"


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name == THREAD]


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def engine(workshop: Workshop) -> Iterator[Engine]:
    """A started engine; whatever a test did to it, it must close in time."""
    engine = make_engine(workshop)
    yield engine
    workshop.gate.set()
    workshop.steps.set()
    assert engine.close(PATIENCE)


def params(count: int = 5, **more: object) -> SamplingParams:
    return SamplingParams(max_tokens=count, **{"seed": 7, **more})  # type: ignore[arg-type]


def hold_steps(engine: Engine, workshop: Workshop, count: int = 1, tokens: int = 50) -> list[RequestHandle]:
    """Requests in one step together, which does not end before `workshop.steps` is set."""
    engine.wait_ready(PATIENCE)
    workshop.steps.clear()
    workshop.stepping.clear()
    engine.pause()
    handles = [engine.submit(f"ask {number}", params(tokens), title=f"R{number}") for number in range(count)]
    engine.resume()
    assert workshop.stepping.wait(PATIENCE)
    return handles


# ------------------------------------------------------------------------------------------------------------- answering


def test_an_answer_from_submit_to_end(engine: Engine) -> None:
    assert engine.wait_ready(PATIENCE).state is EngineState.READY
    handle = engine.submit("hello", params(12), chat_id="c1", title="Hello")
    events = read(handle)
    assert said(events) == answer("hello", 7, 12)
    end = events[-1]
    assert isinstance(end, FinishedEvent) and end.reason is FinishReason.LENGTH
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (5, 12)
    assert handle.chat_id == "c1"


def test_many_at_once_say_what_they_say_alone(engine: Engine) -> None:
    handles = {number: engine.submit(f"question {number}", params(20, seed=number)) for number in range(40)}
    for number, handle in handles.items():
        assert said(read(handle)) == answer(f"question {number}", number, 20)


def test_a_prompt_may_be_text_messages_or_tokens(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    text = said(read(engine.submit("user:hi;", params())))
    assert said(read(engine.submit([Message("user", "hi")], params()))) == text
    assert said(read(engine.submit([ord(letter) for letter in "user:hi;"], params()))) == text
    assert engine.count_tokens([Message("user", "hi")]) == 8


def test_a_stop_string_ends_the_answer(engine: Engine) -> None:
    whole = answer("hello", 7, 60)
    letter = whole[9]
    events = read(engine.submit("hello", params(60, stop=(letter,))))
    assert said(events) == whole[: whole.index(letter)]
    assert isinstance(events[-1], FinishedEvent) and events[-1].reason is FinishReason.STOP


def test_without_a_seed_one_is_drawn(engine: Engine) -> None:
    texts = {said(read(engine.submit("hello", SamplingParams(max_tokens=30)))) for _ in range(4)}
    assert len(texts) == 4


def test_submitted_before_the_model_is_loaded_it_waits_and_the_wait_counts(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop, start=False)
    early = engine.submit("early", params())
    engine.start()
    assert workshop.loading.wait(PATIENCE)
    late = engine.submit("late", params(), title="Late")
    wait_for(engine, lambda: engine.snapshot.state is EngineState.LOADING)
    time.sleep(0.05)
    workshop.gate.set()
    for handle, prompt in ((early, "early"), (late, "late")):
        events = read(handle)
        assert said(events) == answer(prompt, 7, 5)
        end = events[-1]
        assert isinstance(end, FinishedEvent) and end.time.waited >= 0.05
        assert end.time.ttft is not None and end.time.ttft >= end.time.waited
    assert engine.close(PATIENCE)


def test_a_chat_is_encoded_under_its_requests_salt(workshop: Workshop) -> None:
    """Whether it comes before the model or after it."""
    workshop.gate.clear()
    engine = make_engine(workshop)
    early = engine.submit([Message("user", "early")], params(), salt=b"one")
    workshop.gate.set()
    read(early)
    read(engine.submit([Message("user", "late")], params(), salt=b"other"))
    assert workshop.salts == [b"one", b"other"]
    assert engine.close(PATIENCE)


def test_what_waits_while_loading_is_shown_as_such(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop)
    handles = [engine.submit("early", params(), title=f"T{number}") for number in range(3)]
    assert workshop.loading.wait(PATIENCE)
    engine.pause()  # any command: the thread is deep in loading and cannot publish before it is done
    workshop.gate.set()
    wait_for(engine, lambda: engine.snapshot.state is EngineState.PAUSED and engine.snapshot.waiting == 3)
    assert [view.title for view in engine.snapshot.queue] == ["T0", "T1", "T2"]
    assert {view.reason for view in engine.snapshot.queue} == {WaitReason.PAUSED}
    assert engine.snapshot.step == 0
    engine.resume()
    assert all(the_end(handle).reason is FinishReason.LENGTH for handle in handles)
    assert engine.close(PATIENCE)


# ------------------------------------------------------------------------------------------------------------- refusals


def test_what_can_never_run_is_refused_at_submit_and_nothing_changes(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    for prompt, sampling, code in (
        ("x" * 200, params(), "prompt_too_long"),
        ("", params(), "empty_prompt"),
        ([], params(), "empty_prompt"),
        ("x", SamplingParams(max_tokens=0), "bad_parameter"),
    ):
        with pytest.raises(RequestRefused) as refused:
            engine.submit(prompt, sampling)
        assert refused.value.code == code
    assert not engine._orders
    assert the_end(engine.submit("fits", params())).reason is FinishReason.LENGTH
    assert engine.snapshot.counters.submitted == 1


def test_what_is_found_too_long_once_the_model_is_there_ends_with_the_error(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop)
    handle = engine.submit("x" * 500, params())
    workshop.gate.set()
    end = the_end(handle)
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "prompt_too_long"
    assert "500" in end.error.message and "200" in end.error.message
    assert engine.close(PATIENCE)


def test_a_tokenizer_that_fails_on_a_text_ends_that_request_alone(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop)
    bad, good = engine.submit("\0", params()), engine.submit("good", params())
    workshop.gate.set()
    end = the_end(bad)
    assert end.error is not None and end.error.code == "bad_prompt" and "made-up fault of a tokenizer" in end.error.message
    assert the_end(good).reason is FinishReason.LENGTH
    assert engine.close(PATIENCE)


def test_the_queue_is_bounded_also_while_loading(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop, max_waiting=3)
    for _ in range(3):
        engine.submit("wait", params())
    with pytest.raises(RequestRefused) as refused:
        engine.submit("too many", params())
    assert refused.value.code == "queue_full"
    assert engine.close(PATIENCE)


# ------------------------------------------------------------------------------------------------------------ cancelling


def test_cancelled_before_start_and_while_loading_it_ends_at_once(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop, start=False)
    before = engine.submit("before", params())
    before.cancel()
    assert the_end(before).reason is FinishReason.CANCELLED
    engine.start()
    assert workshop.loading.wait(PATIENCE)
    during = engine.submit("during", params())
    during.cancel()
    assert the_end(during).reason is FinishReason.CANCELLED  # the model is still loading
    assert workshop.loading.is_set()
    workshop.gate.set()
    assert the_end(engine.submit("after", params())).reason is FinishReason.LENGTH
    assert engine.snapshot.counters.submitted == 1
    assert engine.close(PATIENCE)


def test_cancelled_in_a_seat_and_in_the_queue(engine: Engine, workshop: Workshop) -> None:
    engine.wait_ready(PATIENCE)
    engine.configure(seats=1)
    (seated,) = hold_steps(engine, workshop)
    waiting = engine.submit("wait", params())
    seated.cancel()
    waiting.cancel()
    engine.cancel("nobody")
    workshop.steps.set()
    for handle in (seated, waiting):
        events = read(handle)
        assert [type(event) for event in events] == [FinishedEvent]
        assert events[-1].reason is FinishReason.CANCELLED  # type: ignore[union-attr]
    wait_for(engine, lambda: engine.snapshot.kv.referenced == 0 and engine.snapshot.seated == 0)
    assert engine.snapshot.counters.cancelled == 2


def test_no_token_is_delivered_after_cancel_returned(engine: Engine) -> None:
    handles = [engine.submit(f"long {number}", params(190)) for number in range(4)]
    assert any(isinstance(event, TokensEvent) for event in handles[0].wait(PATIENCE))
    for handle in handles:
        handle.cancel()
        assert the_end(handle).reason is FinishReason.CANCELLED


def test_cancelling_what_has_ended_changes_nothing(engine: Engine) -> None:
    handle = engine.submit("short", params(3))
    wait_for(engine, lambda: handle.ended)
    handle.cancel()
    engine.cancel(handle.id)
    events = read(handle)
    assert said(events) == answer("short", 7, 3)
    assert isinstance(events[-1], FinishedEvent) and events[-1].reason is FinishReason.LENGTH


def test_cancelled_while_paused(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    engine.pause()
    handle = engine.submit("wait", params())
    wait_for(engine, lambda: engine.snapshot.waiting == 1)
    handle.cancel()
    assert the_end(handle).reason is FinishReason.CANCELLED


# --------------------------------------------------------------------------------------------------------------- closing


def closing_before_start(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    engine = make_engine(workshop, start=False)
    return engine, [engine.submit("a", params()) for _ in range(3)]


def closing_while_loading(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    workshop.gate.clear()
    engine = make_engine(workshop)
    assert workshop.loading.wait(PATIENCE)
    return engine, [engine.submit("a", params()) for _ in range(3)]


def closing_while_idle(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    return engine, []


def closing_under_load(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    engine = make_engine(workshop, seats=2)
    handles = [engine.submit(f"a {number}", params(190)) for number in range(6)]
    assert handles[0].wait(PATIENCE)
    return engine, handles


def closing_while_paused(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    engine, handles = closing_under_load(workshop)
    engine.pause()
    wait_for(engine, lambda: engine.snapshot.state is EngineState.PAUSED)
    return engine, handles


def closing_after_a_failure(workshop: Workshop) -> tuple[Engine, list[RequestHandle]]:
    workshop.broken = True
    engine = make_engine(workshop)
    with pytest.raises(EngineError):
        engine.wait_ready(PATIENCE)
    return engine, []


@pytest.mark.parametrize(
    "arrange",
    [closing_before_start, closing_while_loading, closing_while_idle, closing_under_load, closing_while_paused, closing_after_a_failure],
)
def test_closing_ends_every_request_once_in_every_state(
    workshop: Workshop, arrange: Callable[[Workshop], tuple[Engine, list[RequestHandle]]]
) -> None:
    engine, handles = arrange(workshop)
    assert engine.close(PATIENCE)
    assert engine.close(PATIENCE)
    for handle in handles:
        assert handle.ended
        assert the_end(handle).reason is FinishReason.CANCELLED
    assert engine.snapshot.state is EngineState.CLOSED
    assert workshop.closed == workshop.opened
    with pytest.raises(RequestRefused) as refused:
        engine.submit("late", params())
    assert refused.value.code == "engine_stopped"
    with pytest.raises(EngineError):
        engine.stop_recording().result(PATIENCE)


def test_closing_does_not_wait_longer_than_asked_and_still_ends_everyone(workshop: Workshop) -> None:
    engine = make_engine(workshop)
    (handle,) = hold_steps(engine, workshop)
    assert not engine.close(0.01)
    assert the_end(handle).reason is FinishReason.CANCELLED
    workshop.steps.set()
    assert engine.close(PATIENCE)
    assert handle.poll() == []


def test_whoever_submits_while_it_closes_is_refused_or_told_the_end(workshop: Workshop) -> None:
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    handles: list[RequestHandle] = []
    ready = threading.Barrier(5)

    def submit() -> None:
        ready.wait(PATIENCE)
        try:
            while True:
                handles.append(engine.submit("a", params(50)))
        except RequestRefused:
            return

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    time.sleep(0.02)
    assert engine.close(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert handles
    for handle in handles:
        the_end(handle)


def test_a_with_block_starts_and_closes(workshop: Workshop) -> None:
    with Engine(opener=workshop.open) as engine:
        engine.start()  # twice is once
        assert the_end(engine.submit("a", params())).reason is FinishReason.LENGTH
    assert engine.snapshot.state is EngineState.CLOSED


# --------------------------------------------------------------------------------------------------------------- readers


def test_on_ready_is_called_once_a_poll(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    calls: list[str] = []
    handle = engine.submit("hello", params(30), on_ready=lambda handle: calls.append(threading.current_thread().name))
    wait_for(engine, lambda: handle.ended)
    assert calls == [THREAD]
    assert said(handle.poll()) == answer("hello", 7, 30)
    assert calls == [THREAD]


def test_from_on_ready_the_engine_can_be_asked_for_anything(engine: Engine) -> None:
    done = threading.Event()
    more: list[RequestHandle] = []

    def on_ready(handle: RequestHandle) -> None:
        more.append(engine.submit("more", params(2)))
        handle.cancel()
        engine.configure(seats=3)
        done.set()

    handle = engine.submit("first", params(100), on_ready=on_ready)
    assert done.wait(PATIENCE)
    assert the_end(handle).reason is FinishReason.CANCELLED
    assert the_end(more[0]).reason is FinishReason.LENGTH


def test_a_slow_reader_holds_up_nobody(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    slow = engine.submit("slow", params(150))
    for number in range(10):
        assert said(read(engine.submit(f"fast {number}", params(10)))) == answer(f"fast {number}", 7, 10)
    wait_for(engine, lambda: slow.ended)
    events = slow.poll()
    assert len(events) == 2 and said(events) == answer("slow", 7, 150)


def test_events_can_be_awaited_from_asyncio(engine: Engine) -> None:
    async def one(number: int) -> str:
        return said([event async for event in engine.submit(f"ask {number}", params(15))])

    async def scene() -> list[str]:
        return await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(8))), PATIENCE)

    assert asyncio.run(scene()) == [answer(f"ask {number}", 7, 15) for number in range(8)]


def test_result_collects(engine: Engine) -> None:
    result = engine.submit("hello", params(9)).result(PATIENCE)
    assert (result.text, result.reason, result.error) == (answer("hello", 7, 9), FinishReason.LENGTH, None)
    assert len(result.token_ids) == 9 and result.time.total > 0


def test_listeners_hear_of_every_snapshot_and_one_that_fails_harms_nobody(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.wait_ready(PATIENCE)
    steps: list[int] = []

    def fails() -> None:
        raise ValueError("made-up")

    with caplog.at_level(logging.ERROR):
        remove_bad = engine.add_listener(fails)
        remove = engine.add_listener(lambda: steps.append(engine.snapshot.step))
        the_end(engine.submit("hello", params(5)))
        wait_for(engine, lambda: 5 in steps)
        remove()
        remove_bad()
    assert "a listener failed" in caplog.text
    assert [step for step in dict.fromkeys(steps) if step] == [1, 2, 3, 4, 5]
    assert rests(engine)  # a call that was under way is over
    heard = len(steps)
    the_end(engine.submit("hello", params(5)))
    assert len(steps) == heard


def test_an_idle_engine_sleeps(engine: Engine) -> None:
    """No step and no publishing while there is nothing to do, also after work and while paused with work waiting."""

    def busy_s() -> float:
        """Of the engine's thread alone: others of this process may have something to do."""
        thread = engine._thread
        assert thread is not None
        return next(used.user_time + used.system_time for used in psutil.Process().threads() if used.id == thread.native_id)

    the_end(engine.submit("hello", params(5)))
    for _ in range(2):
        assert rests(engine)
        before = busy_s()
        assert rests(engine) and busy_s() - before < 0.2
        engine.pause()
        engine.submit("waits", params())


def test_history_tells_the_steps_since_one(engine: Engine) -> None:
    the_end(engine.submit("hello", params(6)))
    wait_for(engine, lambda: engine.snapshot.seated == 0)
    assert [record.step for record in engine.history()] == [1, 2, 3, 4, 5, 6]
    assert [record.step for record in engine.history(since_step=4)] == [5, 6]
    assert engine.history(since_step=6) == () and engine.history(since_step=99) == ()


# -------------------------------------------------------------------------------------------------------------- steering


def test_rules_change_at_run_time(engine: Engine, workshop: Workshop) -> None:
    hold_steps(engine, workshop, count=2, tokens=20)
    engine.configure(seats=7, policy=Policy.STATIC, token_budget=99, chunk=11)
    assert engine.config.seats == 7
    workshop.steps.set()
    wait_for(engine, lambda: len(engine.snapshot.seats) == 7)
    assert (engine.snapshot.policy, engine.snapshot.token_budget) == (Policy.STATIC, 99)
    with pytest.raises(EngineError) as refused:
        engine.configure(seats=0)
    assert refused.value.code == "bad_config" and engine.config.seats == 7


def test_rules_changed_while_loading_hold_from_the_first_step(workshop: Workshop) -> None:
    workshop.gate.clear()
    engine = make_engine(workshop)
    engine.configure(seats=2)
    workshop.gate.set()
    engine.wait_ready(PATIENCE)
    assert len(engine.snapshot.seats) == 2
    assert engine.close(PATIENCE)


def test_paused_nothing_runs_and_resumed_it_goes_on(engine: Engine) -> None:
    engine.wait_ready(PATIENCE)
    handle = engine.submit("hello", params(150))
    assert handle.wait(PATIENCE)
    engine.pause()
    wait_for(engine, lambda: engine.snapshot.state is EngineState.PAUSED)
    step = engine.snapshot.step
    late = engine.submit("late", params())
    wait_for(engine, lambda: engine.snapshot.waiting == 1)
    assert engine.snapshot.step == step and engine.snapshot.queue[0].reason is WaitReason.PAUSED
    engine.resume()
    assert the_end(handle).usage.completion_tokens == 150
    assert the_end(late).reason is FinishReason.LENGTH


def test_a_chat_in_view_goes_before_the_others(engine: Engine, workshop: Workshop) -> None:
    engine.wait_ready(PATIENCE)
    engine.configure(seats=1)
    (first,) = hold_steps(engine, workshop, tokens=3)
    engine.set_chat_priority("behind", Priority.BACKGROUND)
    behind = engine.submit("behind", params(2), chat_id="behind")
    other = engine.submit("other", params(2), priority=Priority.API)
    engine.set_priority(other.id, Priority.FOREGROUND)
    workshop.steps.set()
    for handle in (first, behind, other):
        the_end(handle)
    boarded = [decision.request_id for record in engine.history() for decision in record.decisions if decision.kind.value == "admit"]
    assert boarded.index(other.id) < boarded.index(behind.id)


def test_the_cache_is_cleared_and_the_pool_resized(engine: Engine) -> None:
    the_end(engine.submit("hello there", params(20)))
    wait_for(engine, lambda: engine.snapshot.kv.cached > 0 and engine.snapshot.seated == 0)
    engine.clear_cache()
    wait_for(engine, lambda: engine.snapshot.kv.cached == 0)
    engine.resize_pool(300)
    wait_for(engine, lambda: engine.snapshot.kv.total == 300)
    engine.resize_pool(10)
    wait_for(engine, lambda: engine.snapshot.kv.total == 10)
    with pytest.raises(EngineError):
        engine.resize_pool(0)
    with pytest.raises(RequestRefused):
        engine.submit("x" * 60, params())


# ---------------------------------------------------------------------------------------------------------------- models


def test_another_model_takes_those_who_wait_along(engine: Engine, workshop: Workshop) -> None:
    workshop.offsets["second"] = 1000
    engine.wait_ready(PATIENCE)
    engine.configure(seats=1)
    (seated,) = hold_steps(engine, workshop)
    waiting = engine.submit("waits", params(6))
    before = engine.snapshot.counters
    engine.load("second")
    after = engine.submit("comes after", params(6))  # prepared with the first model's tokenizer, answered by the second
    workshop.steps.set()
    end = the_end(seated)
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "model_changed"
    assert said(read(waiting)) == answer("waits", 7, 6, offset=1000)
    assert said(read(after)) == answer("comes after", 7, 6, offset=1000)
    assert engine.wait_ready(PATIENCE).model.name == "second"
    assert (workshop.opened, workshop.closed) == (["first", "second"], ["first"])
    wait_for(engine, lambda: engine.snapshot.counters.output_tokens >= before.output_tokens + 12)
    assert engine.snapshot.counters.steps > before.steps


def test_counters_and_steps_go_on_over_a_change_of_model_also_while_it_loads(engine: Engine, workshop: Workshop) -> None:
    the_end(engine.submit("one", params(5)))
    workshop.gate.clear()
    engine.load("second")
    assert workshop.loading.wait(PATIENCE)
    assert engine.snapshot.state is EngineState.LOADING and engine.snapshot.model.name == "second"
    assert (engine.snapshot.counters.finished, engine.snapshot.step) == (1, 5)
    workshop.gate.set()
    the_end(engine.submit("two", params(5)))
    wait_for(engine, lambda: engine.snapshot.seated == 0)
    assert (engine.snapshot.counters.finished, engine.snapshot.step) == (2, 10)
    assert engine.history()[0].step == 6


def test_waiting_for_the_model_means_the_one_asked_for_last(engine: Engine, workshop: Workshop) -> None:
    engine.wait_ready(PATIENCE)
    engine.load("second")
    assert engine.wait_ready(PATIENCE).model.name == "second"
    workshop.gate.clear()
    engine.load("third")
    with pytest.raises(TimeoutError):
        engine.wait_ready(0.05)
    workshop.gate.set()
    assert engine.wait_ready(PATIENCE).model.name == "third"


def test_a_model_that_does_not_load_is_told_and_a_restart_brings_the_engine_back(engine: Engine, workshop: Workshop) -> None:
    engine.wait_ready(PATIENCE)
    workshop.broken = True
    engine.load("missing")
    with pytest.raises(EngineError) as failed:
        engine.wait_ready(PATIENCE)
    assert failed.value.code == "model_not_found"
    wait_for(engine, lambda: engine.snapshot.state is EngineState.FAILED)
    assert engine.snapshot.error is not None and engine.snapshot.error.hint == "Choose another."
    with pytest.raises(RequestRefused) as refused:
        engine.submit("hello", params())
    assert refused.value.code == "engine_stopped" and "missing" in refused.value.message
    workshop.broken = False
    engine.restart()
    handle = engine.submit("hello", params())  # accepted at once: a restart is under way
    assert engine.wait_ready(PATIENCE).model.name == "missing"
    assert said(read(handle)) == answer("hello", 7, 5)
    assert engine.snapshot.error is None


def test_who_waits_for_a_model_that_does_not_load_is_told_why(workshop: Workshop) -> None:
    workshop.gate.clear()
    workshop.broken = True
    engine = make_engine(workshop)
    handle = engine.submit("hello", params())
    workshop.gate.set()
    end = the_end(handle)
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "model_not_found"
    assert engine.close(PATIENCE)


# -------------------------------------------------------------------------------------------------------------- failures


@pytest.fixture
def quiet() -> Iterator[None]:
    """Made-up faults are logged with their tracebacks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
def test_one_requests_fault_is_its_own(engine: Engine, workshop: Workshop) -> None:
    handles = hold_steps(engine, workshop, count=4, tokens=20)
    workshop.poisoned.add(handles[2].id)
    workshop.steps.set()
    for number, handle in enumerate(handles):
        events = read(handle)
        end = events[-1]
        assert isinstance(end, FinishedEvent)
        if number == 2:
            assert end.reason is FinishReason.ERROR and end.error is not None and "made-up fault" in end.error.message
        else:
            assert said(events) == answer(f"ask {number}", 7, 20)
    assert engine.snapshot.state is EngineState.READY


@pytest.mark.usefixtures("quiet")
def test_a_failed_step_is_survived_and_nobody_notices(engine: Engine, workshop: Workshop) -> None:
    handles = hold_steps(engine, workshop, count=3, tokens=30)
    failures = []
    rebuild = engine._core.rebuild  # type: ignore[union-attr]

    def recover() -> None:
        failures.append(engine._failures)
        workshop.down = len(failures) < 2
        rebuild()

    engine._core.rebuild = recover  # type: ignore[union-attr, method-assign]
    workshop.down = True
    workshop.steps.set()
    assert [said(read(handle)) for handle in handles] == [answer(f"ask {number}", 7, 30) for number in range(3)]
    assert failures == [1, 2]
    assert engine._failures == 0 and engine.snapshot.counters.failed == 0


@pytest.mark.usefixtures("quiet")
def test_three_failed_steps_in_a_row_stop_the_engine_until_a_restart(engine: Engine, workshop: Workshop) -> None:
    handles = hold_steps(engine, workshop, count=3)
    workshop.down = True
    workshop.steps.set()
    for handle in handles:
        end = the_end(handle)
        assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "step_failed"
        assert end.error.hint
    wait_for(engine, lambda: engine.snapshot.state is EngineState.FAILED)
    assert engine.snapshot.error is not None and "made-up fault" in engine.snapshot.error.message
    with pytest.raises(RequestRefused):
        engine.submit("hello", params())
    workshop.down = False
    engine.restart()
    assert engine.wait_ready(PATIENCE).state is EngineState.READY
    assert said(read(engine.submit("hello", params()))) == answer("hello", 7, 5)


@pytest.mark.usefixtures("quiet")
def test_three_lone_requests_that_fail_in_a_row_stop_it_too(engine: Engine, workshop: Workshop) -> None:
    engine.wait_ready(PATIENCE)
    workshop.down = True
    for _ in range(3):
        assert the_end(engine.submit("hello", params())).reason is FinishReason.ERROR
    wait_for(engine, lambda: engine.snapshot.state is EngineState.FAILED)


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_thread_dies_everyone_is_told(workshop: Workshop) -> None:
    engine = make_engine(workshop)
    handles = hold_steps(engine, workshop, count=2)

    def dies(record: object) -> None:
        raise SystemExit("made-up end of the world")

    engine._builder.build = dies  # type: ignore[method-assign, assignment]
    engine._publish = lambda: None  # type: ignore[method-assign]
    engine._core.step = lambda: dies(None)  # type: ignore[union-attr, method-assign, assignment, return-value]
    workshop.steps.set()
    for handle in handles:
        end = the_end(handle)
        assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "engine_died"
    with pytest.raises(RequestRefused, match="stopped unexpectedly"):
        engine.submit("hello", params())
    assert engine.close(PATIENCE)


def test_events_of_all_requests_end_once_under_random_treatment(engine: Engine) -> None:
    """Submits, cancels, pauses and changes from several threads at once; every request ends exactly once."""
    ends: list[list[Event]] = []
    lock = threading.Lock()

    def person(number: int) -> None:
        for turn in range(12):
            handle = engine.submit(f"{number} asks {turn}", params(15), chat_id=f"c{number}")
            events = handle.wait(PATIENCE) if turn % 4 == 1 else []
            if events:
                handle.cancel()
            if turn % 5 == 2:
                engine.configure(seats=1 + turn % 4)
            if turn % 6 == 3:
                engine.set_chat_priority(f"c{number}", Priority(turn % 4))
            while not (events and isinstance(events[-1], FinishedEvent)):
                events += handle.wait(PATIENCE)
            with lock:
                ends.append([event for event in events if isinstance(event, FinishedEvent)])

    people = [threading.Thread(target=person, args=(number,)) for number in range(5)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join(PATIENCE)
    assert [len(end) for end in ends] == [1] * 60
    wait_for(engine, lambda: engine.snapshot.seated == 0 and engine.snapshot.kv.referenced == 0)
    counters = engine.snapshot.counters
    assert counters.submitted == 60 == counters.finished + counters.cancelled


def test_several_answers_share_their_prompt_and_are_each_what_its_seed_gives_alone() -> None:
    prompt = "a long beginning that is worth waiting for, " * 3
    with make_engine(seats=4) as engine:
        engine.wait_ready(PATIENCE)
        engine.pause()
        handles = engine.submit_several(prompt, 3, SamplingParams(max_tokens=5, seed=40))
        engine.resume()
        assert [handle.result(PATIENCE).text for handle in handles] == [answer(prompt, 40 + place, 5) for place in range(3)]
        counters = engine.snapshot.counters
        assert counters.cached_tokens >= 2 * (len(prompt) - 4) and counters.prompt_tokens <= len(prompt) + 2 * 4
        assert len({handle.chat_id for handle in handles}) == 1


def test_of_several_answers_all_are_taken_or_none() -> None:
    with make_engine(max_waiting=2) as engine:
        engine.wait_ready(PATIENCE)
        engine.pause()
        with pytest.raises(RequestRefused):
            engine.submit_several("x", 5)
        wait_for(engine, lambda: engine.snapshot.waiting == 0)
        engine.resume()
