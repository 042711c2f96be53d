"""A small bus with a suspicious inspector: the core over the simulator, driven by operations, each followed by its checks.

The Hypothesis machine and the fast random driver call the very same operations. Pools are tiny, so that everything that can run
out does. See notes on the fifteen properties in test_properties.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from engine.blame import StepFailed
from engine.kv.pool import BlockPool
from engine.scheduling.plan import CacheRules
from engine.scheduling.window import slots_of_one
from engine.sim import CacheCorruption, CostModel, VirtualClock
from engine.snapshot import QUEUE_VIEWS, SnapshotBuilder
from engine.types import (
    OWNER_CACHED,
    OWNER_FREE,
    OWNER_SEAT0,
    OWNER_SHARED,
    Counters,
    DecisionKind,
    EngineConfig,
    EngineError,
    EngineState,
    Event,
    ModelView,
    Phase,
    Policy,
    Priority,
    RequestRefused,
    SamplingParams,
    Snapshot,
    StepRecord,
)
from tests.engine.scheduling.book import Book, Entry, close
from tests.engine.scheduling.checked import (
    CheckedCore,
    CheckedRunner,
    boarding_order,
    owners,
    p01_only_what_is_seen,
    p01_slots,
    p10_children_go_first,
    p10_laid,
)

VOCAB = 12
EOS = frozenset({0})


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """What a run begins with; see EngineConfig for the meaning of the rules."""

    blocks: int = 6
    block_size: int = 2
    seats: int = 3
    token_budget: int = 8
    chunk: int = 3
    adapt_chunk: bool = False
    policy: Policy = Policy.IN_FLIGHT
    overtake_limit: int = 2
    aging_s: float = 1e9
    max_waiting: int = 12
    context: int = 1 << 20
    twin_tokens: int = 1
    tier_tokens: int = 0
    restored_block: float = 0.0  # seconds; a block is computed in 0.5 to 2 ms
    resumable: bool = True
    window: int = 0
    slot_window: int = 0  # of some layers: then they have slots, just enough for so many riders and so many more
    slot_riders: int = 1
    slots_more: int = 0
    draft_tokens: int = 0
    typical: float = 64.0  # the answer length that the growth estimate starts from: 0 makes preemption common

    @property
    def cache(self) -> CacheRules:
        """Slots go neither with a window of all layers nor with the second tier."""
        if not self.slot_window or self.window or self.tier_tokens >= self.block_size:
            return CacheRules(self.resumable, self.window)
        slots = self.slot_riders * slots_of_one(self.slot_window, self.block_size) + self.slots_more
        return CacheRules(self.resumable, 0, slots, self.slot_window)


class World:
    """One run.

    Attributes:
        core, clock, runner: the parts of the bus.
        book: what the requests' senders know.
        ops: operations carried out.
    """

    def __init__(self, config: WorldConfig, audit_every: int = 1) -> None:
        self.config = config
        rules = EngineConfig(
            seats=config.seats,
            token_budget=config.token_budget,
            chunk=config.chunk,
            adapt_chunk=config.adapt_chunk,
            target_step_s=0.02,
            policy=config.policy,
            overtake_limit=config.overtake_limit,
            aging_s=config.aging_s,
            max_waiting=config.max_waiting,
            tier_tokens=config.tier_tokens,
            draft_tokens=config.draft_tokens,
        )
        self.clock = VirtualClock()
        self.runner = CheckedRunner(
            config.blocks,
            config.block_size,
            context=config.context,
            vocab=VOCAB,
            clock=self.clock,
            cost=CostModel(prefill_pair=2e-5, restored_block=config.restored_block),
            rules=config.cache,
        )
        self.book = Book(VOCAB, EOS)
        self.core = CheckedCore(
            self.runner, BlockPool(config.blocks, config.block_size), rules, clock=self.clock, emit=self._emit, eos_ids=EOS
        )
        self.core.scheduler.growth.typical = config.typical
        self.core.scheduler.prefixes.twin_tokens = config.twin_tokens
        self._watch_evictions()
        self.ops = 0
        self._audit_every = audit_every
        self._builder = SnapshotBuilder()
        self._late_builder = SnapshotBuilder(first=0)
        self._last_counters = Counters()
        self._orphans: set[object] = set()
        self._quiet = 0  # steps in a row without a token, with nothing changed from outside
        self._faulty = False
        self._steps = self._preempted = self._seat_steps = self._prompt_tokens = self._submitted = self._decided = 0

    # ---------------------------------------------------------------------------------------------------- operations

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, chat: str = "a", priority: Priority = Priority.FOREGROUND
    ) -> str | None:
        """P7: one that can never run is refused with the numbers, and nothing changes. Returns the id, or None when it was refused."""
        self._begin()
        request_id = f"r{len(self.book.entries)}"
        capacity, waiting = self.core.pool.capacity, len(self.core.scheduler.queue)
        too_long = len(prompt) >= min(capacity, self.config.context)
        before = self._fingerprint() if too_long or not prompt or waiting >= self.config.max_waiting else None
        seed = 1 + len(self.book.entries) % 5
        bound = min(capacity, self.config.context)
        entry = Entry(request_id, chat, list(prompt), params, seed, self.clock.now, bound)
        try:
            self.core.submit(request_id, prompt, params, chat_id=chat, title="", priority=priority, seed=seed)
        except RequestRefused as refused:
            assert before is not None and before == self._fingerprint()
            if not prompt:
                assert refused.code == "empty_prompt"
            elif too_long:
                assert refused.code in ("prompt_too_long", "pool_too_small")
                limit = self.config.context if refused.code == "prompt_too_long" else capacity
                assert f"{len(prompt):,}" in refused.message and f"{limit:,}" in refused.message
            else:
                assert refused.code == "queue_full"
            return None
        assert before is None, f"a prompt of {len(prompt)} tokens was let in"
        self._submitted += 1
        self.book.open(entry)
        return request_id

    def cancel(self, which: int) -> None:
        """P13: any request ever submitted, in any state; one that has ended is left alone."""
        if not self.book.entries:
            return
        self._begin()
        entry = self.book.entries[f"r{which % len(self.book.entries)}"]
        request = self.core.requests.get(entry.id)
        others = self._fingerprint() if request is None else None
        held = [] if request is None else list(request.held)
        shared = [block for block in held if self.core.pool.reference_count(block) > 1]
        referenced = self.core.pool.referenced
        entry.cancelled = entry.cancelled or request is not None
        assert self.core.cancel(entry.id) is (request is not None)
        assert not self.core.cancel(entry.id)
        if request is None:
            assert others == self._fingerprint()
        else:
            assert entry.end is not None and request.seat is None
            assert self.core.pool.referenced == referenced - (len(held) - len(shared))
            assert request not in self.core.scheduler.queue

    def cancel_unknown(self) -> None:
        self._begin()
        before = self._fingerprint()
        assert not self.core.cancel("nobody")
        assert before == self._fingerprint()

    def reprioritise(self, which: int, priority: Priority) -> None:
        if self.book.entries:
            self._begin()
            self.core.set_priority(f"r{which % len(self.book.entries)}", priority)

    def configure(self, **rules: Any) -> None:
        self._begin()
        self.core.configure(**rules)

    def configure_badly(self, **rules: Any) -> None:
        self._begin()
        before = self._fingerprint(), self.core.config
        with pytest.raises(EngineError) as caught:
            self.core.configure(**rules)
        assert caught.value.code == "bad_config"
        assert before == (self._fingerprint(), self.core.config)

    def resize(self, blocks: int) -> None:
        self._begin()
        highest = max((block for rider in self.core.scheduler.seated.values() for block in rider.held), default=1)
        reached = max(blocks, highest) if blocks < self.core.pool.total else blocks
        self.book.resize(reached * self.config.block_size, self.config.context)
        before, pool = self.core.pool.total, self.core.pool
        assert self.core.resize(blocks) == reached == pool.total
        if reached < before:  # may have taken a parent and left its child, which is then found again or evicted in its turn
            for block in pool.eviction_order():
                self._orphans.add(pool.laid(block))

    def clear_cache(self) -> None:
        self._begin()
        cached = self.core.pool.cached
        assert self.core.clear_cache() == cached
        assert self.core.pool.cached == 0

    def gap(self, seconds: float) -> None:
        """The machine slept, or the engine was paused."""
        self._begin()
        self.clock.advance(seconds)

    def step(self) -> StepRecord | None:
        """One step, with whatever faults are set; a fault of the whole step is survived as the engine does it."""
        self.ops += 1
        tokens, started = self.book.tokens, self.clock.now
        try:
            record = self.core.step()
        except StepFailed:
            self._rebuild()
            return None
        except CacheCorruption as corruption:
            raise AssertionError(str(corruption)) from None
        if record is None:
            assert not self.core.busy or self.runner.room is not None
            for rider in self.core.scheduler.seated.values():  # may have boarded in a step that ran out of memory, told by a later record
                entry = self.book.entries[rider.id]
                entry.boarded = started if entry.boarded is None else entry.boarded  # before blocks were brought back
            return None
        self._book(record)
        self._p05_progress(self.book.tokens > tokens)
        if self.ops % self._audit_every == 0:
            self.audit()
        return record

    def fail_one(self, which: int, nan: bool = False) -> None:
        """P14: one step in which the model raises on one rider, or gives it NaN: it alone ends, when it had a row in that step."""
        seated = list(self.core.scheduler.seated.values())
        if not seated:
            return
        victim = seated[which % len(seated)]
        entry = self.book.entries[victim.id]
        self._faulty = True
        self._quiet = 0
        (self.runner.nan if nan else self.runner.poisoned).add(victim.id)
        entry.may_fail.add("nan_logits" if nan else "forward_failed")
        failed = self.book.failed
        self.step()
        self.runner.nan.clear()
        self.runner.poisoned.clear()
        entry.may_fail -= {"nan_logits", "forward_failed"}
        assert self.book.failed - failed <= 1

    def fail_all(self) -> None:
        """P14: one step in which the model raises on everything. A lone row takes the blame; of several, none does."""
        self._faulty = True
        self._quiet = 0
        live = dict(self.book.live)
        for entry in live.values():
            entry.may_fail.add("forward_failed")
        self.runner.down = True
        forwards, failed = self.runner.forwards, self.book.failed
        self.step()
        self.runner.down = False
        tried = self.runner.forwards - forwards
        assert self.book.failed - failed == (1 if tried == 1 else 0)
        for entry in live.values():
            entry.may_fail.discard("forward_failed")

    def run_short(self, room: int, steps: int) -> None:
        """P14: for a few steps memory runs out beyond so many positions. Nobody ends for it, and the pool keeps its size."""
        self._quiet = 0
        failed, blocks = self.book.failed, self.core.pool.total
        self.runner.room = room
        for _ in range(steps):
            self.step()
        self.runner.room = None
        self._quiet = 0
        assert (self.book.failed, self.core.pool.total) == (failed, blocks)

    def audit(self) -> None:
        """P1 in full: every block in one class, every count equal to the tables that hold it."""
        scheduler = self.core.scheduler
        scheduler.audit()
        if not self.config.window:  # behind a window, parents are of no use to their children
            p10_children_go_first(self.core.pool, self._orphans)
        p10_laid(scheduler)
        p01_only_what_is_seen(scheduler, self.config.window)
        p01_slots(scheduler, self.runner.rules)
        assert self.config.resumable or not self.core.pool.cached
        seated = {rider.id for rider in scheduler.seated.values()}
        waiting = {request.id for request in scheduler.queue}
        assert not seated & waiting and seated | waiting == set(self.core.requests) == set(self.book.live)
        for seat, rider in scheduler.seated.items():
            assert rider.seat == seat and len(rider.blocks) * self.config.block_size >= rider.computed
        assert scheduler._growth == sum(rider.growth for rider in scheduler.seated.values())
        assert scheduler._order == sorted(scheduler.seated.values(), key=lambda rider: (rider.level, rider.boarding))
        for request in scheduler.queue:
            assert request.seat is None and not request.blocks and request.computed == 0

    def drain(self) -> None:
        """P6: with nothing new coming in, everyone reaches an end, and nothing is left behind."""
        most = self._most_steps()
        while self.core.busy:
            self.step()
            most -= 1
            assert most >= 0, f"{len(self.core.requests)} requests never end"
        assert not self.book.live and all(entry.end is not None for entry in self.book.entries.values())
        pool = self.core.pool
        assert pool.referenced == 0 and pool.free + pool.cached == pool.total
        if pool.slots is not None:
            assert pool.slots.claimed == 0 and pool.slots.free + pool.slots.idle == pool.slots.total == self.runner.rules.slots
        self.audit()
        self.compare_snapshot()
        totals = self.core.totals
        assert totals.submitted == totals.finished + totals.cancelled + totals.failed
        for entry in self.book.entries.values():
            self.book.check_times(entry)
        assert not self.core.scheduler.fairness._alive and not self.core.scheduler.prefixes.reading and not self.runner._histories

    # ------------------------------------------------------------------------------------------------------ snapshot

    def compare_snapshot(self) -> Snapshot:
        """P15: what the dashboard is told is what is."""
        self.ops += 1
        core, pool, scheduler = self.core, self.core.pool, self.core.scheduler
        snapshot = self._builder.build(core, EngineState.READY, ModelView(), self.clock.now)
        self._compare_seats(snapshot)
        order = boarding_order(scheduler.queue)
        assert [view.request_id for view in snapshot.queue] == order[:QUEUE_VIEWS]
        assert [view.place for view in snapshot.queue] == list(range(1, min(len(order), QUEUE_VIEWS) + 1))
        assert snapshot.waiting == len(order)
        for view in snapshot.queue:
            entry = self.book.entries[view.request_id]
            assert close(view.waited_s, self.clock.now - entry.submitted)
            assert view.needed_blocks >= 1 and view.detail
            assert view.expected_start_s is None or view.expected_start_s >= 0
        self._compare_line(snapshot)
        kv = snapshot.kv
        assert (kv.total, kv.free, kv.cached, kv.referenced) == (pool.total, pool.free, pool.cached, pool.referenced)
        assert (kv.slots, kv.slots_claimed) == ((pool.slots.total, pool.slots.claimed) if pool.slots is not None else (0, 0))
        self._compare_owners(list(memoryview(kv.owners).cast("H")))
        self._compare_counters(snapshot.counters)
        assert (snapshot.policy, snapshot.token_budget, snapshot.step) == (scheduler.policy, scheduler.token_budget, self._steps)
        with pytest.raises(FrozenInstanceError):
            snapshot.step = 0  # type: ignore[misc]
        return snapshot

    def _compare_line(self, snapshot: Snapshot) -> None:
        """What is worked out later of all who wait says of the first ones what the step itself said."""
        late = self._late_builder.build(self.core, EngineState.READY, ModelView(), self.clock.now)
        assert late.queue == () and len(late.line) == late.waiting
        assert tuple(late.line)[:QUEUE_VIEWS] == snapshot.queue
        for view in snapshot.queue[-1:]:
            assert [one for one in snapshot.queue if one.chat_id == view.chat_id] == late.waiting_of({view.chat_id})[:QUEUE_VIEWS]

    def _compare_seats(self, snapshot: Snapshot) -> None:
        seated = self.core.scheduler.seated
        assert len(snapshot.seats) == max(self.core.config.seats, max(seated, default=-1) + 1)
        for number, view in enumerate(snapshot.seats):
            rider = seated.get(number)
            assert (view is None) == (rider is None)
            if view is None or rider is None:
                continue
            entry = self.book.entries[view.request_id]
            assert view.seat == number and view.chat_id == entry.chat
            assert (view.prompt_tokens, view.output_tokens, view.known_tokens) == (len(entry.prompt), len(entry.answer), entry.known)
            assert view.computed_tokens == rider.computed < view.known_tokens
            assert view.blocks == len(rider.held) and view.preemptions == rider.preemptions
            assert view.output_tokens + 1 <= view.max_output_tokens
            decodes = entry.answer and view.known_tokens - view.computed_tokens == 1
            assert view.phase is (Phase.DECODE if decodes else Phase.PREFILL)
            assert view.tok_s >= 0

    def _compare_owners(self, codes: list[int]) -> None:
        cached = set(self.core.pool.eviction_order())
        for block, (code, holders) in enumerate(zip(codes, owners(self.core.scheduler), strict=True), 1):
            if len(holders) > 1:
                assert code == OWNER_SHARED
            elif holders:
                assert code == OWNER_SEAT0 + min(holders)
            else:
                assert code == (OWNER_CACHED if block in cached else OWNER_FREE)

    def _compare_counters(self, counters: Counters) -> None:
        book = self.book
        # What a failed step had decided is told with the next record.
        preempted = self._preempted + sum(decision.kind is DecisionKind.PREEMPT for decision in self.core.books.pending)
        assert (counters.submitted, counters.steps, counters.preemptions) == (self._submitted, self._steps, preempted)
        assert (counters.finished, counters.cancelled, counters.failed) == (book.finished, book.cancelled, book.failed)
        assert (counters.output_tokens, counters.seat_steps) == (book.tokens, self._seat_steps)
        assert counters.prompt_tokens == self._prompt_tokens or (self._faulty and counters.prompt_tokens < self._prompt_tokens)
        before, after = self._last_counters._asdict(), counters._asdict()
        fallen = [name for name in before if after[name] < before[name]]
        assert not fallen, f"{fallen} fell"
        self._last_counters = counters

    # -------------------------------------------------------------------------------------------------------- insides

    def _begin(self) -> None:
        self.ops += 1
        self._quiet = 0

    def _emit(self, event: Event) -> None:
        self.book.note(event, self.clock.now)

    def _book(self, record: StepRecord) -> None:
        """Tally what the record tells, and check that it numbers on."""
        self._steps += 1
        assert record.step == self._steps
        assert all(decision.step == record.step for decision in record.decisions)
        kinds = [decision.kind for decision in record.decisions]
        self._preempted += kinds.count(DecisionKind.PREEMPT)
        for decision in record.decisions:
            if decision.kind is DecisionKind.ADMIT and self.book.entries[decision.request_id].boarded is None:
                self.book.entries[decision.request_id].boarded = record.time
            elif decision.kind is DecisionKind.PREEMPT:
                self.book.entries[decision.request_id].disturbed = True
        taken = {row.seat for row in record.rows} | set(record.held)
        assert len(taken) == len(record.rows) + len(record.held)
        self._seat_steps += len(taken)
        self._prompt_tokens += sum(row.tokens for row in record.rows if row.phase is Phase.PREFILL)
        assert record.seats_total == self.core.config.seats and record.waiting == len(self.core.scheduler.queue)

    def _rebuild(self) -> None:
        """What the engine does after a failed step. Its decisions come with the next record."""
        live = set(self.core.requests)
        for entry in self.book.live.values():
            entry.disturbed = True
        self.core.rebuild()
        self.core.scheduler.prefixes.twin_tokens = self.config.twin_tokens
        self._watch_evictions()
        assert set(self.core.requests) == live == {request.id for request in self.core.scheduler.queue}
        assert self.core.pool.free == self.core.pool.total
        self.audit()

    def _watch_evictions(self) -> None:
        pool = self.core.pool
        save = pool.on_evict

        def evicted(block: int, content: bytes) -> None:
            self._evicted(block, content)
            if save is not None:
                save(block, content)

        pool.on_evict = evicted

    def _evicted(self, block: int, content: bytes) -> None:
        """P10: no cached block gives way before the blocks that build on it."""
        if self.config.window:
            return
        laid = [self.core.pool.laid(child) for child in self.core.pool.eviction_order()]
        left = [child for child in laid if child is not None and child[0] == content and child not in self._orphans]
        assert not left, f"block {block} gave way before its children"

    def _p05_progress(self, told: bool) -> None:
        """P5: without interference, tokens keep coming. Each step feeds the most entitled rider, who needs at most the whole pool; it
        can be put off by others only as often as they board."""
        self._quiet = 0 if told else self._quiet + 1
        bound = (self.core.pool.capacity + 1) * (len(self.core.requests) + 1)
        assert self._quiet <= bound, f"{self._quiet} steps without a token"

    def _most_steps(self) -> int:
        """Generous: every request computes and recomputes its whole self once for every other one."""
        live = len(self.core.requests)
        return 100 + sum(2 * min(entry.bound, self.core.pool.capacity) * (live + 2) for entry in self.book.live.values())

    def _fingerprint(self) -> tuple[Any, ...]:
        core, pool = self.core, self.core.pool
        riders = tuple((seat, rider.id, rider.known, tuple(rider.blocks)) for seat, rider in core.scheduler.seated.items())
        waiting = tuple((request.id, request.level) for request in core.scheduler.queue)
        return pool.free, pool.cached, pool.owners(), riders, waiting, core.counters, tuple(core.requests)
