"""What every importer makes of a foreign conversation: plain records, checked, and turned into a chat only when they are whole.

A foreign file is untrusted: its types may be anything. The helpers here take any value and give text, a time, or refuse by BadEntry.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.chats.model import Chat, ChatMessage, ChatSettings, Role
from app.chats.sound import moment
from app.chats.titles import title_from
from engine import Sentence

_NAMESPACE = uuid.UUID("6f6d6e69-6275-7300-8000-000000000001")
_MILLISECONDS = 1e11  # seconds since 1970 stay below it for 3,000 years; what is larger is milliseconds, or finer


class BadEntry(Exception):
    """A conversation that cannot be taken over. `args[0]` says why, for a person."""


@dataclass(slots=True)
class Turn:
    """One message of a foreign conversation. `parent` is the id of the turn before it, None for a first one."""

    id: str
    parent: str | None
    role: Role
    text: str
    created: float = 0.0
    model: str = ""


@dataclass(slots=True)
class Conversation:
    """A foreign conversation: turns in any order, of which `shown` is the last one in view (None: the newest)."""

    source: str
    id: str
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    system_prompt: str = ""
    pinned: bool = False
    turns: list[Turn] = field(default_factory=list)
    shown: str | None = None

    def to_chat(self, now: float) -> Chat:
        """A chat of ours. Its id follows from the foreign one, so that the same file imported twice is recognised. Raises BadEntry."""
        turns = [turn for turn in ordered(self.turns) if turn.text.strip()]
        if not turns:
            raise BadEntry("it holds no messages")
        created = self.created or turns[0].created or now
        chat = Chat(stable_id(self.source, self.id), created=created, updated=max(self.updated, self.created) or created)
        chat.title = " ".join(self.title.split())[:200] or title_from(turns[0].text)
        chat.named = bool(self.title.strip())
        chat.pinned = self.pinned
        chat.settings = ChatSettings(system_prompt=self.system_prompt)
        made: dict[str, ChatMessage] = {}
        parents = {turn.id: turn.parent for turn in self.turns}
        for turn in turns:
            message = ChatMessage(stable_id(chat.id, turn.id), turn.role, turn.text, created=turn.created or created, model=turn.model)
            chat.tree.add(message, made.get(kept_parent(turn, made, parents) or ""))
            made[turn.id] = message
        if self.shown is not None and (shown := made.get(self.shown)) is not None:
            chat.tree.show(shown)
        return chat


def ordered(turns: list[Turn]) -> list[Turn]:
    """Turns with parents before children; a parent that is missing, or a ring, makes a turn a first one. Raises BadEntry for ids that
    occur twice."""
    known = {turn.id: turn for turn in turns}
    if len(known) != len(turns):
        raise BadEntry("two of its messages have the same id")
    done: dict[str, Turn] = {}
    for turn in turns:
        way: list[Turn] = []
        at: Turn | None = turn
        seen: set[str] = set()
        while at is not None and at.id not in done and at.id not in seen:
            seen.add(at.id)
            way.append(at)
            at = known.get(at.parent or "")
        for step in reversed(way):
            done[step.id] = step
    return list(done.values())


def kept_parent(turn: Turn, made: dict[str, ChatMessage], parents: dict[str, str | None]) -> str | None:
    """The nearest turn before this one that was taken over (empty ones are left out)."""
    parent, seen = turn.parent, {turn.id}
    while parent is not None and parent not in made:
        if parent in seen:
            return None
        seen.add(parent)
        parent = parents.get(parent)
    return parent


def stable_id(*parts: str) -> str:
    return uuid.uuid5(_NAMESPACE, "\x1f".join(part.encode("utf-8", "replace").decode("utf-8") for part in parts)).hex


def as_dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadEntry(Sentence("{0} is not an object", what))
    return value


def as_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadEntry(Sentence("{0} is not a list", what))
    return value


def sub_dict(record: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key; an empty one where there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def sub_list(record: dict[str, Any], key: str) -> list[Any]:
    """The list under a key; an empty one where there is none."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """A string as it is, "" for anything else."""
    return value if isinstance(value, str) else ""


def as_id(value: Any) -> str | None:
    """Something that names a node: a string or a whole number."""
    if isinstance(value, str) and value:
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def as_role(value: Any) -> Role | None:
    """Whose words these are; None for system, tool and what we do not know."""
    return {"user": Role.USER, "human": Role.USER, "assistant": Role.ASSISTANT}.get(value) if isinstance(value, str) else None


def as_time(value: Any) -> float:
    """Seconds since 1970 out of seconds, milliseconds, microseconds, nanoseconds, or ISO 8601; 0 where it says nothing."""
    if isinstance(value, str):
        try:
            return moment(datetime.fromisoformat(value.strip()).timestamp())
        except (ValueError, OverflowError, OSError):
            try:
                value = float(value)
            except ValueError:
                return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    try:
        seconds = float(value)
    except OverflowError:
        return 0.0
    while seconds > _MILLISECONDS and math.isfinite(seconds):
        seconds /= 1000
    return moment(seconds)
