"""ChatGPT's export: `conversations.json`, a list of conversations, each a tree of nodes under `mapping`.

Nodes may have no message; parts may be null, objects (images, files) or empty; tool calls, hidden system text and browsing results stand
between what was said. What was said is kept, with its versions; what stood between is passed over and the tree closes up.
"""

from __future__ import annotations

from typing import Any

from app.chats.exchange.records import BadEntry, Conversation, Turn, as_dict, as_id, as_role, as_text, as_time, sub_dict
from app.chats.model import Role

SOURCE = "chatgpt"


def recognises(entry: Any) -> bool:
    return isinstance(entry, dict) and "mapping" in entry


def read(entry: Any) -> Conversation:
    """One conversation. Raises BadEntry."""
    record = as_dict(entry, "the entry")
    mapping = as_dict(record.get("mapping"), "its mapping")
    turns: list[Turn] = []
    system = ""
    for key, value in mapping.items():
        node = value if isinstance(value, dict) else {}
        message = sub_dict(node, "message")
        author = sub_dict(message, "author")
        metadata = sub_dict(message, "metadata")
        role = as_role(author.get("role"))
        hidden = bool(metadata.get("is_visually_hidden_from_conversation")) or message.get("recipient", "all") not in ("all", None)
        text = "" if role is None or hidden else content_text(message.get("content"))
        if author.get("role") == "system" and not hidden and not system:
            system = content_text(message.get("content"))
        model = as_text(metadata.get("model_slug")) or (as_text(record.get("default_model_slug")) if role is Role.ASSISTANT else "")
        turns.append(Turn(key, as_id(node.get("parent")), role or Role.ASSISTANT, text, as_time(message.get("create_time")), model))
    if not turns:
        raise BadEntry("its mapping is empty")
    known = as_id(record.get("conversation_id")) or as_id(record.get("id"))
    identity = known or f"{as_text(record.get('title'))}/{as_time(record.get('create_time'))}/{turns[0].id}"
    conversation = Conversation(
        SOURCE,
        identity,
        as_text(record.get("title")),
        as_time(record.get("create_time")),
        as_time(record.get("update_time")),
        system_prompt=system.strip(),
        pinned=record.get("is_starred") is True,
        turns=turns,
    )
    conversation.shown = _last_said(as_id(record.get("current_node")), {turn.id: turn for turn in turns})
    return conversation


def content_text(content: Any) -> str:
    """The words of a message's content; what is no text is named in brackets, so that nothing vanishes silently."""
    if not isinstance(content, dict):
        return as_text(content)
    kind = content.get("content_type")
    if kind in ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"):
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n\n".join(text for part in parts if (text := _part_text(part)))
    text = as_text(content.get("text")) or as_text(content.get("result"))
    if kind == "code" and text:
        return f"```{as_text(content.get('language')).replace('unknown', '')}\n{text}\n```"
    return text


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if text := as_text(part.get("text")):
        return text
    kind = as_text(part.get("content_type")).split("_", 1)[0]
    return f"[{kind}]" if kind else ""


def _last_said(node: str | None, turns: dict[str, Turn]) -> str | None:
    """The last node on the way to the current one in which something was said."""
    seen: set[str] = set()
    while node is not None and node in turns and node not in seen:
        seen.add(node)
        if turns[node].text.strip():
            return node
        node = turns[node].parent
    return None
