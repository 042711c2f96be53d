"""Chats as Markdown: a title, what was said under headings, other versions and attachments behind it, reasoning folded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from markdown_it import MarkdownIt

from app.chats.model import AnswerState, Chat, ChatMessage, Role
from engine import split_reasoning

SPEAKERS = {Role.USER: "You", Role.ASSISTANT: "Assistant"}
_PARSER = MarkdownIt("commonmark")


def dump(chats: Iterable[Chat]) -> str:
    """A document of these chats; what is in view first, other versions of a message after it."""
    return "\n\n---\n\n".join(document(chat) for chat in chats) + "\n"


def document(chat: Chat) -> str:
    parts = [f"# {escape(chat.display_title)}", f"*{moment(chat.created)}*"]
    if chat.settings.system_prompt.strip():
        parts.append("\n".join(f"> {line}".rstrip() for line in ("**System prompt**", "", *chat.settings.system_prompt.splitlines())))
    for message in chat.messages:
        parts += _message(message, "")
        versions = chat.tree.versions(message)
        if len(versions) > 1:
            for number, version in enumerate(versions, 1):
                if version is not message:
                    parts += _message(version, f", version {number} of {len(versions)}, not in view")
    return "\n\n".join(parts)


def _message(message: ChatMessage, remark: str) -> list[str]:
    name = SPEAKERS[message.role] + (f" ({escape(message.model)})" if message.model else "")
    parts = [f"## {name}{remark}"]
    for attachment in message.attachments:
        fence = fence_for(attachment.text)
        end = "" if attachment.text.endswith("\n") else "\n"
        parts.append(f"Attached: {escape(attachment.name)}\n\n{fence}\n{attachment.text}{end}{fence}")
    reasoning, text = split_reasoning(message.text) if message.role is Role.ASSISTANT else ("", message.text)
    if reasoning.strip():  # folded, as in the window; its tags would be swallowed by what shows the file
        parts.append(f"<details>\n<summary>{thought_words(message)}</summary>\n\n{closed(reasoning.strip())}\n\n</details>")
    if text:
        parts.append(closed(text.strip("\n")))
    if state := state_words(message):
        parts.append(f"*{state}*")
    return parts


def closed(text: str) -> str:
    """Text with its last code fence closed, so that an answer cut short does not swallow what follows."""
    last = _PARSER.parse(f"{text}\n\n# What follows")[-1]  # the fence, if that takes even a heading for code
    return f"{text}\n{last.markup}" if last.type == "fence" else text


def fence_for(text: str) -> str:
    """A fence longer than any in `text`."""
    return "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=2) if "```" in text else 3)


def state_words(message: ChatMessage) -> str:
    """What is to be said of an answer that is not complete."""
    return {
        AnswerState.STOPPED: "Stopped.",
        AnswerState.FAILED: "Failed" + (f": {message.error.message}" if message.error else "."),
        AnswerState.INTERRUPTED: "Cut off when the program ended.",
        AnswerState.RUNNING: "Still being written.",
    }.get(message.state, "")


def thought_words(message: ChatMessage) -> str:
    """The line above a model's reasoning."""
    return "Thoughts" if message.thought is None else f"Thought for {message.thought:.1f} s"


def moment(seconds: float) -> str:
    """A time for a person, in their own zone."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def escape(text: str) -> str:
    """A title or name that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))
