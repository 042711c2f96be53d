"""Markdown in: CommonMark with tables, strikethrough and formulas, raw HTML shown as text, and the question which links are links.

Qt-free. What a model writes is untrusted: nothing here fetches, and nothing it says can become markup of ours.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.transcript.mathmarks import math_plugin

LINK_SCHEMES = frozenset({"http", "https", "mailto"})

# Characters by which Qt marks frames, objects and paragraphs inside a document; in a model's text they would forge structure.
_FORBIDDEN = {0x0000: "\ufffd", 0xFFFC: None, 0xFDD0: "\ufffd", 0xFDD1: "\ufffd", 0x2029: "\n", 0x2028: "\n"}


def make_parser() -> MarkdownIt:
    """The one dialect of answers."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"])
    return parser.use(math_plugin)


def clean(text: str) -> str:
    """Text that is safe to put into a document: one kind of newline, none of Qt's own marks."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_FORBIDDEN)


def link_target(href: str) -> str | None:
    """The address a link may open, or None where it is to be shown as plain text.

    Only http(s) with a host, and mailto; no control characters, which could hide where it goes.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in href):
        return None
    try:
        parts = urlsplit(href.strip())
        scheme, host = parts.scheme.lower(), parts.hostname
    except ValueError:
        return None
    if scheme not in LINK_SCHEMES:
        return None
    if scheme == "mailto":
        return href.strip() if "@" in parts.path else None
    return href.strip() if host else None


def top_level(tokens: list[Token]) -> list[list[Token]]:
    """The token list cut into its top-level blocks, in order."""
    blocks: list[list[Token]] = []
    current: list[Token] = []
    for token in tokens:
        current.append(token)
        if token.level == 0 and token.nesting <= 0:
            blocks.append(current)
            current = []
    return blocks
