"""An answer taken apart while it streams: what the model thinks, what it says, and which tools it calls.

Owns the state of one choice. Knows the text alone: no JSON of any API.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.server.likelihoods import Spell
from engine.server.tooling import Must, Tooling
from engine.text.reasoning import ReasoningSplitter
from engine.text.tools import ToolForm, ToolSplitter
from engine.types import ToolCall


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What is new of the answer's call number `index`. `name` stands in its first piece alone."""

    index: int
    id: str
    name: str
    arguments: str


Part = Thought | str | CallPiece


class Parts:
    """One choice's answer.

    Args:
        tooling: what may be called.
        form: how the model calls.
        thinking: the answer begins within the model's reasoning.
        held: the answer is held to a form, which leaves no room for reasoning.
        spell: the bytes of a token.

    Attributes:
        calls: so many calls have begun.
        plain: nothing can come any more but the answer itself, which is as it is pushed: so it is with nearly all of most answers.
    """

    def __init__(
        self, tooling: Tooling, form: ToolForm, thinking: bool = False, held: bool = False, spell: Spell = lambda token_id: b""
    ) -> None:
        self.calls = 0
        self._spell = spell
        self._ids: list[int] = []  # of the answer, while it may still think
        self._thought: int | None = None  # tokens of its reasoning, once that has ended
        self._tooling = tooling
        self._reasoning = None if held else ReasoningSplitter(thinking)
        forms = {Must.MAY: form, Must.CALL: ToolForm.BARE}
        self._form = forms.get(tooling.must, ToolForm.NONE)
        self._tools = ToolSplitter(self._form)
        self._id = ""
        self.plain = self._is_plain()

    @property
    def thought(self) -> int:
        """Tokens of the model's reasoning so far, its marks included."""
        if self._thought is not None:
            return self._thought
        return len(self._ids) if self._reasoning is not None and self._reasoning.inside else 0

    def push(self, text: str, last: bool, token_ids: Sequence[int] = ()) -> Iterable[Part]:
        """What is certain by now; all the rest if this is the `last`. `token_ids` are those that the text was made of."""
        if self.plain:
            return (text,) if text else ()
        return self._taken_apart(text, last, token_ids)

    def _is_plain(self) -> bool:
        return self._reasoning is None and self._form is ToolForm.NONE and self._tooling.must is not Must.NAMED

    def _taken_apart(self, text: str, last: bool, token_ids: Sequence[int]) -> Iterator[Part]:
        if self._reasoning is None:
            yield from self._said(text)
        else:
            self._ids += token_ids if self._thought is None else ()
            for piece in (*self._reasoning.push(text), *(self._reasoning.flush() if last else ())):
                if piece.reasoning:
                    if piece.text:
                        yield Thought(piece.text)
                else:
                    yield from self._said(piece.text)
            if self._thought is None and self._reasoning.end is not None:
                self._thought, self._ids = self._tokens_up_to(self._reasoning.end), []
            if self._reasoning.over:
                self._reasoning, self._ids = None, []
                self.plain = self._is_plain()
        if last:
            for found in self._tools.flush():
                yield from self._found(found)

    def _tokens_up_to(self, length: int) -> int:
        """How many tokens it took to say the first `length` characters."""
        told = b""
        for count, token_id in enumerate(self._ids, 1):
            told += self._spell(token_id)
            if len(told.decode("utf-8", "replace")) >= length:
                return count
        return len(self._ids)

    def _said(self, text: str) -> Iterator[Part]:
        if self._tooling.must is Must.NAMED:
            yield from self._named(text)
            return
        for found in self._tools.push(text):
            yield from self._found(found)

    def _found(self, found: str | ToolCall) -> Iterator[Part]:
        if isinstance(found, str):
            if found:
                yield found
        elif self.calls == 0 or self._tooling.parallel:
            self.calls += 1
            yield CallPiece(self.calls - 1, new_call_id(), found.name, found.arguments)

    def _named(self, text: str) -> Iterator[Part]:
        """The whole answer is the arguments of the one call that it must make."""
        if not text:
            return
        if not self.calls:
            self.calls, self._id = 1, new_call_id()
            yield CallPiece(0, self._id, self._tooling.tools[0].name, text)
        else:
            yield CallPiece(0, self._id, "", text)


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
