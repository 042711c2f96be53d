"""The engine at one step boundary, for whoever looks: immutable, published by swapping a reference."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.types.errors import ErrorInfo
from engine.types.words import EngineState, Phase, Policy, Priority, WaitReason


class SeatView(NamedTuple):
    """One taken seat at a step boundary. A tuple, since hundreds are made in a step: a frozen dataclass takes four times as long."""

    seat: int  # 0-based; people read seat + 1
    request_id: str
    chat_id: str
    title: str
    phase: Phase
    priority: Priority
    prompt_tokens: int
    computed_tokens: int  # positions whose keys and values are in the cache
    known_tokens: int  # prompt + answer so far
    output_tokens: int
    max_output_tokens: int  # bound of the answer, as far as it is known
    cached_tokens: int  # of the prompt, from the prefix cache
    blocks: int
    preemptions: int
    boarded_step: int
    tok_s: float  # of this request, over its own decode time; 0 before the second token


@dataclass(frozen=True, slots=True)
class QueueView:
    """One waiting request, in the order in which it would board."""

    place: int  # from 1
    request_id: str
    chat_id: str
    title: str
    priority: Priority
    reason: WaitReason
    detail: str  # the reason in numbers, for a person: "needs 12 blocks, 9 free"
    prompt_tokens: int
    needed_blocks: int
    waited_s: float
    expected_start_s: float | None  # from now; None while nothing is measured yet


class WholeQueue(Sequence[QueueView]):
    """Everyone who waits, in boarding order. May be worked out when it is first looked at."""

    def of_chats(self, chats: Collection[str]) -> list[QueueView]:
        """What waits of these chats, in boarding order."""
        return [view for view in self if view.chat_id in chats]


# Codes in `KvView.owners`, one a block; seat s owns with OWNER_SEAT0 + s.
OWNER_FREE = 0
OWNER_CACHED = 1
OWNER_SHARED = 2
OWNER_SEAT0 = 3


@dataclass(frozen=True, slots=True)
class KvView:
    """The block pool. Always: free + cached + referenced == total.

    owners: unsigned 16-bit codes in machine order, one a block (block 1 first), as bytes; read with
        `memoryview(owners).cast("H")` or `numpy.frombuffer(owners, numpy.uint16)`.
    slots: places of the layers with a window for what blocks hold, where others see everything; `slots_claimed` of them are within the
        window of a rider, the rest is cached or free. 0 for any other model.
    """

    total: int
    free: int
    cached: int
    referenced: int
    block_size: int
    owners: bytes
    bytes_per_block: int = 0
    slots: int = 0
    slots_claimed: int = 0


class Counters(NamedTuple):
    """Totals since the engine started; they never fall."""

    steps: int = 0
    submitted: int = 0
    finished: int = 0  # every ending but cancelled and failed
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0  # prefill positions computed (recomputation included)
    cached_tokens: int = 0  # prefill positions saved by the prefix cache
    output_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    seat_steps: int = 0  # seats taken, summed over steps
    idle_seat_steps: int = 0  # seats empty, summed over steps
    drafted_tokens: int = 0  # guessed and verified
    accepted_tokens: int = 0  # of these, what the model said too


class Rates(NamedTuple):
    """Measured over the last seconds; 0 when idle."""

    tok_s: float = 0.0
    prefill_tok_s: float = 0.0
    ttft_p50_s: float = 0.0
    ttft_p95_s: float = 0.0
    itl_p50_s: float = 0.0
    itl_p95_s: float = 0.0
    step_s: float = 0.0  # last step
    batch: int = 0  # rows of the last step


@dataclass(frozen=True, slots=True)
class ModelView:
    """The loaded model, or the one being loaded. `progress` runs from 0 to 1 while loading."""

    name: str = ""
    device: str = ""
    dtype: str = ""
    lane: str = ""
    context: int = 0
    progress: float = 0.0
    stage: str = ""  # a person's word: "reading weights"
    weight_bytes: int = 0
    kv_bytes: int = 0
    source: str = ""  # as `EngineConfig.model` names it
    template: str = ""  # how chats are put to it: "model" is its own template, else the key of a safe one
    forms: tuple[str, ...] = ()  # keys of the safe ones that its vocabulary knows
    form_chosen: bool = False  # somebody has chosen the one that is used
    kv_dtype: str = ""  # what keys and values are kept in: "float32", "bfloat16", "8-bit"

    @property
    def held(self) -> int:
        """Bytes that it keeps in memory."""
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine at one step boundary. Immutable; published by swapping one reference.

    `seats` has one entry a seat, None where it is empty. `queue` holds the first places only; `waiting` counts them all, and
    `line` has each of them, at the cost of some milliseconds for thousands when it is first looked at.
    """

    step: int
    time: float  # the engine's clock
    state: EngineState
    policy: Policy
    token_budget: int
    seats: tuple[SeatView | None, ...]
    queue: tuple[QueueView, ...]
    waiting: int
    kv: KvView
    counters: Counters
    rates: Rates
    model: ModelView
    error: ErrorInfo | None = None
    alone: bool = False  # answers are to be reproducible, and with this model requests ride one at a time for it
    others: tuple[Snapshot, ...] = ()  # of further engines that have a model, or requests, at this time
    whole_queue: WholeQueue | None = field(default=None, compare=False, repr=False)  # None where `queue` is all of it

    @property
    def line(self) -> Sequence[QueueView]:
        """Everyone who waits, in boarding order."""
        return self.queue if self.whole_queue is None else self.whole_queue

    def waiting_of(self, chats: Collection[str]) -> list[QueueView]:
        """What waits of these chats, in boarding order, however far behind."""
        if self.whole_queue is not None:
            return self.whole_queue.of_chats(chats)
        return [view for view in self.queue if view.chat_id in chats]

    @property
    def seated(self) -> int:
        return sum(seat is not None for seat in self.seats)
