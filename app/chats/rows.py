"""Chats and messages as database rows, and back. Damaged cells become defaults: one bad row must not hide a chat.

What a damaged record holds may be of any type, whatever its table declares. Plain text is made storable by the store.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from app.chats import sound
from app.chats.cells import storable
from app.chats.model import AnswerState, Attachment, Chat, ChatMessage, ChatSettings, Role, Said, ScrollPlace
from engine import ErrorInfo, FinishReason, TimeSplit, Usage

log = logging.getLogger(__name__)

# The files of a draft have a statement of their own: they may be large, and a draft is saved with every key.
CHAT_COLUMNS = "id, title, named, created, updated, draft, follow_ups, settings, unread, choices, scroll, pinned, folder"
MESSAGE_COLUMNS = "id, chat_id, place, role, text, created, state, reason, usage, time, error, parent, attachments, thought, model"


def chat_row(chat: Chat) -> tuple[Any, ...]:
    return (
        chat.id,
        chat.title,
        int(chat.named),
        chat.created,
        chat.updated,
        chat.draft,
        json.dumps([_said_cell(said) for said in chat.follow_ups]),
        json.dumps(asdict(chat.settings)),
        int(chat.unread),
        json.dumps(chat.tree.choices),
        json.dumps(asdict(chat.scroll)) if chat.scroll else None,
        int(chat.pinned),
        chat.folder,
    )


def chat_from(row: tuple[Any, ...], draft_files: str | None = None) -> Chat:
    """A chat without its messages."""
    chat_id, title, named, created, updated, draft, follow_ups, settings, unread, _, scroll, pinned, folder = row
    return Chat(
        chat_id,
        title=text_of(title),
        named=bool(named),
        created=sound.moment(created),
        updated=sound.moment(updated),
        draft=text_of(draft),
        draft_files=attachments_from(draft_files),
        follow_ups=_read(follow_ups, lambda cells: [_said_from(cell) for cell in cells], []),
        settings=_read(settings, sound.settings, ChatSettings()),
        unread=bool(unread),
        scroll=_read(scroll, lambda values: sound.record(ScrollPlace, values), None),
        pinned=bool(pinned),
        folder=text_of(folder),
    )


def choices_from(row: tuple[Any, ...]) -> dict[str, str]:
    """Which versions of its messages a chat shows."""
    return _read(row[9], lambda choices: {str(parent): str(child) for parent, child in choices.items()}, {})


def attachments_cell(attachments: tuple[Attachment, ...]) -> str | None:
    if not attachments:
        return None
    return json.dumps([[storable(attachment.name), attachment.kind, storable(attachment.text)] for attachment in attachments])


def attachments_from(cell: str | None) -> tuple[Attachment, ...]:
    return _read(cell, lambda items: tuple(Attachment(str(name), str(kind), str(text)) for name, kind, text in items), ())


def message_row(chat_id: str, place: int, message: ChatMessage) -> tuple[Any, ...]:
    return (
        message.id,
        chat_id,
        place,
        message.role.value,
        message.text,
        message.created,
        message.state.value,
        message.reason.value if message.reason else None,
        json.dumps(asdict(message.usage)) if message.usage else None,
        json.dumps(asdict(message.time)) if message.time else None,
        json.dumps(asdict(message.error)) if message.error else None,
        message.parent,
        attachments_cell(message.attachments),
        message.thought,
        message.model,
    )


def message_from(row: tuple[Any, ...], streamed: str) -> ChatMessage:
    """A message, with the text that was streamed after its row was written. One that was running when the program ended is interrupted."""
    message_id, _, place, role, text, created, state, reason, usage, time, error, parent, attachments, thought, model = row
    known = _read_enum(AnswerState, state, AnswerState.DONE)
    return ChatMessage(
        message_id,
        _read_enum(Role, role, Role.ASSISTANT),
        text_of(text) + streamed,
        created=sound.moment(created),
        state=AnswerState.INTERRUPTED if known is AnswerState.RUNNING else known,
        reason=_read_enum(FinishReason, reason, None) if reason else None,
        usage=_read(usage, lambda values: sound.record(Usage, values), None),
        time=_read(time, lambda values: sound.record(TimeSplit, values), None),
        error=_read(error, lambda values: sound.record(ErrorInfo, values), None),
        parent=parent if isinstance(parent, str) else None,
        place=place if isinstance(place, int) else 0,
        attachments=attachments_from(attachments),
        thought=sound.number(thought),
        model=text_of(model),
    )


def text_of(cell: Any) -> str:
    """A cell that should hold text."""
    return cell if isinstance(cell, str) else ""


def _said_cell(said: Said) -> Any:
    return [storable(said.text), attachments_cell(said.attachments)] if said.attachments else storable(said.text)


def _said_from(cell: Any) -> Said:
    return Said(str(cell[0]), attachments_from(cell[1])) if isinstance(cell, list) else Said(str(cell))


def _read(cell: str | None, make: Callable[[Any], Any], default: Any) -> Any:
    if cell is None:
        return default
    try:
        return make(json.loads(cell))
    except Exception:  # it may hold anything that is JSON, or nothing that is
        log.warning("a cell of the database could not be read; its default is used")
        return default


def _read_enum(kind: Any, value: str, default: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        return default
