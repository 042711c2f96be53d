"""Tools, their calls and their answers as chat templates want them, and as plain turns for models whose template knows of none.

The plain form is Hermes' (Nous Research): the tools stand in the system turn as JSON, a call is JSON between marks, and what a tool
gave back is a turn of the user between others. Owns no template and no tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

from engine.text import sound_json
from engine.types import Message, Tool, ToolCall

Item = TypeVar("Item", Message, Tool)

INSTRUCTION = (
    "You can call functions. They are listed here, one a line, as JSON:\n<tools>\n{tools}\n</tools>\n"
    "To call one, answer with nothing but its name and arguments as JSON between these marks:\n"
    '<tool_call>\n{{"name": "the name", "arguments": {{...}}}}\n</tool_call>'
)
CALL = '<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'
RESPONSE = "<tool_response>\n{content}\n</tool_response>"
_SHORT_ID = 9  # what Mistral's templates insist on


def texts_of(item: Message | Tool) -> Iterator[str]:
    """Every text in it that a caller wrote."""
    if isinstance(item, Tool):
        yield from (item.name, item.description, _plain(item.parameters))
        return
    yield from filter(None, (item.content, item.name, item.tool_call_id))
    for call in item.tool_calls:
        yield from (call.name, call.id, _plain(call.arguments))


def map_texts(item: Item, change: Callable[[str], str]) -> Item:
    """The same with every text changed, also those within its JSON."""
    if isinstance(item, Tool):
        parameters = _map_json(item.parameters, change)
        return replace(item, name=change(item.name), description=change(item.description), parameters=parameters)
    content, name, call_id = change(item.content), change(item.name), change(item.tool_call_id)
    if not item.tool_calls and (content, name, call_id) == (item.content, item.name, item.tool_call_id):
        return item  # making another takes longer than all the rest
    calls = tuple(ToolCall(change(call.name), _map_json(call.arguments, change), change(call.id)) for call in item.tool_calls)
    changed: Message = replace(item, content=content, name=name, tool_call_id=call_id, tool_calls=calls)
    return changed


def data_of(message: Message) -> dict[str, Any]:
    """A turn as templates know it: OpenAI's message, but that arguments are an object."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [_call_data(call) for call in message.tool_calls]
    if message.role == "tool":
        data |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return data


def data_of_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}


def call_ids(turns: Sequence[Message]) -> list[Message]:
    """The same turns with call ids of nine letters and digits."""

    def short(call_id: str) -> str:
        return blake2b(call_id.encode(), digest_size=8).hexdigest()[:_SHORT_ID]

    return [
        replace(
            turn,
            tool_call_id=short(turn.tool_call_id) if turn.role == "tool" else turn.tool_call_id,
            tool_calls=tuple(replace(call, id=short(call.id)) for call in turn.tool_calls),
        )
        for turn in turns
    ]


def folded(turns: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Plain turns that say the same: for a template without tools."""
    plain: list[Message] = []
    if tools:
        listed = "\n".join(json.dumps(data_of_tool(tool), ensure_ascii=False) for tool in tools)
        system = turns[0].content if turns and turns[0].role == "system" else ""
        turns = turns[1:] if system else turns
        plain.append(Message("system", f"{system}\n\n{INSTRUCTION.format(tools=listed)}".strip()))
    for turn in turns:
        if turn.role == "tool":
            plain.append(Message("user", RESPONSE.format(content=turn.content)))
        elif turn.tool_calls:
            calls = [CALL.format(name=json.dumps(call.name, ensure_ascii=False), arguments=call.arguments) for call in turn.tool_calls]
            plain.append(Message(turn.role, "\n".join([turn.content, *calls]).strip()))
        else:
            plain.append(turn)
    return plain


def _call_data(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = sound_json.read(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}}


def _plain(text: str) -> str:
    """JSON with its escapes undone, so that what they hide is seen; other text as it is."""
    try:
        return json.dumps(sound_json.read(text), ensure_ascii=False)
    except ValueError:
        return text


def _map_json(text: str, change: Callable[[str], str]) -> str:
    try:
        value = sound_json.read(text)
    except ValueError:
        return change(text)
    return json.dumps(_mapped(value, change), ensure_ascii=False)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    return value
