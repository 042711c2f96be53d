"""The runner: one row's fault stays its own, the pool can grow, and what cannot ride is refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

from engine.model.probe import probe
from engine.model.runner import make_runner
from engine.model.verify import check_lane
from engine.scheduling.plan import Row
from engine.types import EngineConfig, ModelError, SamplingParams
from tests.engine.model.tiny import (
    CONTEXT,
    Driver,
    make_lane,
    make_loaded,
    make_model,
    make_prompts,
    make_request,
    reference_answer,
)

POISON = 7  # a token whose embedding is not a number


def make_poisoned_lane() -> Any:
    model = make_model("llama")
    lane = make_lane(model)
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON] = float("nan")
    return lane


def test_not_a_number_ends_its_request_alone() -> None:
    twin, lane = make_model("llama"), make_poisoned_lane()
    driver = Driver(lane)
    prompts = [[token for token in prompt if token != POISON] for prompt in make_prompts(3, 1, 5, 20)]
    healthy = [make_request(prompt, name=str(n)) for n, prompt in enumerate(prompts)]
    bad = make_request([9, POISON, 11, 12, 13, 14], name="bad")
    results = driver.step([(request, request.remaining) for request in (*healthy, bad)])
    assert [result.error is None for result in results if result] == [True, True, True, False]
    assert results[3].error.code == "nan_logits" and bad.output == []
    used = bad.blocks
    driver.drop(bad)
    late = make_request(make_prompts(1, 2, 9, 9)[0], name="late")
    late.blocks = used + [driver.free.pop() for _ in range(4)]
    late_prompt = list(late.tokens)
    for _ in range(6):
        driver.step([(request, request.remaining) for request in (*healthy, late)])
    for request, prompt in zip((*healthy, late), (*prompts, late_prompt), strict=True):
        assert request.output == reference_answer(twin, prompt, len(request.output))


def test_not_a_number_is_told_before_the_prompt_is_done() -> None:
    """A chunk that does not sample reports it at once, and leaves no trace in the cache."""
    lane = make_poisoned_lane()
    bad, good = make_request([3, POISON, 5, 6, 8, 9, 10, 11], name="bad"), make_request([3, 4, 5], name="good")
    bad.blocks, good.blocks = [1, 2], [3]
    results = lane.forward([Row(bad, 0, 4, False), Row(good, 0, 2, False)])
    assert results[0] is not None and results[0].error is not None and results[1] is None
    assert all(tensor.isfinite().all() for tensor in lane.store.tensors())
    again = lane.forward([Row(bad, 0, 4, False)])
    assert again[0] is not None and again[0].error is not None


def test_rows_can_be_run_again_and_in_halves() -> None:
    lane = make_lane(make_model("gemma3"))
    requests = [make_request(prompt, name=str(n)) for n, prompt in enumerate(make_prompts(4, 9, 6, 30))]
    for number, request in enumerate(requests):
        request.blocks = list(range(1 + 10 * number, 11 + 10 * number))
    rows = [Row(request, 0, request.known, True) for request in requests]
    whole = lane.forward(rows)
    assert lane.forward(rows) == whole
    assert lane.forward(rows[:2]) + lane.forward(rows[2:]) == whole


def test_a_fault_in_the_model_changes_nothing() -> None:
    lane = make_lane(make_model("llama"))
    prompt = make_prompts(1, 4, 12, 12)[0]
    request = make_request(prompt)
    request.blocks = [1, 2, 3]
    expected = lane.forward([Row(request, 0, 12, True)])
    broken = make_request([3, 10**6], name="broken")  # outside the vocabulary: the embedding raises
    broken.blocks = [4]
    with pytest.raises(IndexError):
        lane.forward([Row(request, 0, 12, True), Row(broken, 0, 2, True)])
    assert lane.forward([Row(request, 0, 12, True)]) == expected


def test_the_pool_grows_under_running_requests() -> None:
    twin, lane = make_model("llama"), make_lane(make_model("llama"), blocks=8)
    driver = Driver(lane)
    prompt = make_prompts(1, 3, 20, 20)[0]
    request = make_request(prompt)
    driver.step([(request, 20)])
    lane.resize(40)
    driver.free += range(9, 41)
    assert all(tensor.shape[0] == 41 for tensor in lane.store.tensors())
    while request.output_len < 20:
        driver.step([(request, 1)])
    assert request.output == reference_answer(twin, prompt, 20)


def test_figures() -> None:
    lane = make_lane(make_model("llama"), block_size=8)
    assert lane.bytes_per_block == 3 * 2 * (16 + 16) * 4 * 8 and lane.context == CONTEXT and lane.lane == "general"
    model = make_model("llama")
    assert make_runner(make_loaded(model), EngineConfig(context=100), 4, 8).context == 100


def test_heads_of_several_sizes() -> None:
    """Gemma 4: wider heads in full layers, and layers that read the keys of earlier ones."""
    geometry = make_lane(make_model("gemma4")).store.geometry
    assert {shape.key_dim for shape in geometry.layers.values()} == {16, 32}
    assert len(geometry.readers) == 6 and len(geometry.layers) == 4 and geometry.windows == (0, 9)


SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("Rwkv", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}, "attention interface"),
        ("MiniMax", {**SMALL, "num_key_value_heads": 2, "num_local_experts": 2, "head_dim": 8}, "get_linear_cache"),
    ],
)
def test_what_cannot_ride_is_refused_by_name(family: str, settings: dict[str, Any], reason: str) -> None:
    cls = getattr(transformers, f"{family}ForCausalLM", None) or getattr(transformers, f"{family}LMHeadModel")
    model = cls(getattr(transformers, f"{family}Config")(**settings)).eval()
    with pytest.raises(ModelError, match=f"{cls.__name__}.*{reason}") as caught:
        make_runner(make_loaded(model), EngineConfig(), 8, 4)
    assert caught.value.code == "model_cannot_ride"


def test_chunked_attention_rides_alone_beyond_one_chunk() -> None:
    config = transformers.Llama4TextConfig(
        **SMALL, num_key_value_heads=2, head_dim=8, attention_chunk_size=32, intermediate_size_mlp=32, num_local_experts=2, pad_token_id=0
    )
    model = transformers.Llama4ForCausalLM(copy.deepcopy(config)).eval()
    assert make_runner(make_loaded(model, context=32), EngineConfig(), 8, 4).lane == "general"
    model = transformers.Llama4ForCausalLM(config).eval()
    assert make_runner(make_loaded(model, context=64), EngineConfig(), 8, 4).lane == "row by row"


def test_a_model_that_ignores_positions_is_caught() -> None:
    """The probe cannot see it; the check against the model's own attention does."""
    model = make_model("llama")
    geometry = probe(model, CONTEXT)
    assert check_lane(model, geometry) < 1e-4
    inner = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: inner(x, torch.arange(position_ids.shape[1])[None])
    with pytest.raises(ModelError) as caught:
        check_lane(model, geometry)
    assert caught.value.code == "lane_mismatch"
    with pytest.raises(ModelError):  # rounding's larger allowance is far below an error of method
        check_lane(model, geometry, "16-bit")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss"])
def test_sixteen_bit_models_ride(dtype: torch.dtype, family: str) -> None:
    lane = make_lane(make_model(family).to(dtype))
    answers = Driver(lane, 5).answer([make_request(p, name=str(n)) for n, p in enumerate(make_prompts(6, 3))], 6, seats=3, chunk=7)
    assert all(len(answer) == 6 for answer in answers)


def test_seeded_answers_do_not_depend_on_company() -> None:
    lane = make_lane(make_model("llama"))
    params = SamplingParams(temperature=0.9, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.3)
    prompts = make_prompts(10, 12)

    def requests() -> list[Any]:
        return [make_request(prompt, params, seed=n, name=str(n)) for n, prompt in enumerate(prompts)]

    alone = Driver(lane, 1).answer(requests(), 12)
    assert Driver(lane, 2).answer(requests(), 12, seats=6, chunk=9, preempt=0.1) == alone
    assert len({tuple(answer) for answer in alone}) == len(alone)
