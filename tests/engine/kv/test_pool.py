"""The ledger of blocks: hits, eviction order, twins, resizing, and an audit that sees what was tampered with."""

from __future__ import annotations

from array import array

import pytest

from engine.kv.pool import ROOT, BlockPool, PoolError, chain_hash, tail_hash
from engine.types import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED


def make_chain(tokens: list[int], size: int, salt: bytes = b"") -> list[bytes]:
    """Content addresses of the full blocks of `tokens`."""
    chain, parent = [], ROOT
    for start in range(0, len(tokens) - size + 1, size):
        parent = chain_hash(parent, tokens[start : start + size], salt)
        chain.append(parent)
    return chain


def make_cached(pool: BlockPool, tokens: list[int], holder: int = 0) -> list[int]:
    """Blocks that hold `tokens`, computed by `holder` and let go."""
    chain = make_chain(tokens, pool.block_size)
    blocks = pool.take(len(chain), holder)
    assert blocks is not None
    for block, content in zip(blocks, chain, strict=True):
        assert pool.register(block, content) == block
    pool.release(blocks, holder)
    return blocks


def packed(*tokens: int) -> bytes:
    return array("q", tokens).tobytes()


def codes(pool: BlockPool) -> list[int]:
    return list(memoryview(pool.owners()).cast("H"))


# ------------------------------------------------------------------------------------------------------- content address


def test_an_address_depends_on_everything_that_comes_before() -> None:
    assert make_chain([1, 2, 3, 4], 2) == make_chain([1, 2, 3, 4, 5], 2)
    assert make_chain([1, 2, 3, 4], 2)[1] != make_chain([9, 2, 3, 4], 2)[1]
    assert make_chain([1, 2], 2) != make_chain([1, 2], 2, salt=b"other rope")
    assert chain_hash(ROOT, [1, 23]) != chain_hash(ROOT, [12, 3])


# ---------------------------------------------------------------------------------------------------------- take, share


def test_low_numbers_are_taken_first_and_all_or_nothing() -> None:
    pool = BlockPool(4, 2)
    assert pool.take(2, 0) == [1, 2]
    assert pool.take(3, 1) is None
    assert (pool.free, pool.referenced) == (2, 2)
    assert pool.take(2, 1) == [3, 4]
    pool.release([1, 2], 0)
    assert pool.take(1, 2) == [1]


def test_a_released_block_is_a_hit_until_it_is_evicted() -> None:
    pool = BlockPool(3, 2)
    blocks = make_cached(pool, [1, 2, 3, 4])
    chain = make_chain([1, 2, 3, 4, 5, 6], 2)
    assert pool.lookup(chain) == blocks
    assert (pool.free, pool.cached, pool.referenced) == (1, 2, 0)
    pool.share(blocks, 5)
    assert (pool.free, pool.cached, pool.referenced) == (1, 0, 2)
    pool.release(blocks, 5)
    pool.take(3, 1)
    assert pool.lookup(chain) == []
    assert pool.evictions == 2


def test_a_hit_stops_at_the_first_block_that_is_missing() -> None:
    pool = BlockPool(4, 1)
    blocks = make_cached(pool, [1, 2, 3])
    pool.take(2, 0)  # one free, then the tail of the chain
    assert pool.lookup(make_chain([1, 2, 3], 1)) == blocks[:2]
    assert pool.lookup(make_chain([9, 2, 3], 1)) == []


def test_idle_among_counts_what_sharing_would_take_from_the_available() -> None:
    pool = BlockPool(3, 1)
    blocks = make_cached(pool, [1, 2])
    pool.share(blocks[:1], 0)
    assert pool.idle_among(blocks) == 1
    assert pool.available == 2


def test_nothing_is_shared_that_holds_nothing() -> None:
    with pytest.raises(PoolError, match="holds nothing to share"):
        BlockPool(2, 1).share([1], 0)


def test_blocks_for_rounds_up() -> None:
    pool = BlockPool(3, 4)
    assert [pool.blocks_for(tokens) for tokens in (0, 1, 4, 5, 12)] == [0, 1, 1, 2, 3]
    assert pool.capacity == 12


# ------------------------------------------------------------------------------------------------------------- eviction


def test_the_tail_of_a_chain_is_evicted_first_and_the_oldest_chain_before_a_newer_one() -> None:
    pool = BlockPool(4, 1)
    old, new = make_cached(pool, [1, 2]), make_cached(pool, [3, 4])
    assert list(pool.eviction_order()) == [old[1], old[0], new[1], new[0]]


def test_a_hit_makes_a_chain_young_again() -> None:
    pool = BlockPool(4, 1)
    old, new = make_cached(pool, [1, 2]), make_cached(pool, [3, 4])
    pool.share(old, 0)
    pool.release(old, 0)
    assert list(pool.eviction_order()) == [new[1], new[0], old[1], old[0]]


def test_free_blocks_are_taken_before_cached_ones_give_way() -> None:
    pool = BlockPool(3, 1)
    make_cached(pool, [1])
    pool.take(2, 0)
    assert pool.evictions == 0
    pool.take(1, 0)
    assert pool.evictions == 1


def test_a_listener_hears_of_a_block_before_it_gives_way() -> None:
    pool = BlockPool(1, 1)
    (block,) = make_cached(pool, [7])
    heard = []
    pool.on_evict = lambda number, content: heard.append((number, content, pool.content_of(number)))
    pool.take(1, 0)
    (content,) = make_chain([7], 1)
    assert heard == [(block, content, content)]


def test_clearing_forgets_the_cache_and_leaves_what_is_in_use() -> None:
    pool = BlockPool(3, 1)
    blocks = make_cached(pool, [1, 2])
    pool.share(blocks[:1], 0)
    assert pool.clear_cached() == 1
    assert (pool.free, pool.cached, pool.referenced) == (2, 0, 1)
    assert pool.lookup(make_chain([1, 2], 1)) == blocks[:1]
    pool.audit([(0, blocks[:1])])


# ---------------------------------------------------------------------------------------------------------------- twins


def test_a_twin_gives_its_block_back_for_the_one_that_was_first() -> None:
    pool = BlockPool(4, 2)
    (content,) = make_chain([1, 2], 2)
    (first,), (second,) = pool.take(1, 0) or (), pool.take(1, 1) or ()
    assert pool.register(first, content) == first
    assert pool.register(second, content) == first
    pool.replace(second, first, 1)
    assert (pool.free, pool.referenced) == (3, 1)
    assert pool.reference_count(first) == 2
    pool.audit([(0, [first]), (1, [first])])


def test_only_a_private_block_is_indexed() -> None:
    pool = BlockPool(2, 1)
    (block,) = make_cached(pool, [1])
    with pytest.raises(PoolError, match="not private"):
        pool.register(block, make_chain([2], 1)[0])


def test_releasing_twice_is_an_error() -> None:
    pool = BlockPool(2, 1)
    blocks = pool.take(1, 0) or []
    pool.release(blocks, 0)
    with pytest.raises(PoolError, match="once too often"):
        pool.release(blocks, 0)


# ---------------------------------------------------------------------------------------------------------------- tails


def test_a_tail_is_told_from_full_blocks_and_from_other_salts() -> None:
    assert tail_hash(ROOT, [1, 2]) != chain_hash(ROOT, [1, 2])
    assert tail_hash(ROOT, [1, 2]) != tail_hash(ROOT, [1]) != tail_hash(chain_hash(ROOT, [9]), [1])
    assert tail_hash(ROOT, [1], salt=(2).to_bytes(8, "little")) != tail_hash(ROOT, [1, 2])


def test_a_block_that_is_not_full_is_found_while_it_is_held_and_after() -> None:
    pool = BlockPool(2, 4)
    (block,) = pool.take(1, 0) or ()
    assert pool.lay(block, ROOT, packed(5, 6, 7)) == block
    assert pool.closest(ROOT, packed(5, 6, 9)) == (block, 2) and pool.laid(block) == (ROOT, packed(5, 6, 7))
    pool.release([block], 0)
    assert (pool.free, pool.cached, pool.closest(ROOT, packed(5))) == (1, 1, (block, 1))
    assert codes(pool) == [OWNER_CACHED, OWNER_FREE]
    pool.share([block], 3)
    pool.release([block], 3)
    pool.audit([])
    pool.take(2, 0)
    assert pool.closest(ROOT, packed(5)) == (0, 0) and pool.laid(block) is None and pool.evictions == 1


def test_nothing_is_shared_with_another_stem() -> None:
    pool = BlockPool(2, 4)
    (block,) = pool.take(1, 0) or ()
    pool.lay(block, ROOT + b"salt", packed(5, 6))
    assert [pool.closest(stem, packed(5, 6)) for stem in (ROOT, ROOT + b"other", b"salt")] == [(0, 0)] * 3


def test_a_block_that_holds_only_what_another_holds_too_is_free_once_nobody_has_it() -> None:
    pool = BlockPool(4, 4)
    one, two, three = (pool.take(1, holder) or [0] for holder in (0, 1, 2))
    pool.lay(one[0], ROOT, packed(5))
    pool.release(one, 0)
    assert pool.lay(two[0], ROOT, packed(5, 6, 7)) == two[0]
    assert (pool.free, pool.cached, pool.laid(one[0])) == (2, 0, None)
    assert pool.lay(three[0], ROOT, packed(5, 6)) == two[0] and pool.laid(three[0]) is None
    assert pool.lay(three[0], ROOT, packed(5, 6, 8)) == three[0], "neither holds the other"
    assert pool.lay(two[0], ROOT, packed(9)) == two[0], "it holds something else now"
    assert pool.closest(ROOT, packed(5, 6, 7)) == (three[0], 2)
    pool.audit([(1, two), (2, three)])


def test_whose_block_is_swapped_for_one_that_holds_more_gives_its_own_back() -> None:
    pool = BlockPool(4, 2)
    (content,) = make_chain([1, 2], 2)
    (first,), (second,) = pool.take(1, 0) or (), pool.take(1, 1) or ()
    pool.lay(second, ROOT, packed(1))
    pool.register(first, content)
    pool.lay(first, ROOT, packed(1, 2))
    assert pool.laid(second) is None
    pool.replace(second, first, 1)
    assert pool.closest(ROOT, packed(1)) == (first, 1) and (pool.free, pool.referenced) == (3, 1)
    pool.audit([(0, [first]), (1, [first])])


def test_what_a_block_holds_is_forgotten_with_it() -> None:
    pool = BlockPool(4, 4)
    blocks = pool.take(4, 0) or []
    for block in blocks:
        pool.lay(block, ROOT, packed(block))
    pool.release(blocks, 0)
    assert pool.resize(2) == 2 and [pool.closest(ROOT, packed(block))[0] for block in blocks] == [1, 2, 0, 0]
    pool.audit([])
    assert pool.clear_cached() == 2 and pool.closest(ROOT, packed(1)) == (0, 0) and pool.free == 2
    pool.audit([])


# --------------------------------------------------------------------------------------------------------------- owners


def test_owners_name_the_seat_the_shared_and_the_cached() -> None:
    pool = BlockPool(5, 1)
    cached = make_cached(pool, [1, 2])
    pool.share(cached[:1], 3)
    pool.share(cached[:1], 4)
    pool.take(1, 4)
    assert codes(pool) == [OWNER_SHARED, OWNER_CACHED, OWNER_SEAT0 + 4, OWNER_FREE, OWNER_FREE]
    pool.release(cached[:1], 3)
    assert codes(pool)[0] == OWNER_SEAT0 + 4  # the one that is left, not the one that came first


# -------------------------------------------------------------------------------------------------------------- resizing


def test_growing_adds_free_blocks() -> None:
    pool = BlockPool(2, 1)
    pool.take(2, 0)
    assert pool.resize(4) == 4
    assert pool.take(2, 1) == [3, 4]
    pool.audit([(0, [1, 2]), (1, [3, 4])])


def test_shrinking_stops_above_the_highest_block_in_use_and_drops_the_cache_above() -> None:
    pool = BlockPool(6, 1)
    held = pool.take(3, 0) or []
    make_cached(pool, [1, 2])
    pool.release(held[:2], 0)
    assert pool.resize(1) == 3
    assert (pool.total, pool.free, pool.cached, pool.referenced) == (3, 2, 0, 1)
    assert pool.lookup(make_chain([1], 1)) == []
    pool.audit([(0, [3])])
    pool.release([3], 0)
    assert pool.resize(1) == 1
    pool.audit([])


@pytest.mark.parametrize(("blocks", "size"), [(0, 1), (1, 0), (-1, 4)])
def test_a_pool_without_a_block_is_refused(blocks: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(blocks, size)
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(1, 1).resize(0)


# -------------------------------------------------------------------------------------------------------------- the audit


def make_used() -> tuple[BlockPool, list[tuple[int, list[int]]]]:
    """A pool with every kind of block in it, and its tables."""
    pool = BlockPool(8, 2)
    cached = make_cached(pool, [1, 2, 3, 4])
    pool.share(cached[:1], 0)
    pool.share(cached[:1], 1)
    own = pool.take(2, 1) or []
    return pool, [(0, cached[:1]), (1, cached[:1] + own)]


def test_the_audit_passes_what_is_right() -> None:
    pool, tables = make_used()
    pool.check()
    pool.audit(tables)


def test_the_audit_catches_what_was_tampered_with() -> None:
    def lost_reference(pool: BlockPool) -> None:
        pool._refs[tables[0][1][0]] -= 1

    def wrong_holder(pool: BlockPool) -> None:
        pool._holder_mix[tables[1][1][1]] ^= 5

    def twice_free(pool: BlockPool) -> None:
        pool._free.append(pool._free[0])

    def lost_free(pool: BlockPool) -> None:
        pool._free.pop()

    def lost_content(pool: BlockPool) -> None:
        pool._hash[next(pool.eviction_order())] = None

    def stale_index(pool: BlockPool) -> None:
        pool._by_hash[b"nobody has this!"] = 1

    def wrong_paint(pool: BlockPool) -> None:
        pool._owners[1] = OWNER_FREE

    def wrong_stem(pool: BlockPool) -> None:
        pool._branches._held[tables[1][1][1]] = (b"nobody has this!", packed(1))

    def laid_twice(pool: BlockPool) -> None:
        pool._branches.add(tables[1][1][1], ROOT, packed(1))
        pool._branches.add(tables[1][1][2], ROOT, packed(1, 2))

    for tamper in (lost_reference, wrong_holder, twice_free, lost_free, lost_content, stale_index, wrong_paint, wrong_stem, laid_twice):
        pool, tables = make_used()
        tamper(pool)
        with pytest.raises(PoolError):
            pool.audit(tables)


def test_the_audit_catches_a_table_that_forgot_or_invented_a_block() -> None:
    pool, tables = make_used()
    with pytest.raises(PoolError, match="stands in"):
        pool.audit([tables[0], (1, tables[1][1][:-1])])
    with pytest.raises(PoolError, match="stands in"):
        pool.audit([*tables, (2, [8])])


def test_the_quick_check_catches_a_leak() -> None:
    pool, _ = make_used()
    pool._free.pop()
    with pytest.raises(PoolError, match="is not 8 blocks"):
        pool.check()
