"""Keys and values in eight bits: what is lost, that it hangs on no company, and that blocks are shared, swapped and counted as ever."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.bench.census import CONTEXT, make_tiny
from engine.bench.census import make_prompts as make_census_prompts
from engine.core import Core
from engine.kv.copies import Fork
from engine.kv.pool import BlockPool
from engine.model import eight
from engine.model.checked import CheckedRunner
from engine.model.demand import demand
from engine.model.geometry import LayerShape
from engine.model.memory import make_plan
from engine.model.runner import TorchRunner, make_runner, prepare
from engine.model.shape import folder_shape
from engine.model.trace import record_steps
from engine.types import EngineConfig, EngineError, Event, ModelError, Priority, SamplingParams, TokensEvent
from tests.engine.model.test_trace import ALL, BLOCK, assert_same, make_packed, make_rows
from tests.engine.model.tiny import Driver, make_lane, make_loaded, make_model, make_prompts, make_request

LENGTH = 8
EIGHT = torch.zeros(0, dtype=torch.int8)
PACKED = ["llama", "gemma2", "gpt_oss", "gpt2", "mistral"]
ODD = ["deepseek_v3", "bloom", "jamba"]  # latent, row by row, hybrid

pytestmark = pytest.mark.filterwarnings("ignore")  # a family's own deprecations are not ours


@functools.cache
def make_case(family: str) -> tuple[TorchRunner, list[list[int]]]:
    if family in PACKED:
        return make_lane(make_model(family), kv_class="8-bit"), make_prompts(8, seed=len(family), longest=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = SimpleNamespace(codec=SimpleNamespace(eos_ids=frozenset()), context=CONTEXT, torch_model=make_tiny(family), dtype="float32")
        return make_runner(made, EngineConfig(kv_class="8-bit"), 120, 4), make_census_prompts(6, seed=7)


def make_requests(prompts: list[list[int]]) -> list[Any]:
    return [make_request(prompt, name=f"r{number}") for number, prompt in enumerate(prompts)]


class TestRows:
    def test_a_row_comes_back_to_half_a_step(self) -> None:
        rows = torch.randn(50, 3, 16, generator=torch.Generator().manual_seed(1)) * torch.logspace(-4, 4, 50)[:, None, None]
        kept = eight.packed(rows, EIGHT)
        assert kept.shape == (50, 3, eight.width(16)) and kept.dtype == torch.int8
        step = rows.abs().amax(-1, keepdim=True) / 127 * 2 ** (1 / 8)
        assert bool(((eight.plain(kept, torch.float32) - rows).abs() <= 0.501 * step).all())
        assert torch.equal(eight.packed(rows[7:9], kept), kept[7:9])  # of its own numbers alone
        assert not torch.equal(eight.plain(kept, torch.float32), rows)

    def test_the_ends_of_the_table(self) -> None:
        rows = torch.tensor([[0.0, 0.0], [1e-9, -1e-9], [1e-5, 3e-6], [65504.0, -1.0], [1e30, -1e30]])
        back = eight.plain(eight.packed(rows, EIGHT), torch.float32)
        assert torch.equal(back[:2], torch.zeros(2, 2))
        assert torch.allclose(back[2], rows[2], atol=1.2e-7) and abs(float(back[3, 0]) / 65504 - 1) < 0.01
        assert bool((back[4] * rows[4] > 1e34).all())  # as large as can be, and of the right sign

    def test_whatever_is_kept_is_a_number(self) -> None:
        rows = torch.tensor([[float("inf"), 1.0], [float("nan"), 1.0], [float("-inf"), float("nan")]])
        assert bool(eight.plain(eight.packed(rows, EIGHT), torch.float32).isfinite().all())
        everything = torch.arange(-128, 128, dtype=torch.int8)[:, None].expand(-1, 5)
        assert bool(eight.plain(everything, torch.float16).isfinite().logical_or(everything[:, -1:] > 90).all())

    def test_other_dtypes_are_kept_as_they_are(self) -> None:
        rows = torch.randn(4, 6)
        kept = eight.packed(rows, torch.zeros(0, dtype=torch.bfloat16))
        assert kept.dtype == torch.bfloat16 and eight.plain(kept, torch.float32) is kept

    def test_an_unknown_class_is_refused(self) -> None:
        with pytest.raises(EngineError, match="'3-bit'.*auto, 8-bit"):
            EngineConfig(kv_class="3-bit").check()


@pytest.mark.parametrize("family", [*PACKED, *ODD])
def test_an_answer_is_the_same_alone_in_company_chunked_and_recomputed(family: str) -> None:
    runner, prompts = make_case(family)
    tensors = runner.store.tensors()
    assert tensors and all(tensor.dtype == torch.int8 for tensor in tensors)
    assert runner.store.geometry.kv_class == "8-bit"
    alone = Driver(runner, 1).answer(make_requests(prompts), LENGTH)
    assert len({tuple(answer) for answer in alone}) > 1
    assert Driver(runner, 2).answer(make_requests(prompts), LENGTH, seats=5, chunk=9, preempt=0.15) == alone


def test_the_load_says_what_it_changes_and_refuses_too_much(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.INFO, "engine.model.runner"):
        make_lane(make_model("llama"), kv_class="8-bit")
    assert "keys and values in 8 bits change the logits by 0.0" in caplog.text
    monkeypatch.setattr("engine.model.eight.MOST", 3.0)  # of seven steps instead of 255
    with pytest.raises(ModelError, match="change this model's logits by") as caught:
        make_lane(make_model("llama"), kv_class="8-bit")
    assert caught.value.code == "cache_too_coarse"


@pytest.mark.parametrize("tier", [0, 200])
def test_under_pressure_forks_and_swaps_change_no_answer(tier: int) -> None:
    """Several answers to one prompt share blocks until they part; what gives way to the second tier comes back; every byte is checked."""
    told: dict[str, list[int]] = {}

    def note(event: Event) -> None:
        if isinstance(event, TokensEvent):
            told.setdefault(event.request_id, []).extend(event.token_ids)

    runner = make_lane(make_model("llama"), blocks=24, kv_class="8-bit")
    if tier:
        runner.open_tier(tier, None)
    copied: list[type] = []
    copy, ticks = runner.copy, iter(range(1 << 20))
    runner.copy = lambda moves: (copied.extend(map(type, moves)), copy(moves))[1]  # type: ignore[method-assign]
    config = EngineConfig(seats=3, token_budget=40, chunk=12, debug_audit=True, tier_tokens=4 * tier)
    core = Core(CheckedRunner(runner), BlockPool(24, 4), config, clock=lambda: float(next(ticks)), emit=note)
    params = SamplingParams(max_tokens=LENGTH, temperature=0.0, ignore_eos=True)
    prompts = make_prompts(8, seed=4, shortest=6, longest=30)
    for turn in ("first", "again"):
        for number, prompt in enumerate(prompts):
            for twin in range(2):
                core.submit(f"{turn}{number}.{twin}", prompt, params, chat_id=str(number), title="", priority=Priority.API, seed=twin)
        while core.busy:
            core.step()
    for number in range(len(prompts)):
        assert len({tuple(told[f"{turn}{number}.{twin}"]) for turn in ("first", "again") for twin in range(2)}) == 1
    assert Fork in copied
    if tier:
        assert core.tier is not None and core.tier.restored > 0
    core.resize(12)
    core.submit("small", prompts[0], params, chat_id="small", title="", priority=Priority.API, seed=0)
    while core.busy:
        core.step()
    assert told["small"] == told["first0.0"]


def test_a_recorded_step_gives_the_eager_steps_bits() -> None:
    model, geometry = make_packed("llama")
    fast = record_steps(model, geometry.in_eight_bits(), BLOCK)
    assert fast.forms == set(ALL)
    rng = random.Random(5)
    for singles, chunks in ((1, ()), (7, ()), (0, (9,)), (3, (8,)), (4, (3, 2, 70))):
        assert_same(fast, model, geometry.in_eight_bits(), make_rows(rng, singles, chunks, 90), 90)


class TestBytes:
    def test_the_plan_counts_what_is_kept_and_one_layer_as_numbers(self) -> None:
        loaded = make_loaded(make_model("llama"))
        config = EngineConfig(kv_class="8-bit", kv_tokens=64)
        kept = 3 * 2 * 2 * (16 + 1)  # layers, kv heads, key and value, numbers and step
        plan = make_plan(loaded, config, free=2 << 30)
        assert (plan.num_blocks, plan.block_size, plan.bytes_per_block) == (2, 32, 32 * (kept + 2 * 2 * 16 * 4))
        assert prepare(loaded, config).bytes_per_position() == kept
        store = make_lane(make_model("llama"), blocks=9, kv_class="8-bit").store
        assert sum(tensor.nbytes for tensor in store.tensors()) == 10 * store.bytes_per_block == 10 * 4 * kept
        assert store.kv_bytes == 9 * 4 * kept

    def test_the_estimate_before_loading_counts_the_same(self) -> None:
        loaded = make_loaded(make_model("llama"))
        plan = make_plan(loaded, EngineConfig(kv_class="8-bit", kv_tokens=64), free=2 << 30)
        shape = folder_shape(SimpleNamespace(tensors={}, model_type="llama", config={}, weight_bytes=0), loaded.torch_model.config)  # type: ignore[arg-type]
        settings: dict[str, Any] = {"seats": 1, "context": 64, "block_size": 32, "token_budget": 64, "eight": True}
        said = demand(shape, device="cpu", precision="f32", **settings)
        assert said.kv == plan.num_blocks * plan.bytes_per_block
        in_place = demand(shape, device="cpu", precision="8-bit", tiles=True, **settings)
        assert in_place.kv == plan.num_blocks * plan.block_size * prepare(loaded, EngineConfig()).bytes_per_position()

    def test_sixteen_bits_take_almost_twice_as_much(self) -> None:
        shape = LayerShape(3, 64, 64, torch.bfloat16, torch.device("cpu"))
        assert (
            LayerShape(3, 64, 64, torch.bfloat16, torch.device("cpu"), eight=True).bytes_per_position() < 0.51 * shape.bytes_per_position()
        )
