"""Calls of tools in a server's stream, put into the text of the answer between the marks that models themselves use.

A server takes the calls out of its model's text and sends them in pieces; here they become text again, so that an answer from elsewhere
reads, is kept and is taken apart like one of this machine. Owns the call that is still coming.
"""

from __future__ import annotations

from typing import Any

from engine.remote import wire

OPENING, CLOSING = "<tool_call>\n", "\n</tool_call>"


class Calls:
    """The calls of one answer, one after another."""

    def __init__(self) -> None:
        self._place: object = None
        self._name = self._arguments = ""
        self._told = 0

    def push(self, deltas: Any) -> str:
        """Text of the calls that are whole now. Raises EngineError("remote_nonsense")."""
        text = ""
        for delta in deltas if isinstance(deltas, list) else ():
            function = delta.get("function") if isinstance(delta, dict) else None
            if not isinstance(function, dict):
                continue
            name, arguments = function.get("name") or "", function.get("arguments") or ""
            if isinstance(arguments, dict):  # some servers send the object itself, whole
                arguments = wire.to_json(arguments)
            if not isinstance(name, str) or not isinstance(arguments, str):
                raise wire.nonsense("a call that is no text")
            place = delta.get("index", self._place if not name else object())
            if place != self._place or (name and self._name and self._arguments):
                text += self.end()
                self._place = place
            self._name += name if not self._name else ""
            self._arguments += arguments
        return text

    def end(self) -> str:
        """Text of the call that was coming."""
        if not self._name:
            self._arguments = ""
            return ""
        lead = "\n" if self._told else ""
        self._told += 1
        call = f'{{"name": {wire.to_json(self._name)}, "arguments": {self._arguments.strip() or "{}"}}}'
        self._name = self._arguments = ""
        return f"{lead}{OPENING}{call}{CLOSING}"

    def broken(self) -> str:
        """What there is of a call that never became whole: kept as text, and no call."""
        rest = f"{OPENING}{self._name} {self._arguments}" if self._name else ""
        self._name = self._arguments = ""
        return rest
