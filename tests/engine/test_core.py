"""The core by example: what is refused, how an answer ends, whose fault a failed step is, what is recorded and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.blame import StepFailed
from engine.core import Core
from engine.kv.pool import BlockPool
from engine.scheduling.plan import Row
from engine.sim import Sim, SimRunner, VirtualClock, expected_answer
from engine.snapshot import SnapshotBuilder
from engine.types import (
    DecisionKind,
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    Event,
    FinishedEvent,
    FinishReason,
    ModelView,
    Policy,
    Priority,
    RequestRefused,
    SamplingParams,
    TokensEvent,
)
from tests.engine.scheduling.checked import CheckedRunner
from tests.engine.scheduling.make import Stop, make_sim, run_all


def make_faulty(runner_type: type[SimRunner] = CheckedRunner, **rules: Any) -> tuple[Sim, CheckedRunner, Stop]:
    """A sim whose model can be told to fail."""
    sim = make_sim(**rules)
    runner = runner_type(100, 4, clock=sim.clock)
    sim.core.runner = runner
    return sim, runner, Stop(sim)  # type: ignore[return-value]


def the_end(sim: Sim, request_id: str) -> FinishedEvent:
    end = sim.end(request_id)
    assert end is not None
    return end


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers() -> None:
    sim = Sim(EngineConfig(), blocks=100, block_size=16, context=1024)
    with pytest.raises(RequestRefused) as refused:
        Stop(sim)("r", prompt=1024)
    assert refused.value.code == "prompt_too_long"
    assert refused.value.message == "The prompt has 1,024 tokens; the model's context holds 1,024 with room for the answer."
    assert refused.value.hint
    assert not sim.core.busy and sim.core.totals.submitted == 0


def test_a_prompt_beyond_the_pool_is_refused_with_the_numbers() -> None:
    sim = Sim(EngineConfig(), blocks=100, block_size=16)
    with pytest.raises(RequestRefused) as refused:
        Stop(sim)("r", prompt=1600)
    assert refused.value.code == "pool_too_small"
    message = "The prompt has 1,600 tokens and needs 101 blocks; the whole KV pool holds 1,600 (100 blocks)."
    assert refused.value.message == message
    Stop(sim)("fits", prompt=1599)


def test_the_queue_is_bounded() -> None:
    sim = make_sim(seats=1, max_waiting=2)
    stop = Stop(sim)
    stop("rides")
    sim.core.step()
    stop("one")
    stop("two")
    with pytest.raises(RequestRefused) as refused:
        stop("three")
    assert refused.value.code == "queue_full" and "2 requests" in refused.value.message
    assert sim.core.totals.submitted == 3 and "three" not in sim.core.requests
    run_all(sim)
    stop("three")


@pytest.mark.parametrize(
    ("prompt", "params", "code"),
    [
        ([], {}, "empty_prompt"),
        ([1], {"max_tokens": 0}, "bad_parameter"),
        ([1], {"min_tokens": 5, "max_tokens": 4}, "bad_parameter"),
        ([1], {"temperature": float("nan")}, "bad_parameter"),
        ([1], {"top_p": 0.0}, "bad_parameter"),
        ([1], {"stop": ("",)}, "bad_parameter"),
    ],
)
def test_bad_input_is_refused_and_nothing_changes(prompt: list[int], params: dict[str, Any], code: str) -> None:
    sim = make_sim()
    with pytest.raises(RequestRefused) as refused:
        sim.core.submit("r", prompt, SamplingParams(**params), chat_id="c", title="", priority=Priority.FOREGROUND, seed=1)
    assert refused.value.code == code
    assert not sim.core.busy and not sim.events and sim.core.totals.submitted == 0


def test_an_id_is_used_once_at_a_time() -> None:
    sim = make_sim()
    stop = Stop(sim)
    stop("r")
    with pytest.raises(RequestRefused, match="running already"):
        stop("r")
    assert sim.core.totals.submitted == 1


# ------------------------------------------------------------------------------------------------------------ how it ends


def test_an_answer_ends_at_its_length_with_exact_usage() -> None:
    sim = make_sim()
    Stop(sim)("r", prompt=5, answer=7)
    run_all(sim)
    end = the_end(sim, "r")
    assert end.reason is FinishReason.LENGTH and end.error is None
    assert (end.usage.prompt_tokens, end.usage.completion_tokens, end.usage.cached_tokens) == (5, 7, 0)
    assert sim.tokens("r") == expected_answer([100] * 5, 0, 7)


def make_ending(**params: Any) -> tuple[list[int], FinishedEvent]:
    """One request alone, where token 5 is the end of text; its answer and its end."""
    sim = Sim(EngineConfig(), blocks=50, block_size=4, vocab=8, eos_ids=frozenset({5}))
    Stop(sim)("r", prompt=3, answer=40, **params)
    run_all(sim)
    return sim.tokens("r"), the_end(sim, "r")


def test_an_answer_ends_with_the_end_of_text_and_not_before_its_minimum() -> None:
    alone = expected_answer([100] * 3, 0, 40, vocab=8)
    first = alone.index(5)
    later = alone.index(5, first + 1)
    assert make_ending(ignore_eos=False) == (alone[: first + 1], make_ending(ignore_eos=False)[1])
    assert make_ending(ignore_eos=False)[1].reason is FinishReason.STOP
    tokens, end = make_ending(ignore_eos=False, min_tokens=first + 1)  # held back until so many are out
    assert tokens == alone[: later + 1] and end.reason is FinishReason.STOP
    tokens, end = make_ending(ignore_eos=True)
    assert tokens == alone and end.reason is FinishReason.LENGTH


def test_an_answer_ends_with_a_stop_id_also_when_the_end_of_text_is_ignored() -> None:
    alone = expected_answer([100] * 3, 0, 40, vocab=8)
    stop = next(token for token in alone if token != 5)
    tokens, end = make_ending(ignore_eos=True, stop_token_ids=(stop,))
    assert tokens == alone[: alone.index(stop) + 1] and end.reason is FinishReason.STOP


def test_an_answer_without_a_limit_ends_with_the_context_or_the_pool() -> None:
    sim = Sim(EngineConfig(), blocks=50, block_size=4, context=30)
    Stop(sim)("context", prompt=10, answer=None)
    run_all(sim)
    assert len(sim.tokens("context")) == 20 and the_end(sim, "context").reason is FinishReason.LENGTH
    sim = Sim(EngineConfig(), blocks=5, block_size=4)
    Stop(sim)("pool", prompt=10, answer=None)
    run_all(sim)
    assert len(sim.tokens("pool")) == 10 and the_end(sim, "pool").reason is FinishReason.LENGTH


class Letters:
    """A stream that spells tokens as letters, holds one back, and stops after a given letter."""

    def __init__(self, stop: str = "") -> None:
        self.stopped = False
        self._stop = stop
        self._held = ""

    def push(self, token_id: int) -> str:
        out, self._held = self._held, chr(97 + token_id % 26)
        if self._held == self._stop:
            self.stopped, self._held = True, ""
        return out

    def flush(self) -> str:
        out, self._held = self._held, ""
        return out


def make_speaking(stop: str = "", fails: bool = False) -> tuple[Core, list[Event]]:
    events: list[Event] = []
    clock = VirtualClock()

    class Failing(Letters):
        def push(self, token_id: int) -> str:
            raise UnicodeError("made-up damage")

    core = Core(
        SimRunner(50, 4, vocab=26, clock=clock),
        BlockPool(50, 4),
        EngineConfig(),
        clock=clock,
        emit=events.append,
        make_stream=lambda params: Failing(stop) if fails and params.min_tokens else Letters(stop),
    )
    return core, events


def submit(core: Core, request_id: str, answer: int, seed: int = 3, **params: Any) -> None:
    sampling = SamplingParams(max_tokens=answer, **params)
    core.submit(request_id, [7] * 6, sampling, chat_id=request_id, title="", priority=Priority.FOREGROUND, seed=seed)


def said(events: list[Event], request_id: str) -> str:
    return "".join(event.text for event in events if isinstance(event, TokensEvent) and event.request_id == request_id)


def test_what_is_held_back_comes_out_at_the_end() -> None:
    core, events = make_speaking()
    submit(core, "r", 5)
    while core.busy:
        core.step()
    alone = expected_answer([7] * 6, 3, 5, vocab=26)
    assert said(events, "r") == "".join(chr(97 + token) for token in alone)
    first = events[0]
    assert isinstance(first, TokensEvent) and first.text == "" and first.tokens == 1


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it() -> None:
    alone = "".join(chr(97 + token) for token in expected_answer([7] * 6, 3, 30, vocab=26))
    core, events = make_speaking(stop=alone[4])
    submit(core, "r", 30)
    while core.busy:
        core.step()
    assert said(events, "r") == alone[: alone.index(alone[4])]
    assert isinstance(events[-1], FinishedEvent) and events[-1].reason is FinishReason.STOP


def test_a_text_that_cannot_be_made_ends_that_request_alone() -> None:
    core, events = make_speaking(fails=True)
    submit(core, "broken", 5, min_tokens=1)
    submit(core, "sound", 5)
    while core.busy:
        core.step()
    ends = {event.request_id: event for event in events if isinstance(event, FinishedEvent)}
    assert ends["broken"].error is not None and ends["broken"].error.code == "text_failed"
    assert "made-up damage" in ends["broken"].error.message
    assert ends["sound"].reason is FinishReason.LENGTH and len(said(events, "sound")) == 5
    assert core.pool.referenced == 0


# ------------------------------------------------------------------------------------------------------------ cancelling


def test_cancelling_gives_seat_and_blocks_back_at_once_in_every_state() -> None:
    sim = make_sim(seats=1, token_budget=4, block_size=2)
    stop = Stop(sim)
    stop("reads", prompt=12)
    sim.core.step()
    assert sim.core.requests["reads"].remaining > 1 and sim.core.pool.referenced == 6
    stop("waits")
    assert sim.core.cancel("waits") and sim.core.cancel("reads")
    assert sim.core.pool.referenced == 0 and not sim.core.busy
    stop("decodes", answer=9)
    for _ in range(3):
        sim.core.step()
    told = sim.tokens("decodes")
    assert sim.core.cancel("decodes") and not sim.core.cancel("decodes") and not sim.core.cancel("nobody")
    assert len(told) >= 2 and sim.tokens("decodes") == told
    assert [the_end(sim, name).reason for name in ("reads", "waits", "decodes")] == [FinishReason.CANCELLED] * 3
    assert sim.core.totals.cancelled == 3


def test_one_cancelled_while_its_step_runs_gets_no_token_of_it() -> None:
    """The listener of one rider cancels the other, between the pass and its commit."""
    sim = make_sim()
    stop = Stop(sim)
    stop("first", answer=5)
    stop("second", answer=5)
    note = sim.core.emit

    def emit(event: Event) -> None:
        note(event)
        if event.request_id == "first" and isinstance(event, TokensEvent):
            sim.core.cancel("second")

    sim.core.emit = emit
    run_all(sim)
    assert sim.tokens("second") == [] and the_end(sim, "second").reason is FinishReason.CANCELLED
    assert len(sim.tokens("first")) == 5
    sim.core.scheduler.audit()


# ---------------------------------------------------------------------------------------------------------------- faults


def test_a_fault_is_narrowed_down_to_the_one_request_and_the_others_do_not_notice() -> None:
    sim, runner, stop = make_faulty(seats=8, chunk=64)
    for number in range(8):
        stop(f"r{number}", answer=4)
    sim.core.step()
    runner.poisoned.add("r5")
    forwards = runner.forwards
    record = sim.core.step()
    assert record is not None and len(record.rows) == 8
    assert runner.forwards - forwards == 1 + 2 * 3  # halved three times: 8, 4 + 4, 2 + 2, 1 + 1
    end = the_end(sim, "r5")
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "forward_failed"
    assert "made-up fault of one request" in end.error.message
    assert end.usage.completion_tokens == 1
    run_all(sim)
    for number in (0, 1, 2, 3, 4, 6, 7):
        assert sim.tokens(f"r{number}") == expected_answer([100 + number] * 4, number, 4)
    assert sim.core.totals.failed == 1 and sim.core.pool.referenced == 0


def test_nan_ends_that_request_alone_without_running_again() -> None:
    sim, runner, stop = make_faulty()
    stop("sick", answer=4)
    stop("sound", answer=4)
    runner.nan.add("sick")
    forwards = runner.forwards
    sim.core.step()
    assert runner.forwards == forwards + 1
    end = the_end(sim, "sick")
    assert end.error is not None and end.error.code == "nan_logits"
    run_all(sim)
    assert the_end(sim, "sound").reason is FinishReason.LENGTH
    assert sim.core.blame.failures_in_row == 0


def test_when_every_row_fails_nobody_is_blamed_and_all_go_on_after_a_rebuild() -> None:
    sim, runner, stop = make_faulty(seats=2)
    stop("one", answer=6)
    stop("two", answer=6)
    stop("waits", answer=6)
    for _ in range(3):
        sim.core.step()
    runner.down = True
    for failures in (1, 2):
        with pytest.raises(StepFailed, match="^The model could not run a step: made-up fault of the whole model$"):
            sim.core.step()
        assert sim.core.blame.failures_in_row == failures
        sim.core.rebuild()
        assert sim.core.pool.free == sim.core.pool.total and not sim.core.scheduler.seated
    runner.down = False
    record = sim.core.step()
    assert record is not None and record.step == 4
    assert {decision.step for decision in record.decisions} == {4}
    assert sim.core.blame.failures_in_row == 0
    run_all(sim)
    for number, name in enumerate(("one", "two", "waits")):
        assert sim.tokens(name) == expected_answer([100 + number] * 4, number, 6)
    assert the_end(sim, "one").time.preempted > 0


def test_a_lone_request_takes_the_blame_and_the_failures_are_counted() -> None:
    sim, runner, stop = make_faulty()
    runner.down = True
    for number in range(2):
        stop(f"r{number}")
        sim.core.step()
        assert the_end(sim, f"r{number}").reason is FinishReason.ERROR
    assert sim.core.blame.failures_in_row == 2


def test_a_plan_that_breaks_half_way_loses_nobody() -> None:
    """Whatever went wrong inside the scheduler: the requests are the core's, and all are queued again."""
    sim = make_sim()
    stop = Stop(sim)
    for name in "abcd":
        stop(name, answer=5)
    sim.core.step()

    def take(count: int, holder: int) -> list[int]:
        raise RuntimeError("made-up bug")

    sim.core.pool.take = take  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="made-up bug"):
        run_all(sim)
    sim.core.rebuild()
    run_all(sim)
    for number, name in enumerate("abcd"):
        assert sim.tokens(name) == expected_answer([100 + number] * 4, number, 5)


def test_a_chat_keeps_its_turn_over_a_rebuild() -> None:
    sim, runner, stop = make_faulty(seats=2)
    stop("rich0", answer=30, chat="rich")
    stop("rich1", answer=30, chat="rich")
    for _ in range(20):
        sim.core.step()
    stop("rich2", answer=2, chat="rich")
    stop("poor", answer=2, chat="poor")
    served = sim.core.scheduler.fairness.counter(0, "rich")
    runner.down = True
    with pytest.raises(StepFailed):
        sim.core.step()
    runner.down = False
    sim.core.rebuild()
    assert sim.core.scheduler.fairness.counter(0, "rich") == served > 0


def test_out_of_memory_is_told_as_such() -> None:
    def fault(rows: Sequence[Row]) -> None:
        raise MemoryError

    sim = Sim(EngineConfig(), blocks=20, block_size=4, fault=fault)
    Stop(sim)("r")
    sim.run(most_steps=20)  # smaller steps and smaller pools are tried first
    error = the_end(sim, "r").error
    assert error is not None and error.code == "out_of_memory" and error.hint


def test_a_request_can_be_failed_from_outside() -> None:
    sim = make_sim()
    Stop(sim)("r")
    sim.core.fail("r", ErrorInfo("because", "so"))
    sim.core.fail("r", ErrorInfo("again", "no"))
    sim.core.fail("nobody", ErrorInfo("again", "no"))
    error = the_end(sim, "r").error
    assert error is not None and error.code == "because"


# ------------------------------------------------------------------------------------------------------------- steering


def test_a_bad_rule_changes_nothing() -> None:
    sim = make_sim()
    before = sim.core.config
    with pytest.raises(EngineError) as refused:
        sim.core.configure(seats=4, chunk=0)
    assert refused.value.code == "bad_config" and "chunk" in refused.value.message
    assert sim.core.config is before and sim.core.scheduler.seats == before.seats


def test_the_budget_always_has_room_for_every_seat_to_decode() -> None:
    sim = make_sim(seats=2, token_budget=2)
    sim.core.configure(seats=6)
    stop = Stop(sim)
    for number in range(6):
        stop(f"r{number}", prompt=1, answer=9)
    sim.core.step()
    record = sim.core.step()
    assert record is not None and len(record.rows) == 6


def test_shrinking_the_pool_ends_an_answer_at_its_length_and_refuses_what_has_not_begun() -> None:
    sim = make_sim(blocks=10, block_size=4, seats=1)
    stop = Stop(sim)
    stop("talks", prompt=10, answer=25)
    for _ in range(5):
        sim.core.step()
    stop("waits", prompt=20, answer=5)
    small = stop("small", prompt=2, answer=None)
    assert sim.core.resize(2) == 4  # what "talks" holds stays
    assert the_end(sim, "waits").error is not None
    assert the_end(sim, "waits").error.code == "pool_too_small"  # type: ignore[union-attr]
    assert sim.end("talks") is None
    assert small.limit == 16
    run_all(sim)
    end = the_end(sim, "talks")
    assert end.reason is FinishReason.LENGTH and end.usage.completion_tokens == 6
    assert len(sim.tokens("small")) == 14
    assert sim.core.resize(20) == 20
    stop("large", prompt=70)


def test_the_runner_makes_room_before_the_pool_grows_and_gives_it_back_after_it_shrank() -> None:
    sim = make_sim(blocks=10, block_size=4)
    asked: list[tuple[int, int]] = []
    sim.core.runner.resize = lambda num_blocks: asked.append((num_blocks, sim.core.pool.total))  # type: ignore[method-assign]
    sim.core.resize(12)
    sim.core.resize(5)
    sim.core.resize(5)
    assert asked == [(12, 10), (5, 5)]


def test_a_pool_that_cannot_grow_stays_as_it_was() -> None:
    sim = make_sim(blocks=10)

    def resize(num_blocks: int) -> None:
        raise MemoryError

    sim.core.runner.resize = resize  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        sim.core.resize(20)
    assert sim.core.pool.total == 10


def test_a_class_is_changed_in_any_state() -> None:
    sim = make_sim(seats=1)
    stop = Stop(sim)
    rides, waits = stop("rides", answer=9), stop("waits", priority=Priority.IDLE)
    sim.core.step()
    sim.core.set_priority("rides", Priority.API)
    sim.core.set_priority("waits", Priority.FOREGROUND)
    sim.core.set_priority("nobody", Priority.FOREGROUND)
    assert (rides.level, waits.level) == (2, 0)
    sim.core.step()
    assert waits.seat is not None and rides.seat is None


def test_the_time_counts_from_when_the_person_asked() -> None:
    sim = make_sim()
    sim.clock.advance(10.0)
    sim.core.submit("r", [1, 2], SamplingParams(max_tokens=2), chat_id="c", title="", priority=Priority.FOREGROUND, seed=1, since=4.0)
    run_all(sim)
    time = the_end(sim, "r").time
    assert time.waited == pytest.approx(6.0) and time.total == pytest.approx(sim.clock.now - 4.0)
    assert time.ttft is not None and time.ttft > 6.0


# --------------------------------------------------------------------------------------------------------------- records


def test_a_record_holds_all_that_was_decided_since_the_one_before() -> None:
    sim = make_sim(seats=1)
    stop = Stop(sim)
    stop("a", answer=2)
    stop("b", answer=1)
    sim.core.cancel("b")
    sim.core.configure(policy=Policy.STATIC)
    records = run_all(sim)
    kinds = [[(decision.kind, decision.request_id) for decision in record.decisions] for record in records]
    assert kinds[0] == [
        (DecisionKind.SUBMIT, "a"),
        (DecisionKind.SUBMIT, "b"),
        (DecisionKind.CANCEL, "b"),
        (DecisionKind.CONFIG, ""),
        (DecisionKind.ADMIT, "a"),
    ]
    assert kinds[1] == [(DecisionKind.FINISH, "a")]
    assert [record.step for record in records] == [1, 2]
    assert list(sim.core.history) == records


def test_steps_that_only_decode_share_one_object_a_seat() -> None:
    sim = make_sim()
    Stop(sim)("r", answer=6)
    records = run_all(sim)
    decodes = [record.rows[0] for record in records[1:]]
    assert all(row is decodes[0] for row in decodes)


def test_counters_add_up() -> None:
    sim = make_sim(seats=2, block_size=4)
    stop = Stop(sim)
    stop("one", prompt=[1] * 9, answer=3)
    run_all(sim)
    stop("two", prompt=[1] * 9, answer=3)
    stop("gone")
    sim.core.cancel("gone")
    run_all(sim)
    counters = sim.core.counters
    assert (counters.submitted, counters.finished, counters.cancelled, counters.failed) == (3, 2, 1, 0)
    assert (counters.prompt_tokens, counters.cached_tokens, counters.output_tokens) == (9 + 1, 8, 6)
    assert (counters.steps, counters.seat_steps, counters.idle_seat_steps) == (6, 6, 6)


def test_a_rebuilt_queue_is_not_mistaken_for_the_one_before() -> None:
    """Both have changed equally often; the places shown must be the new ones."""
    sim, runner, stop = make_faulty(seats=1)
    builder = SnapshotBuilder()

    def shown() -> list[str]:
        return [view.request_id for view in builder.build(sim.core, EngineState.READY, ModelView(), sim.clock.now).queue]

    stop("a")
    assert shown() == ["a"]
    sim.core.cancel("a")
    stop("b")
    stop("c")
    version = sim.core.scheduler.queue.version
    assert shown() == ["b", "c"]
    sim.core.rebuild()
    sim.core.cancel("b")
    stop("d")
    while sim.core.scheduler.queue.version < version:
        sim.core.set_priority("d", Priority.IDLE)
        sim.core.set_priority("d", Priority.FOREGROUND)
    assert shown() == ["c", "d"]


def test_debug_audit_sees_a_leak_at_the_step_that_made_it() -> None:
    sim = make_sim(debug_audit=True)
    Stop(sim)("r", answer=5)
    sim.core.step()
    request = sim.core.requests["r"]
    request.blocks = [*request.blocks, *(sim.core.pool.take(1, 7) or [])]
    with pytest.raises(RuntimeError, match="stands in"):
        sim.core.step()


def test_the_times_between_tokens_are_those_of_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of riders that join later, lose their seat and come back, whatever others ride."""
    sim = make_sim(seats=3)
    emit, stop = sim.core.emit, Stop(sim)
    came: dict[str, float] = {}
    gaps: list[float] = []

    def heard(event: Event) -> None:
        if isinstance(event, TokensEvent):
            if (before := came.get(event.request_id)) is not None:
                gaps.append(sim.clock.now - before)
            came[event.request_id] = sim.clock.now
        emit(event)

    monkeypatch.setattr(sim.core, "emit", heard)
    for number in range(6):
        stop(f"r{number}", answer=9, priority=Priority.IDLE if number < 3 else Priority.FOREGROUND)
        sim.core.step()
        sim.clock.advance(0.01 * number)
    sim.run()
    assert sim.core.totals.preemptions and len(set(gaps)) > 6
    assert sim.core.measures.gaps.ordered == pytest.approx(sorted(gaps))
