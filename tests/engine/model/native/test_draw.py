"""Our own kernel's draws: the reference's, whatever the cut, the company and the vocabulary; and nothing from what is not a number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.native import library
from engine.model.sampler import Sampler
from engine.types import SamplingParams
from tests.engine.model.test_sampler import any_params, assert_frequencies, assert_kept_is_fresh, make_logits, make_row, reference_draw

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

SOME = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_p=0.95),
    SamplingParams(temperature=1.0, top_p=1.0),
    SamplingParams(temperature=0.8, top_p=0.95, top_k=40),
    SamplingParams(temperature=1.0, top_p=1.0, top_k=7),
    SamplingParams(temperature=1.2, top_p=1.0, min_p=0.05),
    SamplingParams(temperature=2.0, top_p=0.99, min_p=0.001),
    SamplingParams(temperature=1.1, top_p=1.0, top_k=3000, min_p=0.01),
]


def native() -> Sampler:
    sampler = Sampler((0, 1, 2, 3))
    sampler.native = True
    return sampler


def tokens(sampler: Sampler, logits: torch.Tensor, params: list[SamplingParams], seed: int = 0) -> list[int | None]:
    rows = [make_row(each, seed=seed + place) for place, each in enumerate(params)]
    return [outcome.token for outcome in sampler.sample(logits.clone(), rows)]


@settings(max_examples=200, deadline=None)
@given(st.lists(any_params, min_size=1, max_size=6), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 3.0, 8.0]))
def test_draws_are_the_references(many: list[SamplingParams], seed: int, spread: float) -> None:
    logits = make_logits(seed, len(many), spread)
    rows = [make_row(params, seed=seed + place) for place, params in enumerate(many)]
    found = [outcome.token for outcome in native().sample(logits.clone(), rows)]
    assert found == [reference_draw(logits[place].numpy(), row) for place, row in enumerate(rows)]


@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 17, 49152, 50257])
def test_any_vocabulary_and_what_torch_draws(vocabulary: int) -> None:
    for seed in range(6):
        logits = make_logits(seed, len(SOME), 2.5, vocabulary)
        found = tokens(native(), logits, SOME, seed)
        assert found == tokens(Sampler((0,)), logits, SOME, seed)
        alone = [tokens(native(), logits[place : place + 1], [params], seed + place)[0] for place, params in enumerate(SOME)]
        assert found == alone


@pytest.mark.parametrize("kept", [1, 2, 31, 512, 2047, 2048])
def test_a_cut_that_the_last_places_of_the_sum_decide(kept: int) -> None:
    """All are equally likely, so that a share of the whole is met exactly: there the whole must be weighed exactly, too."""
    size = 2048
    params = [SamplingParams(temperature=0.7, top_p=kept / size)] * 60
    logits = torch.full((len(params), size), 1.5)
    found = tokens(native(), logits, params)
    assert found == [reference_draw(logits[0].numpy(), make_row(each, seed=place)) for place, each in enumerate(params)]
    assert max(token or 0 for token in found) < kept
    assert kept == 1 or len(set(found)) > 1


@pytest.mark.parametrize("top_k", [0, 3])
def test_zeros_of_either_sign_are_equal(top_k: int) -> None:
    params = [SamplingParams(temperature=0.7, top_p=0.5, top_k=top_k)] * 40
    for zeros in ([-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0, 0.0]):
        logits = torch.tensor(zeros * 50)[None, :100].repeat(len(params), 1)
        found = tokens(native(), logits, params)
        assert found == [reference_draw(logits[0].numpy(), make_row(each, seed=place)) for place, each in enumerate(params)]


@pytest.mark.parametrize("params", SOME[1:])
def test_frequencies(params: SamplingParams) -> None:
    """Running seeds against the exact probabilities: chi-square, which a wrong cut or noise that is thrown away too early fails by far."""
    logits = make_logits(11, 1, 1.5, vocabulary=24)
    count = 10_000
    assert_frequencies(tokens(native(), logits.expand(count, -1), [params] * count), logits[0], params)  # type: ignore[arg-type]


def test_what_is_held_back_is_never_drawn_and_what_is_no_number_is_told() -> None:
    logits = make_logits(5, len(SOME), 2.0, 3001)
    allowed = {3, 500, 2999, 3000}
    masked = torch.full_like(logits, float("-inf"))
    at = sorted(allowed)
    masked[:, at] = logits[:, at]
    for seed in range(10):
        assert set(tokens(native(), masked, SOME, seed)) <= allowed
    masked[:, at[1:]] = float("-inf")
    assert tokens(native(), masked, SOME) == [3] * len(SOME)
    for bad in (float("nan"), float("inf")):
        spoilt = logits.clone()
        spoilt[2:, 3000] = bad
        rows = [make_row(params, seed=place) for place, params in enumerate(SOME)]
        outcomes = native().sample(spoilt, rows)
        assert [outcome.error is None for outcome in outcomes] == [True, True, *[False] * (len(SOME) - 2)]
    nothing = torch.full((1, 40), float("-inf"))
    (outcome,) = native().sample(nothing, [make_row(SOME[1])])
    assert outcome.error is not None and outcome.error.code == "nan_logits"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_kept_between_steps_changes_no_draw(seed: int) -> None:
    assert_kept_is_fresh(native, seed)


def test_of_equals_the_first_is_the_largest() -> None:
    logits = torch.zeros(3, 100)
    logits[1, 70:] = 1.0
    logits[2, 99] = 1.0
    greedy = SamplingParams(temperature=0.0)
    assert tokens(native(), logits, [greedy] * 3) == [0, 70, 99]


def test_far_numbers_and_cold_rows() -> None:
    """What lies beyond any float's distance weighs nothing and breaks nothing."""
    logits = torch.full((4, 1000), -3e38)
    logits[:, 17] = 3e38
    params = [SamplingParams(temperature=1e-5, top_p=p, top_k=k) for p, k in ((0.5, 0), (1.0, 0), (1.0, 30), (0.9, 30))]
    assert tokens(native(), logits, params) == [17] * 4
