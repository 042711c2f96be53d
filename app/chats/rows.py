"""Chats and messages as database rows, and back. Damaged cells become defaults: one bad row must not hide a chat."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from app.chats.model import AnswerState, Chat, ChatMessage, ChatSettings, Role
from engine import ErrorInfo, FinishReason, TimeSplit, Usage

log = logging.getLogger(__name__)
T = TypeVar("T")

CHAT_COLUMNS = "id, title, named, created, updated, draft, follow_ups, settings, unread"
MESSAGE_COLUMNS = "id, chat_id, place, role, text, created, state, reason, usage, time, error"


def chat_row(chat: Chat) -> tuple[Any, ...]:
    return (
        chat.id,
        _text(chat.title),
        int(chat.named),
        chat.created,
        chat.updated,
        _text(chat.draft),
        json.dumps([_text(text) for text in chat.follow_ups]),
        json.dumps(asdict(chat.settings)),
        int(chat.unread),
    )


def chat_from(row: tuple[Any, ...]) -> Chat:
    """A chat without its messages."""
    chat_id, title, named, created, updated, draft, follow_ups, settings, unread = row
    queued = _read(follow_ups, list, [])
    return Chat(
        chat_id,
        title=title,
        named=bool(named),
        created=created,
        updated=updated,
        draft=draft,
        follow_ups=[str(text) for text in queued],
        settings=_read(settings, lambda values: _record(ChatSettings, values), ChatSettings()),
        unread=bool(unread),
    )


def message_row(chat_id: str, place: int, message: ChatMessage) -> tuple[Any, ...]:
    return (
        message.id,
        chat_id,
        place,
        message.role.value,
        _text(message.text),
        message.created,
        message.state.value,
        message.reason.value if message.reason else None,
        json.dumps(asdict(message.usage)) if message.usage else None,
        json.dumps(asdict(message.time)) if message.time else None,
        json.dumps(asdict(message.error)) if message.error else None,
    )


def message_from(row: tuple[Any, ...], streamed: str) -> ChatMessage:
    """A message, with the text that was streamed after its row was written. One that was running when the program ended is interrupted."""
    message_id, _, _, role, text, created, state, reason, usage, time, error = row
    known = _read_enum(AnswerState, state, AnswerState.DONE)
    return ChatMessage(
        message_id,
        _read_enum(Role, role, Role.ASSISTANT),
        text + streamed,
        created=created,
        state=AnswerState.INTERRUPTED if known is AnswerState.RUNNING else known,
        reason=_read_enum(FinishReason, reason, None) if reason else None,
        usage=_read(usage, lambda values: _record(Usage, values), None),
        time=_read(time, lambda values: _record(TimeSplit, values), None),
        error=_read(error, lambda values: _record(ErrorInfo, values), None),
    )


def _text(text: str) -> str:
    """Text that UTF-8 can hold: a lone half of a surrogate pair, which a paste may bring, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _record(kind: Callable[..., T], values: dict[str, Any]) -> T:
    """A dataclass from what of its fields is there; fields of a newer version are passed over."""
    names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def _read(cell: str | None, make: Callable[[Any], Any], default: Any) -> Any:
    if cell is None:
        return default
    try:
        return make(json.loads(cell))
    except (ValueError, TypeError):
        log.warning("a cell of the database could not be read; its default is used")
        return default


def _read_enum(kind: Any, value: str, default: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        return default
