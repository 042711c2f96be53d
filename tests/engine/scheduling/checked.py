"""The core with a critic at each seam: every plan and every forward pass is checked against the properties that it must have.

The checks use the definitions, not the code under test: orders are found by sorting, owners by reading the block tables.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from engine.core import Core
from engine.kv.copies import Fork
from engine.kv.pool import BlockPool
from engine.scheduling.plan import CacheRules, Row, Sampled, StepPlan
from engine.scheduling.queue import PROMPT_WEIGHT, WaitingQueue
from engine.scheduling.request import RequestState
from engine.scheduling.scheduler import Scheduler
from engine.sim import SimRunner
from engine.types import ErrorInfo, Policy

NAN = ErrorInfo("nan_logits", "made-up NaN")


class CheckedRunner(SimRunner):
    """A SimRunner that can be told to fail.

    Attributes:
        poisoned: requests on which the model raises, whoever rides with them.
        nan: requests whose logits are not a number.
        down: the model raises on everything.
        room: memory runs out in a step of more positions; None is no limit.
        forwards: forward passes that were begun.
    """

    def __init__(self, blocks: int, block_size: int, **options: object) -> None:
        super().__init__(blocks, block_size, **options)  # type: ignore[arg-type]
        self.poisoned: set[str] = set()
        self.nan: set[str] = set()
        self.down = False
        self.room: int | None = None
        self.forwards = 0

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        self.forwards += 1
        if self.room is not None and sum(row.count for row in rows) > self.room:
            raise MemoryError
        if self.down:
            raise RuntimeError("made-up fault of the whole model")
        if self.poisoned and any(row.request.id in self.poisoned for row in rows):
            raise RuntimeError("made-up fault of one request")
        results = super().forward(rows)
        if self.nan:
            results = [
                Sampled(-1, NAN) if result is not None and row.request.id in self.nan else result
                for row, result in zip(rows, results, strict=True)
            ]
        return results


class PlanCritic:
    """Looks at every plan of a scheduler before it is handed out."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._plan = scheduler.plan
        self._passed: Counter[str] = Counter()  # how often each waiting request was overtaken, by our own count
        self._count = 0
        self._boardings: dict[str, int] = {}  # the how-manieth to board each rider was, by our own count

    def plan(self, now: float) -> StepPlan:
        scheduler = self._scheduler
        decoding = [rider for rider in scheduler.seated.values() if rider.remaining == 1]
        entitled = {rider.id: (rider.level, self._boardings[rider.id]) for rider in scheduler.seated.values()}
        scheduler.queue.age(now)  # as the plan is about to; twice is once
        turns = heads(scheduler.queue)
        plan = self._plan(now)
        p02_exclusivity(plan, scheduler.pool)
        p03_coverage(plan, scheduler.pool)
        p03_slots(plan, scheduler.pool)
        p04_budget(plan, scheduler, decoding)
        p04_least_entitled_leave(plan, scheduler, entitled)
        p05_something_runs(plan, scheduler)
        p10_hits(plan, scheduler)
        p11_order(plan, scheduler)
        self._p11_overtaking(plan, turns)
        return plan

    def _p11_overtaking(self, plan: StepPlan, turns: dict[str, tuple[int, bool, float, int]]) -> None:
        for request in plan.boarded:
            self._count += 1
            self._boardings[request.id] = self._count
            turn = turns.pop(request.id, None)
            self._passed.pop(request.id, None)
            if turn is not None:
                self._passed.update(other for other, before in turns.items() if before < turn)
        for request_id, count in self._passed.items():
            assert count <= self._scheduler.overtake_limit, f"{request_id} was overtaken {count} times"


class CheckedCore(Core):
    def _make_scheduler(self, pool: BlockPool) -> Scheduler:
        scheduler = super()._make_scheduler(pool)
        scheduler.plan = PlanCritic(scheduler).plan  # type: ignore[method-assign]
        return scheduler


# ---------------------------------------------------------------------------------------------------- properties of a plan


def p02_exclusivity(plan: StepPlan, pool: BlockPool) -> None:
    """A block that is written in this step is referenced once, has no content address yet, and belongs to one row."""
    written: set[int] = set()
    for row in plan.rows:
        size = pool.block_size
        for index in range(row.start // size, (row.start + row.count - 1) // size + 1):
            block = row.request.blocks[index]
            assert pool.reference_count(block) == 1, f"{row.request.id} writes to block {block}, which others read"
            assert pool.content_of(block) is None, f"{row.request.id} writes to block {block}, which is indexed"
            assert block not in written, f"block {block} is written by two rows"
            written.add(block)


def p03_coverage(plan: StepPlan, pool: BlockPool) -> None:
    """Every planned position has a slot and follows what is computed; a row samples exactly when it reaches the last known token."""
    seen: set[str] = set()
    for row in plan.rows:
        request = row.request
        assert request.seat is not None and request.finish is None
        assert request.id not in seen, f"{request.id} has two rows"
        seen.add(request.id)
        assert row.count >= 1 and row.start == request.computed
        end = row.start + row.count
        known = request.known + len(row.draft)
        assert end <= known and end <= len(request.blocks) * pool.block_size
        assert row.samples == (end == known)
        if row.draft:  # all of it may come true, and the draw behind it
            assert known + 1 <= request.limit and row.start == request.known - 1 and row in plan.decodes


def p04_budget(plan: StepPlan, scheduler: Scheduler, decoding: Sequence[RequestState]) -> None:
    """Within the token budget and the seats; decodes come first, and prefill beside them is at most one chunk."""
    assert plan.positions <= scheduler.token_budget
    if plan.boarded:
        assert len(scheduler.seated) <= scheduler.seats
    assert all(row.count == 1 + len(row.draft) for row in plan.decodes)
    served = {row.request.id for row in plan.decodes}
    if len(plan.decodes) < scheduler.token_budget:
        left_out = [rider.id for rider in decoding if rider.seat is not None and rider.id not in served]
        assert not left_out, f"{left_out} could decode and did not"
    if plan.decodes:
        assert plan.prefill_positions <= scheduler.chunk
    if scheduler.policy is Policy.STATIC and plan.boarded:
        assert len(plan.boarded) == len(scheduler.seated), "someone boarded a bus under way"


def p04_least_entitled_leave(plan: StepPlan, scheduler: Scheduler, entitled: dict[str, tuple[int, int]]) -> None:
    """Who loses a seat is of the lowest class, and of these the last to board: nobody stays who is less entitled."""
    stayed = [entitled[rider.id] for rider in scheduler.seated.values() if rider.id in entitled]
    for victim in plan.preempted:
        assert all(rider < entitled[victim.id] for rider in stayed), f"{victim.id} had to leave before its turn"


def p05_something_runs(plan: StepPlan, scheduler: Scheduler) -> None:
    """If anyone is there, a step computes something: each of them fits alone, or it would have been refused."""
    assert plan.rows or not scheduler.busy, f"{len(scheduler.queue)} wait, {len(scheduler.seated)} sit, and nothing is planned"


def p10_hits(plan: StepPlan, scheduler: Scheduler) -> None:
    """A prefix hit is whole blocks, and the beginning of a copied one, its own to write to; a token is left to compute. (That the content
    is right, the runner checks at every read.)"""
    pool = scheduler.pool
    forks = {copy.target: copy for copy in scheduler.prefixes._copies if isinstance(copy, Fork)}
    assert len(forks) == sum(isinstance(copy, Fork) for copy in scheduler.prefixes._copies), "a block is the copy of two"
    for request in plan.boarded:
        assert request.computed < request.known
        if request.computed % pool.block_size:
            mine = request.blocks[request.computed // pool.block_size]
            assert forks.pop(mine).source != mine and pool.reference_count(mine) == 1
        assert all(pool.content_of(block) is not None for block in request.blocks[request.gone : request.computed // pool.block_size])
    assert not forks, "a copy for nobody"


def p11_order(plan: StepPlan, scheduler: Scheduler) -> None:
    """Within a chat and class arrival decides; nobody passes one that lost its seat; overtaking is bounded."""
    newcomers = [request for request in plan.boarded if not request.preemptions]
    for waiting in scheduler.queue:
        assert waiting.overtaken <= scheduler.overtake_limit
        for request in newcomers:
            if waiting.preemptions:
                assert waiting.level > request.level, f"{request.id} boarded before {waiting.id}, which had lost its seat"
            elif waiting.chat_id == request.chat_id and waiting.level == request.level:
                assert waiting.arrival > request.arrival, f"{request.id} boarded before its chat's earlier {waiting.id}"


# ------------------------------------------------------------------------------------------------- properties of the state


def p01_only_what_is_seen(scheduler: Scheduler, window: int) -> None:
    """A rider holds the blocks that its next position sees and those it is about to fill, no others; without a window, all."""
    size = scheduler.pool.block_size
    for rider in scheduler.seated.values():
        first_seen = max(0, rider.computed - window + 1) if window else 0
        assert rider.gone == first_seen // size
        assert all((block == 0) == (place < rider.gone) for place, block in enumerate(rider.blocks))


def p01_slots(scheduler: Scheduler, rules: CacheRules) -> None:
    """Every position that a rider's next one sees through a window lies in a slot, no slot holds two blocks, and blocks that hold nothing
    have none."""
    slots, size = scheduler.pool.slots, scheduler.pool.block_size
    assert (slots is not None) == (rules.slots > 0)
    if slots is None:
        return
    blocks = range(1, scheduler.pool.total + 1)
    lying = [slots.of(block) for block in blocks if slots.of(block)]
    assert len(set(lying)) == len(lying) == rules.slots - slots.free and all(1 <= slot <= rules.slots for slot in lying)
    for block in blocks:
        known = scheduler.pool.content_of(block) is not None or scheduler.pool.laid(block) is not None
        assert known or scheduler.pool.reference_count(block) or not slots.of(block), f"block {block} is free and has a slot"
    for rider in scheduler.seated.values():
        seen = range(max(0, rider.computed - rules.slot_window + 1), rider.computed)
        for position in seen:
            assert rider.slots[position // size] == slots.of(rider.blocks[position // size]) > 0
        again = rider.computed // size * size  # where it would go on, should it leave now and come back
        assert not any(rider.slots[: max(0, again - rules.slot_window + 1) // size])


def p03_slots(plan: StepPlan, pool: BlockPool) -> None:
    """Every planned position is written to a slot that is its block's, and nobody else's in this step."""
    if pool.slots is None:
        return
    written: set[int] = set()
    for row in plan.rows:
        for index in range(row.start // pool.block_size, (row.start + row.count - 1) // pool.block_size + 1):
            slot = row.request.slots[index]
            assert slot and slot == pool.slots.of(row.request.blocks[index]) and slot not in written
            written.add(slot)


def p10_children_go_first(pool: BlockPool, orphans: set[object]) -> None:
    """No cached block is evicted before the blocks that build on it: a child without its parent could never be hit. (Those whose
    parents a shrinking pool may have taken are another matter.)"""
    before: set[bytes] = set()
    for block in pool.eviction_order():
        content, laid = pool.content_of(block), pool.laid(block)
        if laid is not None and laid not in orphans:
            assert laid[0] not in before, "a parent would be evicted before its child"
        if content is not None:
            before.add(content)


def p10_laid(scheduler: Scheduler) -> None:
    """Every block of a beginning is found by its tokens; of what a rider has begun to fill, no more than it computed."""
    pool, size = scheduler.pool, scheduler.pool.block_size
    for block in pool.eviction_order():
        laid = pool.laid(block)
        assert laid is not None or pool.content_of(block) is not None
        assert laid is None or (len(laid[1]) == 8 * size) == (pool.content_of(block) is not None)
    for rider in scheduler.seated.values():
        for index in range(rider.gone, len(rider.blocks)):
            laid = pool.laid(rider.blocks[index])
            mine = array("q", rider.tokens[index * size : min(rider.computed, (index + 1) * size)]).tobytes()
            assert laid is None or mine.startswith(laid[1]), f"{rider.id} is said to have other tokens in its block {index}"


def boarding_order(queue: WaitingQueue) -> list[str]:
    """Who would board after whom, by the definition: class, then who lost a seat, then the least-served chat's earliest."""
    order: list[str] = []
    waiting = list(queue)
    for level in range(4):
        here = sorted((request for request in waiting if request.level == level), key=lambda request: request.arrival)
        order += [request.id for request in here if request.preemptions]
        lines: dict[str, list[RequestState]] = {}
        for request in here:
            if not request.preemptions:
                lines.setdefault(request.chat_id, []).append(request)
        counters = {chat: queue.fairness.counter(level, chat) for chat in lines}
        while lines:
            chat = min(lines, key=lambda chat: (counters[chat], lines[chat][0].arrival, chat))
            request = lines[chat].pop(0)
            order.append(request.id)
            counters[chat] += PROMPT_WEIGHT * request.known
            if not lines[chat]:
                del lines[chat]
    return order


def heads(queue: WaitingQueue) -> dict[str, tuple[int, bool, float, int]]:
    """The turn of everyone who may board next, by the definition: those who lost a seat, and the first of each chat."""
    turns: dict[str, tuple[int, bool, float, int]] = {}
    chats: set[tuple[int, str]] = set()
    for request in sorted(queue, key=lambda request: request.arrival):
        level, chat = request.level, request.chat_id
        if request.preemptions:
            turns[request.id] = (level, False, 0.0, request.arrival)
        elif (level, chat) not in chats:
            chats.add((level, chat))
            turns[request.id] = (level, True, queue.fairness.counter(level, chat), request.arrival)
    return turns


def owners(scheduler: Scheduler) -> list[set[int]]:
    """Who holds each block, block 1 first, read from the tables."""
    holders: list[set[int]] = [set() for _ in range(scheduler.pool.total)]
    for seat, rider in scheduler.seated.items():
        for block, count in Counter(rider.held).items():
            assert count == 1, f"{rider.id} has block {block} twice"
            holders[block - 1].add(seat)
    return holders
