"""Blocks behind a sliding window: no layer will look at them again, so their rider gives them back while it rides on.

A place in the block table whose block was given back holds 0, the number of no one's block. What was given back stays in the prefix cache
until someone needs the room, and a later request can use what is left of a chain as long as the last window of it is there: what lies
before that is not read by any layer. (vLLM's hybrid KV cache manager does the same for its sliding-window groups.) Pure arithmetic and
look-ups; changes nothing.

Only where every layer has a window: of a model that mixes them with layers that see everything (Gemma 3 has five to one) nothing is
handed back. A block here is one number for all layers, so what its windowed layers hold goes when the others' does. To part them, each
group of layers would need a pool, an index and a table a request of its own; a request would board only if it fits every pool, a hit
would be what all groups have, and eviction, the second tier, copies, resizing, recordings and the picture of the blocks would exist once
a group. That is a second dimension in every module that says "block", for models whose contexts, on the machines that this engine is
made for, are seldom many windows long; a ring of slots a seat for the windowed layers would be simpler, but without shared prefixes. It
pays from about four windows of context on: then, with Gemma 3's five to one, a request would hold three eighths
of what it holds here.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.kv.pool import BlockPool


def blocks_behind(position: int, window: int, block_size: int) -> int:
    """Leading blocks that lie wholly behind the window of `position` and of all later ones; 0 without a window."""
    return max(0, position - window + 1) // block_size if window else 0


def hits_in_window(pool: BlockPool, chain: Sequence[bytes], window: int) -> list[int]:
    """The longest beginning of a chain of block contents that can be ridden on from: its blocks, 0 for those behind the window."""
    found = [next(iter(pool.lookup([content])), 0) for content in chain]
    end = len(chain)
    while end:
        first = blocks_behind(end * pool.block_size, window, pool.block_size)
        missing = next((place for place in range(end - 1, first - 1, -1) if not found[place]), None)
        if missing is None:
            return [0] * first + found[first:end]
        end = missing
    return []
