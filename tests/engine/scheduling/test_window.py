"""Blocks behind a sliding window: which they are, what can still be hit, and that others get them."""

from __future__ import annotations

from engine.kv.pool import ROOT, BlockPool, chain_hash
from engine.scheduling.plan import CacheRules
from engine.scheduling.window import blocks_behind, hits_in_window
from engine.sim import Sim, expected_answer
from engine.types import EngineConfig, Priority, SamplingParams


def test_blocks_behind() -> None:
    assert [blocks_behind(position, 4, 2) for position in range(9)] == [0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert blocks_behind(10**6, 0, 2) == 0


def make_chain(count: int) -> list[bytes]:
    chain: list[bytes] = []
    for number in range(count):
        chain.append(chain_hash(chain[-1] if chain else ROOT, [number, number]))
    return chain


def test_a_hit_needs_the_last_window_alone() -> None:
    pool, chain = BlockPool(6, 2), make_chain(6)
    blocks = pool.take(6, holder=0)
    assert blocks is not None
    for place in (0, 2, 3, 5):  # 1 and 4 were evicted
        pool.register(blocks[place], chain[place])
    assert hits_in_window(pool, chain, window=5) == [0, 0, blocks[2], blocks[3]]  # position 8 sees 4 to 8
    assert hits_in_window(pool, chain, window=6) == [blocks[0]]  # position 8 would see 3 too, which is gone
    assert hits_in_window(pool, chain[1:2], window=5) == []


def make_sim(blocks: int, window: int, seats: int = 4) -> Sim:
    config = EngineConfig(seats=seats, token_budget=8, chunk=8, adapt_chunk=False, debug_audit=True)
    return Sim(config, blocks=blocks, block_size=2, rules=CacheRules(window=window))


def test_others_ride_on_what_was_given_back() -> None:
    """Two long answers side by side in a pool that holds one of them, were every block kept: nobody loses its seat."""
    asked = SamplingParams(max_tokens=30, ignore_eos=True)
    for window, preempted in ((0, True), (6, False)):
        sim = make_sim(20, window)
        sim.core.scheduler.growth.blocks = lambda request: 0  # type: ignore[method-assign]
        for seed, name in enumerate("ab"):
            sim.core.submit(name, [seed, 2, 3], asked, chat_id=name, title="", priority=Priority.FOREGROUND, seed=seed)
        most = 0
        while sim.core.busy:
            sim.core.step()
            most = max(most, sim.core.pool.referenced)
        assert (sim.core.totals.preemptions > 0) is preempted
        assert most <= (2 * 4 if window else 20)
        assert sim.core.pool.referenced == 0
        assert [sim.tokens(name) for name in "ab"] == [expected_answer([seed, 2, 3], seed, 30) for seed in (0, 1)]
