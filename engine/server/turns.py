"""The messages of a chat, read from a client's JSON."""

from __future__ import annotations

import re

from engine.server.fields import Fields
from engine.server.tooling import Tooling, read_calls
from engine.types import Chat, Message

MOST_MESSAGES = 4096
MOST_OPTIONS = 32
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
OTHER_MEDIA = ("image_url", "input_image", "input_audio", "file", "input_file")
_WORD = re.compile(r"[\w.-]{0,64}", re.ASCII)


def read_chat_prompt(fields: Fields, tooling: Tooling) -> Chat:
    """`messages` and `chat_template_kwargs`. Raises ApiError."""
    messages = tuple(read_message(item) for item in fields.objects("messages", MOST_MESSAGES))
    return Chat(messages, tooling.tools, read_options(fields))


def read_message(fields: Fields) -> Message:
    role = fields.raw("role")
    if role == "function":
        raise fields.unsupported("role", "use the role tool, which has taken its place.")
    if not isinstance(role, str) or role not in ROLES:
        raise fields.wrong("role", f"one of {', '.join(ROLES)}")
    content = fields.raw("content")
    if content is None and role != "assistant":
        raise fields.wrong("content", "a text or a list of text parts")
    calls = read_calls(fields) if role == "assistant" else ()
    answered = (fields.text("tool_call_id", 256) or "", fields.text("name", 256) or "") if role == "tool" else ("", "")
    return Message(ROLES[role], read_content(fields, content), calls, *answered)


def read_content(fields: Fields, content: object) -> str:
    """A text, or a list of text parts; null is none."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.wrong("content", "a text or a list of text parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in OTHER_MEDIA:
            raise fields.unsupported("content", f"this model reads text only, not {kind}.")
        if kind == "refusal":
            continue
        text = part.get("text") if isinstance(part, dict) and kind in ("text", "input_text", "output_text") else None
        if not isinstance(text, str):
            raise fields.wrong("content", 'a text or a list of {"type": "text", "text": ...}')
        texts.append(text)
    return "\n".join(texts)


def read_options(fields: Fields) -> tuple[tuple[str, bool | int | float | str], ...]:
    """`chat_template_kwargs`, vLLM's way to set a template's own variables (enable_thinking): plain values only."""
    inner = fields.inner("chat_template_kwargs")
    if inner is None:
        return ()
    if len(inner.value) > MOST_OPTIONS:
        raise fields.wrong("chat_template_kwargs", f"an object of at most {MOST_OPTIONS} values")
    options = []
    for name, value in inner.value.items():
        plain = isinstance(value, (bool, int, float)) or (isinstance(value, str) and bool(_WORD.fullmatch(value)))
        if not name.isidentifier() or name.startswith("_") or not plain:
            raise inner.wrong(name, "true, false, a number or a word")
        options.append((name, value))
    return tuple(options)
