"""The server over two loaded models: both are listed, each is reached by its name, and the figures of both are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.engine import Engine
from engine.engines import Engines
from engine.types import EngineConfig
from tests.engine.made_up_model import Workshop, answer
from tests.engine.server.made_up_server import Client, make_server, until
from tests.engine.test_locals import PARAMS, Space, end_of


@pytest.fixture
def engines() -> Iterator[Engines]:
    workshop = Workshop()
    workshop.offsets["second"] = 5
    with_room = Engines(Engine(EngineConfig(model="first", seats=4), opener=workshop.open), room=Space())
    with_room.start()
    with_room.wait_ready(60)
    end_of(with_room.submit("abc", PARAMS, model="second"))
    end_of(with_room.submit("abc", PARAMS, model="first"))
    yield with_room
    assert with_room.close(60)


@pytest.fixture
def client(engines: Engines) -> Iterator[Client]:
    server = make_server(engines.here)  # type: ignore[arg-type]
    yield Client(server)
    assert server.stop()


def said(client: Client, model: str) -> str:
    body = {"prompt": "abc", "max_tokens": 6, "seed": 7}
    reply = client.post("/v1/completions", **body, **({"model": model} if model else {}))
    assert reply.json["model"] == (model or "first")
    text: str = reply.json["choices"][0]["text"]
    return text


def test_both_are_listed_and_reached_by_name(client: Client) -> None:
    assert [card["id"] for card in client.get("/v1/models").json["data"]] == ["first", "second"]
    assert client.get("/v1/models/second").json["id"] == "second"
    assert said(client, "first") == said(client, "") == answer("abc", 7, 6)
    assert said(client, "second") == answer("abc", 7, 6, offset=5)


def test_a_third_name_is_told_what_there_is(client: Client) -> None:
    reply = client.post("/v1/completions", model="third", prompt="abc")
    assert reply.status == 404 and "it serves 'first' and 'second'" in reply.json["error"]["message"]


def test_a_prompt_is_counted_by_the_model_that_is_named(client: Client) -> None:
    first, second = (client.post("/tokenize", model=name, prompt="ab").json["tokens"] for name in ("first", "second"))
    assert [token + 5 for token in first] == second


def test_the_figures_of_both_are_told(client: Client) -> None:
    lines = client.get("/metrics").body.decode().splitlines()
    assert 'omnibus_num_seats{model_name="first"} 4' in lines and 'omnibus_num_seats{model_name="second"} 4' in lines
    assert sum(line.startswith("# TYPE omnibus_num_seats ") for line in lines) == 1


def test_one_that_is_let_go_is_no_longer_listed(client: Client, engines: Engines) -> None:
    engines.unload("second")
    until(lambda: engines.having("second") is None)
    assert [card["id"] for card in client.get("/v1/models").json["data"]] == ["first"]
    assert client.post("/v1/completions", model="second", prompt="abc").status == 404
