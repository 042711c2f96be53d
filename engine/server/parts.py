"""An answer taken apart while it streams: what the model thinks, what it says, and which tools it calls.

Owns the state of one choice. Knows the text alone: no JSON of any API.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

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

    Attributes:
        calls: so many calls have begun.
    """

    def __init__(self, tooling: Tooling, form: ToolForm, thinking: bool = False, held: bool = False) -> None:
        self.calls = 0
        self._tooling = tooling
        self._reasoning = None if held else ReasoningSplitter(thinking)
        forms = {Must.MAY: form, Must.CALL: ToolForm.BARE}
        self._tools = ToolSplitter(forms.get(tooling.must, ToolForm.NONE))
        self._id = ""

    def push(self, text: str, last: bool) -> Iterator[Part]:
        """What is certain by now; all the rest if this is the `last`."""
        if self._reasoning is None:
            yield from self._said(text)
        else:
            for piece in (*self._reasoning.push(text), *(self._reasoning.flush() if last else ())):
                if piece.reasoning:
                    if piece.text:
                        yield Thought(piece.text)
                else:
                    yield from self._said(piece.text)
        if last:
            for found in self._tools.flush():
                yield from self._found(found)

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
