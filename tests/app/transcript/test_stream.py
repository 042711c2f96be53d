"""The stream's promise: cut anywhere, its final blocks are those of the whole text, and an open fence only ever grows."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.bench.growth import GROWTHS
from app.transcript.draft import LONG
from app.transcript.highlight import highlight, language_of
from app.transcript.markdown import clean, link_target, make_parser
from app.transcript.stream import PLACE, AnswerStream

SAMPLE = """# Title

A paragraph with *emphasis*, `code` and a
second line.

Setext
======

- one
- two
  - nested

  more of two

1. first
2. second

> a quote
lazy line

| a | b |
|---|--:|
| 1 | 2 |

```python
def f(x):
    return "```" + x

```
~~~
tilde ``` inside
~~~
    indented code

---
text
#
#hash
The sum $\\sum_i x_i$ is
$$
a = b
- c
$$
$$ not closed

\\[ x \\]
***bold** tail* <b>not html</b> &amp; end"""

LINES = st.sampled_from(
    [
        "- # head", "1.", "2. two", "- - deep", "  more", "| 3 |", "|", "plain | cell", "    - deep", "- > said",
        "text", "more text", "", "", "- item", "* other", "  nested", "1. one", "2) two", "> quote", "# head", "#", "#no", "---", "===",
        "-", "+", "```", "```py", "~~~", "````", "    code", "| a | b |", "|---|---|", "| 1 | 2 |", "`tick", "**b", "  ```", "> ```",
        "- ```", "\t tab", "$$", "$$ x", "x $$", "$$ y $$", "\\[", "\\]", "> $$", "- $$", "$a$ and $5", "\\(b\\)", "  $$",
    ]
)  # fmt: skip


def flat(tokens):
    """Tokens without their line numbers, which count from the piece they were parsed in."""
    tokens = [token for token in tokens if token.type != PLACE]
    return [
        (t.type, t.tag, t.nesting, t.level, t.content, t.info, t.hidden, dict(t.attrs), t.children and flat(t.children)) for t in tokens
    ]


def stream_all(pieces, long=LONG):
    """Feeds them, and holds at every moment that what is final and the tail are together what the text so far is, drafts aside."""
    stream = AnswerStream(long=long)
    closed = []
    for piece in pieces:
        update = stream.feed(piece)
        closed = take(closed, update)
        if update.fence is None and not stream.has_references and stream.drafting is None:
            now = flat(make_parser().parse(stream.text, {"last": False}))
            assert flat(closed + update.tail) == now
    closed = take(closed, stream.feed("", last=True))
    return stream, closed


def take(closed, update):
    """What stays after an update: what was taken back does not."""
    if update.taken_back is not None:
        closed = closed[: next(at for at, token in enumerate(closed) if token.meta.get("number") == update.taken_back)]
    return closed + update.closed + update.drafted


def cut(text, sizes):
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


def test_every_cut_of_the_sample_ends_in_the_whole_documents_blocks():
    expected = flat(make_parser().parse(SAMPLE))
    for size in (1, 2, 3, 7, 50, len(SAMPLE)):
        _, closed = stream_all(cut(SAMPLE, [size]))
        assert flat(closed) == expected


@settings(max_examples=400, deadline=None)
@given(lines=st.lists(LINES, max_size=14), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_any_lines_cut_anywhere_end_in_the_whole_documents_blocks(lines, sizes):
    text = "\n".join(lines)
    _, closed = stream_all(cut(text, sizes))
    assert flat(closed) == flat(make_parser().parse(text))


@settings(max_examples=400, deadline=None)
@given(lines=st.lists(LINES, max_size=24), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), long=st.integers(4, 40))
@example(["1. one", "#no", "**b"], [4], 4)  # a star alone looks like the next list's beginning
def test_whatever_was_drafted_in_between_the_end_is_the_whole_documents_blocks(lines, sizes, long):
    text = "\n".join(lines)
    _, closed = stream_all(cut(text, sizes), long)
    assert flat(closed) == flat(make_parser().parse(text))


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="ab `~\n\r-#>|*_[]()<&\t1.$\\", max_size=120), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_any_text_cut_anywhere_keeps_its_characters_and_blocks(text, sizes):
    stream, closed = stream_all(cut(text, sizes))
    assert stream.text == clean(text)
    if not stream.has_references:
        assert flat(closed) == flat(make_parser().parse(clean(text)))


def words_of(tokens):
    return [word for token in tokens for word in (words_of(token.children) if token.children else token.content.split())]


@pytest.mark.parametrize("name", GROWTHS)
def test_a_block_that_grows_is_drafted_with_every_word_of_it(name):
    growth = GROWTHS[name]
    text = growth.text(6 * LONG)
    stream, kept, drafted = AnswerStream(), [], 0
    for number, piece in enumerate(cut(text, [11])):
        update = stream.feed(piece)
        kept = take(kept, update)
        assert sum(len(token.content) for token in update.tail if token.type == "inline") <= 2 * LONG
        drafted += stream.drafting is not None
        if number % 50 == 0:
            code = update.fence.code.split() if update.fence else []
            shown = "".join(filter(str.isalnum, "".join(words_of(kept + update.tail) + code)))
            told = "".join(filter(str.isalnum, stream.text[len(growth.head) :]))
            assert told[: len(told) - 20] in shown and len(shown) <= len(told) + len(growth.head)
    assert drafted or name in ("paragraphs", "list", "table", "code", "code of one line", "reasoning", "reasoning in view")
    assert flat(take(kept, stream.feed("", last=True))) == flat(make_parser().parse(text))


def test_an_open_fence_only_grows_and_holds_back_its_closing_line():
    stream = AnswerStream()
    seen = []
    for character in "```py\nx = 1\n`` not yet\n``":
        fence = stream.feed(character).fence
        if fence:
            assert fence.info == "py"
            seen.append(fence.code)
    assert seen[-1] == "x = 1\n`` not yet\n"
    assert all(later.startswith(earlier) for earlier, later in zip(seen, seen[1:], strict=False))
    closed = stream.feed("`\n").closed
    assert [token.type for token in closed] == ["fence"]
    assert closed[0].content == "x = 1\n`` not yet\n"


ROWS = "| a | b |\n|---|---|\n" + "".join(f"| {number} | x |\n" for number in range(200))
ITEMS = "".join(f"- item {number}\n" for number in range(200))


@pytest.mark.parametrize("text", [ITEMS, ITEMS.replace("\n", "\n\n"), ITEMS.replace("- ", "1. "), ROWS])
def test_of_a_list_or_a_table_only_the_end_is_parsed_again(text):
    stream = AnswerStream()
    for piece in cut(text, [7]):
        update = stream.feed(piece)
        assert update.taken_back is None
        assert len(update.tail) < 40


def test_a_list_is_taken_back_once_when_its_items_turn_out_to_stand_apart():
    stream = AnswerStream()
    updates = [stream.feed(line + "\n") for line in ("- a", "- b", "- c", "", "- d", "- e", "", "- f", "- g")]
    assert [update.taken_back is not None for update in updates].count(True) == 1


def test_finished_blocks_are_not_parsed_again():
    stream = AnswerStream()
    for number in range(200):
        stream.feed(f"Paragraph {number}.\n\n")
    tail = stream.feed("the end").tail
    assert [token.content for token in tail if token.type == "inline"] == ["the end"]


def test_links_are_only_web_and_mail():
    assert link_target("https://example.org/a?b=c") == "https://example.org/a?b=c"
    assert link_target("mailto:a@example.org") == "mailto:a@example.org"
    strange = ("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "ftp://a", "java\nscript:x", "https://a\x07b")
    broken = ("//host", "/path", "#a", "http:", "http://", "mailto:", "http://[::1")
    for bad in strange + broken:
        assert link_target(bad) is None, bad


def test_highlight_joins_to_the_code_exactly():
    code = "\n\ndef f(x):  # hi\n\treturn 'a\\n' + str(1.5)\n\n"
    runs = highlight(code, "python")
    assert "".join(text for text, _ in runs) == code
    assert {"keyword", "comment", "string", "number", "function"} <= {style for _, style in runs}
    assert highlight(code, "no-such-language") == [(code, "")]
    assert language_of("Python {.x}") == "python"


def formulas(text: str) -> list[tuple[str, str, str]]:
    found = []
    for token in make_parser().parse(text):
        for one in (token, *(token.children or ())):
            if one.type.startswith("math"):
                found.append((one.type, one.markup, one.content))
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$x^2$", [("math_inline", "$", "x^2")]),
        (r"a \(b\) and $c_1$, $d$.", [("math_inline", r"\(", "b"), ("math_inline", "$", "c_1"), ("math_inline", "$", "d")]),
        (r"so \[a\] it is", [("math_inline", r"\[", "a")]),
        ("$$\na\n- b\n$$", [("math_block", "$$", "\na\n- b\n")]),
        ("text:\n\\[\nx\n\\]\nmore", [("math_block", "\\[", "\nx\n")]),
        ("- item\n  $$\n  y\n  $$", [("math_block", "$$", "\ny\n")]),
        ("$a_1$ *and* $b_1$", [("math_inline", "$", "a_1"), ("math_inline", "$", "b_1")]),
        ("It costs $5 and $10.", []),
        ("From $5-$10 or $20.", []),
        (r"\$x$ and `$y$` and $z`$`", []),
        ("$ x $", []),
        ("$$\n\nx\n$$", []),
        ("    $$\n    code\n    $$", []),
    ],
)
def test_formulas_are_told_from_money_and_code(text, found):
    assert formulas(text) == found
