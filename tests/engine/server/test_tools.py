"""Tools over HTTP: given to the template, called in the model's own form or held to one, streamed, and answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import GrammarKind
from engine.server.asks import read_chat
from engine.server.fields import Fields
from tests.engine.made_up_model import answer
from tests.engine.server.made_up_server import Client, ServedWorkshop, chat_body

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": SCHEMA}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "weather"}}


def streamed(client: Client, **more: Any) -> tuple[list[dict[str, Any]], str]:
    """(deltas, finish reason)"""
    with client.open_stream(**chat_body(**{"max_tokens": 200, **more, "stream": True})) as stream:
        choices = [event["choices"][0] for event in stream.events() if event != "[DONE]"]
    return [choice["delta"] for choice in choices], choices[-1]["finish_reason"]


def test_the_template_is_told_of_tools(client: Client) -> None:
    assert client.chat("hi", tools=[WEATHER, CLOCK]).text == answer("tool weather;tool clock;user:hi;", 7, 8)
    assert client.chat("hi", tools=[WEATHER], tool_choice="none").text == answer("user:hi;", 7, 8)
    assert client.post("/tokenize", messages=[{"role": "user", "content": "x"}], tools=[CLOCK]).json["count"] == len("tool clock;user:x;")


def test_calls_and_their_answers_are_told_to_the_template(client: Client) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
    ]
    got = client.chat(messages=messages, tools=[WEATHER])
    assert got.text == answer('tool weather;user:hi;assistant:weather{"city": "Bern"};tool:rain;', 7, 8)


def test_a_call_in_the_models_own_form(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = f"Let me look. {CALL}"
    choice = client.chat(tools=[WEATHER], max_tokens=200).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"].strip() == "Let me look."
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bern"}'} and call["type"] == "function"
    assert call["id"].startswith("call_")


def test_a_streamed_call(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = f"{CALL}\n{CALL}"
    deltas, reason = streamed(client, tools=[WEATHER])
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert reason == "tool_calls" and [call["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2
    assert all(json.loads(call["function"]["arguments"]) == {"city": "Bern"} for call in calls)
    assert not "".join(delta.get("content") or "" for delta in deltas).strip()
    deltas, _ = streamed(client, tools=[WEATHER], parallel_tool_calls=False)
    assert sum(len(delta.get("tool_calls", [])) for delta in deltas) == 1


def test_without_tools_nothing_is_taken_for_a_call(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = CALL
    choice = client.chat(max_tokens=200).json["choices"][0]
    assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop"


def test_a_required_call_is_held_to_the_tools(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = '{"name": "weather", "arguments": {"city": "Bern"}}'
    deltas, reason = streamed(client, tools=[WEATHER, CLOCK], tool_choice="required")
    (call,) = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bern"}'} and reason == "tool_calls"
    (form,) = workshop.forms
    names = [item["properties"]["name"]["const"] for item in json.loads(form.source)["anyOf"]]
    assert form.kind is GrammarKind.JSON_SCHEMA and names == ["weather", "clock"]
    workshop.forms.clear()
    client.chat(tools=[WEATHER], tool_choice="required", parallel_tool_calls=True)
    assert json.loads(workshop.forms[0].source)["type"] == "array"


def test_a_named_call_streams_its_arguments(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = '{"city": "Bern"}'
    deltas, reason = streamed(client, tools=[CLOCK, WEATHER], tool_choice=NAMED)
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["function"].get("name") for call in calls] == ["weather", *[None] * (len(calls) - 1)]
    assert [call["id"] for call in calls if "id" in call] == [calls[0]["id"]]
    assert "".join(call["function"]["arguments"] for call in calls) == workshop.script and reason == "stop"
    assert json.loads(workshop.forms[0].source) == SCHEMA
    message = client.chat(tools=[WEATHER], tool_choice=NAMED, max_tokens=200).json["choices"][0]["message"]
    assert message["content"] is None and message["tool_calls"][0]["function"]["arguments"] == workshop.script


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools(client: Client, workshop: ServedWorkshop, mode: str) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": "clock"}}]}}
    ask = read_chat(Fields(chat_body(tools=[WEATHER, CLOCK], tool_choice=choice)))
    assert [tool.name for tool in ask.tooling.tools] == ["clock"] and (ask.params.grammar is not None) == (mode == "required")
    assert client.chat(tools=[WEATHER, CLOCK], tool_choice=choice).status == 200


def test_a_call_that_is_cut_short_stays_text(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = CALL
    choice = client.chat(tools=[WEATHER], max_tokens=5).json["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == CALL[:25]


def test_thinking_before_a_call(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = f"<think>rain?</think>\n{CALL}"
    deltas, reason = streamed(client, tools=[WEATHER])
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "rain?" and reason == "tool_calls"
    assert not "".join(delta.get("content") or "" for delta in deltas).strip()


def test_a_template_that_opens_the_thinking_itself(client: Client, workshop: ServedWorkshop) -> None:
    """The prompt ends in the mark, so that the answer begins within it."""
    workshop.script = "rain?</think>yes"
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>"}]
    message = client.chat(messages=messages, max_tokens=50).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("rain?", "yes")
    deltas, _ = streamed(client, messages=messages)
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "rain?"
    held = client.chat(messages=messages, max_tokens=50, response_format={"type": "json_object"}).json["choices"][0]["message"]
    assert held["content"] == workshop.script and "reasoning_content" not in held
