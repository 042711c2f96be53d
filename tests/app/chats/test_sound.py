"""Whatever a file says in place of a record of ours: the sound part of it is taken, and no more."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import pytest

from app.chats import sound
from app.chats.model import ChatSettings, ScrollPlace
from engine import ErrorInfo, TimeSplit, Usage

SPLIT = {"waited": 0.1, "prefill": 1, "decode": 0.3, "preempted": 0.0}


@pytest.mark.parametrize("value", ["hot", math.nan, math.inf, -math.inf, 2**31, 10**400, True, None, [], {}, 1e300])
@pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "top_k", "min_p", "repetition_penalty"])
def test_a_setting_that_no_field_could_show_is_the_default(name: str, value: object) -> None:
    assert sound.settings({"system_prompt": "Be brief.", name: value}) == ChatSettings("Be brief.")


def test_what_is_sound_is_taken_and_what_is_new_passed_over() -> None:
    given = {"temperature": 1, "seed": 2**31 - 1, "max_tokens": 5, "model": "m", "system_prompt": 7, "of another version": 1}
    assert sound.settings(given) == ChatSettings(temperature=1, seed=2**31 - 1, max_tokens=5, model="m")
    assert sound.settings({"seed": None}).seed is None and sound.settings({"seed": 2**40}).seed is None
    assert sound.settings([]) == sound.settings(None) == ChatSettings()


@pytest.mark.parametrize("value", ["5", None, math.nan, 2**31, 1.5, [5]])
def test_usage_is_whole_numbers_or_none_at_all(value: object) -> None:
    assert sound.record(Usage, {"prompt_tokens": 5, "completion_tokens": value}) is None
    assert sound.record(Usage, {"prompt_tokens": 5, "completion_tokens": 6}) == Usage(5, 6)


def test_other_records() -> None:
    assert sound.record(TimeSplit, {**SPLIT, "ttft": None}) == TimeSplit(0.1, 1, 0.3, 0.0)
    assert sound.record(TimeSplit, {**SPLIT, "decode": math.nan}) is None
    assert sound.record(ErrorInfo, {"code": "x", "message": 5}) is None
    assert sound.record(ScrollPlace, {"message_id": "m", "offset": -4}) == ScrollPlace("m", -4)
    assert sound.record(ScrollPlace, {"message_id": ["m"], "offset": 4}) is None
    assert [sound.number(value) for value in (1, 1.5, math.inf, 10**400, True, "1")] == [1.0, 1.5, None, None, None, None]


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 253_402_300_799, 10**400, True, "1", None])
def test_what_is_no_moment_is_the_beginning_of_all(value: object) -> None:
    assert sound.moment(value) == 0.0


def test_the_latest_moment_has_a_date_in_every_zone() -> None:
    for hours in (-12, 14):
        assert datetime.fromtimestamp(sound.moment(sound.LATEST), timezone(timedelta(hours=hours))).year == 2999
