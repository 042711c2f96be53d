"""Arrangements of a chat's turns: nothing a person wrote is lost, and the strictest order is among them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text.turns import arrangements, fold_system, merge, system_first, user_first
from engine.types import Message


def make_chat(text: str) -> list[Message]:
    """A chat from letters: s, u, a are roles; contents are numbered."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [Message(roles[letter], f"{letter}{place}") for place, letter in enumerate(text)]


def letters(chat: list[Message]) -> str:
    return "".join(message.role[0] for message in chat)


def test_merge_joins_neighbours() -> None:
    assert merge(make_chat("uua")) == [Message("user", "u0\n\nu1"), Message("assistant", "a2")]


def test_system_first_keeps_the_order() -> None:
    assert [m.content for m in system_first(make_chat("usas"))] == ["s1", "s3", "u0", "a2"]


def test_fold_system_puts_it_before_the_next_user_turn() -> None:
    assert [m.content for m in fold_system(make_chat("sua"))] == ["s0\n\nu1", "a2"]
    assert [m.content for m in fold_system(make_chat("uasu"))] == ["u0", "a1", "s2\n\nu3"]


def test_fold_system_with_no_user_turn_after_it() -> None:
    assert [(m.role, m.content) for m in fold_system(make_chat("us"))] == [("user", "u0"), ("user", "s1")]
    assert [(m.role, m.content) for m in fold_system(make_chat("usa"))] == [("user", "u0"), ("user", "s1"), ("assistant", "a2")]
    assert [(m.role, m.content) for m in fold_system(make_chat("s"))] == [("user", "s0")]


def test_user_first_drops_a_greeting() -> None:
    assert letters(user_first(make_chat("aaua"))) == "ua"
    assert letters(user_first(make_chat("a"))) == "a"


def test_the_chat_as_it_is_comes_first() -> None:
    chat = make_chat("uasu")
    assert next(arrangements(chat)) == chat


@given(st.text(alphabet="sua", min_size=1, max_size=12))
def test_arrangements(text: str) -> None:
    chat = make_chat(text)
    found = list(arrangements(chat))
    for arrangement in found:
        joined = "\n".join(message.content for message in arrangement)
        assert all(message.content in joined for message in chat if message.role != "assistant")
    strictest = letters(found[-1])
    assert "s" not in strictest
    assert all(first != second for first, second in zip(strictest, strictest[1:], strict=False))
    assert strictest.startswith("u") or set(text) == {"a"}
    assert all(first != second for place, first in enumerate(found) for second in found[place + 1 :])
