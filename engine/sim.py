"""The engine without a model: the very same core, scheduler and pool over made-up tokens and a virtual clock.

Used by the property tests, by trace replay and by the comparison of policies. A token is a pure function of the request's own
tokens so far and its seed, so any difference that batching, chunking, preemption or prefix hits would make shows up at once. The
simulated KV cache remembers which tokens each slot was computed from; reading a slot that holds something else is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from engine.core import Core
from engine.kv.copies import Fork, Move
from engine.kv.pool import BlockPool
from engine.scheduling.plan import CacheRules, Row, Sampled, verified
from engine.scheduling.request import RequestState
from engine.scheduling.window import blocks_behind
from engine.types import EngineConfig, Event, FinishedEvent, TokenLogprob, TokensEvent


class VirtualClock:
    """Time that passes only when told to, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a step costs, in seconds: a fixed part, a part a decode row, a part a prefill position and one for each position it reads; and
    what a block costs that is brought back from the second tier."""

    step: float = 0.010
    decode_row: float = 0.001
    prefill_token: float = 0.0005
    prefill_pair: float = 0.0
    restored_block: float = 0.0

    def of(self, rows: Sequence[Row]) -> float:
        decodes = sum(row.count for row in rows if row.count == 1 or row.draft)
        pairs = sum(row.count * row.start for row in rows if row.count > 1) if self.prefill_pair else 0
        prefill = self.prefill_token * (sum(row.count for row in rows) - decodes)
        return self.step + self.decode_row * decodes + prefill + self.prefill_pair * pairs


class CacheCorruption(BaseException):
    """A planned row would read a slot that holds another sequence's values, or none.

    That is a fault of the scheduler, never of a model, so it must not be caught and blamed on a request like one: hence no Exception.
    """


class SimRunner:
    """A model-free runner with a cache that is checked.

    Each slot stores the address of its whole history (as real keys and values depend on all tokens before). Before a row is
    computed, every earlier slot of its block table must hold exactly its history.

    Attributes:
        fault: called with the rows before each forward; may raise, as a model would.
        vocab: tokens are 0 .. vocab - 1.
        rules: what its cache allows; a model of another kind is made up by other rules.
        drafts: whether it says that drafts pay where nothing is configured.
        exact: whether it says that company changes nothing; else it asks that requests ride alone where that is wanted.
    """

    def __init__(
        self,
        pool_blocks: int,
        block_size: int,
        *,
        context: int = 1 << 20,
        vocab: int = 64,
        clock: VirtualClock | None = None,
        cost: CostModel | None = None,
        fault: Callable[[Sequence[Row]], None] | None = None,
        rules: CacheRules | None = None,
    ) -> None:
        self.context = context
        self.rules = rules or CacheRules()
        self.drafts = False
        self.exact = False
        self.vocab = vocab
        self.fault = fault
        self._size = block_size
        self._clock = clock
        self._cost = cost or CostModel()
        self._blocks: list[list[bytes | None]] = []
        self._slots: list[list[bytes | None]] = [[None] * block_size for _ in range(self.rules.slots + 1)]  # of the windowed layers
        self._tier: dict[int, list[bytes | None]] = {}
        self._histories: dict[str, list[bytes]] = {}  # a request's addresses: [i] stands for its first i + 1 tokens
        self.resize(pool_blocks)

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        if self.fault is not None:
            self.fault(rows)
        if self._clock is not None:
            self._clock.advance(self._cost.of(rows))
        return [self._compute(row) for row in rows]

    def forget(self, request: RequestState) -> None:
        self._histories.pop(request.id, None)

    def reproduce(self, wanted: bool) -> bool:
        return self.exact or not wanted

    def resize(self, num_blocks: int) -> None:
        del self._blocks[num_blocks + 1 :]
        self._blocks += ([None] * self._size for _ in range(num_blocks + 1 - len(self._blocks)))

    def copy(self, copies: Sequence[Move]) -> None:
        for item in copies:
            if isinstance(item, Fork):
                self._blocks[item.target] = list(self._blocks[item.source])
                if item.slots is not None:
                    self._slots[item.slots[1]] = list(self._slots[item.slots[0]])
            elif item.save:
                self._tier[item.slot] = list(self._blocks[item.block])
            else:
                self._blocks[item.block] = list(self._tier[item.slot])
                if self._clock is not None:
                    self._clock.advance(self._cost.restored_block)

    def _compute(self, row: Row) -> Sampled | None:
        request, size, end = row.request, self._size, row.start + row.count
        history = self._histories.setdefault(request.id, [])
        known = end - len(row.draft)
        del history[row.start :]  # drafts of earlier steps may not have come true
        while len(history) < known:
            history.append(address(history[-1] if history else b"", request.tokens[len(history)]))
        for token in row.draft:
            history.append(address(history[-1], token))
        for index in range(blocks_behind(row.start, self.rules.window, size), -(-row.start // size)):
            first, last = index * size, min((index + 1) * size, row.start)
            if self._blocks[request.blocks[index]][: last - first] != history[first:last]:
                where = f"positions {first}..{last - 1} from block {request.blocks[index]}"
                raise CacheCorruption(f"{request.id} would read {where}, which holds something else")
        for position in range(row.start, end):
            self._blocks[request.blocks[position // size]][position % size] = history[position]
        if self.rules.slots:
            self._in_slots(row, history)
        scores = tuple(made_up_logprob(request.tokens[at + 1], request.params.prompt_logprobs or 0) for at in row.scored)
        pooled = made_up_sum(request.tokens, row.pooled)
        if not row.samples:
            return Sampled(None, scores=scores, pooled=pooled) if scores or pooled else None
        if row.draft:
            return verified(row, [Sampled(next_token(history[place], request.seed, self.vocab)) for place in range(row.start, end)])
        token, wanted = next_token(history[end - 1], request.seed, self.vocab), request.params.logprobs
        return Sampled(token, None, None if wanted is None else made_up_logprob(token, wanted), scores, pooled=pooled)

    def _in_slots(self, row: Row, history: list[bytes]) -> None:
        """The same of the windowed layers, which look for blocks in their slots."""
        request, size = row.request, self._size
        seen = max(0, row.start - self.rules.slot_window + 1)
        for position in range(seen, row.start):
            if self._slots[request.slots[position // size]][position % size] != history[position]:
                where = f"position {position} from slot {request.slots[position // size]}"
                raise CacheCorruption(f"{request.id} would read {where}, which holds something else")
        for position in range(row.start, row.start + row.count):
            slot = request.slots[position // size]
            if not slot:
                raise CacheCorruption(f"{request.id} would write position {position} to no one's slot")
            self._slots[slot][position % size] = history[position]


def address(history: bytes, token: int) -> bytes:
    """The address of a history and one more token."""
    return blake2b(history + token.to_bytes(8, "little", signed=True), digest_size=8).digest()


def next_token(history: bytes, seed: int, vocab: int) -> int:
    """The made-up model: a pure function of history and seed."""
    return int.from_bytes(blake2b(history + seed.to_bytes(8, "little"), digest_size=4).digest(), "little") % vocab


def made_up_logprob(token: int, count: int) -> TokenLogprob:
    """What the made-up model tells of a token: it and its successors, each an e-th as likely as the one before."""
    return TokenLogprob(token, -0.5, tuple((token + place, -0.5 - place) for place in range(count)))


def made_up_sum(tokens: Sequence[int], positions: Sequence[int]) -> tuple[float, ...]:
    """The made-up hidden states of so many positions, summed: three numbers, none for no position."""
    return tuple(float(sum(tokens[at] ** power for at in positions)) for power in range(3)) if positions else ()


def expected_answer(prompt: Sequence[int], seed: int, count: int, vocab: int = 64, eos_ids: Iterable[int] = ()) -> list[int]:
    """What the made-up model answers when it is alone: `count` tokens, or up to and with an end-of-text."""
    history = b""
    for token in prompt:
        history = address(history, token)
    answer: list[int] = []
    ends = set(eos_ids)
    while len(answer) < count:
        token = next_token(history, seed, vocab)
        answer.append(token)
        if token in ends:
            break
        history = address(history, token)
    return answer


class Sim:
    """A core over a SimRunner and a virtual clock, with everything it emitted.

    Attributes:
        core, runner, clock: the parts.
        events: all events a request, in order.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        blocks: int,
        block_size: int,
        context: int = 1 << 20,
        vocab: int = 64,
        eos_ids: frozenset[int] = frozenset(),
        cost: CostModel | None = None,
        fault: Callable[[Sequence[Row]], None] | None = None,
        rules: CacheRules | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.runner = SimRunner(blocks, block_size, context=context, vocab=vocab, clock=self.clock, cost=cost, fault=fault, rules=rules)
        self.events: dict[str, list[Event]] = {}
        self.core = Core(self.runner, BlockPool(blocks, block_size), config, clock=self.clock, emit=self._note, eos_ids=eos_ids)

    def run(self, most_steps: int = 1_000_000) -> int:
        """Step until nothing is left; returns the steps taken. Raises RuntimeError when `most_steps` do not suffice."""
        for count in range(most_steps):
            if not self.core.busy:
                return count
            self.core.step()
        raise RuntimeError(f"{len(self.core.requests)} requests are still there after {most_steps} steps")

    def tokens(self, request_id: str) -> list[int]:
        """The answer so far."""
        return [token for event in self.events.get(request_id, ()) if isinstance(event, TokensEvent) for token in event.token_ids]

    def end(self, request_id: str) -> FinishedEvent | None:
        last = self.events.get(request_id, [None])[-1]
        return last if isinstance(last, FinishedEvent) else None

    def _note(self, event: Event) -> None:
        self.events.setdefault(event.request_id, []).append(event)
