"""The soak: a short one is clean and says so, and it would see a leak, a second end, and memory that grows."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.bench import soak as bench
from engine.bench.soak import Soak, Tally, slope, soak
from engine.types import FinishedEvent, FinishReason, TimeSplit, TokensEvent, Usage


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Made-up faults are logged with their tracebacks."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    return parser.parse_args(["soak", *words])


def the_end(request_id: str) -> FinishedEvent:
    return FinishedEvent(request_id, FinishReason.STOP, Usage(1, 1), TimeSplit(0, 0, 0, 0))


def test_a_short_soak_is_clean_and_everything_happened_in_it() -> None:
    figures = soak(4000, seed=3)
    assert figures["steps"] == 4000 and figures["leaked_blocks"] == 0 and figures["ended_once"] is True
    assert set(figures["reasons"]) == {"stop", "length", "cancelled", "error"}
    assert figures["requests"] == sum(figures["reasons"].values()) > 200
    assert min(figures[name] for name in ("preemptions", "evictions", "rebuilds", "refused")) > 0


def test_the_same_seed_is_the_same_soak() -> None:
    def run(seed: int) -> dict[str, object]:
        figures = soak(300, seed)
        del figures["rss_slope_kib_per_10k_steps"]
        return figures

    assert run(5) == run(5) != run(6)


def test_the_document_has_what_is_read_by_machine(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    assert bench.run(arguments("--sim", "--steps", "500", "--json", str(file))) == 0
    document = json.loads(file.read_text())
    assert {"omnibus", "steps", "leaked_blocks", "rss_slope_kib_per_10k_steps", "requests", "ended_once"} <= document.keys()
    assert arguments("--sim").steps == 200_000


def test_without_sim_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(arguments("--steps", "5")) == 2
    assert "--sim" in capsys.readouterr().err


def test_a_leak_would_be_seen() -> None:
    run = Soak(1)
    for _ in range(200):
        run.turn()
    run.drain()
    assert run.sim.core.pool.referenced == 0
    run.sim.core.pool.take(1, 0)
    assert run.sim.core.pool.referenced == 1
    with pytest.raises(RuntimeError):
        run.sim.core.scheduler.audit()


def test_a_second_end_and_a_token_after_the_end_would_be_seen() -> None:
    tally = Tally(live={"a": 0, "b": 0})
    tally.note(TokensEvent("a", "", (1, 2)))
    tally.note(the_end("a"))
    assert not tally.broken and tally.tokens == 2
    tally.note(the_end("a"))
    tally.note(TokensEvent("a", "", (3,)))
    assert tally.broken == ["a", "a"] and list(tally.live) == ["b"]


def test_the_slope_is_that_of_a_line() -> None:
    assert slope([(0, 5.0), (10, 25.0), (20, 45.0)]) == pytest.approx(2.0)
    assert slope([(0, 7.0), (10, 7.0)]) == 0 and slope([(3, 1.0)]) == 0 and slope([]) == 0
