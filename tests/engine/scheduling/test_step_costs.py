"""What steps cost is learned again after whatever happens to a machine: it sleeps in a step, compiles in the first, is slow for a while.

Guesses are taken by what they cost, and only what was taken is measured: without care one bad step would end them for good.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.scheduling.chunk import ChunkTuner, count_within
from engine.scheduling.drafts import shares

STEP_S, ROW_S = 0.02, 0.0008
SLEEP_S = 8 * 3600.0
FAULTS: dict[str, Callable[[int, float, random.Random], float]] = {
    "nothing": lambda number, took, rnd: took,
    "noise": lambda number, took, rnd: took * rnd.lognormvariate(0.0, 0.2),
    "the first sleeps": lambda number, took, rnd: took + SLEEP_S * (number == 0),
    "the second sleeps": lambda number, took, rnd: took + SLEEP_S * (number == 1),
    "a late one sleeps": lambda number, took, rnd: took + SLEEP_S * (number == 300),
    "slow at first": lambda number, took, rnd: took * (10 if number < 60 else 1),
    "slow for a while": lambda number, took, rnd: took * (10 if 100 <= number < 400 else 1),
    "slow for a moment": lambda number, took, rnd: took * (100 if 100 <= number < 103 else 1),
    "slower from then on": lambda number, took, rnd: took * (10 if number >= 100 else 1),
    "quicker from then on": lambda number, took, rnd: took * (0.05 if number >= 100 else 1),
    "a clock that stands": lambda number, took, rnd: took if rnd.random() < 0.7 else 0.0,
    "a clock that hurries on": lambda number, took, rnd: took if rnd.random() < 0.95 else 1e-9,
}


@pytest.mark.parametrize("riders", [1, 8])
@pytest.mark.parametrize("fault", FAULTS)
def test_guesses_and_chunks_come_back(fault: str, riders: int) -> None:
    rnd = random.Random(riders)
    tuner = ChunkTuner(128, target_s=0.15, most=2048)
    drafted = []
    for number in range(900):
        drafted.append(0 if number % 25 == 24 else sum(shares([(0.9, 8)] * riders, riders, 100, tuner.draft_cost)))
        tuner.observe(FAULTS[fault](number, STEP_S + ROW_S * (riders + drafted[-1]), rnd), 0, decodes=riders, drafted=drafted[-1])
        if number % 100 == 99:  # a prompt's chunk now and then
            took = STEP_S + ROW_S * riders + 0.001 * tuner.chunk
            tuner.observe(FAULTS[fault](number, took, rnd), tuner.chunk, decodes=riders)
    pace = {"slower from then on": 10, "quicker from then on": 0.05}.get(fault, 1)
    plain = STEP_S + ROW_S * riders
    assert tuner.decode_step_s == pytest.approx(pace * plain, rel=0.4)
    truth = ROW_S / plain
    assert truth / (8 if fault == "noise" else 2) < tuner.draft_cost < 2 * truth
    assert sum(drafted[-100:]) > 200 * riders
    wanted = (0.15 - pace * plain) / (pace * 0.001)
    assert tuner.chunk == pytest.approx(min(2048, max(16, wanted)), rel=0.5)


def test_a_prompt_that_compiles_does_not_make_the_next_ones_crumbs() -> None:
    tuner = ChunkTuner(128, target_s=0.15, most=2048)
    tuner.observe(100.0, 150)
    for _ in range(10):
        tuner.observe(0.02, 0)
    read = 0
    for _ in range(8):
        read += tuner.chunk
        tuner.observe(0.02 + 0.001 * tuner.chunk, tuner.chunk)
    assert tuner.chunk == pytest.approx(130, rel=0.2) and read < 800


def test_what_costs_too_much_is_tried_again_but_seldom() -> None:
    tuner = ChunkTuner(128, target_s=0.15, most=2048)
    drafted = 0
    for number in range(4000):
        (taken,) = shares([(0.7, 8)], 1, 0 if number % 25 == 24 else 100, tuner.draft_cost)
        tuner.observe(0.001 + 0.02 * (1 + taken), 0, decodes=1, drafted=taken)
        drafted += taken
    assert 0 < drafted < 300


PER_POSITION_S, SHORT_S = 0.00035, 0.015  # of a position at the beginning of a prompt; of any step that reads, however little


def reading(tuner: ChunkTuner, slope: float, length: int, riders: int) -> list[float]:
    """Read a prompt beside so many decodes; returns what its steps took."""
    took, at = [], 0
    while at < length:
        count = min(length - at, max(1, count_within(tuner.chunk, at, tuner.slope)) if riders else tuner.most)
        pairs = count * (at + (count - 1) / 2)
        took.append(SHORT_S + ROW_S * riders + PER_POSITION_S * (count + slope * pairs))
        tuner.observe(took[-1], count, pairs, decodes=riders)
        at += count
    return took


@pytest.mark.parametrize("slope", [0.0, 0.0002, 0.0005, 0.001, 0.002])
@pytest.mark.parametrize("before", [(60,) * 7, (60, 250, 4), (5, 90, 30, 3, 3)], ids=str)
def test_the_first_long_prompt_holds_nobody_up(slope: float, before: tuple[int, ...]) -> None:
    """Only short ones came before it, which cannot tell what a position far into a prompt costs; what is left of one, a few positions, is
    mostly overhead and tells nothing at all. And the prompt itself is read in no more steps than one that knows would take, but three."""
    tuner = ChunkTuner(128, target_s=0.15, most=512)
    for length in before:
        reading(tuner, slope, length, 0)
        for _ in range(8):
            tuner.observe(STEP_S, 0, decodes=7)
    first = reading(tuner, slope, 4000, 7)
    assert max(first) < 1.07 * 0.15
    tuner.slope = slope
    assert len(first) <= len(reading(tuner, slope, 4000, 7)) + 3


def test_short_prompts_leave_most_of_what_a_long_one_told() -> None:
    tuner = ChunkTuner(128, target_s=0.15, most=512)
    reading(tuner, 0.0003, 4000, 7)
    told, rnd = tuner.slope, random.Random(1)
    assert told == pytest.approx(0.0003, rel=0.3)
    for _ in range(50):
        reading(tuner, 0.0003, rnd.randrange(3, 90), 7)
    assert tuner.slope > told / 3
