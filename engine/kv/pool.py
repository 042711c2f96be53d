"""The ledger of KV-cache blocks: who holds which block, which are cached for their content, which are free.

Owns the reference counts, the prefix index and the eviction order. Never touches a tensor, a clock or a request: it deals in
block numbers, holders (a small integer, in practice the seat) and content hashes, so that millions of operations can be tested
in seconds.

Every block is in exactly one class:

    free ──take──▶ referenced ──release, no hash──▶ free
                       │  ▲
        release, hashed│  │share (a prefix hit)
                       ▼  │
                     cached ──evicted by take──▶ free (and taken at once)

Block 0 belongs to no one: it takes the writes of padding rows. Content addressing by a chain of hashes follows vLLM's automatic
prefix caching; freed blocks keep their hash and so are the cache (nano-vllm).

Prompts and answers rarely end where a block does. What the last block holds is found by its tokens (see `branches.py`), and so is the
beginning of a full one: such a block belongs to whoever writes to it, or is read by others, so who goes on from there takes a copy. Let
go, a block that is not full is cached like a full one, until another holds all that it does and more.
"""

from __future__ import annotations

import heapq
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING

from engine.kv.branches import Branches
from engine.types import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED

if TYPE_CHECKING:  # told of blocks that get other content, no more
    from engine.kv.slots import WindowSlots

ROOT = b"\0" * 16


def chain_hash(parent: bytes, tokens: Sequence[int], salt: bytes = b"") -> bytes:
    """The 16-byte content address of a full block: its parent's address, its tokens, and whatever else changes the values."""
    return blake2b(array("q", tokens).tobytes() + salt, digest_size=16, key=parent).digest()


def tail_hash(parent: bytes, tokens: Sequence[int], salt: bytes = b"") -> bytes:
    """The address of a prompt whose last tokens are fewer than a block; never that of a full block, or of other tokens and salt."""
    told = array("q", [len(tokens), *tokens]).tobytes()
    return blake2b(told + salt, digest_size=16, key=parent, person=b"tail").digest()


class PoolError(RuntimeError):
    """The ledger was asked for something that breaks it; always a programming error."""


class BlockPool:
    """`num_blocks` usable blocks of `block_size` positions, numbered from 1.

    Attributes:
        block_size: positions a block.
        evictions: cached blocks that gave way to new content, ever.
        on_evict: called with (block, content) before a cached block gives way; whoever listens may still save what it holds.
        slots: where the windowed layers of a model with others beside them hold blocks; None for any other model.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs at least one block of one position, not {num_blocks} of {block_size}")
        self.block_size = block_size
        self.evictions = 0
        self.on_evict: Callable[[int, bytes], None] | None = None
        self.slots: WindowSlots | None = None
        self._refs = array("i", [0]) * (num_blocks + 1)
        self._holder_mix = array("i", [0]) * (num_blocks + 1)  # XOR of the holders' codes: names the last one left
        self._owners = array("H", [OWNER_FREE]) * (num_blocks + 1)
        self._hash: list[bytes | None] = [None] * (num_blocks + 1)
        self._by_hash: dict[bytes, int] = {}
        self._branches = Branches()
        self._free = list(range(1, num_blocks + 1))  # a heap: low numbers first keeps the used part of the pool compact
        # Cached blocks in two lines, each evicted from its front: `cheap` ones go before all others. A block that was once worth
        # keeping stays so while its content does; a chain's worth never falls towards its head, so children always go before parents.
        self._cheap: OrderedDict[int, None] = OrderedDict()
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._worth = bytearray(num_blocks + 1)
        self._referenced = 0

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def total(self) -> int:
        return len(self._refs) - 1

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached) + len(self._cheap)

    @property
    def referenced(self) -> int:
        return self._referenced

    @property
    def available(self) -> int:
        """Blocks that `take` could hand out now."""
        return len(self._free) + len(self._cached) + len(self._cheap)

    @property
    def capacity(self) -> int:
        """Positions of the whole pool."""
        return self.total * self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` positions."""
        return -(-tokens // self.block_size)

    def owners(self) -> bytes:
        """One unsigned 16-bit owner code a block, block 1 first; see `KvView.owners`."""
        return self._owners[1 : self.total + 1].tobytes()

    def reference_count(self, block: int) -> int:
        return self._refs[block]

    def content_of(self, block: int) -> bytes | None:
        """The hash under which this block is indexed, None while its content is private or incomplete."""
        return self._hash[block]

    def laid(self, block: int) -> tuple[bytes, bytes] | None:
        """Behind which stem it holds which tokens; None if nobody could find it by those."""
        return self._branches.of(block)

    # ---------------------------------------------------------------------------------------------------- operations

    def lookup(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest indexed run of `hashes` from its start. Changes nothing."""
        hits = []
        for content in hashes:
            block = self._by_hash.get(content)
            if block is None:
                break
            hits.append(block)
        return hits

    def closest(self, stem: bytes, tokens: bytes) -> tuple[int, int]:
        """The block behind this stem that begins with most of these tokens, and with how many; (0, 0) if there is none. Changes nothing."""
        return self._branches.closest(stem, tokens, self._useful)

    def idle_among(self, blocks: Iterable[int]) -> int:
        """How many of these are cached but unreferenced: sharing them costs that many available blocks."""
        return sum(1 for block in blocks if self._refs[block] == 0)

    def take(self, count: int, holder: int) -> list[int] | None:
        """`count` private blocks for `holder`, evicting cached ones as needed; None (and no change) when there are not enough."""
        if count > self.available:
            return None
        blocks = [heapq.heappop(self._free) if self._free else self._evict() for _ in range(count)]
        code = holder + OWNER_SEAT0
        for block in blocks:  # nobody held them, so this is all there is to say
            self._refs[block] = 1
            self._holder_mix[block] = self._owners[block] = code
            self._worth[block] = 0
        self._referenced += count
        return blocks

    def share(self, blocks: Sequence[int], holder: int) -> None:
        """Let `holder` reference these indexed blocks too (a prefix hit, or one that it is about to copy)."""
        for block in blocks:
            if self._refs[block] == 0:
                if not self._known(block):
                    raise PoolError(f"block {block} is free and holds nothing to share")
                self._uncache(block)
            self._hold(block, holder)

    def release(self, blocks: Sequence[int], holder: int, cheap: int = 0) -> None:
        """Take back `holder`'s references. Tail first, so that a chain's end is evicted before its beginning.

        `cheap`: this many blocks at the end are quickly computed again; unless someone else found them worth keeping, they are
        evicted before all others (the tail-optimised LRU of multi-turn chats: what a person would not notice missing goes first).
        """
        refs, code = self._refs, holder + OWNER_SEAT0
        for place, block in enumerate(reversed(blocks)):
            left = refs[block] - 1
            if left < 0:
                raise PoolError(f"block {block} was released once too often")
            refs[block] = left
            self._holder_mix[block] ^= code
            if place >= cheap:
                self._worth[block] = 1
            if left == 0:
                self._referenced -= 1
                if not self._known(block):
                    self._make_free(block)
                elif self._worth[block]:
                    self._cached[block] = None
                else:
                    self._cheap[block] = None
            if left <= 1:  # with more it is shared as before
                self._paint(block)

    def register(self, block: int, content: bytes) -> int:
        """Index a full, computed block under its content. Returns the block to use from now on: this one, or its indexed twin."""
        if self._hash[block] is not None or self._refs[block] != 1:
            raise PoolError(f"block {block} is not private, it cannot be indexed")
        twin = self._by_hash.get(content)
        if twin is not None:
            return twin
        self._by_hash[content] = block
        self._hash[block] = content
        return block

    def lay(self, block: int, stem: bytes, tokens: bytes) -> int:
        """`block` begins with these tokens behind this stem, whatever its holder writes behind them. Returns the block where they are
        found from now on: this one, or another that holds them already."""
        branches = self._branches
        branches.drop(block)
        if branches.part(stem):  # seldom; else there is nothing to compare with
            for other in list(branches.beyond(stem, tokens)):
                if self._useful(other):
                    return other
                self._unlay(other)
            if short := branches.short_of(stem, tokens):
                self._unlay(short)
        branches.add(block, stem, tokens)
        return block

    def replace(self, mine: int, twin: int, holder: int) -> None:
        """Swap `holder`'s private block for an indexed one that holds the same, and perhaps more."""
        self.share([twin], holder)
        self._branches.drop(mine)
        self.release([mine], holder)

    def clear_cached(self) -> int:
        """Forget all cached blocks that no one references; returns how many."""
        blocks = list(self.eviction_order())
        for block in blocks:
            self._uncache(block)
            self._forget(block)
            self._make_free(block)
            self._paint(block)
        return len(blocks)

    def resize(self, num_blocks: int) -> int:
        """Grow or shrink towards `num_blocks`; returns the size reached. Shrinking stops above the highest referenced block."""
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        if num_blocks < self.total:
            keep = num_blocks
            for block in range(self.total, num_blocks, -1):
                if self._refs[block]:
                    keep = block
                    break
            for block in range(keep + 1, self.total + 1):
                if self._known(block):
                    self._uncache(block)
                    self._forget(block)
                    self._drop_slot(block)
            self._free = [block for block in self._free if block <= keep]
            heapq.heapify(self._free)
            self._truncate(keep)
        elif num_blocks > self.total:
            first = self.total + 1
            more = num_blocks - self.total
            self._refs.extend([0] * more)
            self._holder_mix.extend([0] * more)
            self._owners.extend([OWNER_FREE] * more)
            self._hash.extend([None] * more)
            self._worth.extend(bytes(more))
            for block in range(first, num_blocks + 1):
                heapq.heappush(self._free, block)
        return self.total

    # -------------------------------------------------------------------------------------------------------- checks

    def check(self) -> None:
        """The conservation law, O(1). Raises PoolError when it is broken."""
        if self.free + self.cached + self.referenced != self.total:
            raise PoolError(f"{self.free} free + {self.cached} cached + {self.referenced} referenced is not {self.total} blocks")

    def audit(self, tables: Iterable[tuple[int, Sequence[int]]]) -> None:
        """The full check against every (holder, block table). Raises PoolError naming the first block that is wrong."""
        self.check()
        counts = array("i", [0]) * len(self._refs)
        mixes = array("i", [0]) * len(self._refs)
        for holder, table in tables:
            for block in table:
                counts[block] += 1
                mixes[block] ^= holder + OWNER_SEAT0
        free = set(self._free)
        if len(free) != len(self._free):
            raise PoolError("a block is in the free list twice")
        for block in range(1, len(self._refs)):
            classes = (block in free) + (block in self._cached) + (block in self._cheap) + (self._refs[block] > 0)
            if classes != 1:
                raise PoolError(f"block {block} is in {classes} classes at once")
            if counts[block] != self._refs[block] or mixes[block] != self._holder_mix[block]:
                raise PoolError(f"block {block} has count {self._refs[block]} but stands in {counts[block]} tables")
            content = self._hash[block]
            if content is not None and self._by_hash.get(content) != block:
                raise PoolError(f"block {block} is hashed but not indexed")
            if (block in self._cached or block in self._cheap) and not self._known(block):
                raise PoolError(f"block {block} is cached without content")
            if self._owners[block] != self._owner_code(block):
                raise PoolError(f"block {block} is painted {self._owners[block]}, not {self._owner_code(block)}")
        if len(self._by_hash) != sum(content is not None for content in self._hash):
            raise PoolError("the index holds content that no block has")
        if fault := self._branches.fault():
            raise PoolError(fault)

    def eviction_order(self) -> Iterator[int]:
        """Cached blocks, the next to be evicted first."""
        return chain(self._cheap, self._cached)

    # ------------------------------------------------------------------------------------------------------- insides

    def _known(self, block: int) -> bool:
        """Whether it holds something that others may look for."""
        return self._hash[block] is not None or block in self._branches

    def _useful(self, block: int) -> bool:
        """Whether its content is there in all layers."""
        return self.slots is None or bool(self.slots.of(block))

    def _hold(self, block: int, holder: int) -> None:
        self._refs[block] += 1
        self._holder_mix[block] ^= holder + OWNER_SEAT0
        if self._refs[block] == 1:
            self._referenced += 1
        self._paint(block)

    def _evict(self) -> int:
        block, _ = (self._cheap or self._cached).popitem(last=False)
        content = self._hash[block]
        if self.on_evict is not None and content is not None:
            self.on_evict(block, content)
        self._forget(block)
        self._drop_slot(block)
        self.evictions += 1
        return block

    def _uncache(self, block: int) -> None:
        """Take an unreferenced block out of the line that it stands in."""
        if block in self._cheap:
            del self._cheap[block]
        else:
            del self._cached[block]

    def _forget(self, block: int) -> None:
        self._worth[block] = 0
        content = self._hash[block]
        if content is not None:
            del self._by_hash[content]
            self._hash[block] = None
        self._branches.drop(block)

    def _unlay(self, block: int) -> None:
        """It is found by its tokens no longer; nor at all, if it is not full, and then nobody can have a use for it."""
        self._branches.drop(block)
        if self._refs[block] == 0 and not self._known(block):
            self._uncache(block)
            self._forget(block)
            self._make_free(block)
            self._paint(block)

    def _make_free(self, block: int) -> None:
        self._drop_slot(block)
        heapq.heappush(self._free, block)

    def _drop_slot(self, block: int) -> None:
        if self.slots is not None:
            self.slots.drop(block)

    def _owner_code(self, block: int) -> int:
        references = self._refs[block]
        if references == 0:
            return OWNER_CACHED if self._known(block) else OWNER_FREE
        return self._holder_mix[block] if references == 1 else OWNER_SHARED

    def _paint(self, block: int) -> None:
        self._owners[block] = self._owner_code(block)

    def _truncate(self, keep: int) -> None:
        del self._refs[keep + 1 :]
        del self._holder_mix[keep + 1 :]
        del self._owners[keep + 1 :]
        del self._hash[keep + 1 :]
        del self._worth[keep + 1 :]
