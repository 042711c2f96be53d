"""A chat with one text in every place where somebody's words can stand, and the ids of a prompt that are control tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator

from engine.text.codec import Codec
from engine.types import Chat, Message, Tool, ToolCall

HARMLESS = "Hello"


def chats_with(text: str) -> Iterator[tuple[str, Chat]]:
    """(place, chat): `text` stands there, harmless words everywhere else."""
    user, answer = Message("user", HARMLESS), Message("assistant", HARMLESS)
    said = (user, answer, Message("user", HARMLESS))
    yield "user", Chat((Message("user", text),))
    yield "inside", Chat((Message("user", f"a{text}b"), answer, Message("user", f"{text}{text}")))
    yield "system", Chat((Message("system", text), *said))
    yield "assistant", Chat((user, Message("assistant", text), user))
    for place, tool, call, result in (
        ("result", Tool("look"), ToolCall("look", "{}", "call_1"), Message("tool", text, (), "call_1", "look")),
        ("name", Tool("look"), ToolCall("look", "{}", "call_1"), Message("tool", HARMLESS, (), "call_1", text)),
        ("id", Tool("look"), ToolCall("look", "{}", text), Message("tool", HARMLESS, (), text, "look")),
        ("call", Tool("look"), ToolCall(text, json.dumps({text: [text]}), "call_1"), Message("tool", HARMLESS, (), "call_1", "look")),
        ("tool", tool_of(text), ToolCall("look", "{}", "call_1"), Message("tool", HARMLESS, (), "call_1", "look")),
    ):
        yield place, Chat((user, Message("assistant", "", (call,)), result), (tool,))


def tool_of(text: str) -> Tool:
    schema = {"type": "object", "properties": {text: {"type": "string", "description": text, "enum": [text]}}}
    return Tool(text, text, json.dumps(schema))


def control_tokens(codec: Codec, chat: Chat) -> list[int]:
    """The control tokens of a prompt, in their order."""
    return [token_id for token_id in codec.encode_chat(chat) if token_id in codec.special_ids]


def forged(codec: Codec, text: str) -> list[str]:
    """The places where `text` changes which control tokens the prompt has; none, if the codec keeps its promise."""
    plain = dict(chats_with(HARMLESS))
    return [place for place, chat in chats_with(text) if control_tokens(codec, chat) != control_tokens(codec, plain[place])]
