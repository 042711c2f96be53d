"""What the engine says to a person: an English sentence that remembers what it was made of.

The engine knows one language. Whoever shows its words in another takes the form and the values of a `Sentence`, translates the one and
writes the others as that language does; everybody else has a string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Sentence(str):
    """`Sentence("{0} of {1} seats are taken", 3, 8)` is "3 of 8 seats are taken".

    Attributes:
        form: a format string with numbered fields, always a literal, so that a catalogue can hold it.
        values: numbers, names, and further sentences.
    """

    __slots__ = ("form", "values")
    form: str
    values: tuple[Any, ...]

    def __new__(cls, form: str, *values: Any) -> Sentence:
        made = super().__new__(cls, form.format(*values))
        made.form = form
        made.values = tuple(value if isinstance(value, (str, int, float)) else str(value) for value in values)  # an error holds its frames
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.form, *self.values)

    @classmethod
    def listed(cls, parts: Sequence[str]) -> Sentence:
        """The parts with commas between them."""
        return cls(", ".join(f"{{{number}}}" for number in range(len(parts))), *parts)
