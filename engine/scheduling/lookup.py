"""Drafts of what an answer will say next, taken from what was said before: prompt lookup (Saxena, 2023).

An answer that quotes (code that is edited, a text that is summed up) repeats runs of its prompt. Where its last words stand earlier in
prompt or answer, the words that followed there are a draft; the model verifies all of it in one step. A draft token counts only if it
is the very token that the sampler draws at its position, and a draw depends on seed and position alone, so answers are the same with
drafts and without, greedy or not. Pure Python, no clock: what is guessed follows from the tokens, so that a trace replays.

Whether a guess is worth its row in the step is `drafts.py`'s to say, by the chance that is given here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from engine.types import SamplingParams

LONG, SHORT = 3, 2  # last tokens that must stand earlier; the longer run is believed first
LONGEST = 16  # tokens of a run that are compared, to tell how much it is to be believed
AT_ONCE = 512  # places of texts that are noted in one step, all riders' together: long prompts must not hold one up
MEMORY = 0.8  # how much of the past counts after each draft
FADE = 48  # tokens of the answer after which half of that is forgotten


class Guess(NamedTuple):
    """What may come next. `chance`: that a token of it comes true when all before it did."""

    tokens: tuple[int, ...]
    chance: float


NOTHING = Guess((), 0.0)


class Lookup:
    """One answer's drafts.

    Attributes:
        drafted, accepted: tokens so far.
    """

    __slots__ = ("_hits", "_indexed", "_judged", "_misses", "_places", "accepted", "drafted")

    def __init__(self) -> None:
        self.drafted = self.accepted = 0
        self._places: dict[tuple[int, ...], int] = {}  # a run of tokens: the place behind its last occurrence
        self._indexed = SHORT
        self._hits = self._misses = 0.0  # lately: guessed tokens that came true, and those that were the first of a draft not to
        self._judged = 0  # so many tokens were known then

    def draft(self, tokens: Sequence[int], most: int, places: int = AT_ONCE) -> Guess:
        """At most `most` tokens that may follow `tokens`; often none. `places`: so many more of the text's are noted, at most."""
        known, noted = len(tokens), self._places
        if known <= SHORT:
            return NOTHING
        end = min(known, self._indexed + places)
        for place in range(self._indexed, end):  # the run that ends the tokens itself is not in the index yet
            noted[tuple(tokens[place - SHORT : place])] = place
            if place >= LONG:
                noted[tuple(tokens[place - LONG : place])] = place
        self._indexed = end
        if most < 1 or end < known:
            return NOTHING
        found = noted.get(tuple(tokens[-LONG:])) or noted.get(tuple(tokens[-SHORT:]))
        if found is None:
            return NOTHING
        return Guess(tuple(tokens[found : found + most]), self._chance(_alike(tokens, found), known))

    def judge(self, drafted: int, accepted: int, known: int) -> None:
        """A draft was verified: so many of its tokens came true, and so many tokens are known now."""
        self.drafted += drafted
        self.accepted += accepted
        self._hits = MEMORY * self._hits + accepted
        self._misses = MEMORY * self._misses + (accepted < drafted)
        self._judged = known

    def _chance(self, alike: int, known: int) -> float:
        """What this answer's drafts have shown lately, with what a run of so many like tokens promises: the longer, the surer."""
        faith, seen = 0.5 * alike, math.exp2((self._judged - known) / FADE)
        promised = faith * alike / (alike + LONG)
        return (seen * self._hits + promised) / (seen * (self._hits + self._misses) + faith)


def _alike(tokens: Sequence[int], place: int) -> int:
    """How many tokens before `place` are the last ones once more."""
    known, alike = len(tokens), SHORT
    while alike < min(LONGEST, place) and tokens[place - 1 - alike] == tokens[known - 1 - alike]:
        alike += 1
    return alike


def may_draft(params: SamplingParams) -> bool:
    """Whether each draw depends on its position alone, given the tokens: penalties and forms would have to be undone with a draft."""
    plain = params.repetition_penalty == 1 and not params.presence_penalty and not params.frequency_penalty
    plain = plain and params.grammar is None and params.pooling is None
    return plain and params.logprobs is None and params.prompt_logprobs is None
