"""BAT: who rides when, what happens when memory runs out, and that company never shows in an answer."""

from __future__ import annotations

import functools
import random
import threading
from typing import Any

import pytest
import torch

from engine import Engine, FinishReason, RequestRefused, SamplingParams
from engine.model.sampler import Sampler
from engine.scheduling.plan import Row
from engine.sim import CostModel, Sim, expected_answer
from engine.types import EngineConfig, FinishedEvent, Priority, TokensEvent
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine, the_end
from tests.engine.model.tiny import make_lane, make_model, make_prompts, make_request, reference_answer
from tests.engine.scheduling.make import Stop, make_sim, run_all
from tests.engine.server.made_up_server import Client, ServedWorkshop, make_server
from tests.engine.test_answers import Bench


def end_of(sim: Sim, name: str) -> FinishedEvent:
    end = sim.end(name)
    assert end is not None
    return end


@pytest.mark.case("BAT-02")
def test_long_prompts_leave_a_talker_its_share() -> None:
    """With steps as a small model has them the share is a third: one token each `target_step_s`."""
    cost = CostModel(step=0.04, decode_row=0.01, prefill_token=0.001)
    config = EngineConfig(seats=4, token_budget=512, chunk=128, target_step_s=0.15)
    sim = Sim(config, blocks=2000, block_size=16, cost=cost)
    stop = Stop(sim)
    stop("talks", prompt=8, answer=400)
    times: list[float] = []
    note = sim.core.emit

    def emit(event: Any) -> None:
        note(event)
        if event.request_id == "talks" and isinstance(event, TokensEvent):
            times.append(sim.clock.now)

    sim.core.emit = emit
    while len(times) < 30:
        sim.core.step()
    solo = (times[-1] - times[-11]) / 10
    stop("cold one", prompt=6000, answer=1)
    stop("cold two", prompt=6000, answer=1)
    first = len(times)
    while sim.end("cold one") is None or sim.end("cold two") is None:
        sim.core.step()
    gaps = [after - before for before, after in zip(times[first - 1 :], times[first:], strict=False)]
    assert len(gaps) > 50
    assert solo / (sum(gaps) / len(gaps)) >= 0.25 and max(gaps) <= 2 * 0.15


@pytest.mark.case("BAT-08")
def test_cancels_in_every_odd_order_raise_nothing_and_end_each_request_once() -> None:
    workshop = Workshop()
    engine = make_engine(workshop)
    try:
        engine.wait_ready(PATIENCE)
        params = SamplingParams(max_tokens=5, seed=1)
        at_once = engine.submit("a", params)
        at_once.cancel()
        at_once.cancel()
        engine.cancel(at_once.id)
        engine.cancel("nope")
        assert the_end(at_once).reason is FinishReason.CANCELLED
        done = engine.submit("b", params)
        assert the_end(done).reason is FinishReason.LENGTH
        done.cancel()
        assert done.poll() == []
        workshop.steps.clear()
        workshop.stepping.clear()
        riding = engine.submit("c", SamplingParams(max_tokens=50))
        assert workshop.stepping.wait(PATIENCE)
        other = threading.Thread(target=riding.cancel, name="test-cancels")
        other.start()
        other.join(PATIENCE)
        workshop.steps.set()
        assert the_end(riding).reason is FinishReason.CANCELLED
    finally:
        workshop.steps.set()
        assert engine.close(PATIENCE)


@pytest.mark.case("BAT-11")
def test_what_never_fits_the_pool_is_refused_with_the_numbers_and_blocks_nobody() -> None:
    sim = Sim(EngineConfig(), blocks=8, block_size=16, context=1024)
    stop = Stop(sim)
    with pytest.raises(RequestRefused) as refused:
        stop("a", prompt=200)
    assert "200" in refused.value.message and "128" in refused.value.message
    stop("b", prompt=5, answer=3)
    run_all(sim)
    assert sim.tokens("b") == expected_answer([101] * 5, 1, 3)


@pytest.mark.case("BAT-12")
def test_what_outgrows_the_pool_alone_ends_there() -> None:
    sim = Sim(EngineConfig(), blocks=8, block_size=16, context=1024)
    Stop(sim)("r", prompt=120, answer=64)
    steps = sim.run(200)
    end = end_of(sim, "r")
    assert end.reason is FinishReason.LENGTH and end.usage.completion_tokens == 8
    assert steps < 20 and sim.core.totals.preemptions == 0


@pytest.mark.case("BAT-13")
@pytest.mark.parametrize("context", [127, 128, 129])
def test_the_border_of_context_and_pool_is_one(context: int) -> None:
    sim = Sim(EngineConfig(), blocks=8, block_size=16, context=context)
    stop = Stop(sim)
    limit = min(context, 128)
    stop("fits", prompt=limit - 1, answer=1)
    run_all(sim)
    assert end_of(sim, "fits").usage.completion_tokens == 1
    for name, prompt in (("no room for an answer", limit), ("too long", limit + 1)):
        with pytest.raises(RequestRefused):
            stop(name, prompt=prompt, answer=1)


@pytest.mark.case("BAT-14")
def test_a_chat_that_lost_its_seat_is_back_before_newcomers() -> None:
    sim = make_sim(blocks=12, block_size=4, seats=2, token_budget=32)
    sim.core.scheduler.growth.remaining = lambda request: 0.0  # type: ignore[method-assign]  # board too eagerly
    stop = Stop(sim)
    rival = stop("rival", prompt=8, answer=30)
    sim.core.step()
    victim = stop("a", prompt=8, answer=30)
    number = lost_at = 0
    for step in range(500):
        if step % 3 == 0:
            stop(f"new{number}", prompt=4, answer=2)
            number += 1
        sim.core.step()
        if victim.preemptions and victim.seat is None and sim.end("a") is None:
            assert not [other for other in sim.core.scheduler.seated.values() if other.boarded_step > lost_at], "overtaken"
        elif not victim.preemptions or victim.seat is not None:
            lost_at = sim.core.scheduler.step + 1
        if sim.end("a") is not None:
            break
    assert end_of(sim, "a").reason is FinishReason.LENGTH and victim.preemptions + rival.preemptions >= 1
    assert victim.preemptions <= 3
    assert sim.tokens("a") == expected_answer([101] * 8, 1, 30)


@pytest.mark.case("BAT-15")
def test_two_that_need_the_last_block_both_finish() -> None:
    sim = make_sim(blocks=16, block_size=4, seats=2)
    sim.core.scheduler.growth.remaining = lambda request: 0.0  # type: ignore[method-assign]
    stop = Stop(sim)
    for name in "ab":
        stop(name, prompt=28, answer=20)
    steps = sim.run(300)
    for number, name in enumerate("ab"):
        assert sim.tokens(name) == expected_answer([100 + number] * 28, number, 20)
    assert steps < 120 and sim.core.totals.preemptions >= 1 and sim.core.pool.referenced == 0


@functools.cache
def tiny() -> tuple[Any, Any]:
    """(an untouched model, a lane over its twin)."""
    return make_model("llama"), make_lane(make_model("llama"))


def greedy(bench: Bench, name: str, prompt: list[int], count: int) -> list[int]:
    bench.submit(name, prompt, count)
    bench.run()
    return bench.answers([name])[0]


@pytest.mark.case("BAT-17")
def test_a_cached_beginning_answers_as_a_computed_one() -> None:
    sim = make_sim(blocks=200, block_size=16)
    stop = Stop(sim)
    prompt = [number % 60 for number in range(1200)]
    for changed in (prompt, prompt, prompt, prompt, prompt[:-10] + [61] * 10, [*prompt[:4], 62, *prompt[5:]]):
        name = f"r{len(sim.events)}"
        request = stop(name, prompt=changed, answer=12)
        run_all(sim)
        assert sim.tokens(name) == expected_answer(changed, request.seed, 12)
    twin, lane = tiny()
    bench, (long,) = Bench(lane), make_prompts(1, seed=9, shortest=200, longest=200)
    for number, changed in enumerate((long, long, long, long, long[:-10] + [5] * 10, [*long[:4], 7, *long[5:]])):
        assert greedy(bench, f"r{number}", changed, 8) == reference_answer(twin, changed, 8)
    assert bench.core.totals.cached_tokens > 500


@pytest.mark.case("BAT-19")
def test_each_turn_of_a_chat_computes_its_new_tokens_only() -> None:
    sim = make_sim(blocks=400, block_size=16, token_budget=512)
    stop = Stop(sim)
    history = [7] * 1500
    for turn in range(5):
        history = [*history, *([turn + 1] * 30)]
        before = sim.core.counters.prompt_tokens
        stop(f"t{turn}", prompt=history, answer=20, chat="c")
        run_all(sim)
        computed = sim.core.counters.prompt_tokens - before
        assert computed <= (1530 if turn == 0 else 30 + 16), turn
        history = history + sim.tokens(f"t{turn}")
        if turn:
            assert end_of(sim, f"t{turn}").usage.cached_tokens > 1400


@pytest.mark.case("BAT-20")
def test_at_the_end_of_the_context_the_answer_stops_and_says_so(make_window: Any) -> None:
    sim = Sim(EngineConfig(), blocks=100, block_size=16, context=512)
    Stop(sim)("r", prompt=480, answer=None)
    sim.run(200)
    end = end_of(sim, "r")
    assert end.reason is FinishReason.LENGTH and end.usage.completion_tokens == 32 and end.usage.prompt_tokens == 480
    window, fake = make_window()
    chat = window.new_chat()
    window.send(chat, "x")
    (handle,) = fake.submitted
    handle.say("so far")
    handle.end(FinishReason.LENGTH)
    fake.riding, fake.waiting = [None] * fake.seats, []
    window.bridge.drain()
    page = window.page(chat)
    assert "length limit" in page.view.document().toPlainText().replace("\xa0", " ")
    assert window.book[chat].last.cut_short  # and so "Continue" is offered


@pytest.mark.case("BAT-22")
@pytest.mark.parametrize("value", [0, 1, -1, 10_000, None, "16", 1.5], ids=str)
def test_odd_lengths_have_one_outcome(value: Any) -> None:
    engine = make_engine(ServedWorkshop(context=60))
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    try:
        client = Client(server)
        got = client.chat(max_tokens=value)
        if value in (1, None):
            assert got.status == 200 and got.json["usage"]["completion_tokens"] == (value or 52)
        else:
            assert got.status == 400 and got.json["error"]["param"] == "max_tokens"
        assert client.chat().status == 200
    finally:
        assert server.stop(PATIENCE) and engine.close(PATIENCE)


def sampled(names: dict[str, tuple[list[int], SamplingParams, int]], before: int = 0, **rules: Any) -> dict[str, list[int]]:
    """Answers of these requests, ridden together on a real model. The first boards `before` steps earlier."""
    bench = Bench(tiny()[1], seats=4, **rules)
    bench.core.clear_cache()
    for place, (name, (prompt, params, seed)) in enumerate(names.items()):
        bench.core.submit(name, prompt, params, chat_id=name, title=name, priority=Priority.FOREGROUND, seed=seed)
        for _ in range(before if place == 0 else 0):
            bench.core.step()
    bench.run()
    return dict(zip(names, bench.answers(names), strict=True))


@pytest.mark.case("BAT-23")
def test_a_seed_is_enough_whoever_rides_along() -> None:
    mine, *others = make_prompts(4, seed=3, shortest=10, longest=30)
    params = SamplingParams(max_tokens=16, temperature=0.8, ignore_eos=True)
    alone = sampled({"r": (mine, params, 42)})["r"]
    crowd = {f"o{number}": (prompt, params, 100 + number) for number, prompt in enumerate(others)}
    for company in (
        {"r": (mine, params, 42), "o0": crowd["o0"]},
        {"r": (mine, params, 42), **crowd},
        {**crowd, "r": (mine, params, 42)},
        {"r": (mine, params, 42), "twin": (mine, params, 42)},
    ):
        got = sampled(company)
        assert got["r"] == alone and got.get("twin", alone) == alone
    assert sampled({"o0": crowd["o0"], "r": (mine, params, 42)}, before=7)["r"] == alone
    assert sampled({"r": (mine, params, 43)})["r"] != alone


@pytest.mark.case("BAT-23")
def test_without_a_seed_two_runs_differ_and_preemption_changes_no_seeded_one() -> None:
    engine: Engine = make_engine()
    with engine:
        engine.wait_ready(PATIENCE)
        assert len({engine.submit("x", SamplingParams(max_tokens=30)).result(PATIENCE).text for _ in range(3)}) == 3
    sim = make_sim(blocks=12, block_size=4, seats=2)
    sim.core.scheduler.growth.remaining = lambda request: 0.0  # type: ignore[method-assign]
    stop = Stop(sim)
    for name in "ab":
        stop(name, prompt=8, answer=30)
    sim.run(400)
    assert sim.core.totals.preemptions >= 1
    for number, name in enumerate("ab"):
        assert sim.tokens(name) == expected_answer([100 + number] * 8, number, 30)


@pytest.mark.case("BAT-24")
@pytest.mark.parametrize("size", [500, 5000])  # large vocabularies are searched in two stages
def test_every_way_to_be_greedy_is_the_same_and_a_tie_goes_to_the_lowest_id(size: int) -> None:
    logits = torch.randn(3, size, generator=torch.Generator().manual_seed(4))
    logits[2, [77, size - 100, 9]] = 50.0
    best = logits.argmax(-1).tolist()
    best[2] = 9
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, top_k=1), SamplingParams(temperature=0.0, top_k=40)):
        rows = [Row(make_request([1, 2, 3], params, seed=number, name=f"r{number}"), 2, 1, True) for number in range(3)]
        assert [item.token for item in Sampler((0,)).sample(logits.clone(), rows)] == best


@pytest.mark.case("BAT-27")
def test_a_rule_stays_with_its_own_request() -> None:
    logits = torch.zeros(3, 50)
    logits[:, 7] = 30.0
    plain = SamplingParams(temperature=0.0)
    never = SamplingParams(temperature=0.0, logit_bias=((7, -100.0),))
    rows = {name: Row(make_request([1, 2], params, name=name), 1, 1, True) for name, params in (("1", plain), ("2", plain), ("3", never))}
    sampler = Sampler((0,))
    for riders in (["1", "2"], ["1", "2", "3"], ["2", "3"], ["3", "2"], ["3"]):
        got = sampler.sample(logits[: len(riders)].clone(), [rows[name] for name in riders])
        assert [item.token == 7 for item in got] == [name != "3" for name in riders]


@pytest.mark.case("BAT-31")
def test_an_empty_prompt_is_refused_and_the_next_request_works(client: Client) -> None:
    for body in ({"messages": []}, {"messages": None}):
        assert client.chat(**body).status == 400
    for content in ("", " ", "\n"):
        assert client.chat(content).status in (200, 400)
    assert client.post("/v1/completions", prompt=[], max_tokens=3).status == 400
    assert client.chat().status == 200
    engine = make_engine()
    with engine:
        engine.wait_ready(PATIENCE)
        for prompt in ("", []):
            with pytest.raises(RequestRefused):
                engine.submit(prompt)
        assert the_end(engine.submit("x", SamplingParams(max_tokens=2))).reason is FinishReason.LENGTH


@pytest.mark.case("BAT-32")
def test_a_crowd_changes_nobodys_answer() -> None:
    twin, lane = tiny()
    rng = random.Random(5)
    prompts = make_prompts(32, seed=11, shortest=2, longest=40)
    lengths = [rng.randint(4, 24) for _ in prompts]
    bench = Bench(lane, seats=16, token_budget=64)
    gone = set(rng.sample(range(32), 6))
    for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        bench.submit(f"r{number}", prompt, length)
        for _ in range(rng.randrange(3)):
            bench.core.step()
        if number in gone:
            bench.core.cancel(f"r{number}")
    bench.run()
    for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        if number not in gone:
            assert bench.answers([f"r{number}"])[0] == reference_answer(twin, prompt, length)


@pytest.mark.case("BAT-35")
def test_two_chats_really_ride_together() -> None:
    sim = make_sim()
    stop = Stop(sim)
    order: list[str] = []
    note = sim.core.emit

    def emit(event: Any) -> None:
        note(event)
        if isinstance(event, TokensEvent):
            order.append(event.request_id)

    sim.core.emit = emit
    for name in ("one", "two"):
        stop(name, answer=50)
    run_all(sim)
    assert order.index("two") < [place for place, name in enumerate(order) if name == "one"][9]
    assert order.count("one") == order.count("two") == 50
