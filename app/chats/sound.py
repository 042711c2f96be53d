"""Records of ours out of what a file says: each field of its kind and within bounds, or its default.

A file may say anything, our own as well once somebody has written in it or a disk has failed: a text for a number, what is no number at
all, a number that no field of the window can hold. What comes from here can be shown, added up and stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_type_hints

from app.chats.model import ChatSettings

T = TypeVar("T")

MOST = 2**31 - 1  # what a field of the window holds
LATEST = 32_503_593_600.0  # a day before the year 3000 begins in Greenwich: up to there every system knows the hour in every zone


def settings(values: Any) -> ChatSettings:
    """What of a chat's settings is there and sound."""
    return record(ChatSettings, values) or ChatSettings()


def record(kind: Callable[..., T], values: Any) -> T | None:
    """A dataclass of texts and numbers from what of its fields is there and sound; None where one that it needs is not.

    Fields of a newer version are passed over.
    """
    if not isinstance(values, Mapping):
        return None
    kinds = _kinds(kind)
    try:
        return kind(**{name: value for name, value in values.items() if name in kinds and _fits(value, kinds[name])})
    except TypeError:
        return None


def number(value: Any) -> float | None:
    """A number that can be shown, None for anything else."""
    return float(value) if _fits(value, (float,)) else None


def moment(value: Any) -> float:
    """Seconds since 1970; 0 for what is no moment, or one so late that not every system has a date for it."""
    seconds = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
    return float(seconds) if 0 <= seconds <= LATEST else 0.0


@lru_cache
def _kinds(kind: Callable[..., object]) -> dict[str, tuple[Any, ...]]:
    """Of what kinds a field may be, by its name."""
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(kind).items()}


def _fits(value: Any, kinds: tuple[Any, ...]) -> bool:
    if value is None:
        return type(None) in kinds
    if isinstance(value, str):
        return str in kinds
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (float in kinds or (int in kinds and isinstance(value, int))) and abs(value) <= MOST and math.isfinite(value)
