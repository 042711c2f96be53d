"""The Responses API: items and typed events, calls, what is kept for the next turn, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.made_up_model import answer
from tests.engine.server.made_up_server import Client, ServedWorkshop

PATH = "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": SCHEMA}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


def body_of(**more: Any) -> dict[str, Any]:
    return {"model": "first", "input": "hi", "max_output_tokens": 8, "seed": 7, **more}


def ask(client: Client, **more: Any) -> Any:
    got = client.post(PATH, **body_of(**more))
    assert got.status == 200, got.body
    return got.json


def events_of(client: Client, **more: Any) -> list[Any]:
    with client.open_stream(PATH, **body_of(**more, stream=True)) as stream:
        lines = list(stream.lines())
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [line.removeprefix("event: ") for line in lines if line.startswith("event: ")] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def test_a_text(client: Client) -> None:
    got = ask(client, instructions="be kind", metadata={"a": "b"})
    (item,) = got["output"]
    assert item["content"][0]["text"] == answer("system:be kind;user:hi;", 7, 8) and item["role"] == "assistant"
    assert got["object"] == "response" and got["status"] == "incomplete" and got["metadata"] == {"a": "b"}
    assert got["incomplete_details"] == {"reason": "max_output_tokens"}
    assert got["usage"]["output_tokens"] == 8 and got["usage"]["input_tokens"] == len("system:be kind;user:hi;")


def test_a_streamed_text_is_the_whole_one(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = "<think>well</think>Good day to you."
    events = events_of(client, max_output_tokens=200)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == "Good day to you."
    assert "".join(event["delta"] for event in events if event["type"] == "response.reasoning_text.delta") == "well"
    whole = ask(client, max_output_tokens=200)
    told = events[-1]["response"]["output"]
    assert [(item["type"], item["content"], item["status"]) for item in told] == [
        (item["type"], item["content"], "completed") for item in whole["output"]
    ]


def test_calls_and_their_outputs(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = f"Let me look. {CALL}"
    events = events_of(client, tools=[WEATHER], max_output_tokens=200)
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    call = events[-1]["response"]["output"][1]
    assert done["arguments"] == call["arguments"] == '{"city": "Bern"}' and call["name"] == "weather" and call["status"] == "completed"
    workshop.script = ""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": call["call_id"], "name": "weather", "arguments": call["arguments"]},
        {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"},
    ]
    got = ask(client, input=items, tools=[WEATHER])
    assert got["output"][0]["content"][0]["text"] == answer('tool weather;user:hi;assistant:weather{"city": "Bern"};tool:rain;', 7, 8)


def test_a_named_call(client: Client, workshop: ServedWorkshop) -> None:
    workshop.script = '{"city": "Bern"}'
    got = ask(client, tools=[WEATHER], tool_choice={"type": "function", "name": "weather"}, max_output_tokens=99)
    assert got["status"] == "completed" and [(item["type"], item["arguments"]) for item in got["output"]] == [
        ("function_call", workshop.script)
    ]
    assert json.loads(workshop.forms[0].source) == SCHEMA


def test_a_schema(client: Client, workshop: ServedWorkshop) -> None:
    ask(client, text={"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}})
    assert json.loads(workshop.forms[0].source) == SCHEMA


def test_it_goes_on_from_what_is_kept(client: Client) -> None:
    first = ask(client, instructions="once")
    said = first["output"][0]["content"][0]["text"]
    second = ask(client, input="more", previous_response_id=first["id"])
    assert second["output"][0]["content"][0]["text"] == answer(f"user:hi;assistant:{said};user:more;", 7, 8)
    assert second["previous_response_id"] == first["id"]
    forgotten = ask(client, store=False)
    got = client.post(PATH, **body_of(previous_response_id=forgotten["id"]))
    assert (got.status, got.json["error"]["code"]) == (400, "previous_response_not_found")


def test_logprobs(client: Client) -> None:
    content = ask(client, include=["message.output_text.logprobs"], top_logprobs=1)["output"][0]["content"][0]
    assert "".join(item["token"] for item in content["logprobs"]) == content["text"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call"}]}, "input[0].name"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"text": {"format": {"type": "xml"}}}, "response_format.type"),
        ({"temperature": 9}, "temperature"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"reasoning": {"effort": "<|x|>"}}, "reasoning"),
        ({"reasoning": "much"}, "reasoning"),
        ({"text": "json"}, "text"),
        ({"tools": "all"}, "tools"),
        ({"tools": [1], "tool_choice": "none"}, "tools"),  # they are told again in the answer
        ({"include": 5}, "include"),
        ({"metadata": {"a": 1}, "store": "no"}, "store"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_nonsense_is_refused_by_name(client: Client, change: dict[str, Any], param: str, stream: bool) -> None:
    got = client.post(PATH, **body_of(**{**change, "stream": stream}))
    assert got.status == 400, got.body
    assert got.json["error"]["param"] == param and got.json["error"]["type"] == "invalid_request_error"


def test_usage_has_every_field_that_openais_document_requires(client: Client) -> None:
    usage = client.post("/v1/responses", input="hi", max_output_tokens=2).json["usage"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0} and usage["output_tokens"] == 2
