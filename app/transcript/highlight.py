"""Code in colours: Pygments tokens as (text, style) runs, named by what they are, coloured by the theme elsewhere. Qt-free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

MOST_CHARACTERS = 60_000  # beyond this a block stays plain: highlighting it would hold the window for too long

# From the particular to the general; the first that contains a token's type names its style.
_STYLES = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (String, "string"),
    (Number, "number"),
    (Literal, "string"),
    (Name.Function, "function"),
    (Name.Class, "function"),
    (Name.Decorator, "function"),
    (Name.Builtin, "builtin"),
    (Name.Exception, "builtin"),
    (Name.Tag, "keyword"),
    (Name.Attribute, "function"),
    (Generic.Deleted, "deleted"),
    (Generic.Inserted, "string"),
    (Generic.Heading, "keyword"),
)


def language_of(info: str) -> str:
    """The language word of a fence's info string: "python" of "python title=x"."""
    return info.split()[0].strip("{}.").lower() if info.split() else ""


@cache
def _style_of(kind: Any) -> str:
    """Of a kind of token; there are some fifty, and a program has ten thousands of them."""
    return next((name for family, name in _STYLES if kind in family), "")


def highlight(code: str, language: str) -> list[tuple[str, str]]:
    """`code` as (text, style) runs that join to it exactly; style "" is plain. An unknown language is one plain run."""
    return list(runs_of(code, language))


def runs_of(code: str, language: str) -> Iterator[tuple[str, str]]:
    """The same, one after another, each when it is asked for."""
    lexer = _lexer_of(language) if len(code) <= MOST_CHARACTERS else None
    at, run, run_style = 0, "", ""
    for kind, text in lexer.get_tokens(code) if lexer is not None else ():
        if not code.startswith(text, at):
            break  # lexers may normalise; what is shown must be what was written
        at += len(text)
        style = _style_of(kind)
        if run and style != run_style:
            yield run, run_style
            run = ""
        run, run_style = run + text, style
    if run:
        yield run, run_style
    if at < len(code) or not code:
        yield code[at:], ""


def _lexer_of(language: str) -> Any:
    """None for a language that is not known."""
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None
