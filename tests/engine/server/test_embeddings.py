"""Vectors over HTTP: what may be asked, what is told, a few at a time beside everybody's streams, nothing left when a client goes."""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter
from typing import Any

import pytest

from engine import Engine
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE
from tests.engine.server.made_up_server import Answer, Client, ServedWorkshop, chat_body, make_server, open_answers, until

PATH = "/v1/embeddings"


def ask(client: Client, given: Any, **more: Any) -> Answer:
    return client.post(PATH, model="first", input=given, **more)


def made_up(text: str, count: int = 3, last: bool = False) -> list[float]:
    """The made-up model's vector of a text: powers of its characters' numbers, averaged, at length 1."""
    ids = [ord(letter) for letter in (text[-1:] if last else text)]
    raw = [sum(number**power for number in ids) / len(ids) for power in range(count)]
    return [value / math.hypot(*raw) for value in raw]


def test_one_text(client: Client) -> None:
    got = ask(client, "hello")
    assert got.status == 200 and got.headers["Content-Type"] == "application/json"
    answer = got.json
    assert answer == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": answer["data"][0]["embedding"]}],
        "model": "first",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert answer["data"][0]["embedding"] == pytest.approx(made_up("hello"), abs=1e-7)


@pytest.mark.parametrize("given", [["ab", "c"], [[97, 98], [99]]])
def test_several_inputs_as_texts_or_ids(client: Client, given: Any) -> None:
    answer = ask(client, given).json
    assert [item["index"] for item in answer["data"]] == [0, 1]
    for item, text in zip(answer["data"], ("ab", "c"), strict=True):
        assert item["embedding"] == pytest.approx(made_up(text), abs=1e-7)
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


def test_one_list_of_ids_is_one_input(client: Client) -> None:
    answer = ask(client, [97, 98]).json
    assert len(answer["data"]) == 1 and answer["data"][0]["embedding"] == pytest.approx(made_up("ab"), abs=1e-7)


def test_base64_is_the_same_numbers(client: Client) -> None:
    plain, packed = ask(client, "hello").json, ask(client, "hello", encoding_format="base64").json
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack("<3f", raw)) == plain["data"][0]["embedding"]


def test_fewer_dimensions_have_length_one_again(client: Client) -> None:
    vector = ask(client, "hello", dimensions=2).json["data"][0]["embedding"]
    assert vector == pytest.approx(made_up("hello", 2), abs=1e-7) and math.hypot(*vector) == pytest.approx(1.0)


def test_the_last_position_on_demand(client: Client) -> None:
    vector = ask(client, "hello", pooling="last").json["data"][0]["embedding"]
    assert vector == pytest.approx(made_up("hello", last=True), abs=1e-7)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", [97]]}, "input"),
        ({"input": [[97], []]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": "a", "dimensions": 4}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "3"}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "encoding_format": ["float"]}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
        ({"input": "a", "pooling": {}}, "pooling"),
        ({"input": "a", "user": 7}, "user"),
        ({"input": [0x110000]}, "prompt"),
    ],
)
def test_what_is_refused_by_name(client: Client, body: dict[str, Any], param: str) -> None:
    got = client.post(PATH, **body)
    assert (got.status, got.json["error"]["param"]) == (400, param)


def test_an_input_that_does_not_fit_is_refused_before_any_is_computed(client: Client, engine: Engine) -> None:
    before = engine.snapshot.counters.submitted
    got = ask(client, ["fits", "x" * 9000])
    assert (got.status, got.json["error"]["code"]) == (400, "context_length_exceeded")
    assert "Input 1 has 9,000 tokens" in got.json["error"]["message"]
    assert engine.snapshot.counters.submitted == before
    assert ask(client, "x" * 7999).status == 200


def test_a_text_that_the_tokenizer_fails_on(client: Client, server: ApiServer) -> None:
    assert ask(client, ["good", "\0"]).status == 400
    assert ask(client, ["good", "x" * 9000 + "\0"]).status == 400
    until(lambda: open_answers(server) == 0)


def test_a_model_that_gives_none(workshop: ServedWorkshop, engine: Engine, client: Client) -> None:
    workshop.embedding_size = 0
    engine.restart()
    engine.wait_ready(PATIENCE)
    got = ask(client, "hello")
    assert (got.status, got.json["error"]["code"], got.json["error"]["param"]) == (400, "no_embeddings", "model")


def test_many_inputs_never_take_more_than_half_of_the_seats(workshop: ServedWorkshop, engine: Engine, server: ApiServer) -> None:
    """A stream that comes later finds a seat at once, and ends while the inputs are still at it."""
    client = Client(server)
    workshop.steps.clear()
    connection = client.connect()
    client.send(connection, "POST", PATH, {"input": [f"input {number}" for number in range(400)]})
    until(lambda: engine.snapshot.seated + workshop.stepping.is_set() > 0)
    with client.open_stream(**chat_body(stream=True, max_tokens=20)) as stream:
        workshop.steps.set()
        assert list(stream.events())[-1] == "[DONE]"
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read().count(b'"index"') == 400
    connection.close()
    records = engine.history()
    riders = {(row.chat_id, row.request_id) for record in records for row in record.rows}
    ((chat, count), _) = Counter(chat for chat, _ in riders).most_common()
    assert count == 400 and max(sum(row.chat_id == chat for row in record.rows) for record in records) == 2, "of four seats"
    assert any({row.chat_id for row in record.rows} > {chat} for record in records), "both rode at one time"
    until(lambda: open_answers(server) == 0)


def test_a_client_that_leaves_in_the_middle_takes_all_with_it(workshop: ServedWorkshop, engine: Engine, server: ApiServer) -> None:
    client = Client(server)
    workshop.steps.clear()
    connection = client.connect()
    client.send(connection, "POST", PATH, {"input": ["abc"] * 2000})
    assert workshop.stepping.wait(PATIENCE)
    connection.close()
    until(lambda: open_answers(server) == 0)
    workshop.steps.set()
    until(lambda: engine.snapshot.seated == engine.snapshot.waiting == 0)
    assert engine.snapshot.counters.submitted <= 4


def test_beyond_the_bound_they_wait_outside(workshop: ServedWorkshop, engine: Engine) -> None:
    server = make_server(engine, most_waiting=1)
    client = Client(server)
    workshop.steps.clear()
    connections = []
    try:
        for _ in range(2):  # two places of 4 + 1 each
            connections.append(client.connect())
            client.send(connections[-1], "POST", PATH, {"input": ["abc"] * 10})
        until(lambda: open_answers(server) == 4)
        got = ask(client, ["abc"] * 10)
        assert got.status == 429 and int(got.headers["Retry-After"]) >= 1
        workshop.steps.set()
        assert [connection.getresponse().status for connection in connections] == [200, 200]
    finally:
        for connection in connections:
            connection.close()
        workshop.steps.set()
        assert server.stop(PATIENCE)


def test_a_fault_of_the_engine_is_told(workshop: ServedWorkshop, client: Client) -> None:
    workshop.down = True
    got = ask(client, ["abc"] * 5)
    assert got.status == 500 and "made-up" not in got.json["error"]["message"]


def test_another_model_meanwhile(workshop: ServedWorkshop, engine: Engine, client: Client) -> None:
    """Vectors of two models in one answer could not be compared."""
    workshop.steps.clear()
    connection = client.connect()
    client.send(connection, "POST", PATH, {"input": ["abc"] * 10})
    assert workshop.stepping.wait(PATIENCE)
    engine.load("second")
    workshop.steps.set()
    response = connection.getresponse()
    assert response.status == 503 and b"model" in response.read()
    connection.close()


def test_the_metrics_count_vectors_and_no_answers(client: Client) -> None:
    ask(client, ["ab", "c"])
    page = client.get("/metrics").body.decode()
    figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    labels = '{model_name="first"}'
    assert figures[f"omnibus_embeddings_total{labels}"] == "2" and figures[f"omnibus_embeddings_tokens_total{labels}"] == "3"
    assert figures[f"omnibus_generation_tokens_total{labels}"] == "0"
    assert not [name for name in figures if "success_total" in name and figures[name] != "0"]
