"""Finds the calls of tools in an answer, in the form that the model's own chat template teaches it.

Three forms cover the models that ride here: marked JSON (`<tool_call>{…}</tool_call>`: Hermes, Qwen and their kin, with Qwen
coder's tagged parameters inside), Mistral's `[TOOL_CALLS]`, and Llama's bare JSON object. What does not parse as a call is text
again: an answer is never lost to a bad guess. Works on a stream; owns the piece that may still become a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from engine.text import sound_json
from engine.types import ToolCall


class ToolForm(StrEnum):
    NONE = "none"
    MARKED = "marked"
    MISTRAL = "mistral"
    BARE = "bare"


def form_of(template: str) -> ToolForm:
    """The form that a chat template teaches, judged by the marks in it."""
    if "tools" not in template:
        return ToolForm.NONE
    if "<tool_call>" in template:
        return ToolForm.MARKED
    if "[TOOL_CALLS]" in template:
        return ToolForm.MISTRAL
    if "<|python_tag|>" in template or '"parameters"' in template:
        return ToolForm.BARE
    return ToolForm.NONE


_OPENERS = {ToolForm.MARKED: "<tool_call>", ToolForm.MISTRAL: "[TOOL_CALLS]"}
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>")  # tokens that the splitter must get to see
_TAGGED = re.compile(r"<function=([^>\n]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_MISTRAL_CALL = re.compile(r"\s*([\w.\-]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)")


class ToolSplitter:
    """Splits a stream into text (str) and calls (ToolCall), in order."""

    def __init__(self, form: ToolForm) -> None:
        self._form = form
        self._pending = ""
        self._text_seen = False

    def push(self, text: str) -> Iterator[str | ToolCall]:
        """What is certain by now."""
        self._pending += text
        if self._form is ToolForm.NONE:
            yield from self._say(len(self._pending))
        elif self._form is ToolForm.BARE:
            yield from self._bare()
        else:
            yield from self._marked(last=False)

    def flush(self) -> Iterator[str | ToolCall]:
        """The rest, at the end of the answer."""
        if self._form is ToolForm.BARE:
            calls = _parse_calls(self._pending.strip().removeprefix("<|python_tag|>").strip())
            if calls and not self._text_seen:
                self._pending = ""
                yield from calls
        elif self._form is not ToolForm.NONE:
            yield from self._marked(last=True)
        yield from self._say(len(self._pending))

    def _say(self, length: int) -> Iterator[str]:
        text, self._pending = self._pending[:length], self._pending[length:]
        if text:
            self._text_seen = self._text_seen or bool(text.strip())
            yield text

    def _bare(self) -> Iterator[str]:
        """A whole answer is a call or it is not: hold it back while it may be one."""
        start = self._pending.lstrip()
        may_be = not start or start[0] in "{[" or "<|python_tag|>".startswith(start[:14]) or start.startswith("<|python_tag|>")
        if self._text_seen or not may_be:
            yield from self._say(len(self._pending))

    def _marked(self, last: bool) -> Iterator[str | ToolCall]:
        opener = _OPENERS[self._form]
        while self._pending:
            at = self._pending.find(opener)
            if at < 0:
                keep = 0 if last else _partial(self._pending, opener)
                yield from self._say(len(self._pending) - keep)
                return
            yield from self._say(len(self._pending[:at].rstrip()) if self._pending[:at].strip() else 0)
            at = self._pending.find(opener)
            found = self._body(self._pending[at + len(opener) :], last)
            if found is None:
                return  # not complete yet
            calls, used = found
            if not calls:
                yield from self._say(at + len(opener))  # not a call: say the mark and look on behind it
                continue
            self._pending = self._pending[at + len(opener) + used :]
            yield from calls

    def _body(self, body: str, last: bool) -> tuple[list[ToolCall], int] | None:
        """(calls, characters used) behind an opener; ([], 0) when it is no call; None while more is needed."""
        if self._form is ToolForm.MARKED:
            end = body.find("</tool_call>")
            if end < 0:
                return (_parse_calls(body), len(body)) if last else None
            return _parse_calls(body[:end]), end + len("</tool_call>")
        if not last:  # Mistral does not mark the end of its calls: they run to the end of the answer
            return None
        return _parse_mistral(body), len(body)


def _partial(text: str, mark: str) -> int:
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


def _parse_calls(body: str) -> list[ToolCall]:
    """JSON of one call or a list of calls, or Qwen coder's tags; [] when it is neither."""
    tagged = [_tagged_call(name, inner) for name, inner in _TAGGED.findall(body)]
    if tagged:
        return tagged
    try:
        value = sound_json.read(body)
    except ValueError:
        return []
    calls = [_call(item) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if calls and all(calls) else []


def _parse_mistral(body: str) -> list[ToolCall]:
    calls = _parse_calls(body)
    place = 0
    while not calls or place:
        match = _MISTRAL_CALL.match(body, place)
        if match is None:
            break
        try:
            arguments, place = sound_json.DECODER.raw_decode(body, match.end())
            sound_json.check(arguments)
        except (ValueError, RecursionError):
            break
        calls.append(ToolCall(match.group(1), json.dumps(arguments, ensure_ascii=False)))
        place = body.find("[TOOL_CALLS]", place) + len("[TOOL_CALLS]") if "[TOOL_CALLS]" in body[place:] else 0
        if not place:
            break
    return calls


def _tagged_call(name: str, inner: str) -> ToolCall:
    arguments = {key.strip(): _value(text) for key, text in _PARAMETER.findall(inner)}
    return ToolCall(name.strip(), json.dumps(arguments, ensure_ascii=False))


def _value(text: str) -> Any:
    try:
        return sound_json.read(text)
    except ValueError:
        return text


def _call(item: Any) -> ToolCall | None:
    if not isinstance(item, dict):
        return None
    item = item.get("function", item) if isinstance(item.get("function"), dict) else item
    name = item.get("name")
    arguments = item.get("arguments", item.get("parameters", {}))
    if not isinstance(name, str) or not name:
        return None
    if isinstance(arguments, str):
        try:
            arguments = sound_json.read(arguments)
        except ValueError:
            return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None


def split_tools(text: str, form: ToolForm) -> tuple[str, Sequence[ToolCall]]:
    """(text, calls) of a whole answer."""
    splitter = ToolSplitter(form)
    pieces = [*splitter.push(text), *splitter.flush()]
    return "".join(p for p in pieces if isinstance(p, str)), [p for p in pieces if isinstance(p, ToolCall)]
