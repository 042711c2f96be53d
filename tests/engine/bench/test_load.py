"""The scripted loads: what the script promises, and who comes when."""

from __future__ import annotations

import asyncio

import pytest

from engine import Engine, Message, Priority
from engine.bench.load import CHAT_PREFIX, Load, ScriptedRequest, arrivals, play, read_script, riders, rush_hour


def make_load(*tokens: int, seats: int = 2, every_s: float = 0.0) -> Load:
    requests = tuple(ScriptedRequest(f"q{number}", f"Q{number}", f"ask {number}", n, number * every_s) for number, n in enumerate(tokens))
    return Load("made", "A made-up load", seats, requests)


def test_the_riders_are_those_of_the_design() -> None:
    load = riders()
    assert load.seats == 3
    assert [(request.id, request.tokens, request.at_s) for request in load.requests] == [
        ("A", 8, 0.0),
        ("B", 2, 0.0),
        ("C", 6, 0.0),
        ("D", 8, 0.0),
        ("E", 2, 0.0),
        ("F", 6, 0.0),
    ]


def test_every_request_asks_for_an_exact_answer() -> None:
    for request in (*riders().requests, *rush_hour().requests):
        params = request.params
        params.check()
        assert params.greedy and params.ignore_eos
        assert params.min_tokens == params.max_tokens == request.tokens


def test_the_rush_hour_tells_a_story() -> None:
    load = rush_hour()
    lengths = sorted(request.tokens for request in load.requests)
    assert 16 <= len(lengths) <= 20 and load.seats == 8
    assert lengths[-1] >= 5 * lengths[len(lengths) // 2], "the tail is heavy"
    assert len({request.at_s for request in load.requests}) > 5, "arrivals are staggered"
    sizes = sorted(sum(len(message.content) for message in request.prompt) for request in load.requests)
    assert sizes[-1] > 3 * sizes[-4], "one prompt is long"
    systems = [request.prompt[0].content for request in load.requests]
    assert len(systems) - len(set(systems)) == 1, "two share their system prompt, and only they"


def test_ids_are_unique() -> None:
    for load in (riders(), rush_hour()):
        assert len({request.id for request in load.requests}) == len(load.requests)


def test_arrivals_come_in_order_at_their_pace() -> None:
    load = make_load(1, 2, 3, every_s=0.5)
    shuffled = Load(load.name, load.title, load.seats, load.requests[::-1])
    came = list(arrivals(shuffled, pace=2.0, run="x", priority=Priority.IDLE))
    assert [arrival.at_s for arrival in came] == [0.0, 1.0, 2.0]
    assert [arrival.keywords["chat_id"] for arrival in came] == [f"{CHAT_PREFIX}x-q{number}" for number in range(3)]
    assert {arrival.keywords["priority"] for arrival in came} == {Priority.IDLE}


def test_pace_follows_the_speed_of_the_machine() -> None:
    load = rush_hour()
    assert load.pace_for(load.reference_step_s) == 1.0
    assert load.pace_for(load.reference_step_s / 2) == pytest.approx(0.5)
    assert load.pace_for(0.0) == 1.0
    assert 0 < load.pace_for(1e-9) < load.pace_for(1e9) < 100


def test_play_submits_from_a_loop_without_blocking_it(engine: Engine) -> None:
    load = make_load(3, 4, 2, every_s=0.02)

    async def scenario() -> tuple[list[str], int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        handles = [handle async for handle in play(engine, load)]
        other.cancel()
        return [handle.result(60).text for handle in handles], turns

    texts, turns = asyncio.run(scenario())
    assert [len(text) for text in texts] == [3, 4, 2]
    assert turns > 10, "the loop went on turning between the arrivals"


def test_a_script_reads_back_as_it_is_written() -> None:
    script = {
        "reference_step_s": 0.5,
        "few": {
            "title": "Few",
            "seats": 2,
            "systems": {"s": "Be brief."},
            "documents": {"d": "A text."},
            "requests": [
                {"id": "a", "title": "Ann", "tokens": 3, "prompt": "One"},
                {"id": "b", "title": "Bob", "tokens": 4, "at": 1.5, "system": "s", "read": "d", "ask": "Why?"},
                {"id": "c", "title": "Cat", "tokens": 5, "ask": "How?"},
            ],
        },
    }
    load = read_script(script)["few"]
    plain, full, bare = load.requests
    assert plain.prompt == "One"
    assert full.prompt == (Message("system", "Be brief."), Message("user", "A text.\n\nWhy?")) and full.at_s == 1.5
    assert bare.prompt[0].content.startswith("Cat") and bare.prompt[1].content == "How?"
    assert load.reference_step_s == 0.5
