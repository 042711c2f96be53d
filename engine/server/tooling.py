"""Tools in a request: which there are, whether the answer must call one, and the form that then holds it to a valid call.

Owns the meaning of `tools`, `tool_choice` and `parallel_tool_calls`. An answer that may call a tool is free text in which calls are
looked for; one that must is held to the JSON of a call by a grammar, so that also a very small model makes valid ones.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.server.errors import bad_request
from engine.server.fields import Fields
from engine.types import Grammar, GrammarKind, Tool, ToolCall

MOST_TOOLS = 128
MOST_CALLS = 8  # of an answer that must call, where several are asked for
LONGEST_TEXT = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Must(StrEnum):
    """What an answer has to do with the tools."""

    NOTHING = "nothing"  # it cannot call
    MAY = "may"
    CALL = "call"  # one of several
    NAMED = "named"  # the one; the answer is its arguments


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools of one request. Of several calls in an answer only the first counts unless `parallel`."""

    tools: tuple[Tool, ...] = ()
    must: Must = Must.NOTHING
    parallel: bool = True
    several: bool = False  # an answer that must call may make more than one

    def grammar(self) -> Grammar | None:
        """The form of an answer that must call."""
        if self.must is Must.NAMED:
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(_arguments(self.tools[0])))
        if self.must is not Must.CALL:
            return None
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": _arguments(tool)},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in self.tools
        ]
        call: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if self.several:
            call = {"type": "array", "items": call, "minItems": 1, "maxItems": MOST_CALLS}
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(call))


def read_tooling(fields: Fields) -> Tooling:
    """`tools`, `tool_choice` and `parallel_tool_calls` of a request. Raises ApiError."""
    functions, called = fields.raw("functions"), fields.raw("function_call")
    if functions and called != "none":
        raise fields.unsupported("functions", "use tools, which have taken their place.")
    choice = fields.raw("tool_choice")
    items = fields.objects("tools", MOST_TOOLS) if fields.raw("tools") else []
    if choice == "none":
        return Tooling()
    tools = [_tool(item) for item in items]
    if len({tool.name for tool in tools}) < len(tools):
        raise bad_request("Two tools have the same name.", "tools")
    parallel = fields.flag("parallel_tool_calls", True)
    several = fields.raw("parallel_tool_calls") is True
    if isinstance(choice, dict):
        return _chosen(fields, tools, parallel, several)
    if choice not in (None, "auto", "required"):
        raise fields.wrong("tool_choice", '"none", "auto", "required" or an object that names a function')
    if not tools:
        if choice == "required":
            raise bad_request("tool_choice is required, but there are no tools.", "tool_choice")
        return Tooling()
    if choice != "required":
        return Tooling(tuple(tools), Must.MAY, parallel)
    return Tooling(tuple(tools), Must.CALL, parallel, several)


def _chosen(fields: Fields, tools: list[Tool], parallel: bool, several: bool) -> Tooling:
    choice = Fields(fields.raw("tool_choice"), "tool_choice")
    kind = choice.raw("type")
    if kind == "allowed_tools":
        inner = choice.inner("allowed_tools") or choice
        allowed = {_named(item) for item in inner.objects("tools", MOST_TOOLS)}
        kept = tuple(tool for tool in tools if tool.name in allowed)
        mode = inner.raw("mode")
        if not kept or mode not in ("auto", "required"):
            raise fields.wrong("tool_choice", 'a list of the tools given, with the mode "auto" or "required"')
        return Tooling(kept, Must.MAY if mode == "auto" else Must.CALL, parallel, several and mode == "required")
    name = _named(choice) if kind == "function" else None
    wanted = [tool for tool in tools if tool.name == name]
    if not wanted:
        raise fields.wrong("tool_choice", "the name of one of the tools")
    return Tooling(tuple(wanted), Must.NAMED, parallel)


def _named(choice: Fields) -> str | None:
    """The function's name: within `function` in chats, beside `type` in responses."""
    inner = choice.inner("function") or choice
    return inner.text("name", 64)


def _tool(item: Fields) -> Tool:
    if item.raw("type") not in (None, "function"):
        raise item.unsupported("type", "only functions can be called here.")
    inner = item.inner("function") or item
    name = inner.text("name", 64)
    if not name or not _NAME.fullmatch(name):
        raise inner.wrong("name", "1 to 64 letters, digits, dots, dashes and underscores")
    parameters = inner.inner("parameters")
    schema = parameters.value if parameters is not None else {"type": "object", "properties": {}}
    return Tool(name, inner.text("description", LONGEST_TEXT) or "", json.dumps(schema, ensure_ascii=False))


def read_calls(fields: Fields) -> tuple[ToolCall, ...]:
    """`tool_calls` of an assistant's message."""
    if not fields.raw("tool_calls"):
        return ()
    calls = []
    for item in fields.objects("tool_calls", MOST_TOOLS):
        inner = item.inner("function")
        name = inner.text("name", 64) if inner is not None else None
        if inner is None or not name:
            raise item.wrong("function", "an object with a name and arguments")
        calls.append(ToolCall(name, inner.text("arguments", LONGEST_TEXT) or "{}", item.text("id", 256) or ""))
    return tuple(calls)


def _arguments(tool: Tool) -> dict[str, Any]:
    """Arguments are an object, also where a schema forgets to say so."""
    schema: dict[str, Any] = json.loads(tool.parameters)
    return {"type": "object", **schema} if "type" not in schema and "$ref" not in schema else schema
