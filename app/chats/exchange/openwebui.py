"""Open WebUI's export of chats: a list of records, each with a `chat` that holds the tree under `history` or a plain list."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from app.chats.exchange.records import BadEntry, Conversation, Turn, as_dict, as_id, as_role, as_text, as_time, sub_dict, sub_list
from app.chats.model import Role

SOURCE = "openwebui"
# How it stores what a model thought: folded, quoted line by line, and escaped as HTML.
_REASONING = re.compile(r'<details type="reasoning"[^>]*>\s*<summary>.*?</summary>(.*?)</details>\s*', re.DOTALL)


def recognises(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("chat"), dict) and bool({"history", "messages"} & entry["chat"].keys())


def read(entry: Any) -> Conversation:
    """One conversation. Raises BadEntry."""
    record = as_dict(entry, "the entry")
    chat = as_dict(record.get("chat"), "its chat")
    history = sub_dict(chat, "history")
    nodes = sub_dict(history, "messages")
    if nodes:
        turns = [turn for key, node in nodes.items() if (turn := _turn(key, node, None)) is not None]
        shown = as_id(history.get("currentId"))
    else:
        turns, before = [], None
        for number, node in enumerate(sub_list(chat, "messages")):
            turn = _turn(str(number), node, before)
            if turn is not None:
                turns.append(turn)
                before = turn.id
        shown = before
    if not turns:
        raise BadEntry("it holds no messages")
    title = as_text(chat.get("title")) or as_text(record.get("title"))
    identity = as_id(record.get("id")) or as_id(chat.get("id")) or f"{title}/{turns[0].id}"
    params = sub_dict(chat, "params")
    return Conversation(
        SOURCE,
        identity,
        title,
        as_time(record.get("created_at")) or as_time(chat.get("timestamp")),
        as_time(record.get("updated_at")),
        system_prompt=as_text(params.get("system")) or as_text(chat.get("system")),
        pinned=record.get("pinned") is True,
        turns=turns,
        shown=shown,
    )


def _turn(key: str, node: Any, before: str | None) -> Turn | None:
    if not isinstance(node, dict):
        return None
    name = as_id(node.get("id")) or key
    parent = as_id(node.get("parentId")) or before
    role = as_role(node.get("role"))
    models = node.get("models")
    model = as_text(node.get("model")) or (as_text(models[0]) if isinstance(models, list) and models and role is Role.ASSISTANT else "")
    text = as_text(node.get("content")) if role is not None else ""
    text = _REASONING.sub(_thoughts, text) if role is Role.ASSISTANT else text
    return Turn(name, parent, role or Role.ASSISTANT, text, as_time(node.get("timestamp")), model)


def _thoughts(found: re.Match[str]) -> str:
    lines = unescape(found.group(1)).strip().splitlines()
    return "<think>" + "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines) + "</think>\n\n"
