"""Parity, a small sample of it: answers are the model's own and the comparison would tell if they were not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.bench import parity as bench
from engine.bench.parity import parity, text_figures, wrong


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return parity(["llama"], 12, seed=3)


def test_greedy_and_seeded_answers_are_the_same_in_any_company(figures: dict[str, Any]) -> None:
    found = figures["families"]["llama"]
    assert found["greedy_equal"] == found["sampled_equal"] == 12 and wrong(figures) == []


def test_log_probabilities_are_near_in_company_and_in_coarser_classes(figures: dict[str, Any]) -> None:
    found = figures["families"]["llama"]
    assert found["logprobs_largest_difference"] < 1e-3
    for name in ("16-bit", "8-bit"):
        assert 0 < found["classes"][name]["mean"] < 0.2 and found["classes"][name]["p99"] < 1.5


def test_streamed_text_is_the_decoded_text() -> None:
    assert text_figures(200, 5) == {"texts": 200, "equal": 200}


def test_a_difference_would_be_told(figures: dict[str, Any]) -> None:
    other = {**figures, "families": {"llama": {**figures["families"]["llama"], "greedy_equal": 11}}}
    assert wrong(other) == ["llama: 1 greedy answers differ"]


def test_an_unknown_family_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    assert bench.run(parser.parse_args(["parity", "--family", "hal9000"])) == 2
    assert "hal9000" in capsys.readouterr().err
