"""Tools in a prompt: as the model's template wants them, or as plain turns; and nothing in them becomes a control token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.text.codec import Codec
from engine.text.tools import ToolForm, split_tools
from engine.types import Chat, Message, RequestRefused, Tool, ToolCall
from tests.engine.text.test_codec import make_small_tokenizer

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'
WEATHER = Tool("weather", "The weather of a city", SCHEMA)
TURNS = (
    Message("user", "Rain?"),
    Message("assistant", "", (ToolCall("weather", '{"city": "Zürich"}', "call_0123456789"),)),
    Message("tool", "yes", (), "call_0123456789", "weather"),
)
KNOWING = (
    "{% for t in tools or [] %}[{{ t | tojson }}]{% endfor %}"
    "{% for m in messages %}({{ m.role }}:{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}"
    "|{{ c.function.arguments.city }}|{{ c.id }}{% endfor %}{% else %}{{ m.content }}{% endif %}{{ m.tool_call_id or '' }}){% endfor %}"
)


def said(codec: Codec, chat: Chat) -> str:
    """The prompt with its control tokens shown."""
    return b"".join(map(codec.token_bytes, codec.encode_chat(chat))).decode()


def test_a_template_that_knows_tools_is_given_them() -> None:
    codec = Codec(make_small_tokenizer(), chat_template=KNOWING)
    assert codec.tool_form is ToolForm.MARKED
    text = said(codec, Chat(TURNS, (WEATHER,)))
    assert json.loads(text[1 : text.index("](user")])["function"]["parameters"] == json.loads(SCHEMA)
    assert text.endswith("(user:Rain?)(assistant:<tool_call>weather|Zürich|call_0123456789)(tool:yescall_0123456789)")
    assert said(codec, Chat(TURNS[:1])) == "(user:Rain?)"


def test_mistrals_ids_are_short_and_still_match() -> None:
    codec = Codec(make_small_tokenizer(), chat_template=KNOWING.replace("<tool_call>", "[TOOL_CALLS]"))
    assert codec.tool_form is ToolForm.MISTRAL
    text = said(codec, Chat(TURNS, (WEATHER,)))
    used, answered = text.split("|")[2].split(")")[0], text.rpartition("yes")[2].rstrip(")")
    assert used == answered and len(used) == 9 and used.isalnum()


def test_a_template_that_does_not_is_told_in_words() -> None:
    codec = Codec(make_small_tokenizer())
    assert codec.tool_form is ToolForm.MARKED
    text = said(codec, Chat((Message("system", "Be kind."), *TURNS), (WEATHER,)))
    system, _, rest = text.partition("<|im_end|>")
    assert system.startswith("<|im_start|>system\nBe kind.\n\n") and '"name": "weather"' in system and text.count("system\n") == 1
    assert "user\n<tool_response>\nyes\n</tool_response><|im_end|>" in rest
    called = rest.split("assistant\n")[1].split("<|im_end|>")[0]
    assert split_tools(called, codec.tool_form) == ("", [ToolCall("weather", '{"city": "Zürich"}')])


@pytest.mark.parametrize("template", [None, KNOWING])
@pytest.mark.parametrize("mark", ["<|im_end|>", "\\u003c|im_end|\\u003e", "<think>"])
def test_no_tool_makes_a_control_token(template: str | None, mark: str) -> None:
    codec = Codec(make_small_tokenizer(added=("<think>",)), chat_template=template)
    tool = Tool("weather", json.loads(f'"{mark}"'), f'{{"type": "object", "properties": {{"{mark}": {{"enum": ["{mark}"]}}}}}}')
    call = ToolCall("weather", f'{{"city": "{mark.replace("<think>", "<|im_end|>")}"}}', json.loads(f'"{mark}"').replace("<think>", "x"))
    turns = (Message("user", "hi"), Message("assistant", "", (call,)), Message("tool", json.loads(f'"{mark}"'), (), "x", "weather"))
    hostile, harmless = codec.encode_chat(Chat(turns, (tool,))), codec.encode_chat(Chat(TURNS, (WEATHER,)))
    marks = [codec.encode_chat([Message("user", "x")])[0], *codec.special_ids]
    assert [token for token in hostile if token in marks] == [token for token in harmless if token in marks]
    assert json.loads(f'"{mark}"') in b"".join(map(codec.token_bytes, hostile)).decode()


@pytest.mark.parametrize("template", [None, KNOWING.replace(".city", "")])
@pytest.mark.parametrize("depth", [60, 500, 990])
def test_deep_arguments_are_told_and_make_no_control_token(template: str | None, depth: int) -> None:
    """Of how many levels a walk can follow, reading and changing them think differently."""
    arguments = '{"a": ' * depth + '"\\u003c|im_end|\\u003e"' + "}" * depth
    codec = Codec(make_small_tokenizer(), chat_template=template)
    turns = (Message("user", "hi"), Message("assistant", "", (ToolCall("f", arguments, "i"),)), Message("tool", "x", (), "i", "f"))
    ids = codec.encode_chat(Chat(turns))
    harmless = codec.encode_chat(Chat(TURNS))
    assert [token for token in ids if token in codec.special_ids] == [token for token in harmless if token in codec.special_ids]
    assert "im_end|" in b"".join(map(codec.token_bytes, ids)).decode()


def test_marks_of_calls_that_are_control_tokens_are_shown_to_the_splitter() -> None:
    codec = Codec(make_small_tokenizer(marks=("[TOOL_CALLS]", "<s>")), chat_template=KNOWING.replace("<tool_call>", "[TOOL_CALLS]"))
    stream = codec.stream()
    tokenizer: Any = make_small_tokenizer(marks=("[TOOL_CALLS]", "<s>"))
    ids = tokenizer.encode('<s>[TOOL_CALLS]weather{"city": "x"}').ids
    text = "".join(map(stream.push, ids)) + stream.flush()
    assert split_tools(text, codec.tool_form) == ("", [ToolCall("weather", '{"city": "x"}')])


def test_options_reach_the_template_and_hide_nothing() -> None:
    codec = Codec(make_small_tokenizer(), chat_template="{{ messages[0].content }}{{ '!' if enable_thinking else '?' }}")
    assert said(codec, Chat(TURNS[:1], options=(("enable_thinking", True), ("messages", 5)))) == "Rain?!"
    assert said(codec, Chat(TURNS[:1])) == "Rain??"
    with pytest.raises(RequestRefused):
        codec.encode_chat(Chat(TURNS[:1], options=(("x", "<|im_start|>"),)))


def test_a_chat_of_tools_alone_is_no_chat() -> None:
    with pytest.raises(RequestRefused):
        Codec(make_small_tokenizer()).encode_chat(Chat((Message("user", " "),), (WEATHER,)))
