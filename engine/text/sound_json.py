"""JSON that a model or a stranger wrote: finite numbers only, and no deeper than all that is done with it can follow.

Python reads NaN and Infinity, which are no JSON, and a thousand levels, at which whatever walks through them next fails.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

MOST_DEPTH = 64  # of nested JSON; schemas of a few dozen levels exist


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)  # what it gives is still to be checked


def read(text: str) -> Any:
    """The value of a whole text. Raises ValueError for what is not sound."""
    try:
        value = DECODER.decode(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    check(value)
    return value


def check(value: Any) -> None:
    """Raises ValueError, with the end of a sentence, for a number that is not finite, and for too many levels."""
    for depth, level in enumerate(levels(value)):
        if depth == MOST_DEPTH:
            raise ValueError(f"is nested deeper than {MOST_DEPTH} levels")
        if any(isinstance(item, float) and not math.isfinite(item) for item in level):
            raise ValueError("holds a number that is too large")


def levels(value: Any) -> Iterator[list[Any]]:
    """The value, then all that it holds, then all that those hold, and so on: a walk that any depth can be followed by."""
    level = [value]
    while level:
        yield level
        level = [inner for item in level if isinstance(item, (dict, list)) for inner in (item.values() if isinstance(item, dict) else item)]
