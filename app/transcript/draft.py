"""A block that is still open and already too long to be read anew for each token: how what follows in it is read by itself.

Qt-free. CommonMark may let the end of a block change its beginning (a bold mark that closes, an underline that makes a heading), so what
is drafted is a good guess, not the last word: once the block is closed, its owner reads it whole, once, and takes the draft back. A
paragraph is cut at the end of a line, and each part stands alone. A quote or a list's last item is read without its marks by another
`AnswerStream`, which may draft in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from markdown_it.token import Token

from app.transcript.markdown import top_level

LONG = 1000  # characters of an open paragraph that are still read anew for each token
LONGEST_WORD = 60
SHORTER = 0.4  # of that, for a quote or a list item: a draft of it looks the same, and code in it would be coloured anew for each token
_MARKED = re.compile(r"( {0,3})([-+*]|\d{1,9}[.)])( {1,4}(?=\S)| |(?=\n)|$)")  # a list item's first line
_QUOTED = re.compile(r" {0,3}>( |(?=[^ ]))")
_BEGINS = re.compile(r"([-+*]|\d{1,9}[.)])[ \t]+\S|#{1,6}[ \t]+\S|`{3}|~{3}|>|\$\$|\\\[")  # what stands here is no more of a paragraph
_MAY_BEGIN = re.compile(r"([-+*]|\d{1,9}[.)]?|#{1,6}|`{1,2}|~{1,2}|\$|\\)?[ \t]*$")  # perhaps the beginning of such a thing
_UNDECIDED = re.compile(r"\s*([-+*]|\d{1,9}[.)]?|#{1,6}|[-*_ \t]+|=+|`+[^`]*|~{1,2}|\$+|\\\[?)?[ \t]*")
_TARGET = re.compile(r"\]\([^)\s]*\)")

Parse = Callable[[str], list[Token]]
FullLines = Callable[[], Sequence[int]]
"""How many letters and figures of the tail stand before each of its last lines on screen, from the last line up; empty: not known."""


@dataclass(slots=True)
class Drafted:
    """What more of an open block brought: tokens that stay until it is closed, and the tail behind them (tokens, or an open fence)."""

    kept: list[Token] = field(default_factory=list)
    taken_back: int | None = None  # as in `stream.Update`
    tail: list[Token] = field(default_factory=list)
    fence: OpenFence | None = None


@dataclass(frozen=True, slots=True)
class OpenFence:
    """A code block that is still being written. `code` ends before a line that may turn out to be the closing one."""

    start: int  # where the fence began, in characters of the text it stands in
    info: str
    code: str


class Draft(Protocol):
    """An open block, from its beginning on.

    Attributes:
        doubtful: a line has come by which the block may have ended; who owns the whole text must look.
    """

    doubtful: bool

    def take(self, piece: str) -> Drafted:
        """More of the text."""


class Inner(Protocol):
    """Another stream, for what stands inside a quote or a list item."""

    def feed_inner(self, piece: str) -> Drafted: ...


class ParagraphDraft:
    """A paragraph, cut into parts."""

    def __init__(self, parse: Parse, full_lines: FullLines, long: int) -> None:
        self.doubtful = False
        self._parse = parse
        self._full_lines = full_lines
        self._long = long
        self._rest = ""

    def take(self, piece: str) -> Drafted:
        drafted = Drafted()
        self._rest += piece
        if "\n" in piece and "\n" in self._rest:
            self.doubtful = self._may_have_ended(self._rest[: self._rest.rfind("\n") + 1])
        while len(self._rest) > self._long:
            place = _cut_place(self._rest[: 2 * self._long], self._full_lines() if not drafted.kept else ())
            drafted.kept += _part(self._parse(self._rest[:place]))
            self._rest = self._rest[place:]
        drafted.tail = self._parse(self._rest)
        return drafted

    def _may_have_ended(self, lines: str) -> bool:
        """Whether complete lines are anything but a paragraph that goes on."""
        blocks = top_level(self._parse(lines))
        return len(blocks) != 1 or blocks[0][0].type != "paragraph_open" or not lines.split("\n")[-2].strip()


class ContainerDraft:
    """A quote, or the last item of a list: the same text without the marks of its lines.

    `width`: by how many columns an item's lines are indented, 0 for a quote. `tight`: the item's paragraphs stand close together.
    """

    def __init__(self, inner: Inner, opening: list[Token], width: int, tight: bool) -> None:
        self.doubtful = False
        self._inner = inner
        self._opening = opening
        self._width = width
        self._tight = tight
        self._held = ""  # of the present line, as long as it may be its mark
        self._inside = False  # the present line's mark is gone
        self._first = width > 0  # the item's first line, which begins with its number or bullet
        self._worded = False  # the present line has words
        self._blank = False  # the line before had none

    def take(self, piece: str) -> Drafted:
        drafted = self._inner.feed_inner("".join(self._bare(line) for line in re.findall(r"[^\n]*\n|[^\n]+", piece)))
        drafted.kept = self._opening + self._spaced(drafted.kept)
        drafted.tail = self._spaced(drafted.tail)
        self._opening = []
        return drafted

    def _bare(self, line: str) -> str:
        """A line, or a piece of one, without what marks it as one of this block; empty as long as that cannot be told."""
        if not self._inside:
            line = self._held + line
            bare = self._item_line(line) if self._width else self._quote_line(line)
            self._held = line if bare is None else ""
            if bare is None:
                return ""
            line = bare
        self._worded = self._worded or bool(line.strip())
        self._inside = not line.endswith("\n")
        if not self._inside:
            self._blank, self._worded = not self._worded, False
        return line

    def _quote_line(self, line: str) -> str | None:
        if match := _QUOTED.match(line):
            return line[match.end() :]
        if not line.strip():
            self.doubtful = self.doubtful or line.endswith("\n")  # this ends it
            return line if line.endswith("\n") else None
        if line.strip(" ") == ">":
            return None  # a space may follow, which is part of the mark
        return self._other_line(line.lstrip())

    def _item_line(self, line: str) -> str | None:
        if self._first:
            self._first = False
            return line[self._width :] or line[-1:].strip(" ")
        words = line.lstrip(" \t")
        indent = len(line[: len(line) - len(words)].expandtabs(4))
        if not words.strip("\n"):
            return "\n" if line.endswith("\n") else None
        if indent >= self._width:
            return " " * (indent - self._width) + words
        return self._other_line(words)

    def _other_line(self, words: str) -> str | None:
        """A line without the mark. It ends the block, or goes on with its last paragraph."""
        if self._blank or _BEGINS.match(words):
            self.doubtful = True
            return words if words.endswith("\n") else None
        if _MAY_BEGIN.match(words):
            return None
        self.doubtful = self.doubtful or words.endswith("\n")
        return words

    def _spaced(self, tokens: list[Token]) -> list[Token]:
        for token in tokens if self._tight else ():
            if token.level == 0 and token.type in ("paragraph_open", "paragraph_close"):
                token.hidden = True
        return tokens


def undecided(line: str) -> bool:
    """Whether a line that is not complete may still become words that go on with the paragraph before it, though now it looks like the
    beginning of a list, a heading, a rule, a fence or a formula: `*` may become `**bold**`."""
    return _UNDECIDED.fullmatch(line) is not None


def item_width(line: str) -> int:
    """By how many columns the lines of a list item are indented, told by its first; 0 where it is none."""
    match = _MARKED.match(line)
    return 0 if match is None else max(match.end(), match.end(2) + 1)


def _part(tokens: list[Token]) -> list[Token]:
    """A part of a paragraph, behind which more of it stands."""
    for token in tokens:
        if token.type == "paragraph_open":
            token.meta = {**token.meta, "goes_on": True}
    return tokens


def _cut_place(text: str, full_lines: Sequence[int]) -> int:
    """Where to cut a paragraph: where a line ends on screen and no mark is open; else behind a word."""
    unseen = {place for link in _TARGET.finditer(text) for place in range(*link.span())}
    counted = [place for place, letter in enumerate(text) if letter.isalnum() and place not in unseen]
    places = [_before_marks(text, counted[letters]) for letters in full_lines if letters < len(counted)]
    lines = [place for place in places if place > len(text) // 3 and _begins_words(text, place)]
    words = (match.start() for match in reversed(list(re.finditer(r"(?<=\s)\S", text[len(text) // 3 :]))))
    words_at = [place for place in (start + len(text) // 3 for start in words) if _begins_words(text, place)]
    for place in (*lines, *words_at[:20]):
        if _balanced(text[:place]):
            return place
    return (lines or words_at or [len(text)])[0]


def _before_marks(text: str, place: int) -> int:
    """The place before the marks that a word begins with; or before the word, if that place is inside of one and words have spaces."""
    begin = max(text.rfind(" ", 0, place), text.rfind("\n", 0, place)) + 1
    return begin if begin > 0 and place - begin < LONGEST_WORD else place


def _begins_words(text: str, place: int) -> bool:
    """Whether what stands here would be read as words, not as a list, a heading, a table or a formula, were it at a line's beginning."""
    if place >= len(text) or text[place].isspace() or text[place] in "#>+-=~`|0123456789":
        return False
    return text[place : place + 2] not in ("* ", "$$", "\\[")


def _balanced(text: str) -> bool:
    return text.count("`") % 2 == text.count("*") % 2 == 0 and text.count("[") == text.count("]")
