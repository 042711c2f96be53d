"""An answer's Markdown as HTML that can do nothing: for the page that is exported, and for the PDF.

What a model wrote is untrusted: raw HTML in it is shown as text, images become links to where they would have come from, and only
http(s) and mailto links are links. Each block runs in the direction of its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from app.chats.mathmarks import math_plugin, source_of
from app.chats.tex import svg

BODY_PIXELS = 16
_DIRECTED = frozenset(
    {"paragraph_open", "heading_open", "bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open", "th_open", "td_open"}
)
_BOXES = {"[ ] ": "\u2610 ", "[x] ": "\u2611 ", "[X] ": "\u2611 "}
_VIEW_BOX = re.compile(r'viewBox="(\S+) (\S+) (\S+) (\S+)"')

# The TeX, what was written (marks included), and whether it stands on a line of its own, to HTML.
DrawFormula = Callable[[str, str, bool], str]


def make_parser(formula: DrawFormula | None = None) -> MarkdownIt:
    """Answers to HTML. `formula` draws what is TeX, by default as SVG within the page."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}, renderer_cls=_Renderer)
    parser.validateLink = _may_link  # type: ignore[method-assign, assignment]
    parser.enable(["table", "strikethrough"]).use(math_plugin)
    parser.core.ruler.push("tidy", _tidy)
    assert isinstance(parser.renderer, _Renderer)
    parser.renderer.formula = formula or formula_svg
    return parser


def formula_svg(tex: str, source: str, display: bool) -> str:
    """A formula in the colour of the words around it, which tells a screen reader its TeX; what cannot be drawn stays as written."""
    drawn = svg(tex, BODY_PIXELS, "currentColor", display)
    found = _VIEW_BOX.search(drawn or "")
    if drawn is None or found is None:
        return f'<code class="tex">{escape(source)}</code>'
    _, top, width, height = (float(number) / BODY_PIXELS for number in found.groups())
    style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{-(height + top):.3f}em"
    picture = re.sub(r"<svg\b[^>]*>", f'<svg xmlns="http://www.w3.org/2000/svg" {found.group()} style="{style}">', drawn, count=1)
    kind = "formula displayed" if display else "formula"
    return f'<span class="{kind}" role="img" aria-label="{escape(source)}" title="{escape(source)}">{picture}</span>'


class _Renderer(RendererHTML):
    """markdown-it's renderer without anything that is fetched, and with formulas."""

    formula: DrawFormula = staticmethod(formula_svg)

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        source = str(token.attrs.get("src", ""))
        words = escape(token.content or "image")
        return f'<a href="{escape(source)}">[{words}]</a>' if source.startswith(("https://", "http://")) else f"[{words}]"

    def math_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        return self.formula(token.content, source_of(token.markup, token.content), token.markup in ("$$", "\\["))

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        return f'<p class="math">{self.formula(token.content, source_of(token.markup, token.content), True)}</p>\n'


def _tidy(state: StateCore) -> None:
    """Give every block the direction of its words, and items of a task list their boxes."""
    for place, token in enumerate(state.tokens):
        if token.type in _DIRECTED:
            token.attrSet("dir", "auto")
        first = token.children[0] if token.type == "inline" and token.children else None
        item = state.tokens[place - 2] if place >= 2 else None
        if first is not None and item is not None and item.type == "list_item_open" and first.content[:4] in _BOXES:
            first.content = _BOXES[first.content[:4]] + first.content[4:]
            item.attrSet("class", "task")


def _may_link(address: str) -> bool:
    return address.lower().startswith(("http://", "https://", "mailto:"))
