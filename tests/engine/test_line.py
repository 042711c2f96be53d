"""Everyone who waits has a place, a reason and an expected start, however far behind; the step does not pay for it."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.line import Line
from engine.sim import Sim
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder
from engine.types import EngineState, ModelView, Policy, Priority, SamplingParams, Snapshot, WaitReason
from tests.engine.made_up_model import Workshop, make_engine, wait_for
from tests.engine.scheduling.make import Stop, admitted, make_sim, run_all

PARAMS = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


def look(sim: Sim, state: EngineState = EngineState.READY, first: int = QUEUE_VIEWS) -> Snapshot:
    return SnapshotBuilder(first=first).build(sim.core, state, ModelView(), sim.clock.now)


def crowd(waiting: int = 300, chats: int = 60, **rules: object) -> Sim:
    """Many in every class, several of a chat, prompts and answers of all lengths."""
    sim, rnd = make_sim(blocks=400, seats=6, token_budget=256, **rules), random.Random(7)
    stop = Stop(sim)
    for number in range(waiting):
        prompt, answer, chat = rnd.randint(1, 40), rnd.randint(4, 30), f"c{rnd.randrange(chats)}"
        stop(f"r{number}", prompt, answer, chat, Priority(rnd.randrange(4)))
        if number < 80:
            sim.core.step()
    for _ in range(3):
        sim.core.step()
    return sim


def test_the_line_has_everyone_in_the_order_in_which_the_queue_would_seat_them() -> None:
    sim = crowd()
    snapshot = look(sim)
    order = sim.core.scheduler.queue.in_order(10**6)
    assert len(snapshot.line) == snapshot.waiting == len(order) > 3 * QUEUE_VIEWS and len(snapshot.queue) == QUEUE_VIEWS
    assert [(view.place, view.request_id) for view in snapshot.line] == [(place, one.id) for place, one in enumerate(order, 1)]
    assert snapshot.line[-1] == tuple(snapshot.line)[-1] and snapshot.line[70:72] == tuple(snapshot.line)[70:72]


def test_who_stands_far_behind_is_told_the_same_as_if_all_were_told_at_once() -> None:
    """By a step that looks at everyone, and by a reader who looks later: the same in every field."""
    for sim in (crowd(), crowd(policy=Policy.STATIC)):
        for state in (EngineState.READY, EngineState.PAUSED):
            at_once = look(sim, state, first=10**6)
            assert at_once.whole_queue is None and tuple(look(sim, state).line) == at_once.queue
    last = look(crowd()).line[-1]
    assert last.reason is WaitReason.PRIORITY and last.expected_start_s and last.waited_s > 0 and last.needed_blocks > 0


def test_the_hundredth_boards_when_it_was_told() -> None:
    sim = make_sim(blocks=400, seats=4, token_budget=256)
    stop, rnd = Stop(sim), random.Random(3)
    for number in range(140):
        stop(f"r{number:03}", prompt=4, answer=rnd.randint(8, 24))
    for _ in range(3):
        sim.core.step()
    now, line = sim.clock.now, look(sim).line
    told = {view.request_id: view for view in line}
    records = run_all(sim)
    times, boarded = {record.step: record.time for record in records}, admitted(records)
    for request_id in ("r090", "r110", "r139"):
        start = told[request_id].expected_start_s
        really = times[boarded[request_id]] - now
        assert told[request_id].place == int(request_id[1:]) - 3 and start is not None and abs(start - really) < 0.1 * really


def test_a_snapshot_that_is_looked_at_late_tells_of_its_own_step() -> None:
    sim = crowd()
    at_once = look(sim, first=10**6).queue
    kept = look(sim)
    for _ in range(60):
        sim.core.step()
    sim.core.resize(40)
    for request_id in list(sim.core.requests)[::2]:
        sim.core.cancel(request_id)
    assert tuple(kept.line) == at_once


def test_those_of_a_chat_are_found_however_far_behind() -> None:
    snapshot = look(crowd())
    far = snapshot.line[200]
    ours = snapshot.waiting_of({far.chat_id, "nobody"})
    assert far in ours and ours == [view for view in snapshot.line if view.chat_id == far.chat_id]
    assert replace(snapshot, whole_queue=None).waiting_of({far.chat_id}) == [view for view in snapshot.queue if view.chat_id == far.chat_id]


def test_a_pool_that_shrinks_shortens_what_is_expected_of_those_who_wait() -> None:
    """An answer without a bound of its own goes to the end of the pool; those behind it are told of the new end."""
    sim = make_sim(blocks=100, seats=1)
    stop = Stop(sim)
    for number in range(QUEUE_VIEWS + 10):
        stop(f"r{number:03}", answer=None)
    for _ in range(3):
        sim.core.step()
    before = look(sim).line[-1].expected_start_s
    sim.core.resize(50)
    after = look(sim).line[-1].expected_start_s
    assert before is not None and after is not None and 0.45 * before < after < 0.55 * before
    assert after == look(sim, first=10**6).queue[-1].expected_start_s


def test_those_who_wait_for_another_model_are_behind_all_others_and_all_of_them_there() -> None:
    with make_engine(Workshop()) as engine:
        engine.wait_ready(60)
        engine.pause()
        wait_for(engine, lambda: engine.snapshot.state is EngineState.PAUSED)
        engine.submit("abc", PARAMS, chat_id="first")
        wait_for(engine, lambda: engine.snapshot.waiting == 1)
        for number in range(QUEUE_VIEWS + 6):
            engine.submit("abc", PARAMS, model="/models/second", chat_id=f"e{number}")
        waiting = QUEUE_VIEWS + 7
        wait_for(engine, lambda: engine.snapshot.waiting == waiting)
        snapshot = engine.snapshot
        assert isinstance(snapshot.whole_queue, Line) and len(snapshot.line) == waiting
        assert [view.place for view in snapshot.line] == list(range(1, waiting + 1))
        (last,) = snapshot.waiting_of({f"e{QUEUE_VIEWS + 5}"})
        assert last.reason is WaitReason.MODEL and last.place == waiting and last == snapshot.line[-1]
