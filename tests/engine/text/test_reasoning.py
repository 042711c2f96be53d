"""Reasoning is told from the answer however the stream is cut, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.reasoning import TAGS, ReasoningSplitter, split_reasoning


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>why</think>\n\nbecause", False, ("why", "because")),
        ("\n<think>\nwhy\n</think>because", False, ("why\n", "because")),
        ("why</think>because", True, ("why", "because")),
        ("plain", False, ("", "plain")),
        ("a <think>b</think> c", False, ("", "a <think>b</think> c")),
        ("<think>never closed", False, ("never closed", "")),
        ("<thin air", False, ("", "<thin air")),
        ("<think>a </thin b</think>c </think>", False, ("a </thin b", "c </think>")),
        ("[THINK]x[/THINK]y", False, ("x", "y")),
        ("", False, ("", "")),
    ],
)
def test_whole_texts(text: str, opened: bool, expected: tuple[str, str]) -> None:
    assert split_reasoning(text, opened) == expected


def test_a_line_break_of_its_own_belongs_to_the_tag() -> None:
    """As tokens come: the tag is one, the line break behind it another."""
    splitter = ReasoningSplitter()
    pieces = [piece for token in ("<think>", "\n", "\n", "why", "</think>", "\n", "because") for piece in splitter.push(token)]
    assert [(piece.text, piece.reasoning) for piece in pieces] == [("\n", True), ("why", True), ("because", False)]


PARTS = st.sampled_from([tag for pair in TAGS for tag in pair] + ["<", "</", "think", ">", "\n", " ", "x", "é", "[/"])


@given(st.lists(PARTS, max_size=12).map("".join), st.booleans(), st.data())
def test_the_cut_of_the_stream_changes_nothing(text: str, opened: bool, data: st.DataObject) -> None:
    splitter = ReasoningSplitter(opened)
    pieces = []
    rest = text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        pieces += splitter.push(rest[:length])
        rest = rest[length:]
    pieces += splitter.flush()
    streamed = tuple("".join(p.text for p in pieces if p.reasoning is inside) for inside in (True, False))
    assert streamed == split_reasoning(text, opened)
    kept = sum(len(p.text) for p in pieces)
    dropped = len(text) - kept
    assert dropped >= 0
    if not any(tag in text for pair in TAGS for tag in pair):
        assert "".join(p.text for p in pieces) == text
