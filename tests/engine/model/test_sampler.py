"""Draws against a plain reference in numpy: the same cuts, the same noise, whatever the company; and the right frequencies."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import sampler as module
from engine.model.draws import noise_key
from engine.model.sampler import Sampler, gumbel
from engine.scheduling.plan import Row, Sampled
from engine.types import SamplingParams
from tests.engine.model.tiny import make_request

VOCABULARY = 1000


def make_row(params: SamplingParams, tokens: list[int] | None = None, seed: int = 1, answer: int = 0, name: str = "r") -> Row:
    request = make_request(tokens or [1, 2, 3], params, seed, name)
    request.prompt_len = len(request.tokens) - answer
    return Row(request, len(request.tokens) - 1, 1, True)


def make_logits(seed: int, rows: int, spread: float = 3.0, vocabulary: int = VOCABULARY) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


def draw(logits: torch.Tensor, rows: list[Row], eos: tuple[int, ...] = (0,)) -> list[Sampled]:
    return Sampler(eos).sample(logits.clone(), rows)


def reference_noise(seed: int, position: int, count: int) -> np.ndarray:
    """The documented hash, in unsigned numpy arithmetic."""

    def mix(word: np.ndarray) -> np.ndarray:
        word = (word ^ (word >> np.uint32(16))) * np.uint32(0x7FEB352D)
        word = (word ^ (word >> np.uint32(15))) * np.uint32(0x846CA68B)
        return word ^ (word >> np.uint32(16))

    low, high = (np.uint32(word) for word in noise_key(seed, position))
    word = mix(mix((np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1)) ^ low) ^ high)
    return -np.log(-np.log1p(-(word.astype(np.float64) + 0.5) * 2.0**-32))


def reference_kept(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Token ids that the cuts leave, best first, in float64."""
    scaled = logits.astype(np.float64) / params.temperature
    order = np.argsort(-scaled, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    share = np.exp(scaled[order] - scaled[order[0]])
    share /= share.sum() if params.top_k else np.exp(scaled - scaled[order[0]]).sum()
    keep = (np.cumsum(share) - share < params.top_p) & (share >= params.min_p * share[0])
    keep[0] = True
    return order[keep]


def reference_draw(logits: np.ndarray, row: Row) -> int:
    params = row.request.params
    if params.greedy:
        return int(logits.argmax())
    kept = reference_kept(logits, params)
    noise = reference_noise(row.request.seed, row.start + row.count, len(logits))
    return int(kept[np.argmax(logits[kept].astype(np.float64) / params.temperature + noise[kept])])


def assert_frequencies(tokens: list[int], logits: torch.Tensor, params: SamplingParams) -> None:
    """Many draws from the same logits, against the exact probabilities."""
    kept = reference_kept(logits.numpy(), params)
    scaled = logits.double().numpy()[kept] / params.temperature
    expected = np.exp(scaled - scaled.max())
    expected *= len(tokens) / expected.sum()
    seen = np.bincount(tokens, minlength=len(logits))
    assert seen[kept].sum() == len(tokens)
    common = expected >= 5
    chi_square = ((seen[kept] - expected)[common] ** 2 / expected[common]).sum()
    degrees = max(1, common.sum() - 1)
    assert chi_square < degrees + 5 * np.sqrt(2 * degrees)


any_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.8]),
    top_k=st.sampled_from([0, 1, 5, 50, 256, 300, 999]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(any_params, min_size=1, max_size=6), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 3.0, 8.0]))
def test_draws_are_the_references(many: list[SamplingParams], seed: int, spread: float) -> None:
    """Flat distributions (spread 0.1) reach beyond the 256 candidates and take the sort."""
    logits = make_logits(seed, len(many), spread)
    rows = [make_row(params, seed=seed + place) for place, params in enumerate(many)]
    found = [result.token for result in draw(logits, rows)]
    assert found == [reference_draw(logits[place].numpy(), row) for place, row in enumerate(rows)]


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    rng = random.Random(4)
    logits = make_logits(2, 12)
    some = [(rng.choice([0.0, 0.8, 1.2]), rng.choice([0.8, 1.0]), rng.choice([0, 40])) for _ in range(12)]
    rows = [make_row(SamplingParams(temperature=t, top_p=p, top_k=k), seed=place) for place, (t, p, k) in enumerate(some)]
    alone = [draw(logits[place : place + 1], [row])[0].token for place, row in enumerate(rows)]
    assert [result.token for result in draw(logits, rows)] == alone
    order = rng.sample(range(12), 12)
    assert [result.token for result in draw(logits[order], [rows[place] for place in order])] == [alone[place] for place in order]
    params = SamplingParams(temperature=2.0, top_p=1.0)
    by_seed = {draw(logits[:1], [make_row(params, seed=seed)])[0].token for seed in range(40)}
    by_position = {draw(logits[:1], [make_row(params, tokens=[1] * length)])[0].token for length in range(1, 41)}
    assert len(by_seed) > 20 and len(by_position) > 20


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_p=1.0),
        SamplingParams(temperature=0.7, top_p=0.9),
        SamplingParams(temperature=1.3, top_p=1.0, top_k=6),
        SamplingParams(temperature=1.0, top_p=1.0, min_p=0.1),
    ],
)
def test_frequencies(params: SamplingParams) -> None:
    """20,000 draws with running seeds against the exact probabilities: chi-square, which a wrong cut or poor noise fails by far."""
    logits = make_logits(11, 1, 1.5, vocabulary=24)
    count = 20_000
    sampler = Sampler(())
    tokens: list[int] = []
    for first in range(0, count, 2000):
        rows = [make_row(params, seed=seed) for seed in range(first, first + 2000)]
        tokens += [result.token for result in sampler.sample(logits.expand(2000, -1).clone(), rows)]
    assert_frequencies(tokens, logits[0], params)


def test_noise_is_gumbel_and_free_of_pattern() -> None:
    keys = torch.tensor(np.array([noise_key(seed, position) for seed in range(20) for position in range(20)], np.uint32).view(np.int32))
    noise = gumbel(torch.arange(2000, dtype=torch.int32).expand(400, -1), keys)
    assert noise.isfinite().all()
    assert abs(float(noise.mean()) - 0.57722) < 0.005 and abs(float(noise.var()) - np.pi**2 / 6) < 0.01
    for other in (noise.roll(1, 1), noise.roll(1, 0), noise.roll(20, 0)):  # neighbouring tokens, positions and seeds
        assert abs(float(torch.corrcoef(torch.stack([noise.flatten(), other.flatten()]))[0, 1])) < 0.005
    expected = np.stack([reference_noise(seed, position, 2000) for seed in range(2) for position in range(20)])
    wins = expected > 0  # exact where it can win a draw; the losing end is rounded
    np.testing.assert_allclose(noise[:40].numpy()[wins], expected[wins], atol=2e-6)
    np.testing.assert_allclose(noise[:40].numpy(), expected, atol=0.01)


def test_the_ends_of_the_noise_are_finite() -> None:
    """No 32-bit word gives an infinite number, which would win or lose every draw."""
    ends = torch.tensor([0, 1, -1, -2, 2**31 - 1, -(2**31)], dtype=torch.int32)
    noise = module._noise_of_words(ends)
    assert noise.isfinite().all() and float(noise.max()) > 20 and float(noise.min()) < -2.5


def test_penalties() -> None:
    """Repetition counts prompt and answer, presence and frequency the answer alone; bias comes first."""
    params = SamplingParams(
        temperature=0.0, repetition_penalty=1.5, presence_penalty=0.25, frequency_penalty=0.5, logit_bias=((4, 1.0), (9, -3.0), (5000, 1.0))
    )
    logits = make_logits(5, 1)
    row = make_row(params, tokens=[4, 5, 6, 6, 7, 7, 7], answer=4)
    expected = logits[0].clone()
    expected[4] += 1.0
    expected[9] -= 3.0
    for token in (4, 5, 6, 7):
        expected[token] = expected[token] / 1.5 if expected[token] > 0 else expected[token] * 1.5
    expected[6] -= 0.25 + 0.5
    expected[7] -= 0.25 + 0.5 * 3
    shaped = Sampler(())._shape(logits.clone(), [row])
    torch.testing.assert_close(shaped[0], expected)


def test_penalties_follow_a_growing_answer() -> None:
    params = SamplingParams(temperature=0.0, frequency_penalty=2.0)
    logits = torch.zeros(1, VOCABULARY)
    logits[0, :4] = torch.tensor([5.0, 4.5, 4.0, 3.0])
    sampler, request = Sampler(()), make_request([900], params)
    for _ in range(6):
        request.tokens.append(sampler.sample(logits.clone(), [Row(request, request.known - 1, 1, True)])[0].token)
    assert request.output == [0, 1, 2, 0, 3, 1]
    sampler.forget(request.id)
    assert sampler.sample(logits.clone(), [Row(request, request.known - 1, 1, True)])[0].token == 2  # counted anew, the same


def test_min_tokens_holds_back_the_ends() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=3, stop_token_ids=(7,))
    logits = torch.zeros(1, VOCABULARY)
    logits[0, [0, 7, 8]] = torch.tensor([9.0, 8.0, 7.0])
    assert [draw(logits, [make_row(params, [1] * (2 + out), answer=out)])[0].token for out in range(5)] == [8, 8, 8, 0, 0]


SHAPED = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=1.0, top_p=1.0, min_tokens=3, stop_token_ids=(5, 6, 7, 8)),
    SamplingParams(temperature=0.0, frequency_penalty=3.0),
    SamplingParams(temperature=0.0, repetition_penalty=2.0),
    SamplingParams(temperature=0.0, presence_penalty=3.0),
    SamplingParams(temperature=0.0, logit_bias=((4, 5.0),)),
    SamplingParams(temperature=0.0, logprobs=2),
]


def assert_kept_is_fresh(make: Callable[[], Sampler], seed: int) -> None:
    """A sampler that has seen the steps before draws what one draws that has seen none, whoever rides, joins or leaves."""
    rng = random.Random(seed)
    kept, riders, some = make(), [], rng.sample(SHAPED, 2)
    for step in range(24):
        if len(riders) > 1 and rng.random() < 0.3:
            left = riders.pop(rng.randrange(len(riders)))
            if rng.random() < 0.5:  # else it only sits out
                kept.forget(left.id)
        if not riders or rng.random() < 0.3:
            riders.insert(rng.randint(0, len(riders)), make_row(rng.choice(some), [1, 2], rng.randrange(99), 0, f"r{step}").request)
        if rng.random() < 0.1:
            rng.shuffle(riders)
        rows = [Row(request, request.known - 1, 1, True) for request in riders]
        logits = make_logits(seed + step, len(rows) + 1, 1.5, 12)
        drawn = kept.sample(logits[:-1].clone(), rows)
        assert drawn == make().sample(logits.clone(), [*rows, make_row(SHAPED[3])])[:-1]  # beside one whose logits are shaped
        for request, outcome in zip(riders, drawn, strict=True):
            assert outcome.token is not None
            if rng.random() < 0.9:  # else it is drawn again, as when a step failed
                request.tokens.append(outcome.token)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_kept_between_steps_changes_no_draw(seed: int) -> None:
    assert_kept_is_fresh(lambda: Sampler((0, 1, 2, 3)), seed)


class StubForm:
    complete = False

    def __init__(self, allowed: list[int], size: int) -> None:
        self._mask = np.zeros(size, dtype=bool)
        self._mask[allowed] = True

    def mask(self) -> np.ndarray:
        return self._mask

    def advance(self, token: int) -> bool:
        return bool(self._mask[token])


@pytest.mark.parametrize("size", [VOCABULARY, VOCABULARY - 100, VOCABULARY + 50])
def test_a_form_leaves_only_what_it_allows(size: int) -> None:
    """Its vocabulary may be smaller or larger than the model's padded one."""
    logits = make_logits(3, 2, 0.1)
    logits[:, 950] = 50.0
    held, free = make_row(SamplingParams(temperature=1.5), name="held"), make_row(SamplingParams(temperature=1.5), name="free")
    held.request.form = StubForm([3, 5, 8], size)
    for seed in range(20):
        held.request.seed = seed
        results = draw(logits, [held, free])
        assert results[0].token in (3, 5, 8) and results[1].token == 950


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_without_numbers_fails_alone(bad: float) -> None:
    logits = make_logits(8, 4)
    rows = [make_row(SamplingParams(temperature=t), seed=place) for place, t in enumerate((0.0, 0.8, 0.8, 0.0))]
    expected = [result.token for result in draw(logits, rows)]
    spoiled = logits.clone()
    if bad == float("-inf"):
        spoiled[1:2] = bad
    else:
        spoiled[1, 77] = bad
    spoiled[3] = float("nan")
    results = draw(spoiled, rows)
    assert [result.token for result in results] == [expected[0], -1, expected[2], -1]
    assert [result.error.code if result.error else None for result in results] == [None, "nan_logits", None, "nan_logits"]


def test_logprobs_are_the_models_own() -> None:
    logits = make_logits(9, 3)
    rows = [
        make_row(SamplingParams(temperature=0.0, logprobs=2)),
        make_row(SamplingParams(temperature=0.9, logprobs=0, repetition_penalty=1.3, logit_bias=((5, 40.0),))),
        make_row(SamplingParams(temperature=0.9)),
    ]
    results = draw(logits, rows)
    own = torch.log_softmax(logits.double(), -1)
    for place in (0, 1):
        assert results[place].logprob.token_id == results[place].token
        assert results[place].logprob.logprob == pytest.approx(float(own[place, results[place].token]), abs=1e-4)
    best = own[0].topk(2)
    assert [token for token, _ in results[0].logprob.top] == best.indices.tolist()
    assert [value for _, value in results[0].logprob.top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert results[1].token == 5 and results[1].logprob.top == ()
    assert results[2].logprob is None


def test_hot_path_does_not_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary settings on ordinary logits never reach the full sort; flat ones do."""
    sizes: list[int] = []
    real = module._draw

    def noted(scaled: torch.Tensor, settings: object, candidates: int) -> torch.Tensor:
        sizes.append(candidates)
        return real(scaled, settings, candidates)

    monkeypatch.setattr(module, "_draw", noted)
    some = [(0.7, 0.95), (1.0, 0.9), (0.0, 1.0), (1.0, 1.0)]
    rows = [make_row(SamplingParams(temperature=t, top_p=p), seed=place) for place, (t, p) in enumerate(some)]
    assert all(result.error is None for result in draw(make_logits(1, 4, 4.0), rows))
    assert set(sizes) == {256}
    sizes.clear()
    draw(make_logits(1, 1, 0.1), [make_row(SamplingParams(temperature=1.0, top_p=0.9))])
    assert max(sizes) >= VOCABULARY


@pytest.mark.parametrize("size", [1, 63, 512, 1000, 1024, 5000])
def test_best_is_the_first_largest(size: int) -> None:
    scores = torch.randint(0, 50, (9, size), generator=torch.Generator().manual_seed(size)).float()
    scores[0, -1] = 99.0
    best, place = module._best(scores)
    assert torch.equal(best, scores.amax(-1))
    assert place.tolist() == [int((scores[row] == best[row]).nonzero()[0]) for row in range(9)]
    scores[3, size // 2] = float("nan")
    assert module._best(scores)[0].isnan().tolist() == [row == 3 for row in range(9)]


def test_sixteen_bit_logits_and_tiny_vocabularies() -> None:
    params = SamplingParams(temperature=0.8, top_p=0.9)
    assert 0 <= draw(make_logits(1, 1, vocabulary=20).bfloat16(), [make_row(params)])[0].token < 20
    assert draw(torch.zeros(1, 1), [make_row(params)])[0].token == 0
    assert Sampler(()).sample(torch.zeros(0, 10), []) == []
