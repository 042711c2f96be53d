"""Numbers as the window's language writes them, and the engine's sentences in that language.

A format's separators are those of English until they come here; this place alone knows which ones another language has. Words of a chat,
and whatever leaves the program (exports, the command line, the log), never go through it.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from PySide6.QtCore import QCoreApplication, QLocale

from engine import EngineError, ErrorInfo, Sentence

_CLOSING = ")]}'\"”“’"  # what may stand behind a sentence's last letter, or behind its full stop


def number(value: float, spec: str = "") -> str:
    """A number in a format: `number(16.1, ".1f")` is "16,1" in German, `number(8192, ",")` is "8.192"."""
    return _written(format(value, spec), _language())


def fill(form: str, *values: Any) -> str:
    """A translated form with its numbers, and the engine's sentences, written in the window's language."""
    return _Form().format(form, *values)


def said(words: str) -> str:
    """What the engine says, in the window's language; as it says it where it has no words for that."""
    if isinstance(words, Sentence):
        return fill(QCoreApplication.translate("Sentences", words.form), *words.values)
    return QCoreApplication.translate("Sentences", words) if words else ""


def explained(error: EngineError | ErrorInfo) -> str:
    """What went wrong, and what to do."""
    what, hint = said(error.message), said(error.hint)
    stop = "." if hint and what.rstrip(_CLOSING)[-1:].isalnum() else ""  # what a library says often has none
    return f"{what}{stop} {hint}".strip()


class _Form(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Sentence):
            return said(value)
        text = str(format(value, format_spec))
        return _written(text, _language()) if isinstance(value, (int, float)) and not isinstance(value, bool) else text

    def check_unused_args(self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A language may do without one."""


def locale() -> QLocale:
    """How numbers are typed: with the decimal point of the window's language, as they are shown everywhere."""
    return QLocale(_language())


def _language() -> str:
    return QCoreApplication.translate("Day", "en")  # a catalogue says its own


def _written(text: str, language: str) -> str:
    return text if language == "en" else text.translate(_separators(language))


@lru_cache(maxsize=4)
def _separators(language: str) -> dict[int, str]:
    """By the character of English: what this language writes instead."""
    written = QLocale(language)
    percent = QCoreApplication.translate("Numbers", "{0}%").format("")
    return {ord(","): written.groupSeparator(), ord("."): written.decimalPoint(), ord("%"): percent}
