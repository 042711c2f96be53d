"""llama.cpp's /slots: what each of its seats is doing. Other servers have no such page, and llama.cpp has it unless it was switched off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from engine.remote.reading import body_of_answer

MOST_SLOTS = 1024


@dataclass(frozen=True, slots=True)
class Slot:
    """One seat of a llama.cpp server.

    Attributes:
        busy: it answers somebody just now; else what it holds is left from before, and of use to whoever goes on from it.
        context: positions that it may hold.
        held: positions that it holds, prompt and answer.
        cached: of the prompt, found in its cache.
        decoded: tokens of the answer so far.
        left: tokens that the answer may still have; 0 where there is no bound.
    """

    busy: bool
    context: int = 0
    held: int = 0
    cached: int = 0
    decoded: int = 0
    left: int = 0


async def fetch_slots(client: httpx2.AsyncClient, address: str, headers: dict[str, str]) -> tuple[Slot, ...] | None:
    """One reading; None where the server has no such page."""
    try:
        async with client.stream("GET", address, headers=headers) as answer:
            if answer.status_code != 200:
                return None
            return read_slots(json.loads(await body_of_answer(answer)))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return None


def read_slots(content: Any) -> tuple[Slot, ...] | None:
    """None for what is no list of slots."""
    if not isinstance(content, list) or not content or not all(isinstance(item, dict) and "is_processing" in item for item in content):
        return None
    return tuple(_slot(item) for item in content[:MOST_SLOTS])


def _slot(item: dict[str, Any]) -> Slot:
    token = item.get("next_token")
    token = token[0] if isinstance(token, list) and token else token  # older ones send the object itself
    token = token if isinstance(token, dict) else {}
    return Slot(
        busy=item["is_processing"] is True,
        context=_whole(item.get("n_ctx")),
        held=_whole(item.get("n_prompt_tokens")),
        cached=_whole(item.get("n_prompt_tokens_cache")),
        decoded=_whole(token.get("n_decoded")),
        left=_whole(token.get("n_remain")),
    )


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def of_others(slots: Sequence[Slot], ours: Sequence[int]) -> list[Slot]:
    """The busy slots but for those that are ours most likely: for each of our answers, of so many tokens so far, the one nearest to it."""
    left = [slot for slot in slots if slot.busy]
    for tokens in sorted(ours, reverse=True):
        if left:
            left.remove(min(left, key=lambda slot: abs(slot.decoded - tokens)))
    return left
