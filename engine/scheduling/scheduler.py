"""Decides, before every step, who rides: the design's five questions asked anew each time.

Owns the seats, the queue and the use it makes of the block pool. No torch, no thread, no clock of its own (`now` comes in), so
that the very same object serves the engine, the simulator, the trace replay and a million random operations in a test.

One step: `plan` (allocates while it plans) → the caller runs the model → `commit` for each row that was computed. A request is
ended by `finish` from any state. What planning decided is told in `Decision` records.

Entitlement orders the seated: priority class first, then who boarded earlier. Decodes are planned from the most entitled on and
blocks are taken back from the least entitled, so a victim is never one that this plan already serves.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator

from engine.kv.pool import BlockPool
from engine.kv.tier import HostTier
from engine.scheduling.chunk import ChunkTuner, count_within, weight_of
from engine.scheduling.growth import GrowthEstimate
from engine.scheduling.lookup import MOST_DECODES
from engine.scheduling.plan import CacheRules, Row, StepPlan, block_word
from engine.scheduling.policy import BoardingPolicy, make_policy
from engine.scheduling.queue import OUTPUT_WEIGHT, PROMPT_WEIGHT, Fairness, WaitingQueue
from engine.scheduling.request import RequestState
from engine.scheduling.window import blocks_behind, hits_in_window
from engine.types import Decision, DecisionKind, FinishReason, Phase, Policy, Priority, WaitReason

TWIN_TOKENS = 64
FLOOR_SHARE = 4  # a prompt that waits longest gets at least 1/4 of a step's prefill


class Scheduler:
    """Seats, queue and plan.

    Attributes:
        chunk, slope: weight of the prefill positions that may ride beside decodes in one step, and what makes a position heavy (see
            chunk.py); the engine adapts both between steps.
        twin_tokens: so many tokens of a beginning that another is computing right now are worth waiting for.
        tail_blocks: blocks at the end of a finished chat that are computed again before a person would notice; first to be evicted.
        draft_tokens: most tokens that a decode row may guess beyond its next.
        restore_pays: does bringing back this many blocks from the second tier beat computing them again?
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
        tier: HostTier | None = None,
        rules: CacheRules | None = None,
    ) -> None:
        self.pool = pool
        self._block_size = pool.block_size
        rules = rules or CacheRules()
        self._shares = rules.resumable  # else blocks are of use to the request that filled them alone
        self._window = rules.window
        self.tier = tier
        if tier is not None:
            pool.on_evict = tier.save
        self.twin_tokens = TWIN_TOKENS
        self.tail_blocks = 0
        self.draft_tokens = 0
        self.restore_pays: Callable[[int], bool] = lambda blocks: True
        self.token_budget = token_budget
        self.chunk = chunk
        self.slope = 0.0
        self.overtake_limit = overtake_limit
        self.fairness = Fairness()
        self.queue = WaitingQueue(self.fairness, aging_s)
        self.seated: dict[int, RequestState] = {}
        self.growth = GrowthEstimate(pool.block_size)
        self.preemptions = 0
        self.step = 0
        self._seats = seats
        self._free_seats: list[int] = []  # a heap of the numbers below the highest taken one
        self._boarding = 0
        self._policy: BoardingPolicy = make_policy(policy)
        self._reading: dict[bytes, RequestState] = {}  # prefix blocks that a seated request is computing right now
        self._order: list[RequestState] = []  # the seated, most entitled first
        self._growth = 0  # blocks that the seated are expected to want: the sum of theirs
        self._decisions: list[Decision] = []
        self._boarded: list[RequestState] = []

    def inherit(self, old: Scheduler, fairness: bool) -> None:
        """Go on where a scheduler that lost its blocks stopped: what it learned, and who was served how much; not its requests."""
        self.growth = old.growth
        if fairness:
            self.fairness.inherit(old.fairness)

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
            # A chore's blocks, or those that are quickly read again, go before what a returning chat would miss.
            chore = request.priority is Priority.IDLE
            self._unseat(request, cheap=len(request.held) if chore else self.tail_blocks)
        self.fairness.leave(request.chat_id)

    def reprioritise(self, request: RequestState, priority: Priority, now: float) -> None:
        if request.seat is None:
            self.queue.reclass(request, priority, now)
        else:
            self._order.remove(request)
            request.priority = priority
            request.level = int(priority)
            insort(self._order, request, key=_entitlement)

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, now: float) -> StepPlan:
        """The next step's rows; empty when nothing can run. Decisions are numbered as that step's."""
        self.step += 1
        self._decisions, self._boarded = [], []
        self.queue.age(now)
        decodes, preempted = self._plan_decodes(now)
        if not preempted and self.queue:
            preempted = self._admit(now)
            if preempted:
                decodes = [row for row in decodes if row.request not in preempted]
        prefills = self._plan_prefills(decodes)
        if not decodes and not prefills:
            self.step -= 1  # nothing to run: not a step
        return StepPlan(tuple(decodes), tuple(prefills), tuple(self._decisions), tuple(preempted), tuple(self._boarded))

    def _plan_decodes(self, now: float) -> tuple[list[Row], list[RequestState]]:
        rows: list[Row] = []
        preempted: list[RequestState] = []
        order, size, budget = list(self._order), self.pool.block_size, self.token_budget
        for request in order:  # victims leave it at its end
            computed = request.computed
            if len(request.tokens) - computed != 1:
                continue
            if len(rows) == budget:
                break
            while computed >= len(request.blocks) * size and not self._grow(request):  # the next position needs a slot
                victim = order.pop()
                self._preempt(victim, now, f"{request.title or request.id} needed a block and none was free")
                preempted.append(victim)
                if victim is request:
                    break
            else:
                rows.append(Row(request, computed, 1, True))
        if self.draft_tokens and not self.queue and 0 < len(rows) <= MOST_DECODES:
            rows = self._with_drafts(rows)
        return rows, preempted

    def _with_drafts(self, rows: list[Row]) -> list[Row]:
        """The same decodes with what may follow, within the blocks that they have: a draft takes nothing from anybody."""
        left, drafted = self.token_budget - len(rows), []
        for row in rows:
            request, draft = row.request, ()  # type: RequestState, tuple[int, ...]
            if request.lookup is not None and row.start >= request.prompt_len:  # an answer that has begun
                slots = len(request.blocks) * self._block_size - row.start - 1
                most = min(self.draft_tokens, slots, left, request.limit - request.known - 1)
                draft = request.lookup.draft(request.tokens, most)
            left -= len(draft)
            drafted.append(Row(request, row.start, 1 + len(draft), True, draft) if draft else row)
        return drafted

    def _grow(self, request: RequestState) -> bool:
        assert request.seat is not None
        blocks = self.pool.take(1, request.seat)
        if blocks is None:
            return False
        request.blocks += blocks
        self._expect(request, self.growth.blocks(request))
        return True

    def _plan_prefills(self, decodes: list[Row]) -> list[Row]:
        """Fill what is left of the budget with prompts; their blocks were taken when they boarded.

        Prompts are finished one after another, shortest remaining first within a class, with a floor for the oldest: filling all
        together would give a whole cohort its first token at the same late moment.
        """
        budget = self.token_budget - sum(row.count for row in decodes)
        slope = 0.0
        if decodes:
            budget, slope = min(budget, self.chunk), self.slope
        if budget <= 0 or len(decodes) == len(self.seated):
            return []
        boarded = self.step  # who boarded in this step had no decode, even if a prefix hit left it one position …
        served = {row.request.id for row in decodes}  # … unless that step ran out of memory and this is its second try
        reading = [
            rider
            for rider in self.seated.values()
            if len(rider.tokens) - rider.computed != 1 or (rider.boarded_step == boarded and rider.id not in served)
        ]
        reading.sort(key=lambda request: (request.level, request.remaining, request.boarding))
        oldest = min(reading, key=_entitlement)
        floor = 0.0 if oldest is reading[0] else max(1.0, budget // FLOOR_SHARE)
        floor = min(floor, weight_of(oldest.computed, oldest.remaining, slope))
        left = budget - floor  # a weight; positions never weigh less than 1
        rows = []
        for request in reading:
            own = left + (floor if request is oldest else 0.0)
            count = count_within(own, request.computed, slope)
            if request is oldest:  # however far into its prompt it is
                count = max(count, min(ChunkTuner.SMALLEST, int(own)))
            count = min(count, request.remaining)
            if count <= 0:
                continue
            left = own - weight_of(request.computed, count, slope)
            rows.append(Row(request, request.computed, count, count == request.remaining))
        return rows

    # ----------------------------------------------------------------------------------------------------- admission

    def _admit(self, now: float) -> list[RequestState]:
        """Seat whom there is room for. Returns those who lost their seat to a higher class."""
        boarded = 0
        passed: list[RequestState] = []  # looked at, and not boarding in this step
        returning: RequestState | None = None  # the first of these that lost its seat: newcomers do not pass it
        for request in self.queue.candidates():
            if not self._policy.open(len(self.seated), boarded):
                self._wait(request, self._policy.closed, self._policy.words)
                break
            if returning is not None and not request.preemptions:
                self._wait(request, WaitReason.TURN, f"{returning.title or returning.id} lost its seat and boards first")
                break
            lower = self._lower(request)
            if len(self.seated) - len(lower) >= self._seats:
                self._wait(request, WaitReason.SEATS, f"{len(self.seated)} of {self._seats} seats are taken")
                break
            hits = self._hits(request)
            twin = self._twin_reading(request, len(hits))
            leaving = None if twin else self._make_room(request, hits, lower)
            if twin is not None:
                self._wait(request, WaitReason.PREFIX, f"{twin.title or twin.id} is computing the same beginning")
            if leaving is None:
                passed.append(request)
                if request.preemptions and returning is None:
                    returning = request
                if request.overtaken >= self.overtake_limit or len(passed) > self.overtake_limit:
                    break
                continue
            for victim in leaving:
                self._preempt(victim, now, f"{request.title or request.id} is of a higher class")
            self._board(request, hits, now)
            boarded += 1
            for behind in passed:
                behind.overtaken += 1
            if leaving:  # those who just lost their seat are looked at in the next step, like everyone
                return leaving
            if any(behind.overtaken >= self.overtake_limit for behind in passed):
                break
        return []

    def _lower(self, request: RequestState) -> list[RequestState]:
        """Riders of a lower class, who may have to give their seat to it, least entitled first."""
        if self._policy.name is not Policy.IN_FLIGHT:
            return []
        riders = []
        for rider in reversed(self._order):
            if rider.level <= request.level:
                break
            riders.append(rider)
        return riders

    def _make_room(self, request: RequestState, hits: list[int], lower: list[RequestState]) -> list[RequestState] | None:
        """Who must leave so that it can board: nobody, or the fewest of `lower`. None: it has to wait."""
        fewest = max(0, len(self.seated) - self._seats + 1)
        for count in range(fewest, len(lower) + 1):
            if self._fits(request, hits, lower[:count]):
                return lower[:count]
        return None

    def _hits(self, request: RequestState) -> list[int]:
        """Cached blocks with the request's own beginning; at least one token is left to compute."""
        if request.reads_all or not self._shares:
            return []
        full = (request.known - 1) // self.pool.block_size
        chain = request.hashes(full, self.pool.block_size)
        return hits_in_window(self.pool, chain, self._window) if self._window else self.pool.lookup(chain)

    def _fits(self, request: RequestState, hits: list[int], leaving: list[RequestState]) -> bool:
        """Does its whole need fit, with the watermark for what the seated are expected to grow? Notes the numbers."""
        need = self.pool.blocks_for(request.known) - len(hits)
        spare = self.pool.available - self.pool.idle_among(block for block in hits if block)
        if leaving:
            kept = set(hits)
            held = Counter(block for rider in leaving for block in rider.held if block not in kept)
            spare += sum(self.pool.reference_count(block) == count for block, count in held.items())
        if len(leaving) == len(self.seated):
            reserve = 0  # alone it can always grow to the end of the pool
        else:
            reserve = self._growth - sum(rider.growth for rider in leaving) + self.growth.blocks(request)
        request.needed_blocks = need
        if need + reserve <= spare:
            return True
        words = f", {reserve} kept for growth" if reserve else ""
        self._wait(request, WaitReason.BLOCKS, f"needs {need} {block_word(need)}, {spare} available{words}")
        return False

    def _expect(self, rider: RequestState, growth: int) -> None:
        """Keep the sum of what the seated are expected to grow: looked at anew whenever one of them takes a block."""
        self._growth += growth - rider.growth
        rider.growth = growth

    def _twin_reading(self, request: RequestState, hits: int) -> RequestState | None:
        """A seated request that is computing a long beginning which this one would need too: better to wait than to do it twice.

        Not for a short one, which is computed in the step that the wait would cost; not on the tour bus, which would leave without
        it; nor for one that has been overtaken often enough.
        """
        if not self._reading or self._policy.name is Policy.STATIC or request.overtaken >= self.overtake_limit or request.reads_all:
            return None
        full = (request.known - 1) // self.pool.block_size
        if hits == full:
            return None
        chain = request.hashes(full, self.pool.block_size)
        twin = self._reading.get(chain[hits])
        last = hits + -(-self.twin_tokens // self.pool.block_size) - 1
        if twin is None or last >= full or self._reading.get(chain[last]) is not twin:
            return None
        return None if self.tier is not None and chain[hits] in self.tier else twin

    def _restorable(self, request: RequestState, hits: int) -> list[bytes]:
        """Contents behind the device's hits that the second tier holds, if bringing them back pays."""
        if self.tier is None or request.reads_all:
            return []
        full = (request.known - 1) // self.pool.block_size
        found = []
        for content in request.hashes(full, self.pool.block_size)[hits:]:
            if content not in self.tier:
                break
            found.append(content)
        return found if found and self.restore_pays(len(found)) else []

    def _board(self, request: RequestState, hits: list[int], now: float) -> None:
        request.ledger.charge(request.stands_in, now)
        self.queue.remove(request)
        seat = heapq.heappop(self._free_seats) if self._free_seats else len(self.seated)
        request.seat = seat
        self.seated[seat] = request
        self._expect(request, self.growth.blocks(request))
        gone = hits.count(0) if self._window else 0  # all of them leading
        self.pool.share(hits[gone:], seat)
        restored = self._restorable(request, len(hits))
        slots = self.tier.claim(restored) if self.tier is not None else []
        fresh = self.pool.take(self.pool.blocks_for(request.known) - len(hits), seat)
        assert fresh is not None, "a request boarded that does not fit"
        request.blocks = hits + fresh
        request.gone = gone
        request.registered = len(hits)
        request.computed = len(hits) * self.pool.block_size
        if self.tier is not None and slots:
            self.tier.restore(slots, fresh[: len(slots)])
            request.computed += len(slots) * self.pool.block_size
            self._register(request)
        self._boarding += 1
        request.boarding = self._boarding
        insort(self._order, request, key=_entitlement)
        request.boarded_step = self.step
        request.decode_step = None
        request.overtaken = 0
        self._boarded.append(request)
        if not request.preemptions:
            request.cached_tokens = request.computed
            self.queue.served(request, PROMPT_WEIGHT * (request.known - request.computed))
        if self._shares:
            full = (request.known - 1) // self.pool.block_size
            for content in request.hashes(full, self.pool.block_size)[request.registered :]:
                self._reading.setdefault(content, request)
        words = f"{request.known} tokens, {len(fresh)} blocks"
        if hits:
            words += f", {len(hits) * self.pool.block_size} tokens from the prefix cache"
        if slots:
            words += f", {len(slots)} blocks brought back"
        self._decide(DecisionKind.ADMIT, request, words + (" (again)" if request.preemptions else ""))

    def _preempt(self, request: RequestState, now: float, why: str) -> None:
        """Take the seat and the blocks; the tokens stay, and what was computed is recomputed later."""
        request.ledger.charge(request.stands_in, now)
        self._decide(DecisionKind.PREEMPT, request, f"{why}; gives back {len(request.held)} {block_word(len(request.held))}")
        self._unseat(request)
        request.preemptions += 1
        self.preemptions += 1
        request.computed = 0
        request.registered = 0
        self.queue.add(request, now)
        self._wait(request, WaitReason.PREEMPTED, "gave its blocks to others, boards again first")

    def _unseat(self, request: RequestState, cheap: int = 0) -> None:
        assert request.seat is not None
        self._stop_reading(request)
        self.pool.release(request.held, request.seat, cheap)
        del self.seated[request.seat]
        heapq.heappush(self._free_seats, request.seat)
        self._order.remove(request)
        self._expect(request, 0)
        request.blocks, request.gone = [], 0
        request.seat = None

    def _stop_reading(self, request: RequestState) -> None:
        full = min((request.known - 1) // self.pool.block_size, len(request._hashes))
        for content in request.hashes(full, self.pool.block_size)[request.registered :]:  # what is indexed is no longer being read
            if self._reading.get(content) is request:
                del self._reading[content]

    # -------------------------------------------------------------------------------------------------------- commit

    def commit(self, row: Row, token: int | None, now: float) -> None:
        """Book a computed row, and the token it gave. The request may have been ended since; then nothing happens."""
        request = row.request
        if request.seat is None:
            return
        start, tokens = row.start, request.tokens
        if start + 1 != len(tokens) or start < request.prompt_len:  # decoding goes on, and is booked when it ends
            request.ledger.charge(request.stands_in, now)
        request.computed = computed = start + row.count
        if self._shares and computed // self._block_size > request.registered:
            self._register(request)
        if self._window:
            self._give_back(request)
        if token is not None:
            tokens.append(token)
            request.ledger.token(now)
            chat_id, served = request.chat_id, self.fairness.served[request.level]
            served[chat_id] = served.get(chat_id, 0.0) + OUTPUT_WEIGHT
            self.queue.version += 1

    def _give_back(self, request: RequestState) -> None:
        """Blocks that its next position no longer sees are of more use to others; of all cached ones they are the first to be evicted."""
        gone = blocks_behind(request.computed, self._window, self._block_size)
        if gone > request.gone:
            assert request.seat is not None
            behind = request.blocks[request.gone : gone]
            self.pool.release(behind, request.seat, cheap=len(behind))
            request.blocks[request.gone : gone] = [0] * len(behind)
            request.gone = gone

    def _register(self, request: RequestState) -> None:
        """Index blocks that became full; where the content is there already, use that block and give ours back."""
        size = self.pool.block_size
        full = request.computed // size
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
        self.pool.audit((seat, request.held) for seat, request in self.seated.items())

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
    return Phase.DECODE if (row.count == 1 or row.draft) and row.start >= row.request.prompt_len else Phase.PREFILL
