"""Tells the thinking of a reasoning model from its answer, while it streams.

Models mark it with tags in the text (`<think>` … `</think>` and its relatives). Some templates open the tag in the prompt, so
that the answer begins inside. Owns the one pending piece that may still turn out to be a tag; loses and doubles no character.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of streamed text, without the tags."""

    text: str
    reasoning: bool


class ReasoningSplitter:
    """Splits a stream into reasoning and answer.

    Tags are honoured at the very start of the answer only (white space aside): a model that writes about tags later is quoted,
    not folded. `opened` says that the prompt already opened one of them.

    Attributes:
        end: how many characters of the answer the reasoning took, its tags included; None until it has ended.
    """

    def __init__(self, opened: bool = False) -> None:
        self._pending = ""
        self._inside = opened
        self._closers = tuple(closer for _, closer in TAGS) if opened else ()
        self._started = opened
        self._trim = False
        self._opening = False  # the tag has just been read
        self._length = 0  # of all text so far
        self.end: int | None = None

    @property
    def inside(self) -> bool:
        """Whether what comes next is reasoning."""
        return self._inside

    @property
    def over(self) -> bool:
        """Whether all that comes is answer, and nothing is held back."""
        return self._started and not (self._inside or self._trim or self._pending)

    def push(self, text: str) -> Iterator[Piece]:
        """Pieces that are certain by now."""
        self._pending += text
        self._length += len(text)
        yield from self._drain(last=False)

    def flush(self) -> Iterator[Piece]:
        """The rest, at the end of the answer."""
        yield from self._drain(last=True)

    def _drain(self, last: bool) -> Iterator[Piece]:
        while self._pending:
            if self._trim:  # the line break that follows a closing tag belongs to the tag
                self._pending = self._pending.lstrip("\n")
                if not self._pending:
                    return
                self._trim = False
            if not self._started:
                if not self._open(last):
                    return
                continue
            if not self._inside:
                yield self._cut(len(self._pending))
                return
            if self._opening:  # the line break that follows belongs to the tag, also when it comes as a token of its own
                self._opening = False
                self._pending = self._pending.removeprefix("\n")
                continue
            at, closer = self._find_closer()
            if closer:
                if at:
                    yield self._cut(at)
                self._pending = self._pending[len(closer) :]
                self.end = self._length - len(self._pending)
                self._inside = False
                self._trim = True
                continue
            keep = 0 if last else self._partial_closer()
            if len(self._pending) > keep:
                yield self._cut(len(self._pending) - keep)
            return

    def _open(self, last: bool) -> bool:
        """Decide how the answer begins; False when more text is needed for that."""
        bare = self._pending.lstrip()
        for opener, closer in TAGS:
            if bare.startswith(opener):
                self._pending = bare[len(opener) :]
                self._started = self._inside = self._opening = True
                self._closers = (closer,)
                return True
        if not last and (not bare or any(opener.startswith(bare) for opener, _ in TAGS)):
            return False
        self._started = True
        return True

    def _cut(self, length: int) -> Piece:
        text, self._pending = self._pending[:length], self._pending[length:]
        return Piece(text, self._inside)

    def _find_closer(self) -> tuple[int, str]:
        found = [(self._pending.find(closer), closer) for closer in self._closers]
        return min(((at, closer) for at, closer in found if at >= 0), default=(-1, ""))

    def _partial_closer(self) -> int:
        """Length of the tail that may be the beginning of a closing tag."""
        longest = 0
        for closer in self._closers:
            for length in range(min(len(closer) - 1, len(self._pending)), longest, -1):
                if closer.startswith(self._pending[-length:]):
                    longest = length
                    break
        return longest


def split_reasoning(text: str, opened: bool = False) -> tuple[str, str]:
    """(reasoning, answer) of a whole text."""
    splitter = ReasoningSplitter(opened)
    pieces = [*splitter.push(text), *splitter.flush()]
    return "".join(p.text for p in pieces if p.reasoning), "".join(p.text for p in pieces if not p.reasoning)


def opens_reasoning(prompt: str) -> bool:
    """Whether the end of a prompt opens one of the tags, white space aside."""
    return prompt.rstrip().endswith(tuple(opener for opener, _ in TAGS))
