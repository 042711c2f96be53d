"""What you can rely on, part two: the engine. Tests are named after the promises of README.md."""

from __future__ import annotations

import ast
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.chats.book import ChatBook
from engine import Engine, FinishReason, Message, RequestRefused, SamplingParams
from engine.bench.soak import soak
from engine.blame import StepFailed
from engine.model.gguf_header import read_header
from engine.remote.remote import RemoteConfig, RemoteEngine
from engine.scheduling.plan import CacheRules, Row
from engine.sim import Sim, expected_answer
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder
from engine.types import EngineConfig, EngineState, FinishedEvent, ModelError, ModelView, TokensEvent
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine, read, said, the_end, wait_for
from tests.engine.model.tiny_files import make_gguf
from tests.engine.remote.scripted import Request, ScriptedServer, serving
from tests.engine.scheduling.make import Stop, make_sim

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Made-up faults are logged with their tracebacks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def crowd(fault: Any = None, plan_fails_at: int = 0) -> Sim:
    """Eight mixed requests, run to their ends whatever fails, as the engine's thread would."""
    sim = Sim(EngineConfig(seats=4, token_budget=32, chunk=8, adapt_chunk=False, debug_audit=True), blocks=40, block_size=4, fault=fault)
    stop = Stop(sim)
    for number in range(8):
        stop(f"r{number}", prompt=3 + 5 * number % 17, answer=4 + number)
    if plan_fails_at:
        plan, count = sim.core.scheduler.plan, iter(range(1, 10**6))

        def failing(now: float) -> Any:
            if next(count) == plan_fails_at:
                raise RuntimeError("made-up fault of a plan")
            return plan(now)

        sim.core.scheduler.plan = failing  # type: ignore[method-assign]
    for _ in range(2000):
        if not sim.core.busy:
            break
        try:
            sim.core.step()
        except (StepFailed, RuntimeError):
            sim.core.rebuild()
    assert not sim.core.busy and sim.core.pool.referenced == 0
    return sim


def check_whole(sim: Sim, but: str = "") -> None:
    for number in range(8):
        name = f"r{number}"
        ends = [event for event in sim.events[name] if isinstance(event, FinishedEvent)]
        assert len(ends) == 1 and isinstance(sim.events[name][-1], FinishedEvent)
        if name != but:
            assert sim.tokens(name) == expected_answer([100 + number] * (3 + 5 * number % 17), number, 4 + number)


class FailsOnce:
    """The n-th forward pass of a whole step raises."""

    def __init__(self, at: int, error: type[Exception]) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self, rows: Sequence[Row]) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error("made-up")


@pytest.mark.parametrize("error", [MemoryError, RuntimeError], ids=["r08 out of memory", "r09 exception"])
def test_r08_r09_a_failed_step_changes_nobodys_tokens(error: type[Exception]) -> None:
    """While several ride nobody is blamed; a request that is alone when memory runs out is told so."""
    for at in range(1, 26):
        fault = FailsOnce(at, error)
        sim = crowd(fault)
        blamed = [name for name in sim.events if (end := sim.end(name)) is not None and end.error is not None]
        assert len(blamed) <= 1
        check_whole(sim, *blamed)


def test_r09_a_fault_of_the_scheduler_itself_loses_nobody() -> None:
    for at in range(1, 26):
        check_whole(crowd(plan_fails_at=at))


def test_r10_one_poisoned_request_harms_no_other() -> None:
    def poison(rows: Sequence[Row]) -> None:
        if any(row.request.id == "r5" for row in rows):
            raise RuntimeError("made-up poison")

    sim = crowd(poison)
    check_whole(sim, but="r5")
    end = sim.end("r5")
    assert end is not None and end.reason is FinishReason.ERROR


@pytest.mark.parametrize("rules", [CacheRules(), CacheRules(slots=46, slot_window=40)], ids=["blocks", "window slots"])
def test_r12_no_block_is_leaked_or_shared_wrongly(rules: CacheRules) -> None:
    logging.disable(logging.CRITICAL)
    try:
        figures = soak(3000, seed=12, rules=rules)
    finally:
        logging.disable(logging.NOTSET)
    assert figures["leaked_blocks"] == 0 and figures["ended_once"] is True


def test_r13_stop_means_stop() -> None:
    rnd = random.Random(13)
    sim = make_sim(blocks=80, seats=6, token_budget=32, debug_audit=True)
    stop = Stop(sim)
    stopped = 0
    for number in range(1000):
        stop(f"r{number}", prompt=rnd.randint(1, 30), answer=rnd.randint(1, 20))
        for _ in range(rnd.randrange(4)):
            sim.core.step()
        name = f"r{rnd.randrange(max(0, number - 12), number + 1)}"  # most are still waiting, reading or answering
        before = len(sim.events.get(name, ()))
        if sim.core.cancel(name):
            stopped += 1
            assert len(sim.events[name]) == before + 1 and sim.core.requests.get(name) is None
            held = len(sim.events[name])
            sim.core.step()
            assert len(sim.events[name]) == held and not sim.core.cancel(name)
    sim.run()
    assert sim.core.pool.referenced == 0 and stopped > 200


def test_r15_a_giant_among_many_small_ones_gets_its_turn() -> None:
    sim = make_sim(blocks=80, seats=4, token_budget=32, chunk=16)  # it needs nearly all blocks; without a bound on overtaking it never fits
    stop = Stop(sim)
    for number in range(20):
        stop(f"s{number}", prompt=20, answer=20)
    stop("giant", prompt=300, answer=5)
    steps = 0
    while sim.end("giant") is None:
        if steps % 2 == 0:
            stop(f"late{steps}", prompt=20, answer=20)
        sim.core.step()
        steps += 1
        assert steps < 800
    sim.run()


def test_r16_overload_is_refused_politely() -> None:
    workshop = Workshop()
    with make_engine(workshop, seats=1, max_waiting=20) as engine:
        engine.wait_ready(PATIENCE)
        workshop.steps.clear()
        taken, refused = [], 0
        for _ in range(500):
            try:
                taken.append(engine.submit("x", SamplingParams(max_tokens=2)))
            except RequestRefused as error:
                assert error.code == "queue_full" and error.hint
                refused += 1
        assert 20 <= len(taken) <= 20 + 1 and refused == 500 - len(taken)  # one may have a seat
        workshop.steps.set()
        ends = [the_end(handle) for handle in taken]
        assert all(end.reason is FinishReason.LENGTH for end in ends)


def test_r17_damaged_model_files_are_explained(tmp_path: Path) -> None:
    make_gguf(tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    rnd = random.Random(17)
    refused = 0
    for number in range(60):
        copy = bytearray(data)
        place = rnd.randrange(4, 2000)
        copy[place : place + 8] = rnd.choice((b"\xff" * 8, bytes(8), os_bytes(rnd)))
        path = tmp_path / "x.gguf"
        path.write_bytes(copy[: rnd.randrange(len(copy))] if number % 3 == 0 else copy)
        try:
            read_header(path)
        except ModelError as error:
            refused += 1
            assert error.message.endswith(".") and error.hint and path.stem in error.message
    assert refused > 20


def os_bytes(rnd: random.Random) -> bytes:
    return rnd.getrandbits(64).to_bytes(8, "little")


def test_r18_clocks_that_jump_change_no_order() -> None:
    moments = iter([1e9, 1e9 + 86_400, 0.0, 1e9 - 86_400, *([5e8] * 50)])
    book = ChatBook(clock=lambda: next(moments))
    chat = book.new_chat()
    for number in range(4):
        book.add_user(chat.id, str(number))
    assert [message.text for message in chat.messages] == ["0", "1", "2", "3"]
    wall = []
    for place in ("engine/*.py", "engine/scheduling/*.py", "engine/kv/*.py", "engine/model/**/*.py"):
        for path in sorted(ROOT.glob(place)):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and (node.value.id, node.attr)
                    in {
                        ("time", "time"),
                        ("datetime", "now"),
                    }
                ):
                    wall.append(f"{path.name}:{node.lineno}")
    assert not wall, "nothing that decides or measures looks at the wall clock"


def test_r19_a_machine_that_slept_for_a_night_goes_on() -> None:
    sim = make_sim(seats=2)
    stop = Stop(sim)
    builder = SnapshotBuilder()
    for name in "abc":
        stop(name, answer=20)
    for step in range(200):
        if step == 5:
            sim.clock.advance(8 * 3600.0)
        if not sim.core.busy:
            break
        sim.core.step()
        rates = builder.build(sim.core, EngineState.READY, ModelView(), sim.clock.now).rates
        assert rates.tok_s >= 0 and rates.itl_p95_s >= 0
    for number, name in enumerate("abc"):
        assert sim.tokens(name) == expected_answer([100 + number] * 4, number, 20)


def test_r19_a_night_between_two_words_is_in_nobodys_times() -> None:
    now, workshop = [0.0], Workshop()
    engine = Engine(EngineConfig(model="first", seats=2), opener=workshop.open, clock=lambda: now[0])
    with engine:
        engine.wait_ready(PATIENCE)
        workshop.steps.clear()
        riding, waiting = (engine.submit("x", SamplingParams(max_tokens=5)) for _ in range(2))
        assert workshop.stepping.wait(PATIENCE)
        now[0] += 8 * 3600.0
        workshop.steps.set()
        ends = [the_end(handle) for handle in (riding, waiting)]
        assert [end.reason for end in ends] == [FinishReason.LENGTH] * 2 and max(end.time.total for end in ends) < 60


def test_r23_a_remote_server_that_drops_out_at_any_byte_leaves_the_text_so_far() -> None:
    words = ["one ", "two ", "three "]

    def cut(at: int) -> Any:
        def script(request: Request) -> None:
            sent = [0]
            write = request._handler.wfile.write

            def limited(data: bytes) -> int:
                left = at - sent[0]
                sent[0] += len(data)
                write(data[: max(0, left)])
                request._handler.wfile.flush()
                if sent[0] >= at:
                    raise OSError("made-up drop")
                return len(data)

            request._handler.wfile.write = limited
            request.answer(*words)

        return script

    with serving(ScriptedServer()) as server:
        engine = RemoteEngine(RemoteConfig(server.url))
        engine.start()
        try:
            engine.wait_ready(PATIENCE)
            cut_off = 0
            for at in range(150, 700, 45):
                server.scripts.append(cut(at))
                events = read(engine.submit([Message("user", "x")], SamplingParams()))  # type: ignore[arg-type]
                text, end = said(events), events[-1]
                assert isinstance(end, FinishedEvent) and ("one two three ".startswith(text) or text == "Hello")
                whole = text in ("one two three ", "Hello")  # before its first word it is asked for once more
                assert end.reason is FinishReason.ERROR or (whole and end.reason is FinishReason.STOP)
                cut_off += not whole and text != ""
            assert cut_off >= 2
            assert said(read(engine.submit([Message("user", "y")], SamplingParams()))) == "Hello"  # type: ignore[arg-type]
        finally:
            assert engine.close(PATIENCE)


def test_r24_the_dashboard_tells_the_truth() -> None:
    rnd = random.Random(24)
    sim = make_sim(blocks=60, seats=5, token_budget=32)
    stop = Stop(sim)
    builder = SnapshotBuilder()
    for number in range(600):
        if number % 3 == 0:
            stop(f"r{number}", prompt=rnd.randint(1, 40), answer=rnd.randint(1, 20))
        if rnd.random() < 0.05 and sim.core.requests:
            sim.core.cancel(rnd.choice(list(sim.core.requests)))
        if sim.core.busy:
            sim.core.step()
        snapshot = builder.build(sim.core, EngineState.READY, ModelView(), sim.clock.now)
        seated = {seat: request.id for seat, request in sim.core.scheduler.seated.items()}
        assert {view.seat: view.request_id for view in snapshot.seats if view} == seated
        assert snapshot.waiting == len(sim.core.requests) - len(seated)
        kv, pool = snapshot.kv, sim.core.pool
        assert (kv.referenced, kv.total) == (pool.referenced, pool.total) and kv.free + kv.cached + kv.referenced == kv.total
        for view in filter(None, snapshot.seats):
            request = sim.core.requests[view.request_id]
            assert (view.output_tokens, view.blocks, view.computed_tokens) == (request.output_len, len(request.blocks), request.computed)
        waiting = {request.id for request in sim.core.requests.values() if request.seat is None}
        shown = {view.request_id for view in snapshot.queue}
        assert shown <= waiting and len(shown) == min(len(waiting), QUEUE_VIEWS)
        assert [view.place for view in snapshot.queue] == list(range(1, len(shown) + 1))


def test_every_request_ends_exactly_once_and_a_cancelled_one_costs_no_further_step(quiet: None) -> None:
    workshop = Workshop()
    with make_engine(workshop, seats=2) as engine:
        engine.wait_ready(PATIENCE)
        handles = [engine.submit(f"x{number}", SamplingParams(max_tokens=40)) for number in range(12)]
        for handle in handles[::2]:
            handle.cancel()
        for number, handle in enumerate(handles):
            events = read(handle)
            assert sum(isinstance(event, FinishedEvent) for event in events) == 1 and handle.poll() == []
            if number % 2 == 0:
                assert not [event for event in events if isinstance(event, TokensEvent)]
        wait_for(engine, lambda: engine.snapshot.seated == 0 and engine.snapshot.kv.referenced == 0)
