"""This machine's engine and servers elsewhere as one: each request goes where its model is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.engine import Engine
from engine.engines import Engines, is_address
from engine.remote import keys
from engine.types import EngineConfig, EngineState, FinishReason, Message, SamplingParams
from tests.engine.made_up_model import Workshop, read, wait_for
from tests.engine.remote.scripted import ScriptedServer, serving

CHAT = [Message("user", "hello")]
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setenv(keys.VARIABLE, "secret")
    with serving(ScriptedServer()) as made:
        yield made


def make_engines(workshop: Workshop, model: str = "first") -> Engines:
    return Engines(Engine(EngineConfig(model=model, seats=4), opener=workshop.open))


def reason_of(handle: object) -> FinishReason:
    return read(handle)[-1].reason  # type: ignore[arg-type, union-attr]


def test_each_request_goes_where_its_model_is(workshop: Workshop, server: ScriptedServer) -> None:
    engines = make_engines(workshop)
    engines.start()
    engines.wait_ready(60)
    here, there = engines.submit(CHAT, PARAMS), engines.submit(CHAT, PARAMS, model=server.url)
    assert here.id != there.id
    assert reason_of(here) is FinishReason.LENGTH and reason_of(there) is FinishReason.STOP
    assert server.requests[0].key == "Bearer secret"
    assert engines.config.model == server.url and engines.snapshot.model.name == "made-up"
    again = engines.submit(CHAT, PARAMS, model="first")
    assert reason_of(again) is FinishReason.LENGTH and engines.config.model == "first"
    assert workshop.opened == ["first"]
    assert engines.close(60)


def test_a_listener_hears_of_servers_that_come_later(workshop: Workshop, server: ScriptedServer) -> None:
    engines = make_engines(workshop)
    heard: list[str] = []
    remove = engines.add_listener(lambda: heard.append(engines.snapshot.model.name))
    engines.start()
    engines.load(server.url)
    wait_for(engines, lambda: engines.snapshot.state is EngineState.READY)  # type: ignore[arg-type]
    assert "made-up" in heard
    remove()
    count = len(heard)
    engines.load("first")
    wait_for(engines, lambda: engines.snapshot.state is EngineState.READY and engines.snapshot.model.name == "first")  # type: ignore[arg-type]
    assert len(heard) == count
    assert engines.close(60)


def test_begun_with_a_server_nothing_is_loaded_here_until_it_is_asked_for(workshop: Workshop, server: ScriptedServer) -> None:
    engines = make_engines(workshop, server.url)
    engines.start()
    engines.wait_ready(60)
    assert workshop.opened == [] and reason_of(engines.submit(CHAT, PARAMS)) is FinishReason.STOP
    assert reason_of(engines.submit(CHAT, PARAMS, model="second")) is FinishReason.LENGTH
    assert workshop.opened == ["second"]
    assert engines.close(60)


def test_one_of_several_models_of_a_server(workshop: Workshop, server: ScriptedServer) -> None:
    server.models = {"data": [{"id": "one"}, {"id": "org/two"}]}
    engines = make_engines(workshop, f"{server.url}#org/two")
    engines.start()
    engines.wait_ready(60)
    assert reason_of(engines.submit(CHAT, PARAMS)) is FinishReason.STOP
    assert server.requests[0].body["model"] == "org/two"
    assert engines.close(60)


def test_a_cancel_finds_its_engine(workshop: Workshop, server: ScriptedServer) -> None:
    engines = make_engines(workshop)
    engines.start()
    engines.wait_ready(60)
    workshop.steps.clear()
    here = engines.submit(CHAT, SamplingParams(max_tokens=50, ignore_eos=True))
    assert workshop.stepping.wait(60)
    engines.load(server.url)
    engines.cancel(here.id)
    workshop.steps.set()
    assert reason_of(here) is FinishReason.CANCELLED
    assert engines.close(60)


def test_addresses() -> None:
    assert is_address("https://x/v1#m") and not is_address("/models/http") and not is_address("starter")
