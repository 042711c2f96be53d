"""The measurement of what a step costs: it says what it was asked for, over a house that stays full. (How much, is no test.)"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from engine.bench import scheduler
from engine.bench.scheduler import _FullHouse, cpu_clock, measure
from engine.version import __version__


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    scheduler.add_parser(parser.add_subparsers())
    return parser.parse_args(["scheduler", *words])


def test_the_house_stays_full_and_whoever_leaves_is_replaced() -> None:
    house = _FullHouse(seats=4, waiting=20, seed=1)
    core = house.core
    for _ in range(400):
        house.refill()
        assert len(core.scheduler.queue) >= 20
        record = core.step()
        assert record is not None
    assert core.totals.finished > 3 and len(core.scheduler.seated) == 4
    core.scheduler.audit()


def test_figures_are_positive_and_ordered() -> None:
    figures = measure(seats=4, waiting=10, steps=30)
    assert (figures["seats"], figures["waiting"], figures["steps"]) == (4, 10, 30)
    for name in ("step", "all_step", "clock", "snapshot", "line"):
        assert 0 < figures[f"{name}_ms_p50"] <= figures[f"{name}_ms_p99"]


def test_the_document_has_what_is_read_by_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scheduler.json"
    assert scheduler.run(arguments("--seats", "3", "--waiting", "5", "--steps", "10", "--json", str(file))) == 0
    document = json.loads(file.read_text())
    assert document["omnibus"] == __version__
    assert {"seats", "waiting", "step_ms_p50", "step_ms_p99"} <= document.keys()
    assert "3 seats, 5 waiting, 10 steps" in capsys.readouterr().out


def test_the_defaults_are_the_ones_that_count() -> None:
    given = arguments()
    assert (given.seats, given.waiting) == (256, 4096)


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.run(arguments("--seats", "0")) == 2
    assert "at least 1" in capsys.readouterr().err


def test_the_clock_moves_with_work() -> None:
    clock = cpu_clock()
    before = clock()
    while clock() == before:
        sum(range(1000))
    assert clock() > before
