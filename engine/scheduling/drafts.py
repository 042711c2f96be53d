"""Decodes with what may follow them: which rows of a step guess beyond their next token, and how far.

Owns the sharing of a step's budget among drafts; what is guessed is `lookup.py`'s. Changes nothing
but the slots of those that get one.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.plan import Row
from engine.scheduling.slotting import Slotting


def with_drafts(decodes: Sequence[Row], most: int, budget: int, block_size: int, slotting: Slotting | None = None) -> list[Row]:
    """The same decodes with drafts of at most `most` tokens, within the blocks that they have: a draft takes nothing from anybody.

    `budget`: most positions of the step.
    """
    left, drafted = budget - len(decodes), []
    for row in decodes:
        request = row.request
        draft: tuple[int, ...] = ()
        if request.lookup is not None and row.start >= request.prompt_len:  # an answer that has begun
            room = len(request.blocks) * block_size - row.start
            if slotting is not None:
                room = min(room, slotting.room(request))
            draft = request.lookup.draft(request.tokens, min(most, room - 1, left, request.limit - request.known - 1))
            if slotting is not None:
                slotting.cover(request, row.start + 1 + len(draft))
        left -= len(draft)
        drafted.append(Row(request, row.start, 1 + len(draft), True, draft) if draft else row)
    return drafted
