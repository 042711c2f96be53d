"""Blocks behind a sliding window: no layer will look at them again, so their rider gives them back while it rides on.

A place in the block table whose block was given back holds 0, the number of no one's block. What was given back stays in the prefix cache
until someone needs the room, and a later request can use what is left of a chain as long as the last window of it is there: what lies
before that is not read by any layer. (vLLM's hybrid KV cache manager does the same for its sliding-window groups.) Pure arithmetic and
look-ups; changes nothing.

Where every layer has a window, riders give the blocks back themselves. Of a model that mixes such layers with some that see everything
(Gemma 3 has five to one, gpt-oss one to one) they give back only what the windowed layers hold. A block is still one number for all
layers, shared, indexed and evicted as one; but the windowed layers keep it in a slot (see `engine/kv/slots.py`), of which there are fewer
than blocks, and which a block has only as long as somebody's window reaches it, or nobody else needs it. A pool, an index and a table for
each group of layers would give the same memory back and cost a second dimension in every module that says "block"; slots are one more
table a request. A chat that comes back is hit as far as the last window of its chain still has its slots.

With a share f of a position's bytes in the layers that see everything, a cache of b blocks and s slots takes f + (1 - f) s / b of what it
would take. Gemma 3's f is a sixth: at four windows a rider alone would need three eighths. `slots_for` keeps more than riders need, a
third of the blocks, for chats that come back. Which models have slots, and why others do not, `engine/model/slots.py` says. Their number
is settled when a model is loaded: a pool that changes its size later keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.kv.pool import BlockPool


def blocks_behind(position: int, window: int, block_size: int) -> int:
    """Leading blocks that lie wholly behind the window of `position` and of all later ones; 0 without a window."""
    return max(0, position - window + 1) // block_size if window else 0


def slots_of_one(window: int, block_size: int) -> int:
    """The most blocks that the window of one position can touch, its own block included."""
    return -(-(window - 1) // block_size) + 1


KEPT_SHARE = 3  # slots for chats that come back: one for so many blocks. With 4, chats of 1,500 tokens that overfill the pool are hit less


def slots_beside(window: int, block_size: int, seats: int, token_budget: int) -> int:
    """Slots that riders may need together, whatever they do: their windows, and the blocks of a step's chunks."""
    return seats * slots_of_one(window, block_size) + -(-token_budget // block_size) + 1


def slots_for(num_blocks: int, beside: int) -> int:
    """How many slots the windowed layers get where there are so many blocks, `beside` for riders; 0 if they would not be fewer."""
    slots = beside + num_blocks // KEPT_SHARE
    return slots if slots < num_blocks else 0


def last_window_of(count: int, window: int, block_size: int, there: Callable[[int], bool]) -> int:
    """Of a chain of `count` blocks, how many a request can ride on from: the most whose last window is there."""
    while count:
        first = blocks_behind(count * block_size, window, block_size)
        missing = next((place for place in range(count - 1, first - 1, -1) if not there(place)), None)
        if missing is None:
            break
        count = missing
    return count


def hits_in_window(pool: BlockPool, chain: Sequence[bytes], window: int) -> list[int]:
    """The longest beginning of a chain of block contents that can be ridden on from: its blocks, 0 for those behind the window."""
    found = [next(iter(pool.lookup([content])), 0) for content in chain]
    end = last_window_of(len(chain), window, pool.block_size, lambda place: bool(found[place]))
    first = blocks_behind(end * pool.block_size, window, pool.block_size)
    return [0] * first + found[first:end]
