"""A growing answer, cut into blocks that are final and a tail that may still change.

Qt-free. The rule: of the lines that are complete, every top-level block but the last is final, because in CommonMark nothing that
follows can reach back over the block after it; a fence is final with its closing line, a paragraph with a blank one. So a token's
cost depends on the tail, not on the answer. Link references are the one exception (a definition may come after its use):
`has_references` tells the owner to write the whole anew at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.transcript.markdown import clean, make_parser, top_level

_FENCE_OPEN = re.compile(r"^( {0,3})(`{3,}|~{3,})([^\n]*)\n")


@dataclass(frozen=True, slots=True)
class OpenFence:
    """A code block that is still being written. `code` ends before a line that may turn out to be the closing one."""

    start: int  # where the fence began, in characters of the cleaned text
    info: str
    code: str


@dataclass(slots=True)
class Update:
    """What one `feed` brought: blocks that became final, and the tail as it stands (tokens, or an open fence)."""

    closed: list[Token] = field(default_factory=list)
    closed_at: int = 0  # where the final blocks began, in characters of the cleaned text
    tail: list[Token] = field(default_factory=list)
    fence: OpenFence | None = None


class AnswerStream:
    """Feed it pieces; get final blocks once each, and the present tail."""

    def __init__(self, parser: MarkdownIt | None = None) -> None:
        self._parser = parser or make_parser()
        self._text = ""
        self._closed = 0  # characters that lie in final blocks
        self._held = ""  # a carriage return whose newline may follow
        self._references: dict[str, object] = {}
        self._fence: tuple[int, str, str, int] | None = None  # content start, marker, info, indent

    @property
    def text(self) -> str:
        return self._text

    @property
    def has_references(self) -> bool:
        return bool(self._references)

    def feed(self, piece: str, last: bool = False) -> Update:
        """Take more text. With `last`, everything becomes final."""
        piece = self._held + piece
        self._held = "\r" if piece.endswith("\r") and not last else ""
        piece = clean(piece[:-1] if self._held else piece)
        self._text += piece
        update = Update()
        if last:
            update.closed_at = self._closed
            update.closed = self._parse(self._text[self._closed :], keep=True, last=True)
            self._closed = len(self._text)
            self._fence = None
            return update
        if "\n" in piece and not self._inside_fence():
            update.closed_at = self._closed
            update.closed = self._close_blocks()
        rest = self._text[self._closed :]
        if self._fence is not None or self._enter_fence(rest):
            update.fence = self._open_fence()
        else:
            update.tail = self._parse(rest, keep=False)
        return update

    # ------------------------------------------------------------------------------------------------------ private

    def _parse(self, source: str, keep: bool, last: bool = False) -> list[Token]:
        env: dict = {"last": last, "references": self._references if keep else dict(self._references)}
        return self._parser.parse(source, env)

    def _close_blocks(self) -> list[Token]:
        """Move `_closed` past the blocks that are final and return their tokens."""
        rest = self._text[self._closed :]
        complete = rest[: rest.rfind("\n") + 1]
        blocks = top_level(self._parse(complete, keep=False))
        if not blocks:
            return []
        lines = complete.split("\n")
        if blocks[-1][0].type == "math_open":
            # Its closing mark may never come; then these lines belong to the paragraph before them.
            blocks = blocks[:-1]
            if len(blocks) < 2:
                return []
            end_line = blocks[-1][0].map[0]  # type: ignore[index]
        elif _is_final(blocks[-1][0], lines):
            end_line = blocks[-1][0].map[1]  # type: ignore[index]
        elif len(blocks) > 1:
            end_line = blocks[-1][0].map[0]  # type: ignore[index]
        else:
            return []
        size = sum(len(line) + 1 for line in lines[:end_line])
        self._closed += size
        return self._parse(complete[:size], keep=True, last=True)

    def _enter_fence(self, rest: str) -> bool:
        """Whether the tail is a fence whose opening line is complete; blank lines may stand before it."""
        body = rest.lstrip("\n")
        match = _FENCE_OPEN.match(body)
        if match is None or (match[2][0] == "`" and "`" in match[3]):
            return False
        start = self._closed + len(rest) - len(body)
        self._fence = (start + match.end(), match[2], match[3].strip(), len(match[1]))
        if self._fence_closed():
            self._fence = None
            return False
        return True

    def _inside_fence(self) -> bool:
        """Whether the open fence is still open after the text that just came."""
        if self._fence is None:
            return False
        if self._fence_closed():
            self._fence = None
            return False
        return True

    def _fence_closed(self) -> bool:
        assert self._fence is not None
        start, marker, _, _ = self._fence
        return re.search(rf"^ {{0,3}}{re.escape(marker[0])}{{{len(marker)},}}[ \t]*\n", self._text[start:], re.MULTILINE) is not None

    def _open_fence(self) -> OpenFence:
        assert self._fence is not None
        start, marker, info, indent = self._fence
        code = self._text[start:]
        line_start = code.rfind("\n") + 1
        if re.fullmatch(rf" {{0,3}}{re.escape(marker[0])}*[ \t]*", code[line_start:]):
            code = code[:line_start]
        if indent:
            code = re.sub(rf"^ {{1,{indent}}}", "", code, flags=re.MULTILINE)
        return OpenFence(start, info, code)


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
    return token.type in ("heading_open", "math_block") or (token.type in ("paragraph_open", "table_open", "hr") and blank_follows)
