"""Parity in parts: every prompt belongs to one of them, and what they come to is what one run would have told, or worse."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from engine.bench import parity as bench
from engine.bench.parity_parts import NoPart, joined, span


@pytest.mark.parametrize("parts", [1, 3, 4, 7, 200])
def test_every_prompt_is_in_one_part(parts: int) -> None:
    spans = [span(f"{number}/{parts}", 200) for number in range(1, parts + 1)]
    assert [place for first, count in spans for place in range(first, first + count)] == list(range(200))


@pytest.mark.parametrize("part", ["0/4", "5/4", "x/4", "4", "1/0", "-1/4", "1/201", "", "1/4/2"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(NoPart):
        span(part, 200)


def part(first: int, equal: int, mean: float, tokens: int, tasks: dict[str, Any] | None) -> dict[str, Any]:
    """Figures of ten prompts as `bench parity` writes them, the least of them."""
    company = {"exact": True, "prompts": 4, "answers_equal": 4, "tokens": 40, "bitwise_equal": 40, "largest_difference": 0.0}
    spread = {"tokens": tokens, "mean": mean, "p99": 2 * mean, "largest": 3 * mean}
    near = {"mean": 0.01, "p99": 0.1, "largest": 0.2}
    family = {"preemptions": 1, "greedy_equal": equal, "sampled_equal": 10, "logprobs_bitwise_equal_share": 0.5}
    return {
        "prompts": 10,
        "first": first,
        "families": {"llama": {**family, "logprobs_largest_difference": mean, "classes": {"16-bit": near, "8-bit": near}}},
        "text": {"texts": 100, "equal": 100},
        "model": {
            "greedy": {"prompts": 10, "equal": equal, "ties": 0, "preemptions": 2, "lane": "fast", "largest_difference": mean}
            | {"company": {**company, "exact": False, "largest_difference": mean / 100}},
            "classes": {"16-bit": {"against_f32": spread, "company": company}, "8-bit": {"against_f32": spread, "company": company}},
            "tasks": tasks,
        },
        "wrong": [],
    }


TASKS = {"texts": 3, "perplexity": 9.0, "perplexity_relative_difference": 1e-6, "questions": 3, "same_choice": 3, "right": 2}


def test_counts_add_up_means_are_weighed_and_the_largest_is_told() -> None:
    whole = joined([part(0, 10, 0.002, 100, TASKS), part(10, 9, 0.005, 50, None)])
    assert (whole["prompts"], whole["first"], whole["families"]["llama"]["greedy_equal"]) == (20, 0, 19)
    assert whole["families"]["llama"]["logprobs_largest_difference"] == 0.005
    model = whole["model"]
    assert (model["greedy"]["prompts"], model["greedy"]["equal"], model["greedy"]["lane"], model["tasks"]) == (20, 19, "fast", TASKS)
    found = model["classes"]["16-bit"]["against_f32"]
    assert found == {"tokens": 150, "mean": pytest.approx(0.003), "p99": 0.01, "largest": 0.015}
    assert model["classes"]["8-bit"]["company"]["bitwise_equal"] == 80


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    return bench.run(parser.parse_args(["parity", *arguments]))


def test_files_of_parts_are_told_as_one_run_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "second.json", tmp_path / "first.json"]
    files[0].write_text(json.dumps(part(10, 10, 0.0002, 50, None)))
    files[1].write_text(json.dumps(part(0, 10, 0.0001, 100, TASKS)))
    assert run("--join", *map(str, files), "--json", str(tmp_path / "whole.json")) == 0
    said = capsys.readouterr().out
    assert "20/20 answers are the model's own" in said and "80/80 log-probabilities to the last bit" in said and "3/3 questions" in said
    assert json.loads((tmp_path / "whole.json").read_text())["wrong"] == []
    files[0].write_text(json.dumps(part(10, 9, 0.0002, 50, None)))
    assert run("--join", *map(str, files)) == 1
    assert "llama: 1 greedy answers differ" in capsys.readouterr().out


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, same, other = (tmp_path / name for name in ("one.json", "same.json", "other.json"))
    one.write_text(json.dumps(part(0, 10, 0.1, 10, None)))
    same.write_text(one.read_text())
    other.write_text(json.dumps({**part(10, 10, 0.1, 10, None), "families": {}}))
    for files, words in (((one, same), "the same prompts"), ((one, other), "different families"), ((tmp_path / "none",), "cannot be read")):
        assert run("--join", *map(str, files)) == 2
        assert words in capsys.readouterr().err
    other.write_text("[]")
    assert run("--join", str(other)) == 2 and "no document" in capsys.readouterr().err
    assert run("--part", "9/4") == 2 and "no part" in capsys.readouterr().err
