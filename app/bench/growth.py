"""Answers that only grow, of every kind of block that Markdown has: what one more token costs when they are short and when they are long.

Words, and a measure on the real window; no store, no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

TOKENS = 200


@dataclass(frozen=True, slots=True)
class Growth:
    """How such an answer begins, and what its tokens are, over and over. `unfolded`: it is reasoning, which the person looks at."""

    head: str
    tokens: tuple[str, ...]
    unfolded: bool = False

    def text(self, length: int) -> str:
        """The answer when it is so many characters long, or a few more, with whole tokens."""
        round_ = "".join(self.tokens)
        return self.head + round_ * max(1, (length - len(self.head)) // len(round_))


WORDS = ("Words ", "and ", "more ", "words ", "of ", "*one* ", "paragraph, ", "which ", "goes ", "on. ")

GROWTHS = {
    "paragraphs": Growth("", (*WORDS, "\n\n")),
    "one paragraph": Growth("", WORDS),
    "one paragraph of many lines": Growth("", (*WORDS[:8], "\n")),
    "one paragraph without spaces": Growth("", ("\u9577\u3044\u6bb5\u843d\u3001", "\u7d42\u308f\u3089\u306a\u3044\u3002")),
    "quote": Growth("", ("> A ", "line ", "of ", "it, ", "quoted.", "\n>\n")),
    "quote of one paragraph": Growth("> ", WORDS),
    "list": Growth("", ("- An ", "item ", "of ", "*many*.", "\n")),
    "list item": Growth("1. Begins\n", ("\n", "   A ", "paragraph ", "of ", "the ", "item.", "\n")),
    "list item with a list": Growth("- Begins\n", ("  - An ", "item ", "inside ", "it.", "\n")),
    "list item with code": Growth("- Begins\n\n  ```py\n", ("  x ", "= ", "f(1)", "\n")),
    "table": Growth("| a | b |\n|---|---|\n", ("| one ", "| two ", "|", "\n")),
    "code": Growth("```py\n", ("    x ", "= ", "f(1)", "  # why", "\n")),
    "code of one line": Growth("```\n", ("0123", "4567", "89ab", "cdef")),
    "formula": Growth("$$\n", ("x ", "+ y ", "\\\\", "\n")),
    "reasoning": Growth("<think>\n", (*WORDS, "\n\n")),
    "reasoning in view": Growth("<think>\n", (*WORDS, "\n\n"), unfolded=True),
    "reasoning in view, one paragraph": Growth("<think>\n", WORDS, unfolded=True),
}


def token_costs(window: MainWindow, settle: Callable[[], None], text: str, tokens: Sequence[str], unfolded: bool = False) -> list[float]:
    """Seconds that each further token costs an answer that is in view and has this text so far: taken in, written, painted."""
    from PySide6.QtCore import QUrl

    book = window.book
    chat = book.new_chat()
    book.add_user(chat.id, "Tell me everything.")
    answer = book.begin_answer(chat.id)
    book.append(answer, text)
    window.open_chat(chat.id)
    settle()
    page = window.page(chat.id)
    assert page is not None
    if unfolded:
        page.view.anchors.follow(QUrl(f"thought:{answer.id}:"))
        settle()
    costs = []
    for number in range(TOKENS):
        start = time.perf_counter()
        book.append(answer, tokens[number % len(tokens)])
        page.view.sync()
        settle()
        costs.append(time.perf_counter() - start)
    return costs
