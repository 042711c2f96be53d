"""API: what clients send that trips servers up, who may ask at all, and streams that survive every cut."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from engine import Engine, EngineError, Message, SamplingParams
from engine.remote.remote import RemoteConfig, RemoteEngine
from engine.server import answering
from engine.server.likelihoods import LEAST, chat_logprobs
from engine.server.serving import ApiServer
from engine.types import TokenLogprob
from tests.engine.made_up_model import PATIENCE, make_engine, wait_for
from tests.engine.remote.scripted import Request, ScriptedServer, serving
from tests.engine.server.made_up_server import TOKEN, Client, ServedWorkshop, chat_body, make_server, open_answers, until
from tests.engine.server.test_streaming import content

CHAT = "/v1/chat/completions"
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
SHAPE = {"message", "type", "param", "code"}


@pytest.mark.case("API-07")
@pytest.mark.parametrize("turn", [{"content": None}, {}, {"content": ""}], ids=["null", "absent", "empty"])
def test_a_turn_that_only_calls_needs_no_content(client: Client, turn: dict[str, Any]) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [CALL], **turn},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "user", "content": "thanks"},
    ]
    assert client.chat(messages=messages).status == 200


@pytest.mark.case("API-08")
@pytest.mark.parametrize(
    "part",
    [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "input_audio"}, {"type": "foo"}, {"text": "x"}],
    ids=["image", "audio", "foo", "none"],
)
def test_a_part_that_is_not_understood_is_named_and_not_dropped(client: Client, part: dict[str, Any]) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [part, {"type": "text", "text": "see?"}]}]
    got = client.chat(messages=messages)
    assert got.status == 400 and got.json["error"]["param"].startswith("messages[1].content"), got.body


@pytest.mark.case("API-10")
def test_signs_of_life_are_comments_that_the_standard_form_allows(
    client: Client, workshop: ServedWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answering.STILL_HERE_S <= 15
    monkeypatch.setattr(answering, "STILL_HERE_S", 0.01)
    workshop.steps.clear()
    with client.open_stream(**chat_body(stream=True)) as stream:
        raw = [stream.response.readline()]
        while len([line for line in raw if line.startswith(b":")]) < 3:
            raw.append(stream.response.readline())
        workshop.steps.set()
        raw += stream.response.readlines()
    assert not [line for line in raw if line.startswith((b"id:", b"event:", b"retry:"))], "with an id a comment would end an event"
    events = [line[6:].strip() for line in raw if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]" and all(json.loads(event) for event in events[:-1])


@pytest.mark.case("API-13")
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("moment", ["queued", "reading", "writing"])
def test_a_client_that_is_gone_frees_its_place(streams: bool, moment: str, caplog: pytest.LogCaptureFixture) -> None:
    workshop = ServedWorkshop(context=12_000)
    engine = make_engine(workshop, seats=1, token_budget=64, chunk=64, adapt_chunk=False)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    client = Client(server)
    rider = None
    try:
        with caplog.at_level(logging.INFO):
            if moment == "queued":
                workshop.steps.clear()
                rider = engine.submit("rider")
                assert workshop.stepping.wait(PATIENCE)
            text = "x" * 7900 if moment == "reading" else "hi"
            with client.open_stream(**chat_body(text, stream=streams, max_tokens=3000)):
                until(lambda: open_answers(server) == 1)
                if moment != "queued":
                    wait_for(engine, lambda: engine.snapshot.seated == 1)
            until(lambda: open_answers(server) == 0)
            if rider is not None:
                rider.cancel()
            workshop.steps.set()
            wait_for(engine, lambda: engine.snapshot.counters.cancelled >= 1 and engine.snapshot.seated == engine.snapshot.waiting == 0)
        assert engine.snapshot.counters.finished == 0 and engine.snapshot.kv.referenced == 0
        assert client.chat().status == 200
    finally:
        workshop.steps.set()
        assert server.stop(PATIENCE) and engine.close(PATIENCE)


@pytest.mark.case("API-13")
def test_a_connection_that_says_nothing_or_half_a_head_holds_no_place(client: Client, server: ApiServer, engine: Engine) -> None:
    for start in (b"", b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
            sock.sendall(start)
    assert open_answers(server) == 0 and client.chat().status == 200 and engine.snapshot.counters.cancelled == 0


@pytest.mark.case("API-15")
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
def test_too_long_a_prompt_is_one_answer_in_both_modes(client: Client, streams: bool) -> None:
    got = client.chat("x" * 9000, stream=streams)
    error = got.json["error"]
    assert (got.status, error["code"]) == (400, "context_length_exceeded")
    assert "8,000" in error["message"] and "9,006" in error["message"]


@pytest.mark.case("API-15")
def test_room_that_is_lacking_for_now_is_waited_for() -> None:
    engine = make_engine(ServedWorkshop(blocks=40, block_size=4, context=8000), seats=4)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    try:
        streams = [Client(server).open_stream(**chat_body("y" * 60, stream=True, max_tokens=60)) for _ in range(3)]
        for stream in streams:
            with stream:
                assert list(stream.events())[-1] == "[DONE]"
    finally:
        assert server.stop(PATIENCE) and engine.close(PATIENCE)


@pytest.mark.case("API-16")
def test_every_error_has_the_known_shape(client: Client, server: ApiServer, workshop: ServedWorkshop) -> None:
    stranger = Client(server, token=None)
    for got, status in (
        (client.call("POST", CHAT, b"{nope"), 400),
        (client.chat(temperature="hot"), 400),
        (client.get("/v1/nowhere"), 404),
        (client.get(CHAT), 405),
        (stranger.chat(), 401),
    ):
        assert got.status == status and set(got.json["error"]) == SHAPE, got.body
        assert got.headers["Content-Type"].startswith("application/json")


@pytest.mark.case("API-16")
def test_an_engine_that_is_dead_says_so_in_that_shape_too() -> None:
    workshop = ServedWorkshop()
    workshop.broken = True
    engine = make_engine(workshop)
    with pytest.raises(EngineError):
        engine.wait_ready(PATIENCE)
    server = make_server(engine)
    try:
        got = Client(server).chat()
        assert got.status == 503 and set(got.json["error"]) == SHAPE
    finally:
        assert server.stop(PATIENCE) and engine.close(PATIENCE)


@pytest.mark.case("API-19")
@pytest.mark.parametrize(
    ("stop", "status"),
    [("b", 200), (["b", "c"], 200), (None, 200), ("", 400), ([], 200), ([""], 400), (list("abcde"), 200), ([1], 400), (5, 400)],
    ids=str,
)
def test_stop_in_every_form(client: Client, stop: Any, status: int) -> None:
    """Empty strings are refused by name, which is neither an instant stop nor a hang."""
    got = client.chat(stop=stop, max_tokens=20)
    assert got.status == status
    if status == 400:
        assert got.json["error"]["param"] == "stop"


@pytest.mark.case("API-20")
def test_logprobs_are_where_clients_look_and_are_json(client: Client) -> None:
    told = [TokenLogprob(3, float("-inf"), ((3, 0.0), (4, float("-inf")))), TokenLogprob(5, float("nan"), ())]
    document = chat_logprobs(told, lambda token_id: b"\xf0\x9f"[: token_id - 2])
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["content"][0]["logprob"] == LEAST
    got = client.chat(logprobs=True, top_logprobs=5)
    item = json.loads(got.body, parse_constant=pytest.fail)["choices"][0]["logprobs"]["content"][0]
    assert {"token", "logprob", "bytes", "top_logprobs"} <= set(item) and len(item["top_logprobs"]) == 5


@pytest.mark.case("API-21")
def test_names_of_models(client: Client) -> None:
    listed = [item["id"] for item in client.get("/v1/models").json["data"]]
    for name in listed:
        got = client.chat(model=name)
        assert got.status == 200 and got.json["model"] in listed
    for name in ("any-name", "first:latest", "a/b", "ä ö"):
        got = client.chat(model=name)
        assert got.status == 404 and got.json["error"]["code"] == "model_not_found"
        assert all(known in got.json["error"]["message"] for known in listed), got.body


@pytest.mark.case("API-22")
def test_web_pages_get_in_only_where_they_were_listed(engine: Engine) -> None:
    good = "https://chat.example"
    server = make_server(engine, origins=[good])
    try:
        client = Client(server)
        for origin in ("https://evil.example", "null"):
            for method in ("GET", "OPTIONS"):
                given = {"Origin": origin, "Access-Control-Request-Method": "POST"}
                got = client.call(method, "/v1/models", None, given)
                assert got.status == 403 and not [name for name in got.headers if name.lower().startswith("access-control")]
        asked = {"Origin": good, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        got = client.call("OPTIONS", CHAT, None, asked)
        assert got.headers["Access-Control-Allow-Origin"] == good
        assert {"authorization", "content-type"} <= {name.strip() for name in got.headers["Access-Control-Allow-Headers"].split(",")}
    finally:
        assert server.stop(PATIENCE)


@pytest.mark.case("API-23")
def test_names_that_only_point_here_are_not_ours(client: Client, server: ApiServer) -> None:
    for host in (f"evil.example:{server.port}", "127.0.0.1.nip.io"):
        assert client.call("GET", "/v1/models", None, {"Host": host}).status in (400, 403, 421)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.putrequest("GET", "/v1/models", skip_host=True)
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.endheaders()
    assert connection.getresponse().status in (400, 403, 421)
    connection.close()
    for host in ("localhost", f"127.0.0.1:{server.port}", f"[::1]:{server.port}"):
        assert client.call("GET", "/v1/models", None, {"Host": host}).status == 200


@pytest.mark.case("API-24")
def test_only_this_machine_is_listened_to_unless_there_is_a_strong_key(engine: Engine, server: ApiServer) -> None:
    mine = [item.laddr for item in psutil.Process().net_connections("inet") if item.status == psutil.CONN_LISTEN]
    assert ("127.0.0.1", server.port) in mine and {address.ip for address in mine} <= {"127.0.0.1", "::1"}
    for token in (None, "short"):
        with pytest.raises(EngineError):
            ApiServer(engine, token, host="0.0.0.0")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        got = Client(server, token=None).call("GET", "/v1/models", None, headers)
        assert got.status == 401 and set(got.json["error"]) == SHAPE
    assert Client(server, token=None).call("GET", "/v1/models", None, {"AUTHORIZATION": f"bearer {TOKEN}"}).status == 200


@pytest.mark.case("API-11")
def test_our_stream_is_whole_utf8(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = "ñ 猫 😀"
    with client.open_stream(**chat_body(stream=True, max_tokens=30)) as stream:
        raw = stream.response.read()
    text = raw.decode("utf-8")
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    assert content(events) == "ñ 猫 😀"


@pytest.mark.case("API-11")
def test_a_character_cut_between_two_reads_is_put_together_by_our_client() -> None:
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "ñ 猫 😀"}, "finish_reason": None}]}, ensure_ascii=False)
    whole = f"data: {event}\n\n".encode()

    def cut_at(place: int) -> Callable[[Request], None]:
        def script(request: Request) -> None:
            request.begin()
            for part in (whole[:place], whole[place:]):
                request._handler.wfile.write(part)
                request._handler.wfile.flush()
            request.piece(finish="stop")
            request.raw("data: [DONE]\n\n")

        return script

    with serving(ScriptedServer()) as scripted:
        engine = RemoteEngine(RemoteConfig(scripted.url))
        engine.start()
        try:
            engine.wait_ready(PATIENCE)
            for place in range(1, len(whole)):
                scripted.scripts.append(cut_at(place))
                assert engine.submit([Message("user", "x")], SamplingParams()).result(PATIENCE).text == "ñ 猫 😀", place
        finally:
            assert engine.close(PATIENCE)
