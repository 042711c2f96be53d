"""Our own JSON: chats as they are, with every version of every message. What is written here is read back the same, but for the ids of
messages: these are made anew from the chat's, because a file must never be able to name a message of another chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from app.chats import sound
from app.chats.exchange.records import BadEntry, as_dict, as_id, as_list, as_text, as_time, stable_id, sub_dict, sub_list
from app.chats.model import AnswerState, Attachment, Chat, ChatMessage, Role
from app.chats.tree import ROOT
from engine import FinishReason, Sentence, TimeSplit, Usage

FORMAT = "omnibus-chats"
VERSION = 1
_PLAIN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def recognises(document: Any) -> bool:
    """The whole document, not an entry of it."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def entries(document: dict[str, Any]) -> list[Any]:
    """The chats of a document. Raises BadEntry for one of a newer version."""
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise BadEntry(Sentence("it was written by a newer Omnibus (version {0} of the format; this program knows {1})", version, VERSION))
    return as_list(document.get("chats"), "its list of chats")


def dump(chats: Iterable[Chat]) -> str:
    """A document of these chats."""
    return json.dumps({"format": FORMAT, "version": VERSION, "chats": [_chat(chat) for chat in chats]}, ensure_ascii=False, indent=1) + "\n"


def read(entry: Any) -> Chat:
    """One chat. Raises BadEntry."""
    record = as_dict(entry, "the entry")
    chat_id = as_id(record.get("id"))
    if chat_id is None:
        raise BadEntry("it has no id")
    if not _PLAIN_ID.fullmatch(chat_id):
        chat_id = stable_id("omnibus", chat_id)
    created = as_time(record.get("created"))
    chat = Chat(chat_id, as_text(record.get("title")), record.get("named") is True, created, as_time(record.get("updated")) or created)
    chat.pinned, chat.folder = record.get("pinned") is True, as_text(record.get("folder"))
    chat.settings = sound.settings(record.get("settings"))
    messages = [_message_from(value) for value in as_list(record.get("messages"), "its list of messages")]
    if len({message.id for message in messages}) != len(messages):
        raise BadEntry("two of its messages have the same id")
    if not messages:
        raise BadEntry("it holds no messages")
    new = {message.id: stable_id(chat_id, message.id) for message in messages} | {ROOT: ROOT}
    for place, message in enumerate(messages):
        message.place, message.id = place, new[message.id]
        message.parent = new.get(message.parent, "unknown") if message.parent is not None else None
    choices = sub_dict(record, "choices")
    named = {new[parent]: new[child] for parent, child in choices.items() if parent in new and isinstance(child, str) and child in new}
    chat.tree.load(messages, named)
    return chat


def _chat(chat: Chat) -> dict[str, Any]:
    return {
        "id": chat.id,
        "title": chat.title,
        "named": chat.named,
        "created": chat.created,
        "updated": chat.updated,
        "pinned": chat.pinned,
        "folder": chat.folder,
        "settings": asdict(chat.settings),
        "choices": chat.tree.choices,
        "messages": [_message(message) for message in chat.tree.everything()],
    }


def _message(message: ChatMessage) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": message.id,
        "parent": message.parent,
        "role": message.role.value,
        "text": message.text,
        "created": message.created,
        "state": (AnswerState.INTERRUPTED if message.running else message.state).value,
    }
    optional = {
        "reason": message.reason.value if message.reason else None,
        "model": message.model or None,
        "thought": message.thought,
        "attachments": [asdict(attachment) for attachment in message.attachments] or None,
        "usage": asdict(message.usage) if message.usage else None,
        "time": asdict(message.time) if message.time else None,
    }
    return record | {key: value for key, value in optional.items() if value is not None}


def _message_from(value: Any) -> ChatMessage:
    record = as_dict(value, "a message")
    message_id = as_id(record.get("id"))
    role, state, reason = (as_text(record.get(name)) for name in ("role", "state", "reason"))
    if message_id is None or role not in set(Role) or not isinstance(record.get("text"), str):
        raise BadEntry("a message has no id, no role or no text")
    attachments = sub_list(record, "attachments")
    return ChatMessage(
        message_id,
        Role(role),
        record["text"],
        created=as_time(record.get("created")),
        state=AnswerState(state) if state in set(AnswerState) and state != AnswerState.RUNNING else AnswerState.DONE,
        reason=FinishReason(reason) if reason in set(FinishReason) else None,
        usage=sound.record(Usage, record.get("usage")),
        time=sound.record(TimeSplit, record.get("time")),
        parent=as_id(record.get("parent")),
        attachments=tuple(_attachment(item) for item in attachments if isinstance(item, dict)),
        thought=sound.number(record.get("thought")),
        model=as_text(record.get("model")),
    )


def _attachment(record: dict[str, Any]) -> Attachment:
    return Attachment(as_text(record.get("name")), as_text(record.get("kind")) or "text", as_text(record.get("text")))
