"""Markdown in: CommonMark with tables, strikethrough and formulas, raw HTML shown as text, and the question which links are links.

Qt-free. What a model writes is untrusted: nothing here fetches, and nothing it says can become markup of ours.
"""

from __future__ import annotations

import unicodedata
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.chats.mathmarks import math_plugin

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

    Only http(s) with a host, and mailto; no control, direction or invisible characters, which could hide where it goes, and no name and
    password before the host, which could pass for it.
    """
    if any(_hides(character) for character in href):
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
    return href.strip() if host and "@" not in parts.netloc else None


def shown_address(href: str) -> str:
    """An address as a person must see it before it is opened: letters of other scripts in the host are spelled out (punycode), too."""
    host = urlsplit(href).hostname or ""
    if host.isascii():
        return href
    try:
        return f"{href} (the host is {host.encode('idna').decode('ascii')})"
    except UnicodeError:
        return f"{href} (the host is no proper name)"


def _hides(character: str) -> bool:
    """Whether a character is a control or a format character: line ends, direction overrides, zero-width ones, tags."""
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


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
