"""Jan's threads: a folder each, with `thread.json` and one message a line in `messages.jsonl`."""

from __future__ import annotations

from typing import Any

from app.chats.exchange.records import BadEntry, Conversation, Turn, as_dict, as_id, as_role, as_text, as_time, sub_dict, sub_list
from app.chats.model import Role

SOURCE = "jan"


def recognises(entry: Any) -> bool:
    """An entry is {"thread": thread.json, "messages": the lines}, as the file reader puts them together."""
    return isinstance(entry, dict) and "thread" in entry and isinstance(entry.get("messages"), list)


def read(entry: Any) -> Conversation:
    """One thread. Raises BadEntry."""
    record = as_dict(entry, "the entry")
    thread = sub_dict(record, "thread")
    lines = [line for line in record["messages"] if isinstance(line, dict)]
    lines.sort(key=lambda line: as_time(line.get("created_at")))  # stable: equal times keep their order in the file
    turns: list[Turn] = []
    for number, line in enumerate(lines):
        role = as_role(line.get("role"))
        if role is None:
            continue
        name = as_id(line.get("id")) or str(number)
        metadata = sub_dict(line, "metadata")
        model = as_text(metadata.get("model_id")) if role is Role.ASSISTANT else ""
        turns.append(
            Turn(name, turns[-1].id if turns else None, role, _content(line.get("content")), as_time(line.get("created_at")), model)
        )
    if not turns:
        raise BadEntry("it holds no messages")
    assistants = sub_list(thread, "assistants")
    first = assistants[0] if assistants and isinstance(assistants[0], dict) else {}
    title = as_text(thread.get("title")) or as_text(thread.get("summary"))
    return Conversation(
        SOURCE,
        as_id(thread.get("id")) or as_id(lines[0].get("thread_id")) or f"{title}/{turns[0].id}",
        title,
        as_time(thread.get("created")),
        as_time(thread.get("updated")),
        system_prompt=as_text(first.get("instructions")),
        pinned=thread.get("isFavorite") is True,
        turns=turns,
    )


def _content(blocks: Any) -> str:
    if not isinstance(blocks, list):
        return as_text(blocks)
    texts = []
    for block in blocks:
        text = block.get("text") if isinstance(block, dict) else None
        texts.append(as_text(text.get("value")) if isinstance(text, dict) else as_text(text))
    return "\n\n".join(text for text in texts if text)
