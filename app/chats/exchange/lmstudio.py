"""LM Studio's conversations: one `*.conversation.json` a chat, a list of messages with versions, answers in steps of content blocks."""

from __future__ import annotations

from typing import Any

from app.chats.exchange.records import BadEntry, Conversation, Turn, as_dict, as_list, as_role, as_text, as_time, sub_dict, sub_list
from app.chats.model import Role

SOURCE = "lmstudio"


def recognises(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("messages"), list):
        return False
    return any(isinstance(message, dict) and isinstance(message.get("versions"), list) for message in entry["messages"])


def read(entry: Any) -> Conversation:
    """One conversation. What followed a message followed the version that is selected. Raises BadEntry."""
    record = as_dict(entry, "the entry")
    turns: list[Turn] = []
    before: str | None = None
    created = as_time(record.get("createdAt"))
    for number, message in enumerate(as_list(record.get("messages"), "its list of messages")):
        versions = message.get("versions") if isinstance(message, dict) else None
        if not isinstance(versions, list) or not versions:
            continue
        chosen = message.get("currentlySelected")
        chosen = chosen if isinstance(chosen, int) and 0 <= chosen < len(versions) else len(versions) - 1
        after = before
        for place, version in enumerate(versions):
            turn = _turn(f"{number}.{place}", before, version, created)
            if turn is None:
                continue
            turns.append(turn)
            if place == chosen or after == before:
                after = turn.id
        before = after
    if not turns:
        raise BadEntry("it holds no messages")
    title = as_text(record.get("name"))
    identity = f"{title}/{record.get('createdAt')}/{turns[0].text[:200]}"
    return Conversation(
        SOURCE,
        identity,
        title,
        created,
        as_time(record.get("assistantLastMessagedAt")) or as_time(record.get("userLastMessagedAt")),
        system_prompt=as_text(record.get("systemPrompt")),
        pinned=record.get("pinned") is True,
        turns=turns,
        shown=before,
    )


def _turn(name: str, parent: str | None, version: Any, created: float) -> Turn | None:
    if not isinstance(version, dict):
        return None
    role = as_role(version.get("role"))
    if role is None:
        return None
    texts = [_content(version.get("content"))]
    steps = sub_list(version, "steps")
    texts += [_content(step.get("content")) for step in steps if isinstance(step, dict) and step.get("type") == "contentBlock"]
    sender = sub_dict(version, "senderInfo")
    model = as_text(sender.get("senderName")) if role is Role.ASSISTANT else ""
    return Turn(name, parent, role, "\n\n".join(text for text in texts if text), created, model)


def _content(blocks: Any) -> str:
    if not isinstance(blocks, list):
        return as_text(blocks)
    return "".join(as_text(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type", "text") == "text")
