"""The ledger of window slots: which block lies where, who claims it, and whose slot is taken first; against a model over random work."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from engine.kv.pool import ROOT, BlockPool, PoolError, chain_hash
from engine.kv.slots import WindowSlots


def test_a_slot_is_kept_for_its_block_until_another_needs_it() -> None:
    slots = WindowSlots(2)
    assert [slots.allot(7), slots.allot(9)] == [1, 2] and slots.of(7) == 1
    with pytest.raises(PoolError, match="all 2 window slots"):
        slots.allot(5)
    slots.give_up(7, passed=False)
    slots.give_up(9, passed=True)
    assert (slots.free, slots.idle, slots.claimed) == (0, 2, 0)
    assert slots.allot(5) == 2 and slots.of(9) == 0, "what somebody rode past gives way before where somebody left off"
    assert slots.claim(7) == 1 and slots.reclaimed == 1
    with pytest.raises(PoolError, match="no slot to claim"):
        slots.claim(9)


def test_the_last_of_several_riders_lets_a_slot_go() -> None:
    slots = WindowSlots(3)
    slots.allot(4)
    slots.claim(4)
    slots.give_up(4, passed=True)
    assert slots.claimed == 1
    with pytest.raises(PoolError, match="gets other content"):
        slots.drop(4)
    slots.give_up(4, passed=True)
    slots.drop(4)
    slots.drop(4)  # it has none, and that is fine
    assert slots.free == 3 and slots.of(4) == 0
    with pytest.raises(PoolError, match="once too often"):
        slots.give_up(4, passed=True)


def test_what_several_read_at_once_outlives_what_one_left() -> None:
    """Three chats begin with block 1; it is passed by all of them, and stays for the next."""
    slots = WindowSlots(3)
    slots.allot(1)
    slots.claim(1)
    slots.give_up(1, passed=True)
    slots.allot(2)
    slots.give_up(2, passed=False)
    slots.give_up(1, passed=True)
    slots.allot(3)
    slots.give_up(3, passed=True)
    taken = [next(block for block in (1, 2, 3) if before[block] and not slots.of(block)) for before in _after(slots, (4, 5, 6))]
    assert taken == [3, 2, 1]
    slots.give_up(4, passed=True)
    slots.drop(4)
    slots.audit({5: 1, 6: 1})


def _after(slots: WindowSlots, new: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """What lay where before each of the new blocks got a slot, told after it did."""
    for block in new:
        before = {number: slots.of(number) for number in (1, 2, 3)}
        slots.allot(block)
        yield before


def test_a_twin_without_a_slot_takes_mine() -> None:
    slots = WindowSlots(3)
    mine = slots.allot(1)
    assert slots.hand_over(1, 2) == mine and slots.of(1) == 0 and slots.of(2) == mine
    theirs = slots.allot(3)
    assert slots.hand_over(2, 3) == theirs and slots.idle == 1, "it has one of its own, and mine is kept while mine holds the content"
    slots.audit({3: 2})
    with pytest.raises(PoolError, match="alone"):
        slots.hand_over(3, 2)


def test_the_audit_finds_what_does_not_add_up() -> None:
    slots = WindowSlots(2)
    slots.allot(1)
    with pytest.raises(PoolError, match="riders claim"):
        slots.audit({})
    slots._free.pop()
    with pytest.raises(PoolError, match="lost"):
        slots.audit({1: 1})


def test_the_pool_takes_the_slots_of_blocks_that_get_other_content() -> None:
    """Evicted, let go without content, cleared by hand, and cut off by a smaller pool."""
    pool, slots = BlockPool(6, 2), WindowSlots(6)
    pool.slots = slots
    blocks = pool.take(6, holder=0)
    assert blocks is not None
    parent = ROOT
    for number, block in enumerate(blocks):
        slots.allot(block)
        parent = chain_hash(parent, [number])
        if number:  # the first has no content that anyone could look for
            pool.register(block, parent)
        slots.give_up(block, passed=False)
    pool.release(blocks, holder=0)
    assert slots.of(blocks[0]) == 0 and slots.free == 1 and slots.idle == 5
    taken = pool.take(2, holder=0)  # the free one, and the end of the chain
    assert taken is not None and slots.of(blocks[5]) == 0 and slots.of(blocks[4])
    pool.release(taken, holder=0)
    pool.resize(4)
    assert slots.of(blocks[4]) == 0 and slots.of(blocks[3])
    pool.clear_cached()
    assert slots.free == 6
    slots.audit({})


def test_random_work_against_a_plain_model() -> None:
    rng, total = random.Random(3), 5
    slots, claims, lies = WindowSlots(total), Counter[int](), dict[int, int]()
    for _ in range(4000):
        block = rng.randrange(12)
        chance = rng.random()
        if chance < 0.35 and block not in lies and len(+claims) < total:
            slot = slots.allot(block)
            lies = {other: where for other, where in lies.items() if where != slot}
            lies[block], claims[block] = slot, 1
        elif chance < 0.5 and block in lies:
            assert slots.claim(block) == lies[block]
            claims[block] += 1
        elif chance < 0.8 and claims[block]:
            slots.give_up(block, passed=rng.random() < 0.5)
            claims[block] -= 1
        elif chance < 0.9 and claims[block] == 1 and (twin := rng.randrange(12)) != block and not (claims[twin] and twin not in lies):
            lies.setdefault(twin, lies[block])
            if lies[twin] == lies[block]:
                del lies[block]
            assert slots.hand_over(block, twin) == lies[twin]
            claims[block] -= 1
            claims[twin] += 1
        elif not claims[block]:
            slots.drop(block)
            lies.pop(block, None)
        slots.audit({block: count for block, count in claims.items() if count})
        assert {number: slots.of(number) for number in range(12) if slots.of(number)} == lies
