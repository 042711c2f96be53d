"""Calls of tools are found in each form, however the stream is cut; what is no call stays text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tools import ToolCall, ToolForm, ToolSplitter, form_of, split_tools

WEATHER = '{"name": "weather", "arguments": {"city": "Zürich"}}'
CALL = ToolCall("weather", '{"city": "Zürich"}')
TAGGED = "<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>"


@pytest.mark.parametrize(
    ("form", "text", "said", "calls"),
    [
        (ToolForm.MARKED, f"<tool_call>\n{WEATHER}\n</tool_call>", "", [CALL]),
        (
            ToolForm.MARKED,
            f"Let me look.\n<tool_call>{WEATHER}</tool_call>\n<tool_call>{WEATHER}</tool_call>",
            "Let me look.",
            [CALL, CALL],
        ),
        (ToolForm.MARKED, f"<tool_call>{TAGGED}</tool_call>", "", [ToolCall("weather", '{"city": "Zürich", "days": 3}')]),
        (ToolForm.MARKED, f"<tool_call>{WEATHER}", "", [CALL]),
        (ToolForm.MARKED, "<tool_call>not json</tool_call> hm", "<tool_call>not json</tool_call> hm", []),
        (ToolForm.MARKED, "a < b and <tool", "a < b and <tool", []),
        (ToolForm.MISTRAL, f"[TOOL_CALLS][{WEATHER}]", "", [CALL]),
        (ToolForm.MISTRAL, '[TOOL_CALLS]weather[ARGS]{"city": "Zürich"}', "", [CALL]),
        (ToolForm.MISTRAL, '[TOOL_CALLS]weather{"city": "Zürich"}[TOOL_CALLS]weather{"city": "Zürich"}', "", [CALL, CALL]),
        (ToolForm.BARE, '{"name": "weather", "parameters": {"city": "Zürich"}}', "", [CALL]),
        (ToolForm.BARE, '<|python_tag|>{"name": "weather", "parameters": {"city": "Zürich"}}', "", [CALL]),
        (ToolForm.BARE, '{"temperature": 3}', '{"temperature": 3}', []),
        (ToolForm.BARE, f"Use this: {WEATHER}", f"Use this: {WEATHER}", []),
        (ToolForm.NONE, f"<tool_call>{WEATHER}</tool_call>", f"<tool_call>{WEATHER}</tool_call>", []),
    ],
)
def test_whole_answers(form: ToolForm, text: str, said: str, calls: list[ToolCall]) -> None:
    found_text, found = split_tools(text, form)
    assert found == calls
    assert found_text.strip() == said


DEEP = '{"a":' * 988 + "1" + "}" * 988  # which Python can read, and then not write


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", DEEP])
@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        (ToolForm.MARKED, '<tool_call>{"name": "f", "arguments": {"a": ', "}}</tool_call>"),
        (ToolForm.MISTRAL, '[TOOL_CALLS]f{"a": ', "}"),
        (ToolForm.MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": ', "}}]"),
        (ToolForm.BARE, '{"name": "f", "parameters": {"a": ', "}}"),
    ],
)
def test_arguments_that_no_client_could_read_stay_text(form: ToolForm, before: str, after: str, value: str) -> None:
    assert split_tools(before + value + after, form) == (before + value + after, [])


@pytest.mark.parametrize("value", ["NaN", "1e999", DEEP])
def test_a_tagged_parameter_that_is_no_json_is_a_text(value: str) -> None:
    _, (call,) = split_tools(f"<tool_call><function=f><parameter=a>{value}</parameter></function></tool_call>", ToolForm.MARKED)
    assert json.loads(call.arguments) == {"a": value}


PARTS = st.sampled_from(["<tool_call>", "</tool_call>", WEATHER, TAGGED, "[TOOL_CALLS]", "<tool", "text ", "\n", "{", "}", '{"a": 1}'])


@given(st.sampled_from(list(ToolForm)), st.lists(PARTS, max_size=8).map("".join), st.data())
def test_the_cut_of_the_stream_changes_nothing(form: ToolForm, text: str, data: st.DataObject) -> None:
    splitter = ToolSplitter(form)
    pieces: list[str | ToolCall] = []
    rest = text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        pieces += splitter.push(rest[:length])
        rest = rest[length:]
    pieces += splitter.flush()
    said, calls = split_tools(text, form)
    assert [p for p in pieces if isinstance(p, ToolCall)] == calls
    streamed = "".join(p for p in pieces if isinstance(p, str))
    assert "".join(streamed.split()) == "".join(said.split())
    for call in calls:
        assert isinstance(json.loads(call.arguments), dict)
    if not calls:
        assert streamed == text


def test_the_template_tells_the_form() -> None:
    assert form_of("{% if tools %}<tool_call>{% endif %}") is ToolForm.MARKED
    assert form_of("{% if tools %}[TOOL_CALLS]{% endif %}") is ToolForm.MISTRAL
    assert form_of("{% if tools %}<|python_tag|>{% endif %}") is ToolForm.BARE
    assert form_of("{{ messages }}") is ToolForm.NONE
