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
_RAW = "script|style|pre|textarea|title|xmp|iframe|noembed|noframes|plaintext"  # elements that have no others in them
_OPENER = re.compile(rf"<(?:(!--)|(\?)|(!\[CDATA\[)|(![a-z])|({_RAW})(?=[\s>]|$))", re.IGNORECASE)
_CLOSERS = ("-->", "?>", "]]>", ">")
MOST_PASSES = 50  # over a text that opens one comment after another


def dump(chats: Iterable[Chat]) -> str:
    """A document of these chats; what is in view first, other versions of a message after it."""
    return "\n\n---\n\n".join(document(chat) for chat in chats) + "\n"


def document(chat: Chat) -> str:
    parts = [f"# {escape(chat.display_title)}", f"*{moment(chat.created)}*"]
    if chat.settings.system_prompt.strip():
        parts.append(
            "\n".join(f"> {line}".rstrip() for line in ("**System prompt**", "", *closed(chat.settings.system_prompt).splitlines()))
        )
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
    """Text that does not swallow what follows when it was cut short: its last code fence is closed, and a comment of HTML (a script, ...)
    that has no end is shown as it was written."""
    text = _without_open_html(text)
    last = _PARSER.parse(f"{text}\n\n# What follows")[-1]  # the fence, if that takes even a heading for code
    return f"{text}\n{last.markup}" if last.type == "fence" else text


def _without_open_html(text: str) -> str:
    """Text with "&lt;" where HTML begins that has no end: a browser takes all behind it for that, whatever list or quote it stands in."""
    if not _OPENER.search(text):
        return text
    lines = re.split(r"\r\n?|\n", text)
    for _ in range(MOST_PASSES):
        for token in _PARSER.parse("\n".join(lines)):
            if token.type == "html_block" and token.map and (at := _open_at(token.content)) >= 0:
                before = token.content[:at].split("\n")
                number = token.map[0] + len(before) - 1
                behind = token.content[at:].split("\n")[0]  # a quote's or a list's mark stands before it
                start, found, end = lines[number].rpartition(behind)
                if not found:
                    return _shown(lines)
                lines[number] = f"{start}&lt;{found[1:]}{end}"
                break
        else:
            return "\n".join(lines)
    return _shown(lines)


def _shown(lines: list[str]) -> str:
    """Whatever could have no end, shown, also where it has one."""
    return _OPENER.sub(lambda opener: "&lt;" + opener[0][1:], "\n".join(lines))


def _open_at(content: str) -> int:
    """Where in a block of HTML something begins that has no end in it; -1 where all have."""
    at = 0
    while opener := _OPENER.search(content, at):
        kind = opener.lastindex or 0
        closer = _CLOSERS[kind - 1] if kind <= len(_CLOSERS) else f"</{opener[kind]}"
        at = content.lower().find(closer.lower(), opener.start() + 2)
        if at < 0:
            return opener.start()
    return -1


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
