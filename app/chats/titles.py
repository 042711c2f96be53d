"""Titles and day groups: how a chat is named and where it stands in the sidebar."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from app.chats.model import Chat

TITLE_LENGTH = 48
_MARKS = re.compile(r"^(?:[#>*+-]+|\d+[.)])\s+|[*_`~]+")


def title_from(text: str) -> str:
    """A title out of a first message: its first line that says something, without Markdown marks, cut at a word."""
    for line in text.splitlines():
        line = " ".join(_MARKS.sub("", line.strip()).split())
        if not any(character.isalnum() for character in line):
            continue
        if len(line) <= TITLE_LENGTH:
            return line
        cut = line[:TITLE_LENGTH].rsplit(" ", 1)[0] if " " in line[TITLE_LENGTH // 2 : TITLE_LENGTH] else line[:TITLE_LENGTH]
        return cut.rstrip(" ,;:.-") + "…"
    return ""


def group_by_day(chats: Iterable[Chat], now: datetime) -> list[tuple[str, list[Chat]]]:
    """Chats, newest first: the pinned ones, then each folder by its name, then Today / Yesterday / Previous 7 days / Older; empty groups
    are left out."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    bounds = (
        ("Today", midnight.timestamp()),
        ("Yesterday", (midnight - timedelta(days=1)).timestamp()),
        ("Previous 7 days", (midnight - timedelta(days=7)).timestamp()),
        ("Older", float("-inf")),
    )
    pinned: list[Chat] = []
    folders: dict[str, list[Chat]] = {}
    days: dict[str, list[Chat]] = {name: [] for name, _ in bounds}
    for chat in sorted(chats, key=lambda chat: chat.updated, reverse=True):
        if chat.pinned:
            pinned.append(chat)
        elif chat.folder:
            folders.setdefault(chat.folder, []).append(chat)
        else:
            days[next(name for name, start in bounds if chat.updated >= start)].append(chat)
    named = sorted(folders.items(), key=lambda group: group[0].casefold())
    return [(name, members) for name, members in (("Pinned", pinned), *named, *days.items()) if members]
