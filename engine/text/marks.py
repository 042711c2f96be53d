"""Control tokens as texts: where they stand in what somebody wrote, and where their beginnings could be completed by what follows.

Owns one pattern for all of them, however many: Gemma has six thousand. Knows no tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise


class Marks:
    """A set of control tokens, and where they stand in a text. A longer one wins over one that it contains.

    Attributes:
        pattern: finds them.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        words = sorted({mark for mark in marks if mark})
        self.pattern = re.compile(_longest_of(words) if words else r"(?!)")
        self._beginnings = frozenset(mark[:length] for mark in words for length in range(1, len(mark)))
        self._longest = max(map(len, words), default=0)
        self._firsts = frozenset(word[0] for word in words)

    def in_text(self, text: str) -> bool:
        """Whether `text` holds a mark, or ends with the beginning of one, which what follows might complete."""
        return bool(self.pattern.search(text)) or bool(self._open_end(text))

    def broken(self, text: str, wedge: str) -> str:
        """`text` with `wedge` behind the first character of each mark, where they overlap too, and of a beginning at its end."""
        starts = list(self._starts(text))
        if cut := self._open_end(text):
            starts.append(len(text.rstrip()) - cut)
        ends = [start + 1 for start in sorted(set(starts))]
        return wedge.join(text[begin:end] for begin, end in pairwise([0, *ends, len(text)]))

    def _starts(self, text: str) -> Iterator[int]:
        """Every place where a mark begins, those inside another one among them: of "<<<" either half may be the mark "<<"."""
        match = self.pattern.search(text)
        while match:
            yield match.start()
            match = self.pattern.search(text, match.start() + 1)

    def _open_end(self, text: str) -> int:
        """Length of the longest beginning of a mark at the end of `text`, before white space, which a template may trim."""
        end = text.rstrip()[-self._longest :]
        if self._firsts.isdisjoint(end):  # as almost always
            return 0
        for length in range(min(self._longest - 1, len(end)), 0, -1):
            if end[-length:] in self._beginnings:
                return length
        return 0


def _longest_of(words: list[str]) -> str:
    """An expression for the longest of the sorted `words` that stands somewhere.

    Written as a tree, letter by letter: side by side, all six thousand would be tried at each "<" of a page of HTML, ten microseconds each.
    """
    branches = []
    for _, group in groupby(words, key=lambda word: word[:1]):
        family = list(group)
        shared = _shared(family[0], family[-1])  # of sorted words the first and the last differ the most
        rests = [word[len(shared) :] for word in family]
        ends = rests[0] == ""
        inner = _longest_of(rests[1:] if ends else rests) if len(rests) > 1 else ""
        branches.append(re.escape(shared) + (f"(?:{inner})?" if ends and inner else inner))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _shared(first: str, last: str) -> str:
    length = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), min(len(first), len(last)))
    return first[:length]
