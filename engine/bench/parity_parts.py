"""Parity in parts: which of the prompts a part takes, and the figures of several parts as those of one run.

A run of all prompts takes longer than some machines let a program run; each part writes its document, and `--join` adds them up. Counts are
added, means are weighed by their tokens, and of the largest differences and percentiles the largest is told: never less than the truth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Figures = Mapping[str, Any]

_SUMS = {"prompts", "equal", "ties", "preemptions", "greedy_equal", "sampled_equal", "answers_equal", "tokens", "bitwise_equal", "texts"}
_LARGEST = {"largest", "largest_difference", "logprobs_largest_difference", "p99"}


class NoPart(Exception):
    """What was asked for is no part, or a file holds none; says so in a sentence."""


def span(part: str, whole: int) -> tuple[int, int]:
    """(first, count) of the prompts of part "2/4". Raises NoPart."""
    number, _, parts = part.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts) <= whole):
        raise NoPart(f"{part!r} is no part: say 1/4 to 4/4, say.")
    begin, end = (whole * place // int(parts) for place in (int(number) - 1, int(number)))
    return begin, end - begin


def read(paths: Sequence[str]) -> list[dict[str, Any]]:
    """The documents of some parts. Raises NoPart."""
    found = []
    for path in paths:
        try:
            figures = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise NoPart(f"{path} cannot be read: {error}.") from None
        if not isinstance(figures, dict) or not {"prompts", "first", "families", "text"} <= figures.keys():
            raise NoPart(f"{path} is no document of `bench parity`.")
        found.append(figures)
    starts = [figures["first"] for figures in found]
    if len(set(starts)) < len(starts):
        raise NoPart("Two of the files tell of the same prompts.")
    return sorted(found, key=lambda figures: int(figures["first"]))


def joined(parts: Sequence[Figures]) -> dict[str, Any]:
    """The figures of all parts together, in the form of one part's. Raises NoPart when they are not of one kind."""
    if len({(tuple(part["families"]), "model" in part) for part in parts}) > 1:
        raise NoPart("The files tell of different families or models.")
    whole = _add([{key: part[key] for key in part if key not in ("wrong", "model", "first")} for part in parts])
    whole["first"] = min(part["first"] for part in parts)
    if "model" in parts[0]:
        whole["model"] = _add([{key: value for key, value in part["model"].items() if key != "tasks"} for part in parts])
        whole["model"]["tasks"] = next((part["model"]["tasks"] for part in parts if part["model"]["tasks"]), None)
    return whole


def _add(parts: Sequence[Figures]) -> dict[str, Any]:
    """What one figure and its namesakes come to; tables within are added alike."""
    weights = [float(part.get("tokens") or part.get("prompts") or 1) for part in parts]
    whole: dict[str, Any] = {}
    for name, value in parts[0].items():
        values = [part[name] for part in parts]
        if isinstance(value, Mapping):
            whole[name] = _add(values)
        elif isinstance(value, bool):
            whole[name] = all(values)
        elif isinstance(value, str):
            whole[name] = value if len(set(values)) == 1 else ", ".join(dict.fromkeys(values))
        elif name in _SUMS:
            whole[name] = sum(values)
        elif name in _LARGEST:
            whole[name] = max(values)
        else:  # a mean, or a share
            whole[name] = sum(one * weight for one, weight in zip(values, weights, strict=True)) / sum(weights)
    return whole
