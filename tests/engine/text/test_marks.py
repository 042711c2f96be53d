"""Where control tokens stand in a text: the longest that begins there, whatever order they were told in."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from engine.text.marks import Marks

WORDS = st.lists(st.text("ab<|>.[\\^é", min_size=1, max_size=6), max_size=12)
TEXT = st.text("ab<|>.[\\^é", max_size=40)


@given(words=WORDS, text=TEXT)
def test_the_tree_finds_what_the_words_side_by_side_do(words: list[str], text: str) -> None:
    side_by_side = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or r"(?!)")
    assert [match.span() for match in Marks(words).pattern.finditer(text)] == [match.span() for match in side_by_side.finditer(text)]


@given(words=WORDS, text=TEXT)
@example(words=["<<"], text="<<<")
@example(words=["<|a|><|b", "a|><|", "<|b"], text="<|a|><|a|><|b<|a")
def test_the_longest_beginning_at_the_end(words: list[str], text: str) -> None:
    ends = [length for word in words for length in range(1, len(word)) if text.endswith(word[:length])]
    held = any(word in text for word in words)
    assert Marks(words).in_text(f"{text} \n") == (held or bool(ends))
    assert not held or Marks(words).in_text(text)
    wedged = Marks(words).broken(text, "-")
    assert wedged.replace("-", "") == text and not any(word in wedged for word in words if len(word) > 1)


def test_six_thousand_marks() -> None:
    marks = Marks([f"<unused{number}>" for number in range(6000)] + ["<b>", "<bos>"])
    assert marks.pattern.findall("<unused12><unused>a<unused5999> <b><bos><bo") == ["<unused12>", "<unused5999>", "<b>", "<bos>"]
    assert marks.in_text("<unused600") and not marks.in_text("<unusual")
