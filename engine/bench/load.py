"""Scripted loads: who comes when, what is asked, and how long the answer is.

Owns the reading of the demo script and its translation into submits; shared by `omnibus demo` and by the window's "Run demo". Must
never load a model or start an engine: it submits to one that runs already. Importing it costs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from engine.engine import Engine
from engine.handle import RequestHandle
from engine.opened import Prompt
from engine.types import Message, Priority, SamplingParams

SCRIPT = Path(getattr(sys, "_MEIPASS", Path(__file__).resolve().parents[2])) / "resources" / "demo.json"
CHAT_PREFIX = "demo-"  # every scripted chat's id begins so


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request of a load.

    Attributes:
        id: unique within its load.
        prompt: plain text, or the messages of a chat.
        tokens: exact length of the answer: end-of-text is ignored, so that both policies do the very same work.
        at_s: when it arrives, in seconds after the load begins, at pace 1.
    """

    id: str
    title: str
    prompt: Prompt
    tokens: int
    at_s: float = 0.0

    @property
    def params(self) -> SamplingParams:
        """Greedy and of exact length; the seed plays no part in a greedy draw, but makes a made-up model repeat itself too."""
        return SamplingParams(max_tokens=self.tokens, min_tokens=self.tokens, temperature=0.0, ignore_eos=True, seed=0)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests in order of arrival, and the seats they are meant for.

    Attributes:
        reference_step_s: duration of a decode step on the machine that the arrival times were written for.
    """

    name: str
    title: str
    seats: int
    requests: tuple[ScriptedRequest, ...]
    reference_step_s: float = 0.06

    def pace_for(self, step_s: float) -> float:
        """The factor for arrival times with which a machine of `step_s` seconds a decode step sees the same crowd at its stops."""
        return min(5.0, max(0.02, step_s / self.reference_step_s)) if step_s > 0 else 1.0


def riders() -> Load:
    """The design's own example: answers of 8, 2 and 6 tokens on three seats, and three more waiting."""
    return _script()["riders"]


def rush_hour() -> Load:
    """Twenty chats with heavy-tailed answers on eight seats: staggered, one with a long prompt, two with the same system prompt."""
    return _script()["rush_hour"]


class Arrival(NamedTuple):
    """A submit that is due `at_s` seconds after the start: `engine.submit(**keywords)`."""

    at_s: float
    request: ScriptedRequest
    keywords: dict[str, Any]


def arrivals(load: Load, *, pace: float = 1.0, run: str = "", priority: Priority | None = None) -> Iterator[Arrival]:
    """A load's submits in order of arrival.

    Args:
        pace: factor for the arrival times; 0 lets all arrive at once.
        run: becomes part of the chat ids. A chat that was served in an earlier run would board behind the others; a new one does not.
        priority: None takes the engine's default.
    """
    prefix = CHAT_PREFIX + (f"{run}-" if run else "")
    for request in sorted(load.requests, key=lambda item: item.at_s):
        keywords = {
            "prompt": request.prompt,
            "params": request.params,
            "chat_id": prefix + request.id,
            "title": request.title,
            "priority": priority,
        }
        yield Arrival(request.at_s * pace, request, keywords)


async def play(
    engine: Engine,
    load: Load,
    *,
    pace: float = 1.0,
    run: str = "",
    priority: Priority | None = Priority.BACKGROUND,
    on_ready: Callable[[RequestHandle], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[RequestHandle]:
    """Submit a load to a running engine at its arrival times, without ever blocking the loop; yields each handle as it is submitted.

    The answers go on when the iteration is left early. Raises RequestRefused when the engine does not take one.
    """
    start = clock()
    for arrival in arrivals(load, pace=pace, run=run, priority=priority):
        delay = start + arrival.at_s - clock()
        if delay > 0:
            await asyncio.sleep(delay)
        yield engine.submit(**arrival.keywords, on_ready=on_ready)


# ---------------------------------------------------------------------------------------------------------------- script


@cache
def _script() -> dict[str, Load]:
    return read_script(json.loads(SCRIPT.read_text(encoding="utf-8")))


def read_script(script: Mapping[str, Any]) -> dict[str, Load]:
    """Loads by name. Raises KeyError or TypeError for a script of another shape."""
    step_s = float(script["reference_step_s"])
    return {name: _read_load(name, part, step_s) for name, part in script.items() if isinstance(part, dict)}


def _read_load(name: str, part: Mapping[str, Any], step_s: float) -> Load:
    requests = tuple(
        ScriptedRequest(item["id"], item["title"], _read_prompt(item, part), int(item["tokens"]), float(item.get("at", 0.0)))
        for item in part["requests"]
    )
    return Load(name, part["title"], int(part["seats"]), requests, step_s)


def _read_prompt(item: Mapping[str, Any], part: Mapping[str, Any]) -> Prompt:
    if "prompt" in item:
        return str(item["prompt"])
    # The name comes first, so that only chats meant to share a beginning share one, whatever a model's template puts before.
    system = part["systems"][item["system"]] if "system" in item else f"{item['title']} is asking. Answer in plain words."
    ask = f"{part['documents'][item['read']]}\n\n{item['ask']}" if "read" in item else item["ask"]
    return (Message("system", system), Message("user", ask))
