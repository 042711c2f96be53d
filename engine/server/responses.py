"""OpenAI's Responses API: its requests read into the same asks as a chat's, its answers told as items and typed events.

What was answered is kept in memory, a bounded number of chats by key, so that `previous_response_id` goes on from it; nothing is written
to disk, and a restart forgets. What would need a service behind it (background runs, conversations, hosted tools) is refused by name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.server.asks import MOST_TOKENS, Ask, about, make_ask, with_tooling
from engine.server.errors import ApiError, bad_request
from engine.server.fields import Fields
from engine.server.items import Items
from engine.server.parts import Parts
from engine.server.replies import Chunk, NumberedTemplate
from engine.server.shapes import Heading, Said
from engine.server.tooling import read_tooling
from engine.server.turns import MOST_MESSAGES, read_content, read_message
from engine.types import Chat, FinishedEvent, FinishReason, Message, TokensEvent, ToolCall

MOST_KEPT = 256  # chats that `previous_response_id` can go on from
SAME = (
    *("temperature", "top_p", "seed", "user", "stream", "stop", "logit_bias", "min_p", "top_k", "cache_salt", "session_id", "reproducible"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos", "min_tokens", "stop_token_ids"),
)
TOLD_AGAIN = ("instructions", "metadata", "temperature", "top_p", "max_output_tokens", "previous_response_id", "user")


class KeptChats:
    """What was said in the last responses, by (key of the client, response id). Safe from several threads."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._chats: OrderedDict[tuple[bytes, str], tuple[Message, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: bytes, response_id: str, messages: tuple[Message, ...]) -> None:
        with self._lock:
            self._chats[key, response_id] = messages
            while len(self._chats) > self._most:
                self._chats.popitem(last=False)

    def get(self, key: bytes, response_id: str) -> tuple[Message, ...]:
        """Raises ApiError 400 for one that is not there, or another client's."""
        with self._lock:
            messages = self._chats.get((key, response_id))
        if messages is None:
            message = "There is no response of that id: this server keeps the last ones in memory only. Send the whole conversation."
            raise bad_request(message, "previous_response_id", "previous_response_not_found")
        return messages


def read_response(fields: Fields, kept: KeptChats, key: bytes) -> Ask:
    """The body of /v1/responses. Raises ApiError."""
    for name in ("background", "conversation", "prompt"):
        if fields.raw(name):
            raise fields.unsupported(name, "this server answers one request at a time, from what stands in it.")
    fields.flag("store")
    body = {name: fields.raw(name) for name in SAME}
    body["response_format"] = _format(fields)
    tooling = read_tooling(fields)
    earlier = fields.text("previous_response_id", 256)
    instructions = fields.text("instructions", 2**20)
    turns = [Message("system", instructions)] if instructions else []
    turns += kept.get(key, earlier) if earlier else ()
    chat = Chat((*turns, *_input(fields)), tooling.tools, _options(fields))
    logprobs = fields.integer("top_logprobs", 0, 20)
    if logprobs is None and "message.output_text.logprobs" in fields.texts("include", 16, 256):
        logprobs = 0
    ask = make_ask(Fields(body), [chat], fields.integer("max_output_tokens", 1, MOST_TOKENS), about(chat), logprobs)
    return with_tooling(ask, tooling)


def _format(fields: Fields) -> Any:
    """`text.format` as chats have it: there the schema stands one level deeper."""
    inner = fields.inner("text")
    form = inner.raw("format") if inner is not None else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": form}
    return form


def _options(fields: Fields) -> tuple[tuple[str, str], ...]:
    inner = fields.inner("reasoning")
    effort = inner.text("effort", 16) if inner is not None else None
    if effort and not effort.isalpha():
        raise fields.wrong("reasoning", "an object with an effort of one word")
    return (("reasoning_effort", effort),) if effort else ()


def _input(fields: Fields) -> list[Message]:
    value = fields.raw("input")
    if isinstance(value, str) and value:
        return [Message("user", value)]
    return [message for item in fields.objects("input", MOST_MESSAGES) for message in _item(item)]


def _item(item: Fields) -> list[Message]:
    """The turns of one item: one, or none for what a template cannot tell."""
    match item.raw("type"):
        case None | "message":
            return [read_message(item)]
        case "function_call":
            name = item.text("name", 64)
            if not name:
                raise item.wrong("name", "the name of a function")
            return [Message("assistant", "", (ToolCall(name, item.text("arguments", 2**20) or "{}", item.text("call_id", 256) or ""),))]
        case "function_call_output":
            return [Message("tool", read_content(item, item.raw("output")), (), item.text("call_id", 256) or "")]
        case "reasoning":
            return []
    raise item.unsupported("type", "items here are messages, function calls, their outputs and reasoning.")


class ResponseShape:
    """response: items whole, or typed events for every piece of them.

    Args:
        fields: the request, of which some is told again.
        keep: called with the whole chat at its end.
    """

    last_line = b""  # the last event says that it is the last

    def __init__(self, heading: Heading, fields: Fields, keep: Callable[[tuple[Message, ...]], None]) -> None:
        self._heading = heading
        self._fields = fields
        self._keep = keep
        self._number = -1
        self._template: tuple[str, NumberedTemplate] | None = None  # of the item of this id
        self._items = Items(heading.spell)
        self._parts = Parts(heading.ask.tooling, heading.tool_form)

    def begin(self, choice: int, thinking: bool, prompt_ids: Sequence[int]) -> None:
        ask, heading = self._heading.ask, self._heading
        self._parts = Parts(ask.tooling, heading.tool_form, thinking, ask.params.grammar is not None, heading.spell)

    def opening(self, choice: int) -> list[dict[str, Any]]:
        response = self._response("in_progress")
        return self._numbered([{"type": "response.created", "response": response}, {"type": "response.in_progress", "response": response}])

    def pieces(self, choice: int, said: Said | TokensEvent, last: bool) -> list[Chunk]:
        self._items.tell(said.logprobs)
        chunks: list[Chunk] = []
        for part in self._parts.push(said.text, last, said.token_ids):
            if more := self._items.extend(part):
                chunks.append(self._quick(more))
            else:
                chunks += self._numbered(self._items.add(part))
        return chunks

    def _quick(self, text: str) -> bytes:
        """More text of the open item."""
        if self._template is None or self._template[0] != self._items.open_id:
            made = NumberedTemplate(lambda mark, number: {**self._items.more(mark, []), "sequence_number": number})
            self._template = self._items.open_id, made
        self._number += 1
        return self._template[1].fill(text, self._number)

    def closing(self, choice: int, reason: FinishReason) -> list[dict[str, Any]]:
        return []

    def ending(self, ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> list[dict[str, Any]]:
        events = self._items.close()
        status = self._end(ends)
        events.append({"type": f"response.{status}", "response": self._response(status, usage)})
        return self._numbered(events)

    def failure(self, error: ApiError) -> dict[str, Any]:
        (event,) = self._numbered([{"type": "error", "code": error.code, "message": error.message, "param": error.param}])
        return event

    def whole(self, said: Sequence[Said], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]:
        self._items.tell(said[0].logprobs)
        for part in self._parts.push(said[0].text, True, said[0].token_ids):
            self._items.add(part)
        self._items.close()
        return self._response(self._end(ends), usage)

    def _end(self, ends: Mapping[int, FinishedEvent]) -> str:
        (prompt,) = self._heading.ask.prompts
        if isinstance(prompt, Chat) and self._fields.flag("store", True):
            told = [message for message in prompt.messages if message.role != "system"]  # instructions hold for one response only
            self._keep((*told, self._items.message()))
        return "completed" if ends[0].reason is FinishReason.STOP else "incomplete"

    def _numbered(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        numbered = []
        for event in events:
            self._number += 1
            numbered.append({**event, "sequence_number": self._number})
        return numbered

    def _response(self, status: str, usage: dict[str, Any] | None = None) -> dict[str, Any]:
        raw, heading = self._fields.raw, self._heading
        told = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},  # of a cache that is paid for
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._parts.thought},
            "total_tokens": usage["total_tokens"],
        } if usage is not None else None  # fmt: skip
        return {
            "id": heading.id,
            "object": "response",
            "created_at": heading.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            **{name: raw(name) for name in TOLD_AGAIN},
            "model": heading.model,
            "output": self._items.told(),
            "parallel_tool_calls": raw("parallel_tool_calls") is not False,
            "reasoning": {"effort": None, "summary": None, **(raw("reasoning") or {})},
            "store": raw("store") is not False,
            "text": {"format": {"type": "text"}, **(raw("text") or {})},
            "tool_choice": raw("tool_choice") or "auto",
            "tools": [{"strict": None, "description": None, "parameters": None, **tool} for tool in raw("tools") or ()],
            "truncation": "disabled",
            "usage": told,
        }
