"""What a test knows of each request by itself: its prompt, what the made-up model says to it alone, and how it may end.

Every event is checked the moment it comes out, against nothing but this book: tokens one by one against the answer that the request
gets alone (P8, P9), the end once and last (P6), with a reason that the rules allow, and with times that add up (P15).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.sim import address, next_token
from engine.types import Event, FinishedEvent, FinishReason, SamplingParams, TokensEvent


@dataclass(slots=True)
class Entry:
    """One request as its sender sees it."""

    id: str
    chat: str
    prompt: list[int]
    params: SamplingParams
    seed: int
    submitted: float
    bound: int  # most tokens it may have: the least of the context and the pool's capacity since its submit
    history: bytes = b""
    answer: list[int] = field(default_factory=list)
    first_token: float | None = None
    must_end: FinishReason | None = None
    end: FinishedEvent | None = None
    cancelled: bool = False
    may_fail: set[str] = field(default_factory=set)  # codes of errors that a test has provoked for it
    boarded: float | None = None
    disturbed: bool = False  # it lost its seat at some time

    @property
    def known(self) -> int:
        return len(self.prompt) + len(self.answer)


def close(one: float, other: float) -> bool:
    """Equal but for the rounding of sums. (pytest.approx costs more than a whole step here.)"""
    return abs(one - other) < 1e-6


class Book:
    """All requests of a run, live and ended.

    Attributes:
        tokens, finished, cancelled, failed: tallies, counted from the events alone.
    """

    def __init__(self, vocab: int, eos_ids: frozenset[int]) -> None:
        self.vocab = vocab
        self.eos_ids = eos_ids
        self.entries: dict[str, Entry] = {}
        self.live: dict[str, Entry] = {}
        self.tokens = self.finished = self.cancelled = self.failed = 0

    def open(self, entry: Entry) -> None:
        for token in entry.prompt:
            entry.history = address(entry.history, token)
        self.entries[entry.id] = self.live[entry.id] = entry

    def resize(self, capacity: int, context: int) -> None:
        """The pool has changed: those that no longer fit may end with an error if they have not begun to answer."""
        for entry in self.live.values():
            entry.bound = min(context, capacity)
            if entry.known >= capacity and not entry.answer:
                entry.may_fail.add("pool_too_small")

    def check_times(self, entry: Entry) -> None:
        """P15: where the time of a request that was left in peace went, by what was seen from outside."""
        assert entry.end is not None
        time, whole = entry.end.time, entry.end.time.total
        if entry.disturbed:
            return
        waited = whole if entry.boarded is None else entry.boarded - entry.submitted
        reading = whole - waited if time.ttft is None else time.ttft - waited
        assert close(time.waited, waited) and close(time.prefill, reading), f"{entry.id}: {time}, not {waited} and {reading}"
        assert close(time.decode, whole - waited - reading) and time.preempted == 0

    def note(self, event: Event, now: float) -> None:
        entry = self.entries[event.request_id]
        assert entry.end is None, f"{entry.id}: an event after the end"  # P6
        if isinstance(event, TokensEvent):
            self._token(entry, event, now)
        else:
            self._end(entry, event, now)

    def _token(self, entry: Entry, event: TokensEvent, now: float) -> None:
        assert not entry.cancelled, f"{entry.id}: a token after its cancellation"  # P13
        assert event.token_ids, f"{entry.id}: an event without a token"
        params = entry.params
        for token in event.token_ids:
            assert entry.must_end is None, f"{entry.id}: a token after one that ends the answer"
            expected = next_token(entry.history, entry.seed, self.vocab)
            assert token == expected, f"{entry.id}: token {len(entry.answer)} is {token}, alone it is {expected}"  # P8, P9
            entry.history = address(entry.history, token)
            entry.answer.append(token)
            self.tokens += 1
            ends = token in params.stop_token_ids or (token in self.eos_ids and not params.ignore_eos)
            if ends and len(entry.answer) > params.min_tokens:
                entry.must_end = FinishReason.STOP
            elif len(entry.answer) == params.max_tokens:
                entry.must_end = FinishReason.LENGTH
        if entry.first_token is None:
            entry.first_token = now

    def _end(self, entry: Entry, event: FinishedEvent, now: float) -> None:
        entry.end = event
        del self.live[entry.id]
        if event.reason is FinishReason.CANCELLED:
            assert entry.cancelled, f"{entry.id}: ended as cancelled, and nobody did"
            self.cancelled += 1
        elif event.reason is FinishReason.ERROR:
            assert event.error is not None and event.error.code in entry.may_fail, f"{entry.id}: {event.error}"
            self.failed += 1
        else:
            assert event.error is None
            self.finished += 1
            if event.reason is FinishReason.STOP or entry.known < entry.bound:
                assert event.reason is entry.must_end, f"{entry.id}: ended with {event.reason}, not {entry.must_end}"
        assert (event.usage.prompt_tokens, event.usage.completion_tokens) == (len(entry.prompt), len(entry.answer))
        assert 0 <= event.usage.cached_tokens < len(entry.prompt)  # P10: a hit leaves at least one token to compute
        time = event.time
        assert min(time.waited, time.prefill, time.decode, time.preempted) >= 0
        assert close(time.total, now - entry.submitted)  # P15: the parts sum to the whole life
        if entry.first_token is None:
            assert time.ttft is None
        else:
            assert time.ttft is not None and close(time.ttft, entry.first_token - entry.submitted)
