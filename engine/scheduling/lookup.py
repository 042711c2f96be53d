"""Drafts of what an answer will say next, taken from what was said before: prompt lookup (Saxena, 2023).

An answer that quotes (code that is edited, a text that is summed up) repeats runs of its prompt. Where its last words stand earlier in
prompt or answer, the words that followed there are a draft; the model verifies all of it in one step. A draft token counts only if it
is the very token that the sampler draws at its position, and a draw depends on seed and position alone, so answers are the same with
drafts and without, greedy or not. Pure Python, no clock: what it decides follows from the tokens, so that a trace replays.

Drafting switches itself off where it does not pay: while others wait or many decode (then their rows fill the step better), and for an
answer whose drafts are mostly wrong, which tries again after a while.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import SamplingParams

LONG, SHORT = 3, 2  # last tokens that must stand earlier; the longer run is believed first
MOST_DECODES = 2  # beside so many others at most; a drafted position costs a row of the step like any other
FEW = 0.2  # of the drafted tokens must come true for drafts to pay
PATIENCE = 12  # drafted tokens before that is judged
PAUSE = 48  # tokens of the answer without a draft after that
MEMORY = 0.8  # how much of the past counts after each draft


class Lookup:
    """One answer's drafts.

    Attributes:
        drafted, accepted: tokens so far.
    """

    __slots__ = ("_hits", "_indexed", "_places", "_resume", "_tries", "accepted", "drafted")

    def __init__(self) -> None:
        self.drafted = self.accepted = 0
        self._places: dict[tuple[int, ...], int] = {}  # a run of tokens: the place behind its last occurrence
        self._indexed = SHORT
        self._tries = self._hits = 0.0  # lately
        self._resume = 0  # no draft before so many tokens are known

    def draft(self, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` tokens that may follow `tokens`; often none."""
        known = len(tokens)
        if most < 1 or known < max(self._resume, SHORT + 1):
            return ()
        for place in range(self._indexed, known):  # the run that ends the tokens itself is not in the index yet
            for length in (SHORT, LONG):
                if place >= length:
                    self._places[tuple(tokens[place - length : place])] = place
        self._indexed = known
        for length in (LONG, SHORT):
            found = self._places.get(tuple(tokens[-length:]))
            if found is not None:
                return tuple(tokens[found : found + most])
        return ()

    def judge(self, drafted: int, accepted: int, known: int) -> None:
        """A draft was verified: so many of its tokens came true, and so many tokens are known now."""
        self.drafted += drafted
        self.accepted += accepted
        self._tries = MEMORY * self._tries + drafted
        self._hits = MEMORY * self._hits + accepted
        if self._tries >= PATIENCE and self._hits < FEW * self._tries:
            self._resume = known + PAUSE
            self._tries = self._hits = 0.0


def may_draft(params: SamplingParams) -> bool:
    """Whether each draw depends on its position alone, given the tokens: penalties and forms would have to be undone with a draft."""
    plain = params.repetition_penalty == 1 and not params.presence_penalty and not params.frequency_penalty
    plain = plain and params.grammar is None and params.pooling is None
    return plain and params.logprobs is None and params.prompt_logprobs is None
