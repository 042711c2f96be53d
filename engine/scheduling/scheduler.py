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
from collections.abc import Iterator

from engine.kv.pool import BlockPool
from engine.kv.tier import HostTier
from engine.scheduling.chunk import DRAFT_COST
from engine.scheduling.drafts import PLAIN_AFTER, with_drafts
from engine.scheduling.growth import GrowthEstimate
from engine.scheduling.plan import CacheRules, Row, StepPlan, blocks, seats_taken
from engine.scheduling.policy import BoardingPolicy, make_policy
from engine.scheduling.prefix import Prefixes
from engine.scheduling.queue import OUTPUT_WEIGHT, PROMPT_WEIGHT, Fairness, WaitingQueue
from engine.scheduling.reading import entitlement, plan_prefills, room_for_first
from engine.scheduling.request import RequestState
from engine.types import Decision, DecisionKind, FinishReason, Policy, Priority, Sentence, WaitReason


class Scheduler:
    """Seats, queue and plan.

    Attributes:
        chunk, slope: weight of the prefill positions that may ride beside decodes in one step, and what makes a position heavy (see
            chunk.py); the engine adapts both between steps.
        noted: to whom the last plan gave a reason to wait.
        prefixes: what of requests' beginnings is cached or being computed.
        tail_blocks: blocks at the end of a finished chat that are computed again before a person would notice; first to be evicted.
        draft_tokens, draft_cost: most tokens that a decode row may guess beyond its next, and what each costs (see drafts.py); the engine
            adapts the cost between steps.
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
        self.prefixes = Prefixes(pool, tier, rules or CacheRules())
        self.tail_blocks = 0
        self.draft_tokens = 0
        self.draft_cost = DRAFT_COST
        self._guessed = 0  # steps with drafts in a row
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
        self._order: list[RequestState] = []  # the seated, most entitled first
        self._growth = 0  # blocks that the seated are expected to want: the sum of theirs
        self._decisions: list[Decision] = []
        self._boarded: list[RequestState] = []
        self.noted: list[RequestState] = []

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
            embedded = request.params.pooling is not None
            if reason in (FinishReason.STOP, FinishReason.LENGTH) and not embedded:
                self.growth.learn(request.output_len)
            # A chore's blocks, or those that are quickly read again, go before what a returning chat would miss.
            chore = request.priority is Priority.IDLE or embedded
            self._unseat(request, cheap=len(request.held) if chore else self.tail_blocks)
        self.fairness.leave(request.chat_id)

    def reprioritise(self, request: RequestState, priority: Priority, now: float) -> None:
        if request.seat is None:
            self.queue.reclass(request, priority, now)
        else:
            self._order.remove(request)
            request.priority = priority
            request.level = int(priority)
            insort(self._order, request, key=entitlement)

    # ---------------------------------------------------------------------------------------------------------- plan

    def plan(self, now: float) -> StepPlan:
        """The next step's rows; empty when nothing can run. Decisions are numbered as that step's."""
        self.step += 1
        self._decisions, self._boarded, self.noted = [], [], []
        self.queue.age(now)
        decodes, preempted = self._plan_decodes(now)
        if not preempted and self.queue:
            preempted = self._admit(now)
            if preempted:
                decodes = [row for row in decodes if row.request not in preempted]
        prefills = self._plan_prefills(decodes)
        if self.draft_tokens and decodes and not prefills:  # the first token of whoever is being read is worth more than a guess
            decodes = self._with_drafts(decodes)
        if not decodes and not prefills:
            self.step -= 1  # nothing to run: not a step
        return StepPlan(tuple(decodes), tuple(prefills), tuple(self._decisions), tuple(preempted), tuple(self._boarded))

    def _plan_decodes(self, now: float) -> tuple[list[Row], list[RequestState]]:
        rows: list[Row] = []
        preempted: list[RequestState] = []
        order, size, budget = list(self._order), self.pool.block_size, self.token_budget
        slotting = self.prefixes.slotting
        for request in order:  # victims leave it at its end
            computed = request.computed
            if len(request.tokens) - computed != 1:
                continue
            if len(rows) == budget:
                break
            while computed >= len(request.blocks) * size and not self._grow(request):  # the next position needs a slot
                victim = order.pop()
                self._preempt(victim, now, Sentence("{0} needed a block and none was free", request.title or request.id))
                preempted.append(victim)
                if victim is request:
                    break
            else:
                if slotting is not None:
                    slotting.cover(request, computed + 1)
                rows.append(Row(request, computed, 1, True))
        return rows, preempted

    def _with_drafts(self, decodes: list[Row]) -> list[Row]:
        """Guesses for a step that only decodes; a group on tour says its tokens one by one, as static batches do.

        Now and then one goes without, so that both costs stay known.
        """
        self._guessed += 1
        if self._policy.name is Policy.STATIC or self._guessed > PLAIN_AFTER:
            self._guessed = 0
            return decodes
        size, slotting = self.pool.block_size, self.prefixes.slotting
        rows = with_drafts(decodes, self.draft_tokens, self.token_budget, size, self.draft_cost, slotting)
        if not any(row.draft for row in rows):
            self._guessed = 0
        return rows

    def _grow(self, request: RequestState) -> bool:
        assert request.seat is not None
        blocks = self.pool.take(1, request.seat)
        if blocks is None:
            return False
        request.blocks += blocks
        self._expect(request, self.growth.blocks(request))
        return True

    def _plan_prefills(self, decodes: list[Row]) -> list[Row]:
        """Fill what is left of the budget with prompts; their blocks were taken when they boarded."""
        budget = self.token_budget - sum(row.count for row in decodes)
        if budget <= 0 or len(decodes) == len(self.seated):
            return []
        boarded = self.step  # who boarded in this step had no decode, even if a prefix hit left it one position …
        served = {row.request.id for row in decodes}  # … unless that step ran out of memory and this is its second try
        reading = [
            rider
            for rider in self.seated.values()
            if len(rider.tokens) - rider.computed != 1 or (rider.boarded_step == boarded and rider.id not in served)
        ]
        slope = 0.0
        if decodes:
            budget, slope = min(budget, self.chunk), self.slope
        elif len(reading) > 1:  # the first token of one need not wait for the prompts of all
            budget, slope = min(budget, max(self.chunk, room_for_first(reading, self.slope))), self.slope
        return plan_prefills(reading, budget, slope, self.prefixes.slotting)

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
                self._wait(request, WaitReason.TURN, Sentence("{0} lost its seat and boards first", returning.title or returning.id))
                break
            lower = self._lower(request)
            if len(self.seated) - len(lower) >= self._seats:
                self._wait(request, WaitReason.SEATS, seats_taken(len(self.seated), self._seats))
                break
            hits = self.prefixes.hits(request)
            twin = self._twin(request, len(hits))
            leaving = None if twin else self._make_room(request, hits, lower)
            if twin is not None:
                self._wait(request, WaitReason.PREFIX, Sentence("{0} is computing the same beginning", twin.title or twin.id))
            if leaving is None:
                passed.append(request)
                if request.preemptions and returning is None:
                    returning = request
                if request.overtaken >= self.overtake_limit or len(passed) > self.overtake_limit:
                    break
                continue
            for victim in leaving:
                self._preempt(victim, now, Sentence("{0} is of a higher class", request.title or request.id))
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

    def _fits(self, request: RequestState, hits: list[int], leaving: list[RequestState]) -> bool:
        """Does its whole need fit, with the watermark for what the seated are expected to grow? Notes the numbers."""
        slotting = self.prefixes.slotting
        if slotting is not None and not slotting.fits(len(self.seated) - len(leaving) + 1):
            self._wait(
                request,
                WaitReason.BLOCKS,
                Sentence("needs {0} of the {1} window slots; others have them", slotting.share, slotting.slots.total),
            )
            return False
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
        words = Sentence("needs {0}, {1} available", blocks(need), spare)
        if reserve:
            words = Sentence("{0}, {1} kept for growth", words, reserve)
        self._wait(request, WaitReason.BLOCKS, words)
        return False

    def _expect(self, rider: RequestState, growth: int) -> None:
        """Keep the sum of what the seated are expected to grow: looked at anew whenever one of them takes a block."""
        self._growth += growth - rider.growth
        rider.growth = growth

    def _twin(self, request: RequestState, hits: int) -> RequestState | None:
        """Another that it is better to wait for. The tour bus would leave without it; nor does it wait when it was passed often enough."""
        if self._policy.name is Policy.STATIC or request.overtaken >= self.overtake_limit:
            return None
        return self.prefixes.twin(request, hits)

    def _board(self, request: RequestState, hits: list[int], now: float) -> None:
        request.ledger.charge(request.stands_in, now)
        self.queue.remove(request)
        seat = heapq.heappop(self._free_seats) if self._free_seats else len(self.seated)
        request.seat = seat
        self.seated[seat] = request
        self._expect(request, self.growth.blocks(request))
        settled = self.prefixes.settle(request, hits, seat)
        self._boarding += 1
        request.boarding = self._boarding
        insort(self._order, request, key=entitlement)
        request.boarded_step = self.step
        request.decode_step = None
        request.overtaken = 0
        self._boarded.append(request)
        if not request.preemptions:
            request.cached_tokens = request.computed
            self.queue.served(request, PROMPT_WEIGHT * (request.known - request.computed))
        words = [Sentence("{0} tokens", request.known), blocks(settled.fresh)]
        if cached := settled.found * self._block_size + settled.copied:
            words.append(Sentence("{0} tokens from the prefix cache", cached))
        if settled.copied:
            words.append(Sentence("{0} of them copied", settled.copied))
        if settled.restored:
            words.append(Sentence("{0} brought back", blocks(settled.restored)))
        said = Sentence.listed(words)
        self._decide(DecisionKind.ADMIT, request, Sentence("{0} (again)", said) if request.preemptions else said)

    def _preempt(self, request: RequestState, now: float, why: str) -> None:
        """Take the seat and the blocks; the tokens stay, and what was computed is recomputed later."""
        request.ledger.charge(request.stands_in, now)
        self._decide(DecisionKind.PREEMPT, request, Sentence("{0}; gives back {1}", why, blocks(len(request.held))))
        self._unseat(request)
        request.preemptions += 1
        self.preemptions += 1
        request.computed = 0
        request.registered = 0
        self.queue.add(request, now)
        self._wait(request, WaitReason.PREEMPTED, Sentence("gave its blocks to others, boards again first"))

    def _unseat(self, request: RequestState, cheap: int = 0) -> None:
        assert request.seat is not None
        self.prefixes.leave(request, cheap)
        del self.seated[request.seat]
        heapq.heappush(self._free_seats, request.seat)
        self._order.remove(request)
        self._expect(request, 0)
        request.blocks, request.gone = [], 0
        request.seat = None

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
        prefixes = self.prefixes
        if prefixes.shares:
            if computed // self._block_size > request.registered:
                prefixes.register(request)
            if start < request.prompt_len <= computed:
                prefixes.end_of_prompt(request)
        if prefixes.window:
            prefixes.give_back(request)
        elif prefixes.slotting is not None:
            prefixes.slotting.give_back(request)
        if token is not None:
            tokens.append(token)
            request.ledger.token(now)
            chat_id, served = request.chat_id, self.fairness.served[request.level]
            served[chat_id] = served.get(chat_id, 0.0) + OUTPUT_WEIGHT
            self.queue.version += 1

    # ------------------------------------------------------------------------------------------------------- insides

    def audit(self) -> None:
        """The full check of the ledger against every block table; raises PoolError."""
        self.pool.audit((seat, request.held) for seat, request in self.seated.items())
        if self.prefixes.slotting is not None:
            self.prefixes.slotting.audit(self.seated.values())

    def _wait(self, request: RequestState, reason: WaitReason, detail: str) -> None:
        request.wait_reason = reason
        request.wait_detail = detail
        request.reason_step = self.step
        self.noted.append(request)

    def _decide(self, kind: DecisionKind, request: RequestState, detail: str) -> None:
        self._decisions.append(Decision(self.step, kind, request.id, request.chat_id, request.title, request.seat, detail))
