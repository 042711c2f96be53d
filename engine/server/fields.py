"""Reads a request's JSON field by field: right type, within bounds, or a 400 that names the field.

Knows JSON and nothing of chats. Must never pass on a number that is not finite, a text of unbounded length, or a bool for a number.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from engine.server.errors import ApiError, bad_request
from engine.text import sound_json


def read_object(body: bytes) -> Fields:
    """Raises ApiError 400 for anything but one JSON object of finite numbers and bounded depth."""
    try:
        value = sound_json.DECODER.decode(body.decode("utf-8"))
    except RecursionError:
        raise bad_request("The body is nested too deeply.", code="invalid_json") from None
    except ValueError:
        raise bad_request("The body is not valid JSON in UTF-8.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object.", code="invalid_json")
    try:
        sound_json.check(value)
    except ValueError as error:
        raise bad_request(f"The body {error}.", code="invalid_json") from None
    return Fields(value)


class Fields:
    """A JSON object. null counts as absent, as clients send it for what they leave alone. Remembers what was asked for."""

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        self._value = value
        self._path = path
        self._asked: set[str] = set()

    @property
    def value(self) -> dict[str, Any]:
        return self._value

    def name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def raw(self, key: str) -> Any:
        self._asked.add(key)
        return self._value.get(key)

    def unread(self, known: Container[str] = ()) -> list[str]:
        """What was given and nobody asked for, but for the `known` names."""
        return [key for key, value in self._value.items() if value is not None and key not in self._asked and key not in known]

    def wrong(self, key: str, wanted: str) -> ApiError:
        return bad_request(f"{self.name(key)} must be {wanted}.", self.name(key))

    def unsupported(self, key: str, why: str) -> ApiError:
        return bad_request(f"{self.name(key)} is not supported: {why}", self.name(key), "unsupported_parameter")

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def integer(self, key: str, least: int, most: int) -> int | None:
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, least: float, most: float) -> float | None:
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.wrong(key, f"a number from {least:g} to {most:g}")
        return float(value)

    def text(self, key: str, most: int) -> str | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(key, f"a text of at most {most} characters")
        return value

    def inner(self, key: str) -> Fields | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(value, self.name(key))

    def objects(self, key: str, most: int) -> list[Fields]:
        value = self.raw(key)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self.wrong(key, f"a list of 1 to {most} objects")
        if not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "a list of objects")
        return [Fields(item, f"{self.name(key)}[{place}]") for place, item in enumerate(value)]

    def integers(self, key: str, most: int) -> tuple[int, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if not is_ids(value) or len(value) > most:
            raise self.wrong(key, f"a list of at most {most} whole numbers")
        return tuple(value)

    def texts(self, key: str, most: int, longest: int) -> tuple[str, ...]:
        """A text or a list of texts, none of them empty."""
        value = self.raw(key)
        if value is None:
            return ()
        value = [value] if isinstance(value, str) else value
        if (
            not isinstance(value, list)
            or len(value) > most
            or not all(isinstance(item, str) and 0 < len(item) <= longest for item in value)
        ):
            raise self.wrong(key, f"a text or a list of at most {most} texts of 1 to {longest} characters")
        return tuple(value)


def is_ids(value: Any) -> bool:
    """A list of token ids, the empty one among them."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**31 for item in value)
