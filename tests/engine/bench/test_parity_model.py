"""Parity of a real model's lane, on a small one: A, C, D and E hold, and what is out of its bounds is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.bench import parity_model as bench
from engine.bench.parity_tasks import QUESTIONS, TEXTS
from engine.bench.small_models import write_small_model
from engine.model.native import library

COUNT = 10


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "TEXTS", TEXTS[:3])
        patch.setattr(bench, "QUESTIONS", QUESTIONS[:3])
        place = write_small_model(tmp_path_factory.mktemp("small") / "model", 5)
        return bench.model_parity(str(place), COUNT, 1, lambda words: None)


def test_a_greedy_answers_in_company_are_the_models_own(figures: dict[str, Any]) -> None:
    greedy = figures["greedy"]
    assert greedy["prompts"] == COUNT == greedy["equal"] + greedy["ties"]
    assert greedy["largest_difference"] < 1e-3 and greedy["preemptions"] > 0


def test_c_coarser_classes_are_near_and_not_the_same(figures: dict[str, Any]) -> None:
    for name, bounds in bench.BOUNDS.items():
        found = figures["classes"][name]["against_f32"]
        assert found["tokens"] == COUNT * bench.ANSWER
        assert 0 < found["mean"] <= bounds[0] and found["p99"] <= bounds[1] and found["largest"] <= bounds[2]


def test_d_on_our_own_kernels_company_does_not_show_in_a_single_bit(figures: dict[str, Any]) -> None:
    """Elsewhere, and in float32, it does: were it not seen there, it would not be seen here either."""
    for name in bench.BOUNDS:
        found = figures["classes"][name]["company"]
        assert found["exact"] == (library.fault() is None) and found["tokens"] > 0 and found["prompts"] == bench.ALONE
        if found["exact"]:
            assert (found["bitwise_equal"], found["answers_equal"]) == (found["tokens"], bench.ALONE)
    loose = figures["greedy"]["company"]
    held = figures["greedy"]["reproducible"]
    assert held["exact"] and held["one_at_a_time"] and held["bitwise_equal"] == held["tokens"] == bench.ALONE * bench.ANSWER
    assert not loose["exact"] and 0 < loose["largest_difference"] < 1e-3 and loose["bitwise_equal"] < loose["tokens"]


def test_e_the_api_says_what_the_model_says(figures: dict[str, Any]) -> None:
    tasks = figures["tasks"]
    assert tasks["perplexity_relative_difference"] < 1e-4
    assert (tasks["texts"], tasks["questions"], tasks["same_choice"]) == (3, 3, 3)


@pytest.mark.parametrize(
    "place, value, words",
    [
        (("greedy", "equal"), 0, "greedy answers are not"),
        (("classes", "16-bit", "against_f32", "mean"), 0.2, "the mean difference"),
        (("classes", "8-bit", "against_f32", "largest"), 9.0, "the largest difference"),
        (("classes", "16-bit", "transformers_against_f32", "mean"), 1e-9, "farther from float32 than"),
        (("tasks", "perplexity_relative_difference"), 0.01, "a perplexity differs"),
        (("classes", "8-bit", "company", "largest_difference"), 0.5, "8-bit: log-probabilities differ by 5.0e-01 in company"),
        (("greedy", "reproducible", "bitwise_equal"), 7, "float32, reproducible: answers depend on their company"),
        (("greedy", "company", "largest_difference"), 0.01, "float32: log-probabilities differ"),
        (("tasks", "same_choice"), 2, "questions are answered otherwise"),
    ],
)
def test_what_is_out_of_its_bounds_is_told(figures: dict[str, Any], place: tuple[str, ...], value: float, words: str) -> None:
    assert not any(words in told for told in bench.model_wrong(figures))
    worse = copy.deepcopy(figures)
    item = worse
    for name in place[:-1]:
        item = item[name]
    item[place[-1]] = value
    assert any(words in told for told in bench.model_wrong(worse))


def test_company_that_shows_on_our_own_kernels_is_told() -> None:
    found = {"exact": True, "prompts": 2, "answers_equal": 2, "tokens": 48, "bitwise_equal": 48, "largest_difference": 0.0}
    assert bench.company_wrong("8-bit", found, 0.1) == []
    assert bench.company_wrong("8-bit", {**found, "bitwise_equal": 47}, 0.1) and bench.company_wrong(
        "8-bit", {**found, "answers_equal": 1}, 0.1
    )
    assert bench.company_wrong("8-bit", {**found, "exact": False, "bitwise_equal": 1}, 0.1) == []


def test_questions_have_one_right_answer_among_four() -> None:
    assert len({question for question, _, _ in QUESTIONS}) == len(QUESTIONS) > 30
    assert all(len(set(answers)) == 4 and 0 <= right < 4 for _, answers, right in QUESTIONS)
    assert len({right for _, _, right in QUESTIONS}) > 1, "the right one is not always at the same place"


def test_prompts_are_all_different_and_share_beginnings() -> None:
    class Letters:
        def encode_chat(self, chat: Any) -> list[int]:
            return [ord(letter) for letter in chat[0].content]

    prompts = bench.prompts_of(Letters(), 200)
    assert len({tuple(prompt) for prompt in prompts}) == 200
    assert bench.prompts_of(Letters(), 50, 150) == prompts[150:]
    assert len({tuple(prompt[:12]) for prompt in prompts}) < 40


def test_the_spread_of_differences() -> None:
    assert bench.spread([[0.0, 1.0]], [[0.5, 1.0]]) == {"tokens": 2, "mean": 0.25, "p99": 0.5, "largest": 0.5}
    assert bench.pick([[-1.0, -3.0], [-1.5]]) == 1
