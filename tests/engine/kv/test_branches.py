"""The index of what goes on from where, against its definition: the block that shares most, and no block that another makes needless."""

from __future__ import annotations

import random
from array import array

import pytest

from engine.kv.branches import Branches, shared_tokens
from engine.kv.pool import ROOT, BlockPool, chain_hash
from engine.kv.slots import WindowSlots


def packed(*tokens: int) -> bytes:
    return array("q", tokens).tobytes()


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [((), (1,), 0), ((1, 2, 3), (1, 2), 2), ((1, 256), (1, 257), 1), ((256,), (512,), 0), ((-1, 2), (-1, 2), 2), ((2, 1), (3, 1), 0)],
)
def test_tokens_are_shared_whole(one: tuple[int, ...], other: tuple[int, ...], count: int) -> None:
    assert shared_tokens(packed(*one), packed(*other)) == shared_tokens(packed(*other), packed(*one)) == count


@pytest.mark.parametrize("seed", range(6))
def test_the_closest_is_the_one_that_shares_most(seed: int) -> None:
    """Random blocks behind a few stems, laid, dropped and looked up; what stands there is told by the definition."""
    rnd = random.Random(seed)
    index, stems = Branches(), [b"x", b"y"]
    there: dict[int, tuple[bytes, tuple[int, ...]]] = {}
    for step in range(600):
        stem, tokens = rnd.choice(stems), tuple(rnd.choice((0, 1, 255, 256)) for _ in range(rnd.randint(1, 5)))
        mine = [(block, held) for block, (other, held) in there.items() if other == stem]
        beyond = {block for block, held in mine if held[: len(tokens)] == tokens}
        short = {block for block, held in mine if held == tokens[: len(held)] and held != tokens}
        assert set(index.beyond(stem, packed(*tokens))) == beyond
        assert {index.short_of(stem, packed(*tokens))} - {0} == short
        if not beyond and not short:
            index.add(step + 1, stem, packed(*tokens))
            there[step + 1] = (stem, tokens)
        elif rnd.random() < 0.5:
            block = rnd.choice(list(there))
            index.drop(block)
            index.drop(block)
            del there[block]
        useful = {block for block in there if rnd.random() < 0.7}
        shared = {block: shared_tokens(packed(*there[block][1]), packed(*tokens)) for block in useful if there[block][0] == stem}
        best, count = index.closest(stem, packed(*tokens), useful.__contains__)
        assert count == max(shared.values(), default=0) and (best in useful and shared[best] == count if count else best == 0)
        assert len(index) == len(there) and index.fault() == ""
    assert len(there) > 5


def test_a_block_whose_windowed_layers_lost_it_makes_no_other_needless() -> None:
    """It is of use to nobody who goes on in its middle; full, it still counts for those who have all of it."""
    pool = BlockPool(6, 2)
    pool.slots = WindowSlots(2)
    lost, short, mine = pool.take(3, 0) or ()
    content = chain_hash(ROOT, [1, 2])
    pool.register(lost, content)
    pool.lay(lost, ROOT, packed(1, 2))
    pool.lay(short, ROOT, packed(3))
    pool.release([lost, short], 0)
    assert pool.closest(ROOT, packed(1, 9)) == (0, 0)
    pool.slots.allot(mine)
    assert pool.lay(mine, ROOT, packed(1)) == mine and pool.closest(ROOT, packed(1, 9)) == (mine, 1)
    assert pool.laid(lost) is None and pool.lookup([content]) == [lost]
    assert pool.lay(mine, ROOT, packed(3)) == mine and pool.laid(short) is None and pool.free == 4, "nobody could use that one"
    pool.audit([(0, [mine])])
