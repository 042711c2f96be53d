"""A growing answer, cut into blocks that are final and a tail that may still change.

Qt-free. The rule: of the lines that are complete, every top-level block but the last is final, because in CommonMark nothing that
follows can reach back over the block after it; a fence is final with its closing line, a paragraph with a blank one. Of a list or a table
that goes on, all items but the last are final, and all rows. Of a single block that grows long, a draft is given until it is final
(`app.transcript.draft`). So a token's cost depends on the tail, not on the answer. Three things reach back: link references, which may be
defined after their use (`has_references` tells the owner to write the whole anew at the end), the first empty line between the items of a
list, for which they are taken back and come once more, and the end of a block that was drafted, which comes once more, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.transcript.container import Container, OpenContainer, container_of, moved
from app.transcript.draft import LONG, SHORTER, ContainerDraft, Draft, Drafted, FullLines, OpenFence, ParagraphDraft, item_width, undecided
from app.transcript.markdown import clean, make_parser, top_level

_FENCE_OPEN = re.compile(r"^( {0,3})(`{3,}|~{3,})([^\n]*)\n")


LOOK_AGAIN = 8  # a block that had not ended when it was looked at is looked at again when it has grown by this part of its length
PLACE = "place"  # a token of ours that stands for nothing: what follows it may be taken back. Its number is in `meta`


@dataclass(slots=True)
class Update:
    """What one `feed` brought: blocks that became final, and the tail as it stands (tokens, or an open fence).

    The tokens of all `closed`, one after another, are those of the whole text, places aside. A list or a table may go on from one to the
    next, and the tail begins inside it then. `drafted` stands between what is final and the tail, and behind what was drafted before.
    """

    taken_back: int | None = None  # what earlier updates brought behind the place of this number goes, before what this one brings
    closed: list[Token] = field(default_factory=list)
    closed_at: int = 0  # where the final blocks began, in characters of the cleaned text
    drafted: list[Token] = field(default_factory=list)
    tail: list[Token] = field(default_factory=list)
    fence: OpenFence | None = None


@dataclass(slots=True)
class _Fence:
    """The fence that the text is inside of. `searched`: up to here, a line's beginning, it is not closed. `code`: up to `read`."""

    start: int
    marker: str
    info: str
    indent: int
    searched: int
    read: int
    code: str = ""

    def without_indent(self, lines: str) -> str:
        """Its lines, as far as they are indented like its first one, without that."""
        return re.sub(rf"^ {{1,{self.indent}}}", "", lines, flags=re.MULTILINE) if self.indent else lines


class AnswerStream:
    """Feed it pieces; get final blocks once each, and the present tail.

    `full_lines`: see there; asked when a part of a long paragraph is to be drafted. `long`: from which length on a block is. `places`:
    counts them, for a stream inside another one.
    """

    def __init__(
        self,
        parser: MarkdownIt | None = None,
        full_lines: FullLines = tuple,
        long: int = LONG,
        places: Iterator[int] | None = None,
    ) -> None:
        self._parser = parser or make_parser()
        self._full_lines = full_lines
        self._long = long
        self._places = places or itertools.count()
        self._draft: Draft | None = None  # of what lies behind `_closed`
        self._draft_place = 0
        self._next_look = 0  # how long the text must be for another look whether the block that is drafted has ended
        self._text = ""
        self._closed = 0  # characters that lie in final blocks
        self._held = ""  # a carriage return whose newline may follow
        self._references: dict[str, object] = {}
        self._fence: _Fence | None = None
        self._open: OpenContainer | None = None  # what goes on at `_closed`

    @property
    def text(self) -> str:
        return self._text

    @property
    def has_references(self) -> bool:
        return bool(self._references)

    @property
    def drafting(self) -> int | None:
        """The place from which on what was brought is a draft; None where nothing is."""
        return self._draft_place if self._draft is not None else None

    def feed(self, piece: str, last: bool = False) -> Update:
        """Take more text. With `last`, everything becomes final."""
        piece = self._held + piece
        self._held = "\r" if piece.endswith("\r") and not last else ""
        piece = clean(piece[:-1] if self._held else piece)
        self._text += piece
        update = Update(closed_at=self._closed)
        if last:
            blocks = self._blocks(len(self._text), update, last=True)
            update.closed_at = self._closed
            update.closed = self._continued(blocks)
            self._end_draft(update)
            self._closed = len(self._text)
            self._fence = self._open = None
            return update
        if self._draft is not None:
            self._go_on_drafting(self._draft, piece, update)
            if self._draft is not None:
                return update
        elif "\n" in piece and not self._inside_fence():
            self._close_blocks(update)
        if self._fence is not None or (self._open is None and self._enter_fence(self._text[self._closed :])):
            update.fence = self._open_fence()
        else:
            blocks = self._blocks(len(self._text), update)
            self._begin_draft(blocks, update)
            if self._draft is None:
                update.tail = self._continued(blocks)
        return update

    def feed_inner(self, piece: str) -> Drafted:
        """Take more text of what another stream drafts."""
        update = self.feed(piece)
        return Drafted(update.closed + update.drafted, update.taken_back, update.tail, update.fence)

    # ------------------------------------------------------------------------------------------------------- drafts

    def _begin_draft(self, blocks: list[list[Token]], update: Update) -> None:
        """Draft the block that is open, if it is long."""
        if len(blocks) != 1:
            return
        most = self._long * (1 if blocks[0][0].type == "paragraph_open" else SHORTER)
        if len(self._text) - self._closed <= most:
            return
        text = self._text[self._closed :]
        self._draft, first = self._draft_of(blocks[0], text)
        if self._draft is not None:
            self._next_look = 0
            place = self._place()
            self._draft_place = place.meta["number"]
            update.drafted = [place]
            self._take_drafted(self._draft.take("\n".join(text.split("\n")[first:])), update)

    def _draft_of(self, block: list[Token], text: str) -> tuple[Draft | None, int]:
        """What drafts a block, if it can be, and in which line of the text it is to begin."""
        first = block[0].map[0] if block[0].map else 0
        if block[0].type == "paragraph_open":
            return ParagraphDraft(lambda source: self._parse(source, keep=False), self._full_lines, self._long), first
        inner = AnswerStream(self._parser, self._full_lines, self._long, self._places)
        if block[0].type == "blockquote_open":
            return ContainerDraft(inner, block[:1], 0, tight=False), first
        items = container_of(block)
        if items is None or not items.is_list:
            return None, 0
        first = items.units[-1][0].map[0]  # type: ignore[index]
        width = item_width(text.split("\n")[first])
        opening = [] if self._open else items.opening
        begun = [token for unit in items.units[:-1] for token in unit] + items.units[-1][:1]
        loose = self._open.loose if self._open else items.loose
        return (ContainerDraft(inner, opening + begun, width, tight=not loose) if width else None), first

    def _go_on_drafting(self, draft: Draft, piece: str, update: Update) -> None:
        """More of the block that is drafted, or its end."""
        drafted = draft.take(piece)
        line = self._text[self._text.rfind("\n") + 1 :]
        if draft.doubtful and len(self._text) >= self._next_look and not (line and undecided(line)):
            self._close_blocks(update, partial=True)
            if update.closed or update.taken_back is not None:
                self._end_draft(update)
                return
            draft.doubtful = False
            self._next_look = len(self._text) + (len(self._text) - self._closed) // LOOK_AGAIN
        self._take_drafted(drafted, update)

    def _end_draft(self, update: Update) -> None:
        """The block is read whole: what was drafted of it goes."""
        if self._draft is not None and update.taken_back is None:
            update.taken_back = self._draft_place
        self._draft = None

    @staticmethod
    def _take_drafted(drafted: Drafted, update: Update) -> None:
        update.drafted += drafted.kept
        update.tail, update.fence = drafted.tail, drafted.fence
        if drafted.taken_back is not None:
            update.taken_back = drafted.taken_back

    def _place(self) -> Token:
        return Token(PLACE, "", 0, meta={"number": next(self._places)})

    # ------------------------------------------------------------------------------------------------------- blocks

    def _parse(self, source: str, keep: bool, last: bool = False) -> list[Token]:
        env: dict = {"last": last, "references": self._references if keep else dict(self._references)}
        return self._parser.parse(source, env)

    def _source(self, end: int) -> str:
        """The text from what is final up to `end`, as it can be read alone."""
        return (self._open.head if self._open else "") + self._text[self._closed : end]

    def _blocks(self, end: int, update: Update, last: bool = False) -> list[list[Token]]:
        """The top-level blocks from what is final up to `end`, the open container's first. Takes that back where it was not final."""
        blocks = top_level(self._parse(self._source(end), keep=last, last=last))
        if self._open is None or self._open.goes_on(blocks, self._text[self._closed : end]):
            return blocks
        number = self._open.place
        if self._open.start >= update.closed_at:  # closed a moment ago, in this update
            begun = next(at for at, token in enumerate(update.closed) if token.type == PLACE and token.meta["number"] == number)
            del update.closed[begun:]
        else:
            update.closed, update.taken_back = [], number
        self._closed = self._open.start
        self._open = None
        return self._blocks(end, update, last)

    def _continued(self, blocks: list[list[Token]]) -> list[Token]:
        """The tokens of blocks; of the open container, which is the first, only what is new. Lines are counted from what is final."""
        if self._open is None or not blocks:
            return [token for block in blocks for token in block]
        more = container_of(blocks[0])
        units = more.spaced(self._open.loose).units if more else []
        tokens = [token for unit in units for token in unit] + self._open.closing
        return moved(tokens + [token for block in blocks[1:] for token in block], -self._open.head.count("\n"))

    def _close_blocks(self, update: Update, partial: bool = False) -> None:
        """Move `_closed` past what is final, and put its tokens into the update. `partial`: the last line counts though it is not
        complete, as it is certain to end what is before it."""
        end = len(self._text) if partial else self._text.rfind("\n") + 1
        if end <= self._closed:
            return
        blocks = self._blocks(end, update)
        source = self._source(end)
        lines = source.split("\n")
        whole = _count_final(blocks, lines)
        if partial and lines[-1]:
            whole = min(whole, len(blocks) - 1)
        going_on = container_of(blocks[whole]) if whole == len(blocks) - 1 else None
        final_units = going_on.final_units() if going_on and (going_on.is_list or not (partial and lines[-1])) else []
        if going_on and final_units:
            end_line = going_on.units[len(final_units)][0].map[0] if going_on.is_list else blocks[whole][0].map[1]  # type: ignore[index]
        elif whole:
            end_line = blocks[whole][0].map[0] if whole < len(blocks) else blocks[-1][0].map[1]  # type: ignore[index]
        else:
            return
        size = sum(len(line) + 1 for line in lines[:end_line])
        self._parse(source[:size], keep=True, last=True)  # its link references are known from here on
        update.closed_at = self._closed
        head = len(self._open.head) if self._open else 0
        update.closed = self._continued(blocks[:whole])
        if going_on and final_units:
            update.closed += self._begin_or_go_on(going_on, final_units, whole, lines)
        else:
            self._open = None
        self._closed += size - head

    def _begin_or_go_on(self, container: Container, units: list[list[Token]], whole: int, lines: list[str]) -> list[Token]:
        """The tokens of units that are final, of a container that goes on behind `whole` blocks that do not. Notes that it does."""
        tokens = [token for unit in units for token in unit]
        before = self._open.head.count("\n") if self._open else 0
        if self._open and not whole:
            return moved([token for unit in Container([], units, []).spaced(self._open.loose).units for token in unit], -before)
        first, _ = container.opening[0].map or (0, 0)
        head = "" if container.is_list else "".join(line + "\n" for line in lines[first : first + 2])
        start = self._closed + sum(len(line) + 1 for line in lines[before:first])
        place = self._place()
        self._open = OpenContainer(start, place.meta["number"], head, container.kind, bool(container.loose), container.closing)
        return [place, *moved(container.opening + tokens, -before)]

    # -------------------------------------------------------------------------------------------------------- fence

    def _enter_fence(self, rest: str) -> bool:
        """Whether the tail is a fence whose opening line is complete; blank lines may stand before it."""
        body = rest.lstrip("\n")
        match = _FENCE_OPEN.match(body)
        if match is None or (match[2][0] == "`" and "`" in match[3]):
            return False
        start = self._closed + len(rest) - len(body) + match.end()
        self._fence = _Fence(start, match[2], match[3].strip(), len(match[1]), searched=start, read=start)
        return self._inside_fence()

    def _inside_fence(self) -> bool:
        """Whether the open fence is still open after the text that just came."""
        if self._fence is not None and self._fence_closed(self._fence):
            self._fence = None
        return self._fence is not None

    def _fence_closed(self, fence: _Fence) -> bool:
        closing = rf"^ {{0,3}}{re.escape(fence.marker[0])}{{{len(fence.marker)},}}[ \t]*\n"
        if re.search(closing, self._text[fence.searched :], re.MULTILINE):
            return True
        fence.searched = max(fence.searched, self._text.rfind("\n") + 1)
        return False

    def _open_fence(self) -> OpenFence:
        assert self._fence is not None
        fence = self._fence
        line_start = max(fence.start, self._text.rfind("\n") + 1)
        fence.code += fence.without_indent(self._text[fence.read : line_start])
        fence.read = line_start
        line = self._text[line_start:]
        closes = re.fullmatch(rf" {{0,3}}{re.escape(fence.marker[0])}*[ \t]*", line)
        return OpenFence(fence.start, fence.info, fence.code + ("" if closes else fence.without_indent(line)))


def _count_final(blocks: list[list[Token]], lines: list[str]) -> int:
    """How many of the blocks of complete `lines`, from the first, can no longer change."""
    if blocks and blocks[-1][0].type == "math_open":
        # Its closing mark may never come; then these lines belong to the paragraph before them.
        return max(0, len(blocks) - 2)
    return len(blocks) if blocks and _is_final(blocks[-1][0], lines) else max(0, len(blocks) - 1)


def _is_final(token: Token, lines: list[str]) -> bool:
    """Whether the last block of complete `lines` can no longer change, though nothing follows it yet."""
    if token.map is None:
        return False
    start, end = token.map
    if token.type == "fence":
        last = lines[end - 1].strip()
        return end - start >= 2 and len(last) >= len(token.markup) and set(last) == {token.markup[0]}
    # `lines` ends with an empty piece after the last newline: a blank line stands at `end` only if it is not that piece.
    blank_follows = end < len(lines) - 1 and not lines[end].strip()
    closed_by_blank = ("paragraph_open", "blockquote_open", "table_open", "hr")
    return token.type in ("heading_open", "math_block") or (token.type in closed_by_blank and blank_follows)
