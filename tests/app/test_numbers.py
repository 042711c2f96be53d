"""What went wrong and what to do are two sentences, also where a library's own words have no full stop."""

from __future__ import annotations

import pytest

from app.numbers import explained
from engine import ErrorInfo


@pytest.mark.parametrize(
    ("message", "hint", "whole"),
    [
        ("The step failed: out of luck", "Try again.", "The step failed: out of luck. Try again."),
        ("The disk is full.", "Make room.", "The disk is full. Make room."),
        ("The step failed: 'no such key'", "Try again.", "The step failed: 'no such key'. Try again."),
        ("It says “Stop.”", "Try again.", "It says “Stop.” Try again."),
        ("Not found (404)", "Look elsewhere.", "Not found (404). Look elsewhere."),
        ("Not found (404)", "", "Not found (404)"),
        ("It ended", "", "It ended"),
    ],
)
def test_two_sentences(qapp, message, hint, whole):
    assert explained(ErrorInfo("code", message, hint)) == whole
