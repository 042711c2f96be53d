"""A sentence is a string for everybody, and its form and values for whoever says it in another language."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict

from engine import ErrorInfo, Sentence


def test_it_is_what_it_says() -> None:
    told = Sentence("{0} of {1:.1f} {2!r}", 3, 2.25, "x")
    assert told == "3 of 2.2 'x'" and isinstance(told, str)
    assert (told.form, told.values) == ("{0} of {1:.1f} {2!r}", (3, 2.25, "x"))
    assert json.loads(json.dumps(asdict(ErrorInfo("code", told)))) == {"code": "code", "message": "3 of 2.2 'x'", "hint": ""}


def test_it_stays_one_when_it_is_copied() -> None:
    told = Sentence("{0}, again", Sentence("{0} blocks", 7))
    for other in (copy.deepcopy(told), pickle.loads(pickle.dumps(told)), asdict(ErrorInfo("code", told))["message"]):
        assert other == "7 blocks, again" and other.form == "{0}, again" and other.values[0].values == (7,)


def test_an_error_in_it_is_only_its_words() -> None:
    """An error holds its frames, and they whatever was in them."""
    told = Sentence("It failed: {0}", ValueError("no"))
    assert told == "It failed: no" and told.values == ("no",) and type(told.values[0]) is str


def test_parts_are_listed() -> None:
    told = Sentence.listed([Sentence("seats {0}", 4), "chunk 8"])
    assert told == "seats 4, chunk 8" and told.values[0].values == (4,)
