"""The items of a response (text, calls, reasoning) as they come about, and the events that tell of each change.

Owns the order: one item is open at a time, and is told whole when the next begins. Numbers no events and knows no request.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from engine.server.likelihoods import Spell, chat_logprobs
from engine.server.parts import CallPiece, Part, Thought
from engine.types import Message, TokenLogprob, ToolCall

Event = dict[str, Any]


class Items:
    """The output of one response."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        self._items: list[dict[str, Any]] = []
        self._open = False
        self._untold: list[TokenLogprob] = []
        self._call = -1

    def tell(self, logprobs: Sequence[TokenLogprob]) -> list[Event]:
        """Keep log-probabilities for the next text."""
        self._untold += logprobs
        return []

    def extend(self, part: Part) -> str:
        """The text of a part that is only more of the open item, with nothing else to tell: it was added, and `more` makes the event.
        "" for any other, which is left to `add`."""
        if isinstance(part, CallPiece):
            return ""
        kind, text = ("reasoning", part.text) if isinstance(part, Thought) else ("message", part)
        if self._untold or not self._is_open(kind):
            return ""
        self._items[-1]["content"][0]["text"] += text
        return text

    def more(self, text: str, told: list[dict[str, Any]]) -> Event:
        """What tells of more text of the open item."""
        delta: Event = {**self._place(), "content_index": 0, "delta": text}
        if self._is_open("reasoning"):
            return {"type": "response.reasoning_text.delta", **delta}
        return {"type": "response.output_text.delta", **delta, "logprobs": told}

    @property
    def open_id(self) -> str:
        return str(self._items[-1]["id"])

    def add(self, part: Part) -> list[Event]:
        if isinstance(part, CallPiece):
            return self._add_call(part)
        kind, text = ("reasoning", part.text) if isinstance(part, Thought) else ("message", part)
        if kind == "message" and not text.strip() and not self._is_open("message"):
            return []  # white space around calls and reasoning is no message
        events = []
        if not self._is_open(kind):
            events = [*self.close(), *self._begin(kind)]
        content = self._items[-1]["content"][0]
        content["text"] += text
        told = []
        if kind == "message":
            told = chat_logprobs(self._untold, self._spell)["content"]
            self._untold = []
            content["logprobs"] += told
        return [*events, self.more(text, told)]

    def close(self) -> list[Event]:
        """The open item is whole."""
        if not self._open:
            return []
        self._open = False
        item, place = self._items[-1], self._place()
        done: Event = {"type": "response.output_item.done", "output_index": place["output_index"], "item": item}
        item["status"] = "completed"
        if item["type"] == "function_call":
            told = {"name": item["name"], "arguments": item["arguments"]}
            return [{"type": "response.function_call_arguments.done", **place, **told}, done]
        content = item["content"][0]
        where = {**place, "content_index": 0}
        kind = "output_text" if item["type"] == "message" else "reasoning_text"
        logprobs = {"logprobs": content["logprobs"]} if kind == "output_text" else {}
        return [
            {"type": f"response.{kind}.done", **where, "text": content["text"], **logprobs},
            {"type": "response.content_part.done", **where, "part": content},
            done,
        ]

    def told(self) -> list[dict[str, Any]]:
        """All items so far, safe from what comes later."""
        return [{**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item) for item in self._items]

    def message(self) -> Message:
        """The answer as a turn of the chat that goes on from it; reasoning is not told again."""
        text = "".join(item["content"][0]["text"] for item in self._items if item["type"] == "message")
        calls = [item for item in self._items if item["type"] == "function_call"]
        return Message("assistant", text, tuple(ToolCall(call["name"], call["arguments"], call["call_id"]) for call in calls))

    def _add_call(self, part: CallPiece) -> list[Event]:
        events = []
        if part.index != self._call:
            self._call = part.index
            events = self.close()
            self._items.append(
                {
                    "type": "function_call",
                    "id": _new_id("fc"),
                    "call_id": part.id,
                    "name": part.name,
                    "arguments": "",
                    "status": "in_progress",
                }
            )
            self._open = True
            events.append({"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": dict(self._items[-1])})
        self._items[-1]["arguments"] += part.arguments
        return [*events, {"type": "response.function_call_arguments.delta", **self._place(), "delta": part.arguments}]

    def _begin(self, kind: str) -> list[Event]:
        self._open = True
        if kind == "message":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item: dict[str, Any] = {"type": "message", "id": _new_id("msg"), "role": "assistant", "status": "in_progress"}
        else:
            part = {"type": "reasoning_text", "text": ""}
            item = {"type": "reasoning", "id": _new_id("rs"), "summary": [], "status": "in_progress"}
        self._items.append({**item, "content": [part]})
        return [
            {"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **self._place(), "content_index": 0, "part": dict(part)},
        ]

    def _is_open(self, kind: str) -> bool:
        return self._open and self._items[-1]["type"] == kind

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
