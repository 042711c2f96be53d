"""Verdict and suggestion, over machines that are made up and models that are tiny."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.catalog.fit import MIB, Fit, Machine, Verdict, fit, this_machine
from engine.types import ModelError
from tests.engine.model.tiny_files import CONTEXT, make_folder

LARGE = Machine("cpu", "16-bit", free=8 << 30, reserve=512 * MIB, block_size=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("fit") / "tiny")


def need(found: Fit) -> int:
    return found.most + found.reserve


def test_the_verdict_follows_the_free_memory(folder: Path) -> None:
    found = fit(folder, LARGE, 2, 128)
    assert (found.verdict, found.seats, found.context) == (Verdict.YES, 2, 128)
    just = replace(LARGE, free=need(found) + 1)
    assert fit(folder, just, 2, 128).verdict is Verdict.TIGHT
    short = fit(folder, replace(LARGE, free=need(found) - 1), 2, 128)
    assert short.verdict is Verdict.NO
    assert "Does not fit: it needs" in short.sentence


def test_a_context_beyond_the_models_own_is_the_models_own(folder: Path) -> None:
    assert fit(folder, LARGE, 1, 10 * CONTEXT) == fit(folder, LARGE, 1, CONTEXT)


def test_what_is_suggested_fits_and_more_would_not(folder: Path) -> None:
    most = fit(folder, LARGE)
    assert most.suggested == (16, CONTEXT) == (most.seats, most.context)
    smaller = replace(LARGE, free=need(fit(folder, LARGE, 4, CONTEXT)) * 20 // 17 + MIB)
    found = fit(folder, smaller)
    assert found.suggested == (4, CONTEXT) and found.verdict is Verdict.YES
    assert fit(folder, smaller, 8, CONTEXT).verdict is not Verdict.YES


def test_nothing_is_suggested_where_nothing_fits(folder: Path) -> None:
    found = fit(folder, replace(LARGE, free=MIB))
    assert found.suggested is None and found.verdict is Verdict.NO


def test_the_numbers_for_programs(folder: Path) -> None:
    numbers = fit(folder, LARGE, 2, 128).as_json()
    assert list(numbers) == ["fits", "weights_mib", "kv_mib", "work_mib", "total_mib"]
    assert numbers["fits"] == "yes"
    assert numbers["total_mib"] == pytest.approx(sum(numbers[name] for name in ("weights_mib", "kv_mib", "work_mib")), abs=0.2)  # type: ignore[misc]


def test_this_machine_is_looked_at() -> None:
    machine = this_machine("cpu")
    assert machine.free > 0 and machine.precision in ("16-bit", "f32")
    assert this_machine("cpu", "float32").precision == "f32"
    with pytest.raises(ModelError, match="no device"):
        this_machine("abacus")
