"""What can go wrong in a way that a person should read: a code, a sentence, a hint."""

from __future__ import annotations

from dataclasses import dataclass


class EngineError(Exception):
    """An error meant to be read by a person.

    Attributes:
        code: a stable, snake_case name for programs ("prompt_too_long").
        message: one sentence that says what happened, with the numbers.
        hint: one sentence that says what to do next; may be empty.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.hint)


class RequestRefused(EngineError):
    """Raised at submit for a request that can never run as asked; nothing else in the engine changes."""


class ModelError(EngineError):
    """Raised when a model cannot be found, read or run."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """The frozen twin of `EngineError`, as carried by events and snapshots."""

    code: str
    message: str
    hint: str = ""
