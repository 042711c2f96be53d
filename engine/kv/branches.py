"""What goes on from where: blocks by the tokens that they hold and the address of what stands before them.

A block is found by its address alone if a prompt has all of it. Where a prompt parts from what is cached in the middle of a block (at the
end of an answer, behind which the next question comes; in a message that was edited; behind the same instructions), the block is found
here by the longest beginning that they share, and is copied. So blocks that are not full stand here too. (SGLang's radix tree and the
partial reuse of TensorRT-LLM serve the same case.)

Of two blocks behind the same stem, one of which holds the beginning of what the other holds, only the other stands here. So in the order
of their tokens a block's neighbours are those that share most with it, and nothing need be walked through. Knows no reference counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator


def shared_tokens(one: bytes, other: bytes) -> int:
    """Tokens with which both begin."""
    count = 0
    for mine, theirs in zip(memoryview(one).cast("q"), memoryview(other).cast("q"), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


class Branches:
    """The index. A stem is the address of the blocks before, and what else sets requests apart; tokens are packed, eight bytes each."""

    def __init__(self) -> None:
        self._lines: dict[bytes, list[tuple[bytes, int]]] = {}  # by stem, in order
        self._held: dict[int, tuple[bytes, bytes]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._held

    def __len__(self) -> int:
        return len(self._held)

    def part(self, stem: bytes) -> bool:
        """Does anything go on from this stem?"""
        return stem in self._lines

    def of(self, block: int) -> tuple[bytes, bytes] | None:
        """The block's stem and tokens, None if it does not stand here."""
        return self._held.get(block)

    def beyond(self, stem: bytes, tokens: bytes) -> Iterator[int]:
        """Blocks that hold all of these tokens, and perhaps more."""
        line = self._lines.get(stem, [])
        for place in range(bisect_left(line, (tokens,)), len(line)):
            held, block = line[place]
            if not held.startswith(tokens):
                break
            yield block

    def short_of(self, stem: bytes, tokens: bytes) -> int:
        """The block that holds the beginning of these tokens and no others; 0 if there is none, and never more than one."""
        line = self._lines.get(stem, [])
        place = bisect_left(line, (tokens,))
        return line[place - 1][1] if place and tokens.startswith(line[place - 1][0]) else 0

    def add(self, block: int, stem: bytes, tokens: bytes) -> None:
        """Nothing that stands here may be the beginning of these tokens, or begin with them."""
        line = self._lines.get(stem)
        if line is None:
            self._lines[stem] = [(tokens, block)]
        else:
            insort(line, (tokens, block))
        self._held[block] = (stem, tokens)

    def drop(self, block: int) -> None:
        """If it stands here, no longer."""
        held = self._held.pop(block, None)
        if held is not None:
            stem, tokens = held
            line = self._lines[stem]
            if len(line) == 1:
                del self._lines[stem]
            else:
                del line[bisect_left(line, (tokens, block))]

    def closest(self, stem: bytes, tokens: bytes, useful: Callable[[int], bool]) -> tuple[int, int]:
        """Of the useful blocks the one that shares most tokens with these, and how many; (0, 0) if none shares any."""
        line = self._lines.get(stem, [])
        here = bisect_left(line, (tokens,))
        best, most = 0, 0
        for walk in (range(here, len(line)), range(here - 1, -1, -1)):
            for place in walk:
                held, block = line[place]
                count = shared_tokens(held, tokens)
                if count <= most:
                    break
                if useful(block):
                    best, most = block, count
                    break
        return best, most

    def fault(self) -> str:
        """What is wrong with the index: "" if both of its books say the same, and no block holds but the beginning of another's."""
        told = {block: (stem, tokens) for stem, line in self._lines.items() for tokens, block in line}
        if told != self._held or sum(map(len, self._lines.values())) != len(told):
            return "a block stands behind another stem than it says"
        for line in self._lines.values():
            for (tokens, block), (after, other) in zip(line, line[1:], strict=False):
                if tokens >= after or after.startswith(tokens):
                    return f"block {block} holds but a part of what block {other} holds"
        return ""
