r"""Formulas in Markdown: $…$ and \(…\) inside a line, $$…$$ and \[…\] displayed. Rules for markdown-it, Qt-free.

A dollar is money until it proves to be a formula: the opening one is followed by no space and preceded by no letter or digit, the next one
is preceded by no space and followed by no digit (after Pandoc's rules), and no code is between them. A displayed formula that begins a
line is a block of its own; it holds no empty line, as in TeX, and MOST_CHARACTERS at most. While its end has not come, that block is
`math_open`, which takes the lines up to the end of the text: so nothing before it is final that a closing mark could still change.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MOST_CHARACTERS = 4000
_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}


def math_plugin(parser: MarkdownIt) -> None:
    """Teach a parser the tokens `math_inline`, `math_block` and `math_open`; `content` is the TeX, `markup` the opening mark."""
    parser.inline.ruler.before("escape", "math", _inline)
    parser.block.ruler.before("fence", "math", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})


def source_of(markup: str, tex: str) -> str:
    """What was written: the formula between its marks."""
    return markup + tex + _CLOSERS[markup]


def _inline(state: StateInline, silent: bool) -> bool:
    mark = _mark_at(state.src, state.pos)
    if not mark:
        return False
    start = state.pos + len(mark)
    if mark == "$":
        before = state.src[state.pos - 1] if state.pos else " "
        if before.isalnum() or before in "$\\" or state.src[start : start + 1].isspace():
            return False
    end = _find_end(state.src, start, min(state.posMax, start + MOST_CHARACTERS), mark)
    if end < 0 or not state.src[start:end].strip():
        return False
    if not silent:
        token = state.push("math_inline", "", 0)
        token.content = state.src[start:end]
        token.markup = mark
    state.pos = end + len(mark)
    return True


def _mark_at(source: str, at: int) -> str:
    pair = source[at : at + 2]
    if pair in _CLOSERS:
        return pair
    return "$" if pair[:1] == "$" else ""


def _find_end(source: str, start: int, most: int, mark: str) -> int:
    """Where the closing mark begins, or -1."""
    closer = _CLOSERS[mark]
    at = start
    while at < most:
        character = source[at]
        if character == "`":
            return -1
        if source.startswith(closer, at):
            if mark != "$":
                return at
            after = source[at + 1 : at + 2]
            closes = at > start and not source[at - 1].isspace() and not after.isdigit() and after != "$"
            return at if closes else -1
        at += 2 if character == "\\" else 1
    return -1


def _block(state: StateBlock, line: int, end_line: int, silent: bool) -> bool:
    if state.is_code_block(line):
        return False
    start = state.bMarks[line] + state.tShift[line]
    mark = state.src[start : start + 2]
    if mark not in ("$$", "\\["):
        return False
    closer = _CLOSERS[mark]
    at = line
    while True:
        text = state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]].rstrip()
        if at == line:
            text = text[2:]
        place = text.find(closer)
        if state.bMarks[at] + (place if place >= 0 else len(text)) - start > MOST_CHARACTERS:
            return False  # and so the end of a text that grows is never read as one for long
        if place >= 0:
            if place != len(text) - 2 or (at == line and not text[:place].strip()):
                return False  # words follow, so it stands in a line; or there is nothing in it
            break
        at += 1
        if at >= end_line or state.isEmpty(at) or state.sCount[at] < state.blkIndent:
            return _open(state, line, at, end_line, silent)
    if not silent:
        token = state.push("math_block", "", 0)
        token.block = True
        token.markup = mark
        token.map = [line, at + 1]
        content = state.getLines(line, at + 1, state.sCount[line], False).strip()
        token.content = content[2:-2]
    state.line = at + 1
    return True


def _open(state: StateBlock, line: int, at: int, end_line: int, silent: bool) -> bool:
    """The closing mark has not come: wait for it at the end of a growing text, else it is no formula."""
    if at < end_line or state.level > 0 or state.env.get("last", True):
        return False
    if not silent:
        token = state.push("math_open", "", 0)
        token.block = True
        token.map = [line, at]
        token.content = state.getLines(line, at, state.blkIndent, False)
    state.line = at
    return True
