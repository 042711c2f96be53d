"""Answers as they are written, and clients that leave in the middle of them."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from engine import Engine, RequestHandle
from engine.server import answering, replies
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE, answer, make_engine, wait_for
from tests.engine.server.made_up_server import Client, ServedWorkshop, chat_body, make_server, open_answers, until

LONG = 7000  # tokens; nobody here waits for them all


def content(events: list[Any], choice: int = 0) -> str:
    deltas = [one["delta"] for event in events for one in event["choices"] if one["index"] == choice]
    return "".join(delta.get("content", "") for delta in deltas)


def seated(engine: Engine) -> str:
    """The id of the one request that has a seat."""
    wait_for(engine, lambda: engine.snapshot.seated == 1)
    return next(seat.request_id for seat in engine.snapshot.seats if seat)


def test_a_stream_from_role_to_done(client: Client) -> None:
    with client.open_stream(**chat_body(stream=True, max_tokens=30, stream_options={"include_usage": True})) as stream:
        assert stream.response.headers["Content-Type"].startswith("text/event-stream")
        *events, done = stream.events()
    assert done == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content(events) == answer("user:hi;", 7, 30)
    *chunks, usage = events
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk["usage"] is None for chunk in chunks) and usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (8, 30)
    assert len({event["id"] for event in events}) == 1 and {event["object"] for event in events} == {"chat.completion.chunk"}


def test_without_being_asked_there_is_no_usage(client: Client) -> None:
    with client.open_stream(**chat_body(stream=True)) as stream:
        *events, _ = stream.events()
    assert all(event["choices"] and "usage" not in event for event in events)


def test_several_choices_stream_side_by_side(client: Client) -> None:
    with client.open_stream(**chat_body(stream=True, n=3, max_tokens=40)) as stream:
        *events, _ = stream.events()
    assert [content(events, choice) for choice in range(3)] == [answer("user:hi;", 7 + choice, 40) for choice in range(3)]
    ends = [one["index"] for event in events for one in event["choices"] if one["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]


def test_a_completion_streams_text(client: Client) -> None:
    with client.open_stream("/v1/completions", prompt="abc", stream=True, max_tokens=20, seed=1) as stream:
        *events, done = stream.events()
    assert done == "[DONE]" and "".join(event["choices"][0]["text"] for event in events) == answer("abc", 1, 20)
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_silence_is_filled_with_comments(client: Client, workshop: ServedWorkshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "STILL_HERE_S", 0.01)
    workshop.steps.clear()
    with client.open_stream(**chat_body(stream=True)) as stream:
        lines = stream.lines()
        assert next(lines) == next(lines) == ": still here"
        workshop.steps.set()
        rest = [line for line in lines if not line.startswith(":")]
    assert rest[-1] == "data: [DONE]"
    assert content([json.loads(line.removeprefix("data: ")) for line in rest[:-1]]) == answer("user:hi;", 7, 8)


def test_an_error_in_the_middle_is_an_event_and_no_normal_end(client: Client, engine: Engine, workshop: ServedWorkshop) -> None:
    with client.open_stream(**chat_body(stream=True, max_tokens=LONG)) as stream:
        events = stream.events()
        first = next(events)
        workshop.poisoned.add(seated(engine))
        rest = [first, *events]
    assert "[DONE]" not in rest
    *chunks, error = rest
    assert error["error"]["type"] == "server_error" and "made-up fault" not in json.dumps(error)
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert client.chat().status == 200


def test_an_error_before_the_first_token_is_a_status(client: Client, engine: Engine, workshop: ServedWorkshop) -> None:
    next_id = f"r{int(engine.submit('x').id[1:]) + 1}"
    workshop.poisoned.add(next_id)
    got = client.chat(stream=True)
    assert got.status == 500 and got.json["error"]["type"] == "server_error"
    assert client.chat().status == 200


def test_cancelled_from_the_dashboard_is_told(client: Client, engine: Engine) -> None:
    with client.open_stream(**chat_body(stream=True, max_tokens=LONG)) as stream:
        events = stream.events()
        next(events)
        engine.cancel(seated(engine))
        assert list(events)[-1]["error"]["code"] == "cancelled"


# ---------------------------------------------------------------------------------------------------------- clients leave


def test_a_dropped_stream_frees_its_seat_within_a_step(client: Client, server: ApiServer, engine: Engine, workshop: ServedWorkshop) -> None:
    with client.open_stream(**chat_body(stream=True, max_tokens=LONG)) as stream:
        next(stream.events())
        workshop.steps.clear()
        workshop.stepping.clear()
        assert workshop.stepping.wait(PATIENCE)  # a step is under way and does not end
    until(lambda: open_answers(server) == 0)
    step = engine.snapshot.step
    workshop.steps.set()
    wait_for(engine, lambda: engine.snapshot.seated == 0)
    assert engine.snapshot.counters.cancelled == 1
    assert engine.snapshot.step <= step + 2
    assert engine.snapshot.kv.referenced == 0


@pytest.mark.parametrize("streams", [False, True])
def test_dropped_while_it_waits_it_never_gets_a_seat(workshop: ServedWorkshop, streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(workshop, seats=1)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    client = Client(server)
    submitted: list[RequestHandle] = []  # the engine is held in a step: its own counter says nothing yet
    submit = engine.submit
    monkeypatch.setattr(engine, "submit", lambda *args, **options: submitted.append(submit(*args, **options)) or submitted[-1])
    try:
        workshop.steps.clear()
        with client.open_stream(**chat_body("rider", stream=True, max_tokens=20)) as rider:
            until(lambda: len(submitted) == 1)
            with client.open_stream(**chat_body("waiting", stream=streams, max_tokens=LONG)):
                until(lambda: len(submitted) == 2)
            until(lambda: open_answers(server) == 1)
            workshop.steps.set()
            assert list(rider.events())[-1] == "[DONE]"
        wait_for(engine, lambda: engine.snapshot.seated == engine.snapshot.waiting == 0)
        assert engine.snapshot.counters.cancelled == 1
        assert len({row.chat_id for record in engine.history() for row in record.rows}) == 1
    finally:
        workshop.steps.set()
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)


def test_all_choices_of_a_dropped_request_go(client: Client, server: ApiServer, engine: Engine) -> None:
    with client.open_stream(**chat_body(n=4, max_tokens=LONG)):
        wait_for(engine, lambda: engine.snapshot.seated == 4)
    wait_for(engine, lambda: engine.snapshot.counters.cancelled == 4)
    until(lambda: open_answers(server) == 0)
    assert 'finished_reason="abort"} 4' in client.get("/metrics").body.decode()


def test_a_client_that_closes_its_half_has_left(client: Client, server: ApiServer, engine: Engine) -> None:
    with client.open_stream(**chat_body(stream=True, max_tokens=LONG)) as stream:
        next(stream.events())
        stream.connection.sock.shutdown(socket.SHUT_WR)
        wait_for(engine, lambda: engine.snapshot.counters.cancelled == 1)


def test_a_slow_reader_gets_all_and_holds_nobody_up(client: Client, engine: Engine, workshop: ServedWorkshop) -> None:
    workshop.steps.clear()
    with client.open_stream(**chat_body(stream=True, max_tokens=600)) as slow:
        assert workshop.stepping.wait(PATIENCE)
        workshop.steps.set()
        assert client.chat("other", max_tokens=50).text == answer("user:other;", 7, 50)
        *events, done = slow.events()
    assert done == "[DONE]" and content(events) == answer("user:hi;", 7, 600)


def test_two_hundred_clients_at_once(workshop: ServedWorkshop) -> None:
    engine = make_engine(workshop, seats=16)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    client = Client(server)
    streams = []
    try:
        streams = [client.open_stream(**chat_body(f"client {number}", stream=True, max_tokens=5)) for number in range(200)]
        for number, stream in enumerate(streams):
            *events, done = stream.events()
            assert done == "[DONE]" and content(events) == answer(f"user:client {number};", 7, 5)
    finally:
        for stream in streams:
            stream.close()
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)


def test_stopping_the_server_ends_every_stream_with_a_word(workshop: ServedWorkshop, engine: Engine) -> None:
    server = make_server(engine)
    with Client(server).open_stream(**chat_body(stream=True, max_tokens=LONG)) as stream:
        events = stream.events()
        next(events)
        assert server.stop(PATIENCE)
        assert list(events)[-1]["error"]["code"] == "cancelled"
    wait_for(engine, lambda: engine.snapshot.seated == 0)


# ------------------------------------------------------------------------------------------------------------- the queue


def test_beyond_the_bound_it_is_429_and_says_when_to_come_back(workshop: ServedWorkshop) -> None:
    engine = make_engine(workshop, seats=1)
    engine.wait_ready(PATIENCE)
    server = make_server(engine, most_waiting=2)
    client = Client(server)
    try:
        workshop.steps.clear()
        with (
            client.open_stream(**chat_body("a", stream=True)) as first,
            client.open_stream(**chat_body("b", stream=True, n=2)) as second,
        ):
            until(lambda: open_answers(server) == 3)
            refused = client.chat("c")
            assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            workshop.steps.set()
            assert [list(stream.events())[-1] for stream in (first, second)] == ["[DONE]"] * 2
        assert client.chat("c").status == 200
        assert client.chat("d", n=4).status == 429  # more at once than ever fit
    finally:
        workshop.steps.set()
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)


def test_the_engines_own_bound_is_429_too(workshop: ServedWorkshop) -> None:
    engine = make_engine(workshop, seats=1, max_waiting=1)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    client = Client(server)
    try:
        engine.pause()
        wait_for(engine, lambda: str(engine.snapshot.state) == "paused")
        handle = engine.submit("a tab's")
        wait_for(engine, lambda: engine.snapshot.waiting == 1)
        refused = client.chat()
        assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
        handle.cancel()
        engine.resume()
    finally:
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)


def test_a_client_that_leaves_while_its_prompt_is_encoded_leaves_nothing_behind(
    client: Client, server: ApiServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, go_on = threading.Event(), threading.Event()
    submit = engine.submit

    def slow_submit(*arguments: Any, **options: Any) -> Any:
        encoding.set()
        assert go_on.wait(PATIENCE)
        return submit(*arguments, **options)

    monkeypatch.setattr(engine, "submit", slow_submit)
    with client.open_stream(**chat_body(stream=True, n=2, max_tokens=LONG)):
        assert encoding.wait(PATIENCE)
        (ride,) = server._rides._rides
    until(lambda: ride.gone)
    go_on.set()
    until(lambda: open_answers(server) == 0)
    wait_for(engine, lambda: engine.snapshot.counters.cancelled == engine.snapshot.counters.submitted == 1)
    assert engine.snapshot.seated == engine.snapshot.waiting == 0


# ------------------------------------------------------------------------------------------------------------- the crowd


def test_one_that_does_not_read_at_all_is_let_go_and_nobody_notices(
    client: Client, server: ApiServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is larger than all buffers between, so that the server can write no more; the others' answers go on meanwhile."""
    monkeypatch.setattr(replies, "STALL_PATIENCE_S", 0.5)
    body = json.dumps(chat_body("stuck", stream=True, max_tokens=LONG, logprobs=True, top_logprobs=20, n=2)).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        key = client.headers["Authorization"]
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(engine, lambda: engine.snapshot.seated == 2)
        while open_answers(server):
            assert client.chat("other", max_tokens=5).text == answer("user:other;", 7, 5)
    until(lambda: engine.snapshot.seated == 0)
    assert engine.snapshot.counters.cancelled + engine.snapshot.counters.finished >= 2


@pytest.mark.parametrize("streams", [False, True])
def test_half_closed_while_it_waits_it_has_left(workshop: ServedWorkshop, streams: bool) -> None:
    engine = make_engine(workshop, seats=1)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    client = Client(server)
    try:
        workshop.steps.clear()
        with client.open_stream(**chat_body("rider", stream=True, max_tokens=5)) as rider:
            until(lambda: open_answers(server) == 1)
            with client.open_stream(**chat_body("waiting", stream=streams, max_tokens=LONG)) as half:
                until(lambda: open_answers(server) == 2)
                half.connection.sock.shutdown(socket.SHUT_WR)
                until(lambda: open_answers(server) == 1)
            workshop.steps.set()
            assert list(rider.events())[-1] == "[DONE]"
        wait_for(engine, lambda: engine.snapshot.seated == engine.snapshot.waiting == 0)
        assert engine.snapshot.counters.cancelled <= 1  # none if it left on its way to the engine
        assert len({row.chat_id for record in engine.history() for row in record.rows}) == 1
    finally:
        workshop.steps.set()
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)


def test_two_hundred_at_once_of_whom_some_are_too_many_and_some_leave(workshop: ServedWorkshop) -> None:
    """To the one: 8 seats and 60 places to wait; the 132 others are told when to come back, and who leaves makes room for as many."""
    engine = make_engine(workshop, seats=8)
    engine.wait_ready(PATIENCE)
    server = make_server(engine, most_waiting=60)
    client = Client(server)
    streams: dict[int, Any] = {}
    try:
        workshop.steps.clear()
        refused = []
        for number in range(200):
            stream = client.open_stream(**chat_body(f"client {number}", stream=number % 2 == 0, max_tokens=5))
            if number < 68:
                until(lambda number=number: open_answers(server) == number + 1)  # type: ignore[misc]
                streams[number] = stream
            else:
                response = stream.response
                assert response.status == 429 and json.loads(response.read())["error"]["code"] == "rate_limit_exceeded"
                refused.append(int(response.headers["Retry-After"]))
                stream.close()
        assert len(refused) == 132 and set(refused) <= set(range(1, 61))
        for number in range(0, 68, 4):
            streams.pop(number).close()
        until(lambda: open_answers(server) == 51)
        for number in range(300, 317):
            streams[number] = client.open_stream(**chat_body(f"client {number}", stream=number % 2 == 0, max_tokens=5))
        until(lambda: open_answers(server) == 68)
        assert client.chat().status == 429
        workshop.steps.set()
        for number, stream in streams.items():
            wanted = answer(f"user:client {number};", 7, 5)
            if number % 2 == 0:
                *events, done = stream.events()
                assert done == "[DONE]" and content(events) == wanted
            else:
                assert json.loads(stream.response.read())["choices"][0]["message"]["content"] == wanted
        wait_for(engine, lambda: engine.snapshot.counters.finished == 68 and engine.snapshot.seated == engine.snapshot.waiting == 0)
        assert engine.snapshot.counters.cancelled <= 17  # fewer if one left on its way to the engine
        assert client.chat().status == 200
    finally:
        for stream in streams.values():
            stream.close()
        workshop.steps.set()
        assert server.stop(PATIENCE)
        assert engine.close(PATIENCE)
