"""The beginnings of requests: what of one is in the cache already, who is computing it right now, and how a rider takes and leaves it.

Owns the block tables of riders as far as content is concerned: shared beginnings, blocks that come back from the second tier, the copy
of a block whose beginning alone is of use (in which a chat's last answer ends, or the same prompt), the index of what was computed, and
what lies behind a window. Who boards is the scheduler's to say. Pure Python; touches no tensor, but orders the copies that a step must make
before it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.kv.copies import Fork, Move
from engine.kv.pool import BlockPool
from engine.kv.slots import WindowSlots
from engine.kv.tier import HostTier
from engine.scheduling.plan import CacheRules
from engine.scheduling.request import RequestState
from engine.scheduling.slotting import Slotting
from engine.scheduling.window import blocks_behind, hits_in_window
from engine.types import FinishReason

TWIN_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Settled:
    """How a rider came by its blocks: `found` in the cache, `fresh` of its own; of these `restored` from the tier, and one that begins with
    so many `copied` positions."""

    found: int
    fresh: int
    restored: int
    copied: int


class Prefixes:
    """See the module.

    Attributes:
        twin_tokens: so many tokens of a beginning that another is computing right now are worth waiting for.
        worth_restoring: how many of so many blocks that follow so many positions should be brought back from the second tier, and not
            be computed again; `refused` is told when none are.
        shares: else blocks are of use to the request that filled them alone.
        window: no layer looks further back; 0 is no limit.
        slotting: the slots of windowed layers, where there are others beside them; None for any other model.
        reading: addresses of blocks that a seated request is computing right now.
        forks: blocks copied for the sake of their beginning, ever.
    """

    def __init__(self, pool: BlockPool, tier: HostTier | None, rules: CacheRules) -> None:
        self.pool = pool
        self.tier = tier
        self.twin_tokens = TWIN_TOKENS
        self.worth_restoring: Callable[[int, int], int] = lambda start, blocks: blocks
        self.refused: Callable[[], None] = lambda: None
        self.shares = rules.resumable
        self.window = rules.window
        self.slotting: Slotting | None = None
        if rules.slots:
            assert tier is None, "what goes to the tier is copied by block"
            pool.slots = WindowSlots(rules.slots)
            self.slotting = Slotting(pool.slots, rules.slot_window, pool.block_size)
        self.reading: dict[bytes, RequestState] = {}
        self.forks = 0
        self._size = pool.block_size
        self._copies: list[Move] = []
        if tier is not None:
            self._copies = tier.copies
            pool.on_evict = tier.save

    def take_copies(self) -> tuple[Move, ...]:
        """The copies ordered since the last call, to be carried out in this order before the step runs."""
        copies = tuple(self._copies)
        self._copies.clear()
        return copies

    # ------------------------------------------------------------------------------------------------ before it boards

    def hits(self, request: RequestState) -> list[int]:
        """Cached blocks with the request's own beginning; at least one token is left to compute."""
        if request.reads_all or not self.shares:
            return []
        chain = request.hashes((request.known - 1) // self._size, self._size)
        if self.window:
            return hits_in_window(self.pool, chain, self.window)
        hits = self.pool.lookup(chain)
        return hits if self.slotting is None else self.slotting.usable(hits)

    def twin(self, request: RequestState, hits: int) -> RequestState | None:
        """A seated request that is computing a long beginning which this one would need too: better to wait than to do it twice.

        The very same prompt is waited for however short it is, as several answers to one prompt are asked for together. Else not for a
        short one, which is computed in the step that the wait would cost.
        """
        if not self.reading or request.reads_all:
            return None
        size = self._size
        full = (request.known - 1) // size
        if not request.output_len:
            twin = self.reading.get(request.tail(size))
            if twin is not None and (hits < full or self._to_copy(request, full)[1] < request.known - 1 - full * size):
                return twin
        if hits == full:
            return None
        chain = request.hashes(full, size)
        twin = self.reading.get(chain[hits])
        last = hits + -(-self.twin_tokens // size) - 1
        if twin is None or last >= full or self.reading.get(chain[last]) is not twin:
            return None
        return None if self._restorable(request, hits) else twin

    # ------------------------------------------------------------------------------------------------------- it boards

    def settle(self, request: RequestState, hits: list[int], seat: int) -> Settled:
        """Give the request its block table: what was found is shared, what is missing is taken. It must fit."""
        size, pool = self._size, self.pool
        gone = hits.count(0) if self.window else 0  # all of them leading
        pool.share(hits[gone:], seat)
        restored = self._restorable(request, len(hits))
        if not restored and self._next_in_tier(request, len(hits)):
            self.refused()
        slots = self.tier.claim(restored) if self.tier is not None else []
        need = pool.blocks_for(request.known) - len(hits)
        source, copied = self._to_copy(request, len(hits) + len(slots))
        if source and pool.idle_among([source]) and need == pool.available:
            source = copied = 0  # it has to give way itself
        sources = [source] if source else []
        pool.share(sources, seat)
        fresh = pool.take(need, seat)
        pool.release(sources, seat, cheap=len(sources))  # as worthy as it was: it stays evicted before what it builds on
        assert fresh is not None, "a request boarded that does not fit"
        request.blocks, request.gone, request.registered = hits + fresh, gone, len(hits)
        request.computed = len(hits) * size
        if self.slotting is not None:
            self.slotting.board(request)
        if self.tier is not None and slots:
            self.tier.restore(slots, fresh[: len(slots)])
            request.computed += len(slots) * size
            self.register(request)
        if source:
            request.computed += copied
            self._copies.append(self._fork(request, source, fresh[len(slots)]))
            self.forks += 1
        if self.window:
            self.give_back(request)
        elif self.slotting is not None:
            self.slotting.give_back(request)
        if self.shares:
            self._announce(request)
        return Settled(len(hits), need, len(slots), copied)

    def _fork(self, request: RequestState, source: int, target: int) -> Fork:
        if self.slotting is None:
            return Fork(source, target)
        slot = self.slotting.slots.of(source)  # read first: it may be the very one that the target gets
        self.slotting.cover(request, request.computed)
        return Fork(source, target, (slot, request.slots[-1]))

    def _next_in_tier(self, request: RequestState, hits: int) -> bool:
        """Whether the second tier holds what follows the device's hits."""
        full = (request.known - 1) // self._size
        return self.tier is not None and not request.reads_all and hits < full and request.hashes(full, self._size)[hits] in self.tier

    def _restorable(self, request: RequestState, hits: int) -> list[bytes]:
        """Contents behind the device's hits that the second tier holds, as far as bringing them back is worth it."""
        if self.tier is None or not self._next_in_tier(request, hits):
            return []
        found = []
        for content in request.hashes((request.known - 1) // self._size, self._size)[hits:]:
            if content not in self.tier:
                break
            found.append(content)
        return found[: self.worth_restoring(hits * self._size, len(found))]

    def _to_copy(self, request: RequestState, found: int) -> tuple[int, int]:
        """The block that begins with most of what the request has behind `found` full blocks, and with how many positions; (0, 0) if none.

        Whoever copies it writes behind those: it is copy-on-write, at the first write. The last token is computed again, as that gives
        the first draw.
        """
        size = self._size
        start = found * size
        end = min(request.known - 1, start + size - 1)
        if end <= start or request.reads_all or not self.shares:
            return 0, 0
        return self.pool.closest(request.stem(found, size), request.packed(start, end))

    def _announce(self, request: RequestState) -> None:
        full = (request.known - 1) // self._size
        for content in request.hashes(full, self._size)[request.registered :]:
            self.reading.setdefault(content, request)
        if not request.output_len and request.remaining > 1:
            self.reading.setdefault(request.tail(self._size), request)

    # ------------------------------------------------------------------------------------------------------- it rides

    def register(self, request: RequestState) -> None:
        """Index blocks that became full; where the content is there already, use that block and give ours back."""
        size = self._size
        full = request.computed // size
        assert request.seat is not None
        chain = request.hashes(full, size)
        for index in range(request.registered, full):
            mine = request.blocks[index]
            kept = self.pool.register(mine, chain[index])
            if kept == mine:
                self.pool.lay(mine, request.stem(index, size), request.packed(index * size, (index + 1) * size))
            else:
                self._swap(request, index, kept)
            self._has_read(request, chain[index])
        request.registered = full

    def end_of_prompt(self, request: RequestState) -> None:
        """The prompt is computed: whoever asks the same may go on from here."""
        self._has_read(request, request.tail(self._size))
        self._lay_last(request)

    def _lay_last(self, request: RequestState) -> int:
        """Let others find the block that it has begun to fill. Returns where what it holds is found; 0 where no block is partly filled."""
        size = self._size
        full, rest = divmod(request.computed, size)
        if not rest or not self.shares:
            return 0
        return self.pool.lay(request.blocks[full], request.stem(full, size), request.packed(full * size, full * size + rest))

    def _swap(self, request: RequestState, index: int, twin: int) -> None:
        """Give its own block back for one that holds the same."""
        assert request.seat is not None
        if self.slotting is not None:
            self.slotting.swap(request, index, twin)
        self.pool.replace(request.blocks[index], twin, request.seat)
        request.blocks[index] = twin

    def give_back(self, request: RequestState) -> None:
        """Blocks that its next position no longer sees are of more use to others; of all cached ones they are the first to be evicted."""
        gone = blocks_behind(request.computed, self.window, self._size)
        if gone > request.gone:
            assert request.seat is not None
            behind = request.blocks[request.gone : gone]
            self.pool.release(behind, request.seat, cheap=len(behind))
            request.blocks[request.gone : gone] = [0] * len(behind)
            request.gone = gone

    # ------------------------------------------------------------------------------------------------------- it leaves

    def leave(self, request: RequestState, cheap: int) -> None:
        """It holds its blocks no longer; of those, the last `cheap` are quickly computed again.

        What its last block holds saves half as much as a whole block on average, and takes as much room: under pressure it gives way first.
        So the chats of `omnibus bench eviction` find no less than without, however small the pool, and the more the more room there is.
        """
        assert request.seat is not None
        self._stop_reading(request)
        begun = request.finish is not FinishReason.ERROR and self._keep_last(request)
        if self.slotting is not None:
            self.slotting.leave(request, passed=0 < len(request.held) <= cheap)
        self.pool.release(request.held, request.seat, max(cheap, int(begun)))

    def _keep_last(self, request: RequestState) -> bool:
        """Is its last block partly filled? Then it is kept: the chat's next prompt goes on in its middle."""
        last = request.computed // self._size
        kept = self._lay_last(request)
        if kept and kept != request.blocks[last]:
            self._swap(request, last, kept)  # so that it grows young, and those before it younger
        return kept > 0

    def _stop_reading(self, request: RequestState) -> None:
        if not self.shares:
            return
        full = min((request.known - 1) // self._size, len(request._hashes))
        for content in request.hashes(full, self._size)[request.registered :]:  # what is indexed is no longer being read
            self._has_read(request, content)
        self._has_read(request, request.tail(self._size))

    def _has_read(self, request: RequestState, content: bytes) -> None:
        if self.reading.get(content) is request:
            del self.reading[content]
