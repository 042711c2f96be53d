"""What one step will compute, frozen: the scheduler writes it, the runner reads it, the core commits it.

The plan is the allocation: every block that a row needs was taken while planning, so nothing here can fail for want of space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from engine.kv.copies import Move
from engine.scheduling.request import RequestState
from engine.types import Decision, ErrorInfo, Pooling, Sentence, TokenLogprob

MOST_SCORED = 64  # positions of a step whose logits score a prompt: each takes a row as wide as the vocabulary, in the step's memory


@dataclass(slots=True)  # never changed after; not frozen, as hundreds are made in a step and freezing doubles the price
class Row:
    """Compute positions [start, start + count) of `request.tokens`; the last one's logits are sampled if `samples`.

    With a `draft`, the positions are those of the last known token and of the draft's, and all of their logits are sampled.
    """

    request: RequestState
    start: int
    count: int
    samples: bool
    draft: tuple[int, ...] = ()

    @property
    def tokens(self) -> list[int]:
        """At the positions of this row."""
        known = self.request.tokens[self.start : self.start + self.count]
        return [*known, *self.draft] if self.draft else known

    @property
    def draws(self) -> list[Row]:
        """One row a draw: itself, or with a draft one for each position."""
        if not self.draft:
            return [self]
        return [Row(self.request, place, 1, True) for place in range(self.start, self.start + self.count)]

    @property
    def scored(self) -> range:
        """Positions of this row whose logits tell the log-probability of the prompt's next token, where that is asked and not known yet."""
        return scored(self.request, self.start, self.count)

    @property
    def pooled(self) -> range:
        """Positions of this row whose hidden states go into the prompt's vector, where one is asked for; none counts twice."""
        request, pooling = self.request, self.request.params.pooling
        if pooling is None:
            return range(0)
        first = request.pooled_len if pooling is Pooling.MEAN else request.prompt_len - 1
        return range(max(self.start, first), min(self.start + self.count, request.prompt_len))


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward pass: decode rows first (one position each, and their drafts), then prefill chunks."""

    decodes: tuple[Row, ...]
    prefills: tuple[Row, ...]
    decisions: tuple[Decision, ...] = ()
    preempted: tuple[RequestState, ...] = ()
    boarded: tuple[RequestState, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.decodes + self.prefills

    @property
    def positions(self) -> int:
        return sum(row.count for row in self.decodes) + self.prefill_positions

    @property
    def drafted(self) -> int:
        return sum(len(row.draft) for row in self.decodes)

    @property
    def prefill_positions(self) -> int:
        return sum(row.count for row in self.prefills)


@dataclass(slots=True)
class Sampled:
    """The outcome of one row that samples or scores its prompt.

    Attributes:
        token: None for a row that does not sample.
        error: the token is meaningless and the request ends (also for a row that does not sample).
        logprob: of the token, where the request asks for it.
        scores: of the prompt's tokens behind the positions `Row.scored`.
        raised: the core's own mark: the model raised on this row, also alone.
        accepted: tokens of the row's draft that came true, before `token`.
        pooled: the sum of the hidden states at the positions `Row.pooled`.
    """

    token: int | None
    error: ErrorInfo | None = None
    logprob: TokenLogprob | None = None
    scores: tuple[TokenLogprob, ...] = ()
    raised: bool = False
    accepted: tuple[int, ...] = ()
    pooled: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheRules:
    """What a model's cache allows.

    Attributes:
        resumable: a sequence can go on from blocks that another one filled. Not so where layers keep a state a request: nothing is shared
            then, neither from the prefix cache nor from the second tier.
        window: no layer looks further back than so many positions, itself included; blocks behind it are given back. 0 is no limit.
        slots: places that the layers with a window have for blocks, beside others that see everything; 0: as many as there are blocks.
        slot_window: how far those layers look back.
    """

    resumable: bool = True
    window: int = 0
    slots: int = 0
    slot_window: int = 0


class Runner(Protocol):
    """Runs a model over planned rows.

    Contract: `forward` may raise, then nothing counts as computed; running the same rows again, or some of them, is always
    allowed and gives the same result. `forget` is called when a request ends or loses its blocks.
    """

    context: int
    rules: CacheRules

    @property
    def drafts(self) -> bool:
        """Is guessed where nothing is configured? A step with drafts must run as fast as one of so many positions can, and give each
        position the numbers, to the last bit, that it has without them."""

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        """One entry a row, in order; None where the row gives nothing: no token, no scores, no hidden states."""

    def forget(self, request: RequestState) -> None: ...

    def reproduce(self, wanted: bool) -> bool:
        """From now on what a request gets must be the same to the last bit in any company; or need no longer be.

        Returns whether requests may ride together nevertheless. Else each must ride alone and from its beginning, in steps cut alike.
        """

    def resize(self, num_blocks: int) -> None:
        """Make room for block numbers 0..num_blocks; content of surviving blocks is kept."""

    def copy(self, copies: Sequence[Move]) -> None:
        """Copy blocks for requests that part, and to and from the second tier if one is configured: in order, before a step's rows."""


def scored(request: RequestState, start: int, count: int) -> range:
    """Of `count` positions from `start` on, those whose logits tell the log-probability of the prompt's next token, where that is asked
    and not known yet."""
    if request.params.prompt_logprobs is None:
        return range(0)
    return range(max(start, len(request.scored)), min(start + count, request.prompt_len - 1))


def within_scores(request: RequestState, start: int, count: int, most: int) -> int:
    """How many of `count` positions may ride when at most `most` of them may score the prompt."""
    positions = max(0, len(request.scored) - start) + most
    return count if start + positions >= request.prompt_len - 1 else min(count, positions)


@lru_cache(maxsize=16)
def seats_taken(seated: int, seats: int) -> Sentence:
    """Why nobody else boards. Kept, because it is the reason of most who wait, at every step."""
    return Sentence("{0} of {1} seats are taken", seated, seats)


def blocks(count: int) -> Sentence:
    """A number of blocks."""
    return Sentence("1 block") if count == 1 else Sentence("{0} blocks", count)


def verified(row: Row, draws: Sequence[Sampled]) -> Sampled:
    """The outcome of a drafted row from its draws: the draft as far as it came true, and the draw behind that."""
    right = 0
    while right < len(row.draft) and draws[right].error is None and draws[right].token == row.draft[right]:
        right += 1
    last = draws[right]
    return Sampled(last.token, last.error, accepted=row.draft[:right])
