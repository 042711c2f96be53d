"""The soak on the real engine: a few seconds of it lose nothing and leave nothing, and it would tell if they did."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from engine.bench import soak as bench
from engine.bench.soak_real import clean, soak
from tests.engine.bench.test_soak import arguments

KEYS = {"requests", "lost_events", "leaked_blocks", "rss_slope_mib_per_h", "threads_left", "errors"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Made-up faults are logged with their tracebacks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_a_few_seconds_of_everything_at_once() -> None:
    figures = soak(0.06, seed=2)
    assert set(figures) >= KEYS and figures["requests"] > 5
    assert clean(figures), figures


JUDGED = ("lost_events", "leaked_blocks", "threads_left", "unexpected", "files_left", "processes_left")


@pytest.mark.parametrize("name", JUDGED)
def test_what_stays_or_is_lost_is_not_clean(name: str) -> None:
    figures = dict.fromkeys(JUDGED, 0)
    assert clean(figures) and not clean(figures | {name: 1})


@pytest.mark.parametrize("words", [("--minutes", "0"), ("--minutes", "-1"), ("--minutes", "1", "--sim"), ()])
def test_what_cannot_be_run_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(arguments(*words)) == 2
    assert "--minutes" in capsys.readouterr().err
