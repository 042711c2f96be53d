"""Decodes with what may follow them: which rows of a step guess beyond their next token, and how far.

A guessed position costs its row of the step, and gives a token only if it comes true. So one is taken as long as it gives more tokens
for its time than the step gives without it: many where few ride (the weights are read anyway), few where the step is full, none for an
answer whose guesses are mostly wrong. This is goodput as SmartSpec has it (Liu et al., 2024), token by token.

Owns the sharing of a step among drafts; what is guessed is `lookup.py`'s, what a position costs `chunk.py`'s. Changes nothing
but the slots of those that get one.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.lookup import AT_ONCE, NOTHING, Guess
from engine.scheduling.plan import Row
from engine.scheduling.slotting import Slotting

LEAST = 32  # places of a text that are noted in a step even where many ride: more than a step can say
PLAIN_AFTER = 24  # steps with drafts before one without
STRETCH = 2.0  # a step takes at most so many times what it takes without drafts, for the sake of those who ride and guess nothing


def with_drafts(
    decodes: Sequence[Row], most: int, budget: int, block_size: int, cost: float, slotting: Slotting | None = None
) -> list[Row]:
    """The same decodes with drafts of at most `most` tokens, within the blocks that they have: a draft takes nothing from anybody.

    `budget`: most positions of the step. `cost`: of a drafted position, as a share of the step without any.
    """
    places = max(LEAST, AT_ONCE // len(decodes))
    guesses = [_guess(row, most, block_size, places, slotting) for row in decodes]
    taken = shares([(guess.chance, len(guess.tokens)) for guess in guesses], len(decodes), budget - len(decodes), cost)
    drafted: list[Row] = []
    for row, guess, count in zip(decodes, guesses, taken, strict=True):
        if slotting is not None and count:
            count = min(count, slotting.room(row.request) - 1)  # an earlier one may have taken what was there
            slotting.cover(row.request, row.start + 1 + count)
        drafted.append(Row(row.request, row.start, 1 + count, True, guess.tokens[:count]) if count else row)
    return drafted


def shares(guesses: Sequence[tuple[float, int]], said: float, left: int, cost: float) -> list[int]:
    """How many tokens of each guess to verify, given (chance, length) of each.

    said: tokens that the step gives anyway; left: positions that it may have beyond; cost: as in `with_drafts`.
    """
    taken, price = [0] * len(guesses), 1.0
    offers = [(chance**place, number) for number, (chance, length) in enumerate(guesses) for place in range(1, length + 1)]
    offers.sort(key=lambda offer: -offer[0])  # of one guess in its order, since no chance is above 1
    for gain, number in offers[: max(0, left)]:
        if gain * price < cost * said or price + cost > STRETCH:
            break
        taken[number] += 1
        said += gain
        price += cost
    return taken


def _guess(row: Row, most: int, block_size: int, places: int, slotting: Slotting | None) -> Guess:
    request = row.request
    if request.lookup is None or row.start < request.prompt_len:  # not an answer that has begun
        return NOTHING
    room = len(request.blocks) * block_size - row.start
    if slotting is not None:
        room = min(room, slotting.room(request))
    return request.lookup.draft(request.tokens, min(most, room - 1, request.limit - request.known - 1), places)
