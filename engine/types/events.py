"""What comes out of the engine for one request, in order; the end last, and once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.types.errors import ErrorInfo
from engine.types.words import FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Where a request's time went, in seconds; the four parts sum to `total`.

    `ttft` is the time from submit to the first token, None when none came out.
    """

    waited: float
    prefill: float
    decode: float
    preempted: float
    ttft: float | None = None

    @property
    def total(self) -> float:
        return self.waited + self.prefill + self.decode + self.preempted


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was to the model itself: natural logarithm of its probability, before anything that shapes a draw.

    Attributes:
        logprob: None for the first token of a prompt, which nothing predicts.
        top: the likeliest tokens at that place as (token id, log-probability), the likeliest first.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


class TokensEvent(NamedTuple):
    """New text of an answer. `text` may be empty (a character or stop string is still incomplete); `tokens` counts the new tokens. A tuple,
    since one is made a token.

    Attributes:
        logprobs: one a new token where the request asked for them, else empty.
        prompt_logprobs: one a token of the prompt, with the answer's first token, where the request asked for them.
        pieces: what each token added to the text, where one step gave several; empty where that is not told apart.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The last event of every request, exactly once.

    Attributes:
        embedding: the prompt's vector where the request asked for one (`SamplingParams.pooling`) and came to its end: what comes out of the
            model's last layer and norm, averaged over the positions or the last one's, at its own length.
    """

    request_id: str
    reason: FinishReason
    usage: Usage
    time: TimeSplit
    error: ErrorInfo | None = None
    embedding: tuple[float, ...] = ()


Event = TokensEvent | FinishedEvent
