"""Code in colours: Pygments tokens as (text, style) runs, named by what they are, coloured by the theme elsewhere. Qt-free."""

from __future__ import annotations

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, Token  # type: ignore[import-untyped]
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


def highlight(code: str, language: str) -> list[tuple[str, str]]:
    """`code` as (text, style) runs that join to it exactly; style "" is plain. An unknown language is one plain run."""
    if not language or len(code) > MOST_CHARACTERS:
        return [(code, "")]
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [(code, "")]
    runs: list[tuple[str, str]] = []
    for kind, text in lexer.get_tokens(code):
        style = next((name for family, name in _STYLES if kind in family), "") if kind is not Token.Text else ""
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + text, style)
        elif text:
            runs.append((text, style))
    # Lexers may normalise; what is shown must be what was written.
    return runs if "".join(text for text, _ in runs) == code else [(code, "")]
