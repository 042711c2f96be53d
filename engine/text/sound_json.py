"""JSON that a model or a stranger wrote: finite numbers only, and no deeper than all that is done with it can follow.

Python reads NaN and Infinity, which are no JSON, and a thousand levels, at which whatever walks through them next fails.
"""

from __future__ import annotations

import json
import math
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
    level = [value]
    for _ in range(MOST_DEPTH):
        if not level:
            return
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError("holds a number that is too large")
            if isinstance(item, dict):
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
        level = deeper
    raise ValueError(f"is nested deeper than {MOST_DEPTH} levels")
