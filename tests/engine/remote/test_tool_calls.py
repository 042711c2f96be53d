"""Calls of tools in a server's stream reach the chat as those of a model here do: as text between the model's own marks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.remote.calls import Calls
from engine.remote.remote import RemoteEngine
from engine.text.tools import ToolForm, ToolSplitter
from engine.types import Chat, EngineError, FinishReason, Message, Tool, ToolCall
from tests.engine.made_up_model import read
from tests.engine.remote.scripted import CHAT, Request, ScriptedServer, end_of, text_of

TOOL = Tool("weather", "Tells the weather", '{"type":"object","properties":{"city":{"type":"string"}}}')


def delta(index: int | None = None, name: str = "", arguments: Any = "", **more: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {**place, "function": {**({"name": name} if name else {}), "arguments": arguments}, **more}


def found(text: str) -> list[str | ToolCall]:
    """As the answer of a model here is taken apart."""
    splitter = ToolSplitter(ToolForm.MARKED)
    return [*splitter.push(text), *splitter.flush()]


def script_of(*pieces: dict[str, Any], finish: str | None = "tool_calls", before: str = "") -> Callable[[Request], None]:
    def script(request: Request) -> None:
        request.begin()
        if before:
            request.piece(before)
        for piece in pieces:
            request.piece(tool_calls=[piece])
        if finish is not None:
            request.piece(finish=finish)
            request.raw("data: [DONE]\n\n")

    return script


def test_what_is_asked_and_what_comes_back(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    pieces = (delta(0, "weather", "", id="call_1"), delta(0, arguments='{"city":'), delta(0, arguments=' "Bern"}'))
    server.scripts = [script_of(*pieces, before="Let me look.\n")]
    events = read(make_engine(server.url).submit(Chat(tuple(CHAT), (TOOL,), (("enable_thinking", False),))))
    assert found(text_of(events)) == ["Let me look.", ToolCall("weather", '{"city": "Bern"}')]
    end = end_of(events)
    assert end.reason is FinishReason.STOP and end.usage.completion_tokens == 4
    body = server.requests[0].body
    assert body["tools"] == [
        {"type": "function", "function": {"name": "weather", "description": TOOL.description, "parameters": json.loads(TOOL.parameters)}}
    ]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_the_round_trip_of_a_call(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    turns = (*CHAT, Message("assistant", "", (ToolCall("weather", "{}", "c1"),)), Message("tool", "rain", (), "c1", "weather"))
    assert text_of(read(make_engine(server.url).submit(Chat(turns, (TOOL,))))) == "Hello"
    *_, call, answer = server.requests[0].body["messages"]
    assert call["tool_calls"] == [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    assert answer == {"role": "tool", "content": "rain", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ([delta(0, "a", "{}"), delta(1, "b", '{"x": 1}')], [("a", "{}"), ("b", '{"x": 1}')]),
        ([delta(0, "a"), delta(0, arguments="{"), delta(0, arguments="}"), delta(1, "a"), delta(1, arguments="{}")], [("a", "{}")] * 2),
        ([delta(0, "a", "{}"), delta(0, "b", "{}")], [("a", "{}"), ("b", "{}")]),  # as some servers number them
        ([delta(None, "a", "{"), delta(None, arguments="}"), delta(None, "b", "{}")], [("a", "{}"), ("b", "{}")]),
        ([delta(0, "a")], [("a", "{}")]),
        ([delta(0, "a", {"x": "é"})], [("a", '{"x": "é"}')]),
        ([delta(0, 'we"ird', "{}")], [('we"ird', "{}")]),
    ],
)
def test_forms_in_which_calls_come(pieces: list[dict[str, Any]], wanted: list[tuple[str, str]]) -> None:
    calls = Calls()
    text = "".join(calls.push([piece]) for piece in pieces) + calls.end()
    got = [item for item in found(text) if isinstance(item, ToolCall)]
    assert [(call.name, call.arguments) for call in got] == wanted
    assert not "".join(item for item in found(text) if isinstance(item, str)).strip()
    assert calls.end() == calls.broken() == ""


@pytest.mark.parametrize("deltas", [None, 7, "x", [], [None], [{}], [{"function": None}], [{"function": {}}]])
def test_what_is_no_call_is_passed_over(deltas: Any) -> None:
    calls = Calls()
    assert calls.push(deltas) + calls.end() == ""


def test_a_call_that_is_no_text() -> None:
    with pytest.raises(EngineError) as caught:
        Calls().push([{"function": {"name": ["x"], "arguments": ""}}])
    assert caught.value.code == "remote_nonsense"


def test_a_call_that_breaks_off_is_kept_and_is_none(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    server.scripts = [script_of(delta(0, "weather"), delta(0, arguments='{"city": "Be'), finish=None)]
    events = read(make_engine(server.url).submit(CHAT))
    end = end_of(events)
    assert end.error is not None and end.error.code == "stream_cut" and "after 2 pieces" in end.error.message
    assert '{"city": "Be' in text_of(events) and not [item for item in found(text_of(events)) if isinstance(item, ToolCall)]
    assert len(server.requests) == 1, "what had begun is not asked for again"


def test_thinking_ends_where_a_call_begins(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.piece(reasoning_content="hm")
        request.piece(tool_calls=[delta(0, "weather", "{}")])
        request.piece(finish="tool_calls")

    server.scripts = [script]
    text = text_of(read(make_engine(server.url).submit(CHAT)))
    assert text.startswith("<think>\nhm\n</think>\n\n<tool_call>") and ToolCall("weather", "{}") in found(text)
