"""The HTTP API over the starter model: what only a real model and tokenizer can show."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine import Engine
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE
from tests.engine.server.made_up_server import Client, make_server

pytestmark = [pytest.mark.model, pytest.mark.slow]

CITY = {"type": "string", "maxLength": 12}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": CITY, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[Client]:
    server: ApiServer = make_server(engine)
    yield Client(server)
    assert server.stop(PATIENCE)


def ask(client: Client, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "What is the weather in Bern on the next three days?"}]
    got = client.post("/v1/chat/completions", messages=messages, tools=[WEATHER, CLOCK], max_tokens=60, **more)
    assert got.status == 200, got.body
    choice: dict[str, object] = got.json["choices"][0]
    return choice


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_of_135_million_makes_valid_calls_when_it_must(client: Client, seed: int) -> None:
    choice = ask(client, tool_choice="required", seed=seed, temperature=1.0)
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]  # type: ignore[index]
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weather":
        assert set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 9 and len(arguments["city"]) <= 12
    else:
        assert call["function"]["name"] == "clock" and arguments == {}


def test_a_named_call_has_valid_arguments(client: Client) -> None:
    choice = ask(client, tool_choice={"type": "function", "function": {"name": "weather"}}, seed=3)
    (call,) = choice["message"]["tool_calls"]  # type: ignore[index]
    assert call["function"]["name"] == "weather" and set(json.loads(call["function"]["arguments"])) == {"city", "days"}


def test_the_scores_of_an_answer_are_those_of_the_same_text_as_a_prompt(client: Client) -> None:
    prompt = "The capital of France is"
    body = client.post("/v1/completions", prompt=prompt, max_tokens=6, temperature=0, logprobs=2, echo=True).json
    told = body["choices"][0]["logprobs"]
    assert "".join(told["tokens"]) == body["choices"][0]["text"]
    again = client.post("/v1/completions", prompt=body["choices"][0]["text"], max_tokens=0, logprobs=2, echo=True).json
    scored = again["choices"][0]["logprobs"]
    assert scored["tokens"] == told["tokens"] and scored["token_logprobs"][1:] == pytest.approx(told["token_logprobs"][1:], abs=2e-3)
    best = [max(top.values()) for top in told["top_logprobs"][-6:]]
    assert told["token_logprobs"][-6:] == best  # greedy: each token of the answer was the likeliest
