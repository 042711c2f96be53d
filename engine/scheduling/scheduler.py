"""Decides, before every step, who rides: the design's five questions asked anew each time.

Owns the seats, the queue and the use it makes of the block pool. No torch, no thread, no clock of its own (`now` comes in), so
that the very same object serves the engine, the simulator, the trace replay and a million random operations in a test.

One step: `plan` (allocates while it plans) → the caller runs the model → `commit` for each row that was computed. A request is
ended by `finish` from any state. What planning decided is told in `Decision` records.

Entitlement orders the seated: priority class first, then who boarded earlier. Decodes are planned from the most entitled on and
blocks are taken back from the least entitled, so a victim is never one that this plan already serves.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.kv.pool import BlockPool
from engine.scheduling.growth import GrowthEstimate
from engine.scheduling.plan import Row, StepPlan
from engine.scheduling.policy import BoardingPolicy, make_policy
from engine.scheduling.queue import OUTPUT_WEIGHT, PROMPT_WEIGHT, Fairness, WaitingQueue
from engine.scheduling.request import RequestState
from engine.types import Decision, DecisionKind, FinishReason, Phase, Policy, Priority, WaitReason

FLOOR_SHARE = 4  # a prompt that waits longest gets at least 1/4 of a step's prefill


class Scheduler:
    """Seats, queue and plan.

    Attributes:
        chunk: most prefill positions beside decodes in one step; the engine adapts it between steps.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        seats: int,
        token_budget: int,
        chunk: int,
        policy: Policy = Policy.IN_FLIGHT,
        overtake_limit: int = 8,
        aging_s: float = 30.0,
    ) -> None:
        self.pool = pool
        self.token_budget = token_budget
        self.chunk = chunk
        self.overtake_limit = overtake_limit
        self.fairness = Fairness()
        self.queue = WaitingQueue(self.fairness, aging_s)
        self.seated: dict[int, RequestState] = {}
        self.growth = GrowthEstimate(pool.block_size)
        self.preemptions = 0
        self.step = 0
        self._seats = seats
        self._boarding = 0
        self._policy: BoardingPolicy = make_policy(policy)
        self._reading: dict[bytes, RequestState] = {}  # prefix blocks that a seated request is computing right now
        self._decisions: list[Decision] = []

    # ------------------------------------------------------------------------------------------------------ settings

    @property
    def policy(self) -> Policy:
        return self._policy.name

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = make_policy(policy)

    @property
    def seats(self) -> int:
        """Seats on offer. Lowering it unseats no one: taken seats above it empty as their riders finish."""
        return self._seats

    @seats.setter
    def seats(self, seats: int) -> None:
        self._seats = seats

    @property
    def busy(self) -> bool:
        return bool(self.seated or self.queue)

    def requests(self) -> Iterator[RequestState]:
        """Every live request, seated ones first."""
        yield from self.seated.values()
        yield from self.queue

    # ------------------------------------------------------------------------------------------------------- come, go

    def add(self, request: RequestState, now: float) -> None:
        self.fairness.arrive(request.chat_id)
        self.queue.add(request, now)

    def finish(self, request: RequestState, reason: FinishReason, now: float) -> None:
        """End a request in any state: its seat and blocks are free at once."""
        request.ledger.charge(request.stands_in, now)
        request.finish = reason
        if request.seat is None:
            self.queue.remove(request)
        else:
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                self.growth.learn(request.output_len)
            self._unseat(request)
        self.fairness.leave(request.chat_id)

    def reprioritise(self, request: RequestState, priority: Priority, now: float) -> None:
        if request.seat is None:
            self.queue.reclass(request, priority, now)
        else:
            request.priority = priority
            request.level = int(priority)

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, now: float) -> StepPlan:
        """The next step's rows; empty when nothing can run. Decisions are numbered as that step's."""
        self.step += 1
        self._decisions = []
        self.queue.age(now)
        order = sorted(self.seated.values(), key=_entitlement)
        decodes, preempted = self._plan_decodes(order, now)
        if not preempted:
            preempted = self._admit(now)
            decodes = [row for row in decodes if row.request not in preempted]
        prefills = self._plan_prefills(decodes)
        if not decodes and not prefills:
            self.step -= 1  # nothing to run: not a step
        return StepPlan(tuple(decodes), tuple(prefills), tuple(self._decisions), tuple(preempted))

    def _plan_decodes(self, order: list[RequestState], now: float) -> tuple[list[Row], list[RequestState]]:
        rows: list[Row] = []
        preempted: list[RequestState] = []
        served = 0
        while served < len(order):
            request = order[served]
            served += 1
            if request.remaining != 1 or len(rows) >= self.token_budget:
                continue
            while not self._grow(request):
                victim = order.pop()
                self._preempt(victim, now, f"{request.title or request.id} needed a block and none was free")
                preempted.append(victim)
                if victim is request:
                    break
            else:
                rows.append(Row(request, request.computed, 1, samples=True))
        return rows, preempted

    def _grow(self, request: RequestState) -> bool:
        """Make sure the next position has a slot."""
        if request.computed < len(request.blocks) * self.pool.block_size:
            return True
        assert request.seat is not None
        blocks = self.pool.take(1, request.seat)
        if blocks is None:
            return False
        request.blocks += blocks
        return True

    def _plan_prefills(self, decodes: list[Row]) -> list[Row]:
        """Fill what is left of the budget with prompts; their blocks were taken when they boarded.

        Prompts are finished one after another, shortest remaining first within a class, with a floor for the oldest: filling all
        together would give a whole cohort its first token at the same late moment.
        """
        budget = self.token_budget - len(decodes)
        if decodes:
            budget = min(budget, self.chunk)
        decoding = {row.request.id for row in decodes}
        reading = [request for request in self.seated.values() if request.id not in decoding]
        if budget <= 0 or not reading:
            return []
        reading.sort(key=lambda request: (request.level, request.remaining, request.boarding))
        oldest = min(reading, key=_entitlement)
        floor = 0 if oldest is reading[0] else min(oldest.remaining, max(1, budget // FLOOR_SHARE))
        left = budget - floor
        rows = []
        for request in reading:
            count = min(request.remaining, left + (floor if request is oldest else 0))
            if count <= 0:
                continue
            left -= count - (floor if request is oldest else 0)
            rows.append(Row(request, request.computed, count, samples=count == request.remaining))
        return rows

    # ----------------------------------------------------------------------------------------------------- admission

    def _admit(self, now: float) -> list[RequestState]:
        """Seat whom there is room for. Returns those who lost their seat to a higher class."""
        preempted: list[RequestState] = []
        boarded = 0
        blocked: list[RequestState] = []
        for request in self.queue.candidates():
            if not self._policy.open(len(self.seated), boarded):
                self._wait(request, self._policy.closed, self._policy.words)
                break
            twin = self._twin_reading(request)
            if twin is not None:
                self._wait(request, WaitReason.PREFIX, f"{twin.title or twin.id} is computing the same beginning")
                continue
            victims = self._make_room(request)
            if victims is None:
                if request.wait_reason is WaitReason.SEATS:
                    break
                blocked.append(request)
                if request.overtaken >= self.overtake_limit or len(blocked) > self.overtake_limit:
                    break
                continue
            for victim in victims:
                self._preempt(victim, now, f"{request.title or request.id} is of a higher class")
            preempted += victims
            self._board(request, now)
            boarded += 1
            for behind in blocked:
                behind.overtaken += 1
            if preempted:  # those who just lost their seat are looked at in the next step, like everyone
                break
        return preempted

    def _make_room(self, request: RequestState) -> list[RequestState] | None:
        """Who must leave so that it can board: nobody, or riders of a lower class, least entitled first. None: it has to wait."""
        lower = []
        if self._policy.name is Policy.IN_FLIGHT:
            lower = sorted((rider for rider in self.seated.values() if rider.level > request.level), key=_entitlement, reverse=True)
        leaving: list[RequestState] = []
        if len(self.seated) >= self._seats:
            if len(self.seated) - len(lower) >= self._seats:
                self._wait(request, WaitReason.SEATS, f"{len(self.seated)} of {self._seats} seats are taken")
                return None
            leaving = lower[: len(self.seated) - self._seats + 1]
        while not self._fits(request, leaving):
            if len(leaving) == len(lower):
                return None
            leaving = lower[: len(leaving) + 1]
        return leaving

    def _hits(self, request: RequestState) -> list[int]:
        """Cached blocks with the request's own beginning; at least one token is left to compute."""
        full = (request.known - 1) // self.pool.block_size
        return self.pool.lookup(request.hashes(full, self.pool.block_size))

    def _fits(self, request: RequestState, leaving: list[RequestState]) -> bool:
        """Does its whole need fit, with the watermark for what the seated are expected to grow? Notes the numbers."""
        hits = self._hits(request)
        need = self.pool.blocks_for(request.known) - len(hits)
        kept = set(hits)
        freed = sum(1 for rider in leaving for block in rider.blocks if self.pool.reference_count(block) == 1 and block not in kept)
        spare = self.pool.available - self.pool.idle_among(hits) + freed
        others = [rider for rider in self.seated.values() if rider not in leaving]
        reserve = self.growth.reserve(request, others) if others else 0
        request.needed_blocks = need
        if need + reserve <= spare:
            return True
        held = f", {reserve} kept for growth" if reserve else ""
        self._wait(request, WaitReason.BLOCKS, f"needs {need} blocks, {spare} available{held}")
        return False

    def _twin_reading(self, request: RequestState) -> RequestState | None:
        """A seated request that is computing the very block which this one would need next."""
        if not self._reading:
            return None
        full = (request.known - 1) // self.pool.block_size
        chain = request.hashes(full, self.pool.block_size)
        hits = len(self.pool.lookup(chain))
        if hits == full:
            return None
        twin = self._reading.get(chain[hits])
        return None if twin is request else twin

    def _board(self, request: RequestState, now: float) -> None:
        request.ledger.charge(request.stands_in, now)
        self.queue.remove(request)
        self.fairness.board(request.chat_id)
        taken = set(self.seated)
        seat = next(number for number in range(len(taken) + 1) if number not in taken)
        hits = self._hits(request)
        request.seat = seat
        self.seated[seat] = request
        self.pool.share(hits, seat)
        fresh = self.pool.take(self.pool.blocks_for(request.known) - len(hits), seat)
        assert fresh is not None, "a request boarded that does not fit"
        request.blocks = hits + fresh
        request.registered = len(hits)
        request.computed = len(hits) * self.pool.block_size
        self._boarding += 1
        request.boarding = self._boarding
        request.boarded_step = self.step
        request.overtaken = 0
        if not request.preemptions:
            request.cached_tokens = request.computed
            self.queue.served(request.chat_id, PROMPT_WEIGHT * (request.known - request.computed))
        full = (request.known - 1) // self.pool.block_size
        for content in request.hashes(full, self.pool.block_size)[len(hits) :]:
            self._reading.setdefault(content, request)
        words = f"{request.known} tokens, {len(fresh)} blocks" + (f", {request.computed} tokens from the prefix cache" if hits else "")
        self._decide(DecisionKind.ADMIT, request, words + (" (again)" if request.preemptions else ""))

    def _preempt(self, request: RequestState, now: float, why: str) -> None:
        """Take the seat and the blocks; the tokens stay, and what was computed is recomputed later."""
        request.ledger.charge(request.stands_in, now)
        self._decide(DecisionKind.PREEMPT, request, f"{why}; gives back {len(request.blocks)} blocks")
        self._unseat(request)
        request.preemptions += 1
        self.preemptions += 1
        request.computed = 0
        request.registered = 0
        self.queue.add(request, now)
        self._wait(request, WaitReason.PREEMPTED, "gave its blocks to others, boards again first")

    def _unseat(self, request: RequestState) -> None:
        assert request.seat is not None
        self._stop_reading(request)
        self.pool.release(request.blocks, request.seat)
        del self.seated[request.seat]
        request.blocks = []
        request.seat = None

    def _stop_reading(self, request: RequestState) -> None:
        full = (request.known - 1) // self.pool.block_size
        for content in request.hashes(min(full, len(request._hashes)), self.pool.block_size):
            if self._reading.get(content) is request:
                del self._reading[content]

    # -------------------------------------------------------------------------------------------------------- commit

    def commit(self, row: Row, token: int | None, now: float) -> None:
        """Book a computed row, and the token it gave. The request may have been ended since; then nothing happens."""
        request = row.request
        if request.finish is not None or request.seat is None:
            return
        request.ledger.charge(request.stands_in, now)
        request.computed = row.start + row.count
        self._register(request)
        if token is None:
            return
        if request.ledger.first_token is None:
            request.ledger.first_token = now
        request.tokens.append(token)
        self.queue.served(request.chat_id, OUTPUT_WEIGHT)

    def _register(self, request: RequestState) -> None:
        """Index blocks that became full; where the content is there already, use that block and give ours back."""
        size = self.pool.block_size
        full = request.computed // size
        if full == request.registered:
            return
        assert request.seat is not None
        chain = request.hashes(full, size)
        for index in range(request.registered, full):
            mine = request.blocks[index]
            kept = self.pool.register(mine, chain[index])
            if kept != mine:
                self.pool.replace(mine, kept, request.seat)
                request.blocks[index] = kept
            if self._reading.get(chain[index]) is request:
                del self._reading[chain[index]]
        request.registered = full

    # ------------------------------------------------------------------------------------------------------- insides

    def audit(self) -> None:
        """The full check of the ledger against every block table; raises PoolError."""
        self.pool.audit((seat, request.blocks) for seat, request in self.seated.items())

    def _wait(self, request: RequestState, reason: WaitReason, detail: str) -> None:
        request.wait_reason = reason
        request.wait_detail = detail
        request.reason_step = self.step

    def _decide(self, kind: DecisionKind, request: RequestState, detail: str) -> None:
        self._decisions.append(Decision(self.step, kind, request.id, request.chat_id, request.title, request.seat, detail))


def _entitlement(request: RequestState) -> tuple[int, int]:
    return request.level, request.boarding


def phase_of(row: Row) -> Phase:
    """What a row does: a decode, or part of a prefill (recomputation included)."""
    return Phase.DECODE if row.count == 1 and row.start >= row.request.prompt_len else Phase.PREFILL
