"""P1 to P15, the properties that a scheduler with a paged cache must have, over random operations on tiny pools.

 P1  conservation: every block in exactly one class; counts equal the tables that hold it      Core.step, World.audit
     nobody holds a block behind its window; what a window sees lies in slots                   p01_only_what_is_seen, p01_slots
 P2  exclusivity: a block being written is referenced once and not indexed                     p02_exclusivity
 P3  coverage: planned tokens have slots, positions are contiguous                             p03_coverage
 P4  budget: tokens, seats, decodes first, one chunk; the least entitled leave                 p04_…
 P5  progress: something runs, and tokens keep coming                                          p05_something_runs, World._p05_progress
 P6  termination: everyone ends, exactly once, last                                            Book.note, World.drain
 P7  reject early: with the numbers, and nothing changes                                       World.submit
 P8  preemption is invisible: token by token what it would be without                          Book._token
 P9  isolation: token by token what it is alone                                                Book._token
 P10 prefix safety: right content, a token left to compute, children evicted first             CheckedRunner, p10_…, World._evicted
 P11 order: arrival within a chat, bounded overtaking, who lost a seat boards first            p11_order, CheckedScheduler.plan
 P12 fairness: backlogged chats are served alike, an idle one saves nothing up                 test_fairness.py
 P13 cancellation: in any state, at once, twice, unknown                                       World.cancel, Book._token
 P14 fault containment: one request's fault is its own; the loop lives                         World.fail_one, .fail_all, .run_short
 P15 snapshot truth: what the dashboard shows is what is; time adds up                         World.compare_snapshot, Book.check_times

They run as a Hypothesis machine, which shrinks what it finds, and by a fast seeded driver over the very same operations, which makes
up the million. OMNIBUS_TEST_PROFILE=long runs ten times as many.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from engine.types import Policy, Priority, SamplingParams
from tests.engine.scheduling.driver import CHATS, STEMS, blast
from tests.engine.scheduling.world import VOCAB, World, WorldConfig

LONG = os.environ.get("OMNIBUS_TEST_PROFILE") == "long"
SCALE = 10 if LONG else 1
SHARDS = 10
BLAST = 1_000_000 * SCALE  # operations of the fast driver, all shards together
EXAMPLES, STEPS = 300 * SCALE, 60


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Made-up faults are logged with their tracebacks, thousands of them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


tokens = st.integers(0, VOCAB - 1)
prompts = st.one_of(
    st.lists(tokens, max_size=20),
    st.builds(lambda stem, shared, tail: stem[:shared] + tail, st.sampled_from(STEMS), st.integers(0, 30), st.lists(tokens, max_size=4)),
)
answers = st.builds(
    lambda longest, least, stop, ignore: SamplingParams(
        max_tokens=longest, min_tokens=min(least, longest or least), stop_token_ids=stop, ignore_eos=ignore
    ),
    st.one_of(st.none(), st.integers(1, 16)),
    st.integers(0, 4),
    st.one_of(st.just(()), st.tuples(tokens)),
    st.booleans(),
)
priorities = st.sampled_from(list(Priority))
which = st.integers(0, 40)
configs = st.builds(
    WorldConfig,
    blocks=st.integers(1, 12),
    block_size=st.integers(1, 4),
    seats=st.integers(1, 4),
    token_budget=st.sampled_from((1, 2, 4, 8, 16)),
    chunk=st.integers(1, 8),
    adapt_chunk=st.booleans(),
    policy=st.sampled_from(list(Policy)),
    overtake_limit=st.integers(0, 3),
    aging_s=st.sampled_from((0.02, 0.3, 1e9)),
    max_waiting=st.integers(1, 12),
    context=st.sampled_from((5, 12, 1 << 20)),
    tier_tokens=st.sampled_from((0, 4, 20)),
    restored_block=st.sampled_from((0.0, 0.001, 0.012)),
    resumable=st.booleans(),
    window=st.sampled_from((0, 0, 1, 3, 6, 20)),
    slot_window=st.sampled_from((0, 1, 3, 6, 20)),
    slot_riders=st.integers(1, 3),
    slots_more=st.sampled_from((0, 1, 5)),
    draft_tokens=st.sampled_from((0, 1, 4)),
    twin_tokens=st.sampled_from((1, 4, 64)),
    typical=st.sampled_from((0.0, 4.0, 64.0)),
)


class BusMachine(RuleBasedStateMachine):
    world: World
    operations = 0  # of all examples together

    @initialize(config=configs)
    def begin(self, config: WorldConfig) -> None:
        self.world = World(config)

    @rule(prompt=prompts, params=answers, chat=st.sampled_from(CHATS), priority=priorities, twins=st.sampled_from((1, 1, 1, 2)))
    def submit(self, prompt: list[int], params: SamplingParams, chat: str, priority: Priority, twins: int) -> None:
        for _ in range(twins):
            self.world.submit(prompt, params, chat, priority)

    @precondition(lambda self: self.world.book.entries)
    @rule(which=which, cut=st.sampled_from((0, 0, 0, 1, 2, 5)), more=st.lists(tokens, max_size=4), params=answers)
    def come_back(self, which: int, cut: int, more: list[int], params: SamplingParams) -> None:
        said = list(self.world.book.entries.values())[which % len(self.world.book.entries)]
        known = said.prompt + said.answer
        self.world.submit(known[: len(known) - cut] + more, params, said.chat, Priority.FOREGROUND)

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @rule(which=which)
    def cancel(self, which: int) -> None:
        self.world.cancel(which)

    @rule()
    def cancel_unknown(self) -> None:
        self.world.cancel_unknown()

    @rule(which=which, priority=priorities)
    def reprioritise(self, which: int, priority: Priority) -> None:
        self.world.reprioritise(which, priority)

    @rule(
        seats=st.one_of(st.none(), st.integers(1, 4)),
        token_budget=st.one_of(st.none(), st.integers(1, 16)),
        chunk=st.one_of(st.none(), st.integers(1, 8)),
        policy=st.one_of(st.none(), st.sampled_from(list(Policy))),
    )
    def configure(self, seats: int | None, token_budget: int | None, chunk: int | None, policy: Policy | None) -> None:
        self.world.configure(seats=seats, token_budget=token_budget, chunk=chunk, policy=policy)

    @rule(name=st.sampled_from(("seats", "token_budget", "chunk")), value=st.integers(-1, 0))
    def configure_badly(self, name: str, value: int) -> None:
        self.world.configure_badly(**{name: value})

    @rule(blocks=st.integers(1, 12))
    def resize(self, blocks: int) -> None:
        self.world.resize(blocks)

    @rule()
    def clear_cache(self) -> None:
        self.world.clear_cache()

    @rule(seconds=st.sampled_from((0.01, 0.1, 1.0, 100.0)))
    def gap(self, seconds: float) -> None:
        self.world.gap(seconds)

    @precondition(lambda self: self.world.core.scheduler.seated)
    @rule(which=which, nan=st.booleans())
    def fail_one(self, which: int, nan: bool) -> None:
        self.world.fail_one(which, nan)

    @precondition(lambda self: self.world.core.busy)
    @rule()
    def fail_all(self) -> None:
        self.world.fail_all()

    @rule(room=st.integers(1, 6), steps=st.integers(1, 8))
    def run_short(self, room: int, steps: int) -> None:
        self.world.run_short(room, steps)

    @rule()
    def compare_snapshot(self) -> None:
        self.world.compare_snapshot()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()
            BusMachine.operations += self.world.ops


@pytest.mark.slow
def test_p01_to_p15_as_a_state_machine_that_shrinks() -> None:
    BusMachine.operations = 0
    run_state_machine_as_test(
        BusMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck), derandomize=not LONG
        ),
    )
    assert BusMachine.operations >= EXAMPLES * 20


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_p01_to_p15_over_a_million_random_operations(shard: int) -> None:
    assert blast(seed=shard, operations=BLAST // SHARDS) >= BLAST // SHARDS


def test_the_shards_make_up_a_million() -> None:
    assert SHARDS * (BLAST // SHARDS) >= 1_000_000
