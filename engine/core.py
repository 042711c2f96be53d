"""The engine without its thread: one object, one step at a time.

Owns the scheduler, the block pool, the requests and what is known of each step. The engine thread drives it with a real model,
the simulator with a model-free one and a virtual clock; the code is the same. Not thread-safe: whoever steps it, owns it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.blame import Blame
from engine.books import Books, Totals, seat_steps
from engine.company import Company
from engine.delivery import Delivery
from engine.explain import rest_of_text
from engine.kv.pool import BlockPool
from engine.kv.tier import HostTier
from engine.measures import Measures
from engine.relief import OutOfMemory, Relief
from engine.scheduling.chunk import ChunkTuner
from engine.scheduling.lookup import Lookup, may_draft
from engine.scheduling.plan import Runner, blocks
from engine.scheduling.request import Form, RequestState, Stream, TimeLedger, embedding_of
from engine.scheduling.scheduler import Scheduler
from engine.swapping import Swapping
from engine.types import (
    Counters,
    DecisionKind,
    EngineConfig,
    ErrorInfo,
    Event,
    FinishedEvent,
    FinishReason,
    Policy,
    Priority,
    RequestRefused,
    SamplingParams,
    Sentence,
    StepRecord,
    TokensEvent,
    Usage,
)

if TYPE_CHECKING:
    from engine.trace.recorder import Recorder


DRAFT = 8  # tokens that a row may guess beyond its next where nothing is configured and drafts pay


class Core:
    """Requests in, events out, one forward pass a step.

    Attributes:
        emit: called with each event of each request, in order, FinishedEvent last and once.
        books: what it has done. Given totals are counted on (another model was loaded, the engine is the same).
        unnoticed_s: so much recomputation of a returning chat's end is not felt; those blocks give way first. 0 is plain LRU, and the
            default: `omnibus bench eviction` shows a gain only when the pool holds less than a third of what all chats need.
        totals, history: of the books.
    """

    def __init__(
        self,
        runner: Runner,
        pool: BlockPool,
        config: EngineConfig,
        *,
        clock: Callable[[], float],
        emit: Callable[[Event], None],
        make_stream: Callable[[SamplingParams], Stream | None] = lambda params: None,
        eos_ids: frozenset[int] = frozenset(),
        totals: Totals | None = None,
    ) -> None:
        self.runner = runner
        self.pool = pool
        self.config = config
        self.clock = clock
        self.emit = emit
        self.make_request_stream: Callable[[str, SamplingParams], Stream | None] = lambda request_id, params: make_stream(params)
        self.eos_ids = eos_ids
        slots = config.tier_tokens // pool.block_size if runner.rules.resumable else 0
        self.tier = HostTier(slots) if slots else None
        self.swapping = Swapping(self)
        self.unnoticed_s = 0.0
        self.relief = Relief(self)
        self.company = Company(runner, config)
        self.scheduler = self._make_scheduler(pool)
        self.tuner = ChunkTuner(config.chunk, config.target_step_s, config.token_budget, config.adapt_chunk)
        self._adapt()
        self.measures = Measures()
        self.books = Books(totals or Totals())
        self.totals, self.history = self.books.totals, self.books.history
        self.scheduler.step = self.totals.steps
        self.blame = Blame(self)
        self.delivery = Delivery(self)
        self.requests: dict[str, RequestState] = {}
        self._arrivals = itertools.count()
        self.recorder: Recorder | None = None

    def _make_scheduler(self, pool: BlockPool) -> Scheduler:
        config = self.config
        if self.tier is not None:
            self.tier.clear()
        scheduler = Scheduler(
            pool,
            tier=self.tier,
            seats=self.company.seats(config),
            token_budget=self.relief.budget(self.most_positions),
            chunk=config.chunk,
            policy=self.company.policy(config),
            overtake_limit=config.overtake_limit,
            aging_s=config.aging_s,
            rules=self.runner.rules,
        )
        scheduler.draft_tokens = self.draft_tokens
        self.swapping.advise(scheduler.prefixes)
        return scheduler

    # ------------------------------------------------------------------------------------------------------ commands

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    @property
    def draft_tokens(self) -> int:
        """Most tokens that a row may guess beyond its next."""
        wanted = self.config.draft_tokens
        return wanted if wanted is not None else DRAFT if self.runner.drafts else 0

    @property
    def counters(self) -> Counters:
        return self.totals.counters()

    def check(self, tokens: Sequence[int], params: SamplingParams) -> int:
        """Can this ever run? Returns the most tokens the request may have; raises RequestRefused with the numbers."""
        params.check()
        if not tokens:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something first.")
        context, capacity = self.runner.context, self.pool.capacity
        if len(tokens) >= context:
            raise RequestRefused(
                "prompt_too_long",
                Sentence("The prompt has {0:,} tokens; the model's context holds {1:,} with room for the answer.", len(tokens), context),
                "Shorten the prompt or start a new chat.",
            )
        if len(tokens) >= capacity:
            raise RequestRefused(
                "pool_too_small",
                Sentence(
                    "The prompt has {0:,} tokens and needs {1} blocks; the whole KV pool holds {2:,} ({3} blocks).",
                    len(tokens),
                    self.pool.blocks_for(len(tokens) + 1),
                    capacity,
                    self.pool.total,
                ),
                "Shorten the prompt or give the engine a larger KV budget.",
            )
        return self._limit(len(tokens), params)

    def _limit(self, prompt: int, params: SamplingParams) -> int:
        """Most tokens that a request may have, prompt and answer."""
        return min(self.runner.context, self.pool.capacity, prompt + params.max_tokens if params.max_tokens else self.runner.context)

    def submit(
        self,
        request_id: str,
        tokens: Sequence[int],
        params: SamplingParams,
        *,
        chat_id: str,
        title: str,
        priority: Priority,
        seed: int,
        form: Form | None = None,
        salt: bytes = b"",
        since: float | None = None,
    ) -> RequestState:
        """Queue a request. Raises RequestRefused, and then nothing has changed.

        since: when the person asked, if that was earlier than now (a model was loading); its time split counts from there.
        """
        limit = self.check(tokens, params)
        if len(self.scheduler.queue) >= self.config.max_waiting:
            raise RequestRefused(
                "queue_full", Sentence("{0:,} requests are waiting already.", self.config.max_waiting), "Try again when some have finished."
            )
        if request_id in self.requests:
            raise RequestRefused("duplicate_id", Sentence("A request named {0} is running already.", request_id))
        now = self.clock()
        request = RequestState(
            id=request_id,
            chat_id=chat_id,
            title=title,
            params=params,
            priority=priority,
            arrival=next(self._arrivals),
            tokens=list(tokens),
            seed=seed,
            limit=limit,
            ledger=TimeLedger(now if since is None else min(since, now)),
            form=form,
            salt=self.company.salt(salt, request_id),
        )
        request.stream = self.make_request_stream(request_id, params)
        # A state that a layer keeps for a request cannot be taken back to where a draft went wrong.
        drafting = self.draft_tokens and self.runner.rules.resumable and not self.company.alone
        if drafting and form is None and may_draft(params):
            request.lookup = Lookup()
        self.requests[request_id] = request
        self.scheduler.add(request, now)
        self.totals.submitted += 1
        self.books.decide(DecisionKind.SUBMIT, request, Sentence("{0} tokens", len(tokens)))
        self._tape("submit", request=request)
        return request

    def cancel(self, request_id: str) -> bool:
        """End a request in any state; unknown and ended ones are left alone. Returns whether it was live."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self.end(request, FinishReason.CANCELLED, self.clock())
        self._tape("cancel", id=request_id)
        return True

    def fail(self, request_id: str, error: ErrorInfo) -> None:
        """End a live request with an error."""
        request = self.requests.get(request_id)
        if request is not None:
            self.end(request, FinishReason.ERROR, self.clock(), error)
            self._tape("fail", id=request_id, code=error.code, message=error.message)

    def forget(self, request_id: str) -> None:
        """Drop a waiting request without an event: the caller keeps it for another core."""
        request = self.requests.pop(request_id)
        self.scheduler.finish(request, FinishReason.CANCELLED, self.clock())
        self._tape("forget", id=request_id)

    def set_priority(self, request_id: str, priority: Priority) -> None:
        request = self.requests.get(request_id)
        if request is not None and request.priority is not priority:
            self.scheduler.reprioritise(request, priority, self.clock())
            self._tape("priority", id=request_id, priority=int(priority))

    def configure(
        self,
        *,
        seats: int | None = None,
        token_budget: int | None = None,
        policy: Policy | None = None,
        chunk: int | None = None,
        reproducible: bool | None = None,
    ) -> None:
        """Change what may change at run time. Raises EngineError("bad_config") and changes nothing when a value is out of range."""
        changes = {"seats": seats, "token_budget": token_budget, "policy": policy, "chunk": chunk, "reproducible": reproducible}
        given = {name: value for name, value in changes.items() if value is not None}
        config = replace(self.config, **given)  # type: ignore[arg-type]
        config.check()
        self.config = config
        if reproducible is not None:
            self.company.change(reproducible)
        scheduler = self.scheduler
        scheduler.seats = self.company.seats(config)
        scheduler.policy = self.company.policy(config)
        self.tuner.most = self.most_positions
        if chunk is not None:
            self.tuner.chunk = chunk
        self.set_budget()
        self.books.decide(DecisionKind.CONFIG, None, Sentence.listed([_change(name, value) for name, value in given.items()]))
        in_force = reproducible is not None or self.company.alone
        told = {"seats": scheduler.seats, "policy": scheduler.policy} if in_force else {}
        self._tape("configure", **{name: value for name, value in given.items() if name != "reproducible"} | told)

    @property
    def most_positions(self) -> int:
        """Of a step, by the configuration."""
        return max(self.config.token_budget, self.config.seats)

    def set_budget(self) -> None:
        """Hold steps to what is configured, or to what memory has room for."""
        self.scheduler.token_budget = self.relief.budget(self.most_positions)
        self.scheduler.chunk = min(self.tuner.chunk, self.scheduler.token_budget)

    def resize(self, num_blocks: int, asked: bool = True) -> int:
        """Grow or shrink the pool at run time; returns the size reached (blocks in use are not taken away).

        Requests that no longer fit the whole pool end: an answer that has begun at its new limit, one that has not with an error.

        Args:
            asked: else it is memory that makes it so, which a replay of the recording comes to by itself.
        """
        if num_blocks > self.pool.total:
            self.runner.resize(num_blocks)
        before, reached = self.pool.total, self.pool.resize(num_blocks)
        if reached < before:
            self.runner.resize(reached)
        for request in list(self.requests.values()):
            if request.known < self.pool.capacity:
                request.limit = self._limit(request.prompt_len, request.params)
                if request.seat is None:
                    self.scheduler.queue.note_limit(request)
            elif request.output_len:
                request.limit = request.known
                if rest := rest_of_text(request):
                    self.emit(TokensEvent(request.id, rest, ()))
                self.end(request, FinishReason.LENGTH, self.clock())
            else:
                numbers = Sentence("It needs {0} blocks; the KV pool now has {1}.", self.pool.blocks_for(request.known + 1), reached)
                error = ErrorInfo("pool_too_small", numbers, "Give the engine a larger KV budget.")
                self.end(request, FinishReason.ERROR, self.clock(), error)
        self.books.decide(DecisionKind.CONFIG, None, Sentence("pool {0} blocks", reached))
        if asked:
            self.relief.blocks = num_blocks
            self._tape("resize", blocks=num_blocks)
        return reached

    def clear_cache(self) -> int:
        count = self.pool.clear_cached()
        if self.tier is not None:
            self.tier.clear()
        self.books.decide(DecisionKind.EVICT, None, Sentence("{0} cached blocks cleared by hand", count))
        self._tape("clear")
        return count

    # ---------------------------------------------------------------------------------------------------------- step

    def step(self) -> StepRecord | None:
        """Plan, run, commit, record. None when there was nothing to run. Raises StepFailed when the model fails as a whole."""
        started = self.clock()
        evictions = self.pool.evictions
        plan = self.scheduler.plan(started)
        self.books.plan(plan, self.pool.evictions - evictions)
        for request in plan.preempted:
            self.runner.forget(request)
        rows = plan.rows
        if not rows:
            self._tape("step", rows=(), results=(), stopped=())
            return None
        seats, held = seat_steps(plan, self.scheduler.seated)  # now, since who ends in this step will have left its seat
        copying_s = self.swapping.carry_out()
        try:
            results = self.blame.run(rows)
        except OutOfMemory:
            self._tape("step", rows=rows, results=self.relief.give_way(rows), stopped=(), no_room=self.relief.no_room)
            self.scheduler.step -= 1  # nothing was computed: not a step
            return None
        if fault := self.blame.verdict(rows):
            self._tape("step", rows=rows, results=results, stopped=())
            raise fault
        now = self.clock()
        prompt_tokens, output_tokens = self.delivery.commit(rows, results, now)
        self.relief.calm(now)
        self._tape("step", rows=rows, results=results, stopped=self.delivery.stopped, no_room=self.relief.no_room)
        pairs = sum(row.count * (row.start + (row.count - 1) / 2) for row in plan.prefills)
        self.tuner.observe(now - started - copying_s, plan.prefill_positions, pairs, len(plan.decodes), plan.drafted)
        self._adapt()
        self.scheduler.tail_blocks = int((self.tuner.prefill_rate or 0.0) * self.unnoticed_s) // self.pool.block_size
        self.pool.check()
        if self.config.debug_audit:
            self.scheduler.audit()
        record = self.books.record(self.scheduler, self.pool, seats, held, started, now)
        self.measures.step(now, record.duration, len(rows), prompt_tokens, output_tokens)
        for request_id, error in self.delivery.broken:
            self.fail(request_id, error)
        return record

    def _adapt(self) -> None:
        """Have the scheduler reckon with what steps cost now."""
        scheduler, tuner = self.scheduler, self.tuner
        scheduler.chunk, scheduler.slope = min(tuner.chunk, scheduler.token_budget), tuner.slope
        scheduler.draft_cost = tuner.draft_cost

    def rebuild(self) -> None:
        """After a failure of the whole step: forget all KV, queue every live request again with its tokens untouched."""
        self._start_over(self.clock(), lost_seat=True)
        self._tape("rebuild")

    def restart_clean(self) -> float:
        """Put pool, queue and tuner back to their start, live requests waiting as if they had just come. Returns the time used."""
        now = self.clock()
        self.relief, self.swapping = Relief(self, self.relief.blocks), Swapping(self)
        self.tuner = ChunkTuner(self.tuner.chunk, self.tuner.target_s, self.tuner.most, self.tuner.adapt)
        self._start_over(now, lost_seat=False)
        return now

    def _start_over(self, now: float, lost_seat: bool) -> None:
        old = self.scheduler
        self.pool = BlockPool(self.pool.total, self.pool.block_size)
        self.scheduler = self._make_scheduler(self.pool)
        self.scheduler.inherit(old, fairness=lost_seat)
        self.scheduler.step = self.totals.steps
        self._adapt()
        # The requests are taken from the core's own book: the old scheduler may have failed half-way through a plan.
        for request in sorted(self.requests.values(), key=lambda item: item.arrival):
            request.ledger.charge(request.stands_in, now)
            self.runner.forget(request)
            if not lost_seat:
                request.preemptions = 0
            elif request.seat is not None:
                request.preemptions += 1
            request.start_over()
            self.scheduler.add(request, now)

    # ---------------------------------------------------------------------------------------------------------- ends

    def end(self, request: RequestState, reason: FinishReason, now: float, error: ErrorInfo | None = None) -> None:
        """A live request comes to its end: seat and blocks are free at once, and the last event is sent."""
        kind = DecisionKind.FINISH
        why: str = Sentence("came to its end")
        if reason is FinishReason.LENGTH:
            why = Sentence("reached its limit of {0} tokens", request.limit)
        elif reason is FinishReason.CANCELLED:
            kind, why = DecisionKind.CANCEL, Sentence("cancelled")
        elif reason is FinishReason.ERROR:
            kind, why = DecisionKind.FAIL, error.message if error else Sentence("failed")
        self.books.decide(
            kind,
            request,
            Sentence("{0} after {1} tokens; {2} back", why, request.output_len, blocks(len(request.held))),
        )
        self.scheduler.finish(request, reason, now)
        self.runner.forget(request)
        del self.requests[request.id]
        self.books.end(reason)
        said = 0 if request.params.pooling is not None else request.output_len
        usage = Usage(request.prompt_len, said, request.cached_tokens)
        self.emit(FinishedEvent(request.id, reason, usage, request.ledger.split(), error, embedding_of(request)))

    # ------------------------------------------------------------------------------------------------------- records

    def _tape(self, kind: str, **values: Any) -> None:
        if self.recorder is not None:
            self.recorder.note(kind, **values)

    def decide(self, kind: DecisionKind, detail: str) -> None:
        """Tell of something decided about no request in particular."""
        self.books.decide(kind, None, detail)


def _change(name: str, value: Any) -> Sentence:
    """A setting and what it is now, for the log."""
    match name:
        case "seats":
            return Sentence("seats {0}", value)
        case "token_budget":
            return Sentence("token_budget {0}", value)
        case "policy":
            return Sentence("policy {0}", value)
        case "chunk":
            return Sentence("chunk {0}", value)
    return Sentence("reproducible {0}", value)
