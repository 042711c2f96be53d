"""Rates and percentiles over short windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.measures import KEPT, WINDOW_S, Latest, Measures, percentile


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (100, 0.95, 95), (100, 0.5, 50), (100, 1.0, 100)],
)
def test_percentiles_are_by_nearest_rank(count: int, share: float, expected: int) -> None:
    assert percentile([float(value) for value in range(1, count + 1)], share) == expected


def test_nothing_measured_is_nothing() -> None:
    measures = Measures()
    rates = measures.rates(5.0)
    assert (rates.tok_s, rates.prefill_tok_s, rates.ttft_p50_s, rates.itl_p95_s, rates.batch) == (0, 0, 0, 0, 0)
    assert measures.itl_s is None and percentile([], 0.5) == 0


def test_speeds_are_over_the_last_seconds() -> None:
    measures = Measures()
    for number in range(1, 41):  # 4 s of steps of 0.1 s: 3 tokens and 20 positions each
        measures.step(number * 0.1, 0.1, 4, 20, 3)
    rates = measures.rates(4.0)
    assert rates.tok_s == pytest.approx(30) and rates.prefill_tok_s == pytest.approx(200)
    assert (rates.step_s, rates.batch) == (0.1, 4)
    for number in range(41, 200):  # then only decodes, one token a step: the old speed is forgotten after the window
        measures.step(number * 0.1, 0.1, 1, 0, 1)
    assert measures.rates(19.9).tok_s == pytest.approx(10, rel=0.05)
    assert measures.rates(19.9).prefill_tok_s == 0


def test_a_step_longer_than_the_window_still_has_a_speed() -> None:
    measures = Measures()
    measures.step(10.0, 2 * WINDOW_S, 1, 0, 10)
    assert measures.rates(10.0).tok_s == pytest.approx(1)


def test_idle_shows_no_speed_and_keeps_the_percentiles() -> None:
    measures = Measures()
    measures.first_tokens.append(0.4)
    measures.gaps.append(0.05)
    measures.step(1.0, 0.1, 2, 5, 1)
    rates = measures.rates(1.5, idle=True)
    assert (rates.tok_s, rates.prefill_tok_s, rates.batch) == (0, 0, 0)
    assert (rates.ttft_p50_s, rates.itl_p50_s) == (0.4, 0.05)
    assert measures.rates(1.0 + 2 * WINDOW_S).tok_s == 0


def test_only_the_latest_samples_count_and_a_clock_that_jumped_back_gives_none_below_zero() -> None:
    measures = Measures()
    for _ in range(KEPT):
        measures.gaps.append(9.0)
    for _ in range(KEPT):
        measures.gaps.append(0.1)
    measures.first_tokens.append(-5.0)
    assert measures.itl_s == pytest.approx(0.1)
    assert measures.rates(0.0).itl_p95_s == 0.1 and measures.rates(0.0).ttft_p50_s == 0


def test_the_time_between_tokens_is_that_of_all_of_them_and_not_of_most() -> None:
    """Answers that come six tokens a step, and then one: most tokens come quickly. One that was held up for an hour counts for nothing."""
    measures = Measures()
    for _ in range(20):
        measures.gaps.append(0.06 / 6, 6)
        measures.gaps.append(0.06, 1)
    measures.gaps.append(3600.0)
    measures.gaps.append(-3600.0)
    assert measures.itl_s == pytest.approx(0.12 / 7, rel=0.15)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 3.0]), st.integers(1, KEPT // 2)), max_size=40), st.integers(0, 2 * KEPT))
def test_times_are_in_order_and_the_latest(runs: list[tuple[float, int]], many: int) -> None:
    latest, came = Latest(), []
    for value, times in [*runs, *([(0.2, many)] if many else [])]:
        latest.append(value, times)
        came += [value] * times
        assert latest.ordered == sorted(came[-KEPT:])
