"""The ledger of window slots: where the layers with a window hold what a block stands for, in a model whose other layers see everything.

A block is one number for all layers, but what the layers with a window hold of it is of no use once its readers are a window further on.
So those layers have places of their own, fewer than there are blocks, and a block has one of them only while somebody's window reaches
it. Owns which block lies in which slot, how many riders claim it, and the order in which slots that nobody claims are taken from their
blocks. Never touches a tensor, a request or the pool; the pool tells it when a block gets other content.

Every slot is in exactly one class: free; claimed (a rider will still read its block through a window); idle (kept, since a later request
may go on from there). Slot 0 is no one's, like block 0: padding is read from it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping

from engine.kv.pool import PoolError


class WindowSlots:
    """`total` slots, numbered from 1.

    Attributes:
        reclaimed: idle slots that were taken from their blocks, ever.
    """

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a model with window slots needs at least one, not {total}")
        self.total = total
        self.reclaimed = 0
        self._free = list(range(1, total + 1))  # a heap: low numbers first keeps the used part compact
        self._slot_of: dict[int, int] = {}
        self._claims: dict[int, int] = {}
        # Idle blocks in two lines, as in the pool: those that somebody rode past give way before those where somebody left off, or that
        # several read at once (a system prompt: its chats ride past it, and the next one begins with it).
        self._passed: OrderedDict[int, None] = OrderedDict()
        self._left: OrderedDict[int, None] = OrderedDict()
        self._shared: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        return len(self._passed) + len(self._left)

    @property
    def claimed(self) -> int:
        return len(self._claims)

    def of(self, block: int) -> int:
        """Where the layers with a window hold this block; 0 if they do not."""
        return self._slot_of.get(block, 0)

    def allot(self, block: int) -> int:
        """Give a block that has none a slot, claimed once, whose content is yet to be written. There must be a free or an idle one."""
        if block in self._slot_of:
            raise PoolError(f"block {block} has a slot already")
        if self._free:
            slot = heapq.heappop(self._free)
        elif line := self._passed or self._left:
            other, _ = line.popitem(last=False)
            slot = self._slot_of.pop(other)
            self._shared.discard(other)
            self.reclaimed += 1
        else:
            raise PoolError(f"all {self.total} window slots are claimed")
        self._slot_of[block] = slot
        self._claims[block] = 1
        return slot

    def claim(self, block: int) -> int:
        """One more rider reads this block through a window."""
        slot = self._slot_of.get(block, 0)
        if not slot:
            raise PoolError(f"block {block} has no slot to claim")
        claims = self._claims.get(block, 0)
        if claims:
            self._shared.add(block)
        else:
            self._unline(block)
        self._claims[block] = claims + 1
        return slot

    def give_up(self, block: int, passed: bool) -> None:
        """A rider does not read it any more: `passed`, its window lies behind; else it left the bus here."""
        claims = self._claims.get(block, 0)
        if not claims:
            raise PoolError(f"the slot of block {block} was given up once too often")
        if claims > 1:
            self._claims[block] = claims - 1
        else:
            del self._claims[block]
            (self._passed if passed and block not in self._shared else self._left)[block] = None

    def hand_over(self, mine: int, twin: int) -> int:
        """The one rider that claims `mine` goes on with a block of the same content; its slot goes with it if the twin has none."""
        if self._claims.get(mine) != 1:
            raise PoolError(f"block {mine} is not its rider's alone")
        if twin in self._slot_of:
            self.give_up(mine, passed=True)
            return self.claim(twin)
        slot = self._slot_of[twin] = self._slot_of.pop(mine)
        self._claims[twin] = self._claims.pop(mine)
        return slot

    def drop(self, block: int) -> None:
        """The block holds nothing any more, or will hold something else. Nobody may claim it."""
        if block in self._claims:
            raise PoolError(f"block {block} gets other content while riders read it through a window")
        slot = self._slot_of.pop(block, 0)
        if slot:
            self._unline(block)
            self._shared.discard(block)
            heapq.heappush(self._free, slot)

    def audit(self, claims: Mapping[int, int]) -> None:
        """The full check against the number of riders that claim each block. Raises PoolError."""
        if dict(claims) != self._claims:
            raise PoolError(f"slots are claimed by {self._claims}, but riders claim {dict(claims)}")
        if sorted([*self._free, *self._slot_of.values()]) != list(range(1, self.total + 1)):
            raise PoolError("a window slot is lost or holds two blocks")
        lines = [*self._passed, *self._left, *self._claims]
        if len(set(lines)) != len(lines) or set(lines) != set(self._slot_of):
            raise PoolError("a window slot is in no class, or in two")
        if not self._shared <= set(self._slot_of):
            raise PoolError("a block without a slot is held to be worth one")

    def _unline(self, block: int) -> None:
        if block in self._passed:
            del self._passed[block]
        else:
            del self._left[block]
