"""Riders and window slots: who needs how many, who gets and gives them, in a model where only some layers have a window.

Every rider has a share put by that is enough for any single position, wherever it is, so nobody ever loses its seat for want of a slot: a
request boards when one more share is there. What nobody put by goes to prompts, whose chunks need a slot for each of their blocks until
the chunk is computed; a chunk is no longer than that allows. Owns the slots of block tables (`RequestState.slots`); the blocks themselves
are the pool's. Pure Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.kv.pool import PoolError
from engine.kv.slots import WindowSlots
from engine.scheduling.request import RequestState
from engine.scheduling.window import blocks_behind, last_window_of, slots_of_one


class Slotting:
    """See the module.

    Attributes:
        slots: the ledger.
        window: what the layers with a window see; of several, the widest.
        share: slots put by for each rider.
    """

    def __init__(self, slots: WindowSlots, window: int, block_size: int) -> None:
        self.slots = slots
        self.window = window
        self.share = slots_of_one(window, block_size)
        if self.share > slots.total:
            raise ValueError(f"a rider may need {self.share} window slots, and there are {slots.total}")
        self._size = block_size
        self._riders = 0
        self._beyond = 0  # slots that riders claim beyond their shares

    # ------------------------------------------------------------------------------------------------ before it boards

    def fits(self, riders: int) -> bool:
        """Is there a share for so many?"""
        return riders * self.share + self._beyond <= self.slots.total

    def usable(self, hits: list[int]) -> list[int]:
        """The longest beginning of cached blocks whose last window the layers with a window still hold."""
        end = last_window_of(len(hits), self.window, self._size, lambda place: bool(self.slots.of(hits[place])))
        return hits[:end]

    # ------------------------------------------------------------------------------------------------------- it boards

    def board(self, request: RequestState) -> None:
        """Its blocks up to `computed` are hits: claim those that it will still read."""
        self._riders += 1
        gone = self._behind(request)
        found = request.blocks[gone : request.computed // self._size]
        request.slots = [0] * gone + [self.slots.claim(block) for block in found]
        request.slots_gone = gone

    def cover(self, request: RequestState, end: int) -> None:
        """Have a slot for each block up to position `end`, which is about to be computed."""
        have, needed = len(request.slots), -(-end // self._size)
        if have < needed:
            before = self._beyond_share(request)
            request.slots += [self.slots.allot(block) for block in request.blocks[have:needed]]
            self._beyond += self._beyond_share(request) - before

    def room(self, request: RequestState) -> int:
        """Positions that it may compute in this step: at least one."""
        spare = max(0, self.slots.total - self._riders * self.share - self._beyond)
        claimable = max(self.share, len(request.slots) - request.slots_gone) + spare
        return (request.slots_gone + claimable) * self._size - request.computed

    # ------------------------------------------------------------------------------------------------------- it rides

    def swap(self, request: RequestState, index: int, twin: int) -> None:
        """Its block at this index is about to be swapped for another of the same content."""
        if request.slots_gone <= index < len(request.slots):
            request.slots[index] = self.slots.hand_over(request.blocks[index], twin)

    def give_back(self, request: RequestState) -> None:
        """Slots that no position from the beginning of its last block on sees: there it goes on, should it leave now and come back."""
        gone, first = self._behind(request), request.slots_gone
        if gone > first:
            before = self._beyond_share(request)
            for block in request.blocks[first:gone]:
                self.slots.give_up(block, passed=True)
            request.slots[first:gone] = [0] * (gone - first)
            request.slots_gone = gone
            self._beyond += self._beyond_share(request) - before

    def leave(self, request: RequestState, passed: bool) -> None:
        """Its seat is lost or given back. A chain's end goes before its beginning, unless all of it is of little worth (`passed`)."""
        self._riders -= 1
        self._beyond -= self._beyond_share(request)
        for block in reversed(request.blocks[request.slots_gone : len(request.slots)]):
            self.slots.give_up(block, passed)
        request.slots, request.slots_gone = [], 0

    def audit(self, riders: Iterable[RequestState]) -> None:
        """The full check against every rider: each block that one still reads has a slot, and no slot has two. Raises PoolError."""
        claims: Counter[int] = Counter()
        beyond = count = 0
        for rider in riders:
            count += 1
            claims.update(rider.blocks[rider.slots_gone : len(rider.slots)])
            beyond += self._beyond_share(rider)
            self._audit_table(rider, rider.slots)
        self.slots.audit(claims)
        if (count, beyond) != (self._riders, self._beyond) or not self.fits(count):
            raise PoolError(f"{count} riders claim {beyond} slots beyond their shares; noted are {self._riders} and {self._beyond}")

    def _audit_table(self, rider: RequestState, table: Sequence[int]) -> None:
        gone = rider.slots_gone
        if gone != self._behind(rider) or len(table) * self._size < rider.computed:
            raise PoolError(f"{rider.id} at {rider.computed} has slots for its blocks {gone} to {len(table)}")
        if list(table) != [0] * gone + [self.slots.of(block) for block in rider.blocks[gone : len(table)]] or 0 in table[gone:]:
            raise PoolError(f"{rider.id} has other slots than its blocks lie in")

    def _behind(self, request: RequestState) -> int:
        return blocks_behind(request.computed // self._size * self._size, self.window, self._size)

    def _beyond_share(self, request: RequestState) -> int:
        return max(0, len(request.slots) - request.slots_gone - self.share)
