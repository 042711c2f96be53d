"""The ledger of a second tier: blocks that gave way on the device live on in host memory, or on disk, and can come back.

Owns which content lies in which slot, and the copies that a step must make before it runs. Like the pool it touches no tensor: the
runner carries the copies out, in order. A slot holds exactly one block's content; the least recently saved one makes room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from engine.kv.copies import Copy, Move


class HostTier:
    """`slots` places for blocks, numbered from 0.

    Attributes:
        saved, restored: copies ordered, ever.
        copies: those that are still to be carried out, in order. Whoever orders others that touch the same blocks adds them here.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a tier needs at least one slot, not {slots}")
        self.slots = slots
        self.saved = 0
        self.restored = 0
        self._free = list(range(slots - 1, -1, -1))
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()  # first makes room first
        self.copies: list[Move] = []

    @property
    def used(self) -> int:
        return len(self._slot_of)

    def __contains__(self, content: bytes) -> bool:
        return content in self._slot_of

    def save(self, block: int, content: bytes) -> None:
        """Keep what `block` holds; called just before the block gets other content."""
        if content in self._slot_of:
            self._slot_of.move_to_end(content)
            return
        if not self._free:
            if not self._slot_of:
                return  # every slot is being read in this very plan
            _, slot = self._slot_of.popitem(last=False)
            self._free.append(slot)
        slot = self._free.pop()
        self._slot_of[content] = slot
        self.copies.append(Copy(block, slot, save=True))
        self.saved += 1

    def claim(self, contents: Sequence[bytes]) -> list[int]:
        """Take these contents out of the tier; their slots stay untouched until `restore`."""
        return [self._slot_of.pop(content) for content in contents]

    def restore(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Order the claimed slots to be read into `blocks`."""
        for slot, block in zip(slots, blocks, strict=True):
            self.copies.append(Copy(block, slot, save=False))
            self._free.append(slot)  # a later save in this plan is carried out after the read
        self.restored += len(slots)

    def clear(self) -> None:
        """Forget everything (the contents of the slots cannot be trusted any more)."""
        self._slot_of.clear()
        self.copies.clear()
        self._free = list(range(self.slots - 1, -1, -1))

    def audit(self) -> None:
        """Each slot is free or holds one content. Raises RuntimeError."""
        used = list(self._slot_of.values())
        if sorted(used + self._free) != list(range(self.slots)):
            raise RuntimeError("a slot of the tier is lost or holds two contents")
