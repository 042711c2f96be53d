"""One request as the scheduler sees it: two counters, a block table and a seat.

There are no phases to keep in step: prefill, decode, recomputation after a preemption and prefix hits are all "computed catches
up with known" (the idea is vLLM V1's). Everything else is derived. Pure Python; written by the scheduler and the core alone.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.kv.pool import ROOT, chain_hash, tail_hash
from engine.scheduling.lookup import Lookup
from engine.types import FinishReason, Phase, Pooling, Priority, SamplingParams, SeatStep, TimeSplit, TokenLogprob, WaitReason


class Form(Protocol):
    """An answer's place in the grammar that it must follow (see engine/text/grammar.py)."""

    @property
    def complete(self) -> bool:
        """Nothing more may follow."""

    def mask(self) -> Any:
        """[vocabulary] bool array: the tokens that may come next."""

    def advance(self, token: int) -> bool: ...


class Stream(Protocol):
    """Turns an answer's tokens into text that is safe to show."""

    @property
    def stopped(self) -> bool:
        """A stop string was met; what push returned is the text before it."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class TimeLedger:
    """Splits a request's life among waited, prefill, decode and preempted; the parts always sum to the whole."""

    __slots__ = ("_mark", "_parts", "first_token", "last_token", "start")

    def __init__(self, now: float) -> None:
        self.start = self._mark = now
        self.first_token: float | None = None
        self.last_token: float | None = None
        self._parts = {"waited": 0.0, "prefill": 0.0, "decode": 0.0, "preempted": 0.0}

    def charge(self, part: str, now: float) -> None:
        """Book the time since the last booking to `part`. A clock that stood still or jumped back books nothing."""
        if now > self._mark:
            self._parts[part] += now - self._mark
            self._mark = now

    def token(self, now: float) -> None:
        """A token came out."""
        if self.first_token is None:
            self.first_token = now
        self.last_token = now

    def spent(self, part: str, running: str, now: float) -> float:
        """Time spent in `part` up to `now`, when `running` is the part that runs."""
        return self._parts[part] + (max(0.0, now - self._mark) if part == running else 0.0)

    def split(self) -> TimeSplit:
        ttft = None if self.first_token is None else max(0.0, self.first_token - self.start)
        return TimeSplit(**self._parts, ttft=ttft)


@dataclass(slots=True, eq=False)
class RequestState:
    """A request from submit to its end.

    Attributes:
        tokens: prompt and answer so far; `known` counts them.
        computed: positions whose keys and values stand in `blocks`.
        blocks: the block table; position p lives in blocks[p // block_size].
        gone: leading blocks that were given back, since no layer looks at them any more; 0 stands in their places.
        slots: where the windowed layers hold `blocks`, as far as it is known; 0 behind the window. Empty where that is by block.
        slots_gone: leading ones that were given back.
        growth: blocks that the answer was expected to add when it last took one.
        registered: leading blocks of the table that are indexed by content.
        limit: most tokens this request may ever have (prompt + answer, the context, the whole pool: the least of them).
        boarding: counts admissions; the larger, the later (the order in which seats are lost).
        form: what the answer must look like; told of each token.
        lookup: guesses what the answer says next; None where its draws allow no draft.
        scored: log-probabilities of the prompt's tokens from the second on, as far as they are known, where they are asked for.
        pooled: the sum of the hidden states that its vector is made of, as far as they are known, where one is asked for.
        pooled_len: positions of the prompt that are in it.
        overtaken: later requests of its class that boarded while this one did not fit.
    """

    id: str
    chat_id: str
    title: str
    params: SamplingParams
    priority: Priority
    arrival: int
    tokens: list[int]
    seed: int
    limit: int
    ledger: TimeLedger
    prompt_len: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    gone: int = 0
    slots: list[int] = field(default_factory=list)
    slots_gone: int = 0
    growth: int = 0
    registered: int = 0
    seat: int | None = None
    boarding: int = 0
    boarded_step: int = 0
    cached_tokens: int = 0  # of the prompt, at the first admission
    preemptions: int = 0
    overtaken: int = 0
    level: int = 0  # the class it queues in: its priority, less what aging gave it
    waiting_since: float = 0.0
    wait_reason: WaitReason = WaitReason.TURN
    wait_detail: str = ""
    reason_step: int = -1  # the step that gave this reason
    needed_blocks: int = 0
    decode_step: SeatStep | None = None  # what its seat does in every step in which it only decodes
    finish: FinishReason | None = None
    form: Form | None = None
    stream: Stream | None = None
    salt: bytes = b""
    lookup: Lookup | None = None
    scored: list[TokenLogprob] = field(default_factory=list)
    pooled: tuple[float, ...] = ()
    pooled_len: int = 0
    _hashes: list[bytes] = field(default_factory=list)
    _tail: bytes | None = None

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)
        self.level = int(self.priority)
        self.waiting_since = self.ledger.start

    @property
    def held(self) -> list[int]:
        """The blocks that it holds, in the order of positions."""
        return self.blocks[self.gone :] if self.gone else self.blocks

    @property
    def known(self) -> int:
        return len(self.tokens)

    @property
    def remaining(self) -> int:
        """Positions still to be computed before the next token can come out."""
        return len(self.tokens) - self.computed

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def reads_all(self) -> bool:
        """Every position must be computed here: the prompt is scored or averaged, which cached keys and values cannot tell."""
        whole = self.params.prompt_logprobs is not None or self.params.pooling is Pooling.MEAN
        return whole and not self.output_len

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    @property
    def max_output(self) -> int:
        return self.limit - self.prompt_len

    @property
    def phase(self) -> Phase:
        if self.finish is not None:
            return Phase.FINISHED
        if self.seat is None:
            return Phase.WAITING
        return Phase.DECODE if self.remaining == 1 and self.output_len else Phase.PREFILL

    @property
    def stands_in(self) -> str:
        """The part of the time ledger that runs now."""
        if self.seat is None:
            return "preempted" if self.preemptions else "waited"
        if not self.output_len:
            return "prefill"
        return "decode" if self.remaining == 1 else "preempted"  # recomputing what a preemption cost

    def start_over(self) -> None:
        """Every block was lost, and the seat with it; what was said stays."""
        self.seat, self.blocks, self.computed, self.registered = None, [], 0, 0
        self.slots, self.slots_gone = [], 0
        self.gone, self.growth, self.overtaken, self.reason_step = 0, 0, 0, -1
        self.lookup = None if self.lookup is None else Lookup()

    def hashes(self, count: int, block_size: int) -> list[bytes]:
        """Content addresses of the first `count` full blocks; extends a memo, so each block is hashed once."""
        chain = self._hashes
        while len(chain) < count:
            start = len(chain) * block_size
            parent = chain[-1] if chain else ROOT
            chain.append(chain_hash(parent, self.tokens[start : start + block_size], self.salt))
        return chain[:count]

    def stem(self, count: int, block_size: int) -> bytes:
        """What sets apart whatever stands behind the first `count` full blocks: their address, and the salt where there are none."""
        if count > len(self._hashes):
            self.hashes(count, block_size)
        return (self._hashes[count - 1] if count else ROOT) + self.salt

    def packed(self, start: int, end: int) -> bytes:
        """The tokens at these positions, eight bytes each."""
        return array("q", self.tokens[start:end]).tobytes()

    def tail(self, block_size: int) -> bytes:
        """Address of the whole prompt: of the block in which it ends, as far as the prompt fills it."""
        if self._tail is None:
            full, rest = divmod(self.prompt_len, block_size)
            chain = self.hashes(full, block_size)
            if rest:
                self._tail = tail_hash(chain[-1] if full else ROOT, self.tokens[full * block_size : self.prompt_len], self.salt)
            else:
                self._tail = chain[-1]
        return self._tail


def prompt_scores(request: RequestState) -> tuple[TokenLogprob, ...]:
    """One a token of the prompt where they were asked for, else none."""
    if request.params.prompt_logprobs is None:
        return ()
    return TokenLogprob(request.tokens[0], None), *request.scored


def pool_states(request: RequestState, row_end: int, pooled: tuple[float, ...]) -> None:
    """Take the hidden states of one more row, which ends before position `row_end`, into the prompt's vector."""
    request.pooled = tuple(map(float.__add__, request.pooled, pooled)) if request.pooled else pooled
    request.pooled_len = min(row_end, request.prompt_len)


def embedding_of(request: RequestState) -> tuple[float, ...]:
    """The prompt's vector, where one was asked for and all of it is there."""
    if request.params.pooling is None or request.pooled_len < request.prompt_len:
        return ()
    count = request.prompt_len if request.params.pooling is Pooling.MEAN else 1
    return tuple(value / count for value in request.pooled)
