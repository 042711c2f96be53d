"""Vectors of prompts are made of transformers' own hidden states, however a prompt was cut, whoever rode along, on every lane."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench.census import VOCABULARY, make_tiny
from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.pooling import body_of, declared_pooling, size_of
from engine.model.runner import TorchRunner, make_runner
from engine.model.trace import record_steps
from engine.types import EngineConfig, FinishedEvent, FinishReason, Pooling, Priority, SamplingParams, TokensEvent
from tests.engine.model.cuda.test_cuda_lane import make_riding
from tests.engine.model.cuda_by_row import FakeGraph
from tests.engine.model.tiny import make_loaded, make_model, make_prompts

PLAIN = SamplingParams(max_tokens=8, temperature=0.0)
BLOCKS, SIZE = 60, 4
SMALL = {"chunk": 5, "token_budget": 9, "adapt_chunk": False}
TINY = ("llama", "qwen3", "mistral", "gemma2", "gpt2")
ODD = ("mamba", "jamba", "bloom", "deepseek_v2")  # a state a request, hybrid, row by row, latent

pytestmark = pytest.mark.filterwarnings("ignore")  # a family's own deprecations are not ours


def asked(pooling: Pooling) -> SamplingParams:
    return SamplingParams(max_tokens=1, temperature=0.0, pooling=pooling)


@functools.cache
def make_case(family: str) -> tuple[TorchRunner, Any]:
    """(runner, an untouched twin of its model)."""
    make = make_model if family in TINY else make_tiny
    loaded = make_loaded(make(family))
    loaded.dtype = "float32"
    return make_runner(loaded, EngineConfig(), BLOCKS, SIZE), make(family)


class Run:
    """A core over a tiny model, with how each request ended."""

    def __init__(self, runner: TorchRunner, blocks: int = BLOCKS, **rules: Any) -> None:
        self.said: set[str] = set()
        self.ends: dict[str, FinishedEvent] = {}
        pool = BlockPool(blocks, runner.store.block_size)
        self.core = Core(runner, pool, EngineConfig(debug_audit=True, **rules), clock=lambda: 0.0, emit=self._note)

    def _note(self, event: Any) -> None:
        if isinstance(event, TokensEvent):
            self.said.add(event.request_id)
        else:
            self.ends[event.request_id] = event

    def submit(self, name: str, prompt: list[int], params: SamplingParams, priority: Priority = Priority.API) -> None:
        self.core.submit(name, prompt, params, chat_id=name, title=name, priority=priority, seed=1)

    def finish(self) -> None:
        while self.core.busy:
            self.core.step()


def check(end: FinishedEvent, twin: Any, prompt: list[int], pooling: Pooling) -> None:
    with torch.inference_mode():
        states = twin.base_model(torch.tensor([prompt])).last_hidden_state[0].double()
    wanted = states.mean(0) if pooling is Pooling.MEAN else states[-1]
    assert end.reason is FinishReason.STOP and end.usage.completion_tokens == 0 and end.usage.prompt_tokens == len(prompt)
    assert len(end.embedding) == size_of(twin) == len(wanted)
    assert end.embedding == pytest.approx(wanted.tolist(), abs=2e-4 * float(states.abs().max()))


@pytest.mark.parametrize("family", [*TINY, *ODD])
def test_alone_and_in_company(family: str) -> None:
    runner, twin = make_case(family)
    prompts = make_prompts(6, seed=3, shortest=1, longest=30)
    prompts = [[token % VOCABULARY for token in prompt] for prompt in (prompts[0][:1], *prompts[1:])]
    for rules in ({"seats": 1}, SMALL):
        run = Run(runner, **rules)
        for number, prompt in enumerate(prompts):
            run.submit(f"plain{number}", prompt[::-1], PLAIN)
            run.submit(f"e{number}", prompt, asked(list(Pooling)[number % 2]))
        run.finish()
        for number, prompt in enumerate(prompts):
            check(run.ends[f"e{number}"], twin, prompt, list(Pooling)[number % 2])
            assert run.ends[f"plain{number}"].embedding == ()
        assert run.said == {f"plain{number}" for number in range(6)}, "a vector is no answer"


def test_a_prompt_that_is_cached_and_one_that_lost_its_seat_half_way() -> None:
    runner, twin = make_case("llama")
    prompt = make_prompts(1, seed=2, shortest=30, longest=30)[0]
    run = Run(runner, chunk=6, token_budget=6, adapt_chunk=False, seats=1)
    run.submit("first", prompt, PLAIN)
    run.finish()
    run.submit("last", prompt, asked(Pooling.LAST))
    run.finish()
    assert run.ends["last"].usage.cached_tokens == len(prompt) - 1, "only the last position's states are needed"
    run.submit("mean", prompt, asked(Pooling.MEAN), Priority.IDLE)
    run.core.step()
    run.core.step()
    assert run.core.requests["mean"].pooled_len == 12
    run.submit("urgent", prompt[:9], PLAIN, Priority.FOREGROUND)
    run.finish()
    assert run.core.totals.preemptions >= 1 and run.ends["mean"].usage.cached_tokens == 0
    check(run.ends["last"], twin, prompt, Pooling.LAST)
    check(run.ends["mean"], twin, prompt, Pooling.MEAN)


def test_a_recorded_lane_is_left_for_the_steps_that_are_listened_to_and_for_no_others() -> None:
    _, twin = make_case("llama")
    loaded = make_loaded(make_model("llama"))
    runner = make_runner(loaded, EngineConfig(), BLOCKS, SIZE)
    runner.fast = fast = record_steps(loaded.torch_model, runner.store.geometry, SIZE)
    run = Run(runner)
    run.submit("plain", make_prompts(1, seed=5, shortest=9, longest=9)[0], PLAIN)
    run.finish()
    assert fast.eager_steps == 0
    prompt = make_prompts(1, seed=6, shortest=20, longest=20)[0]
    run.submit("mean", prompt, asked(Pooling.MEAN))
    run.finish()
    assert fast.eager_steps == 1
    check(run.ends["mean"], twin, prompt, Pooling.MEAN)
    assert not body_of(loaded.torch_model)._forward_hooks, "nobody listens afterwards"


@pytest.mark.parametrize("pooling", list(Pooling))
def test_on_the_lane_of_a_gpu_graphs_are_left_in_the_same_way(pooling: Pooling) -> None:
    """On the CPU: the lane with the textbook's readers, and calls in place of graphs."""
    _, twin = make_case("llama")
    runner, lane = make_riding("llama", FakeGraph())
    assert lane.graphs is not None
    before = lane.graphs.replays
    run = Run(runner, blocks=200)
    prompts = make_prompts(3, seed=6, shortest=1, longest=20)
    prompts[0] = prompts[0][:1]  # which is planned like a decode
    for number, prompt in enumerate(prompts):
        run.submit(f"e{number}", prompt, asked(pooling))
        run.finish()
        check(run.ends[f"e{number}"], twin, prompt, pooling)
    assert lane.graphs.replays == before
    run.submit("plain", prompts[1], PLAIN)
    run.finish()
    assert lane.graphs.replays > before


def test_a_step_that_fails_counts_no_position_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, twin = make_case("llama")
    rng, forward = random.Random(1), runner.forward
    failed = []

    def flaky(rows: Any) -> Any:
        results = forward(rows)
        if len(rows) > 1 and rng.random() < 0.5:  # after all was computed; the core halves the step and computes it again
            failed.append(len(rows))
            raise RuntimeError("made-up fault")
        return results

    monkeypatch.setattr(runner, "forward", flaky)
    prompts = make_prompts(5, seed=8, shortest=12, longest=30)
    run = Run(runner, **SMALL)
    for number, prompt in enumerate(prompts):
        run.submit(f"e{number}", prompt, asked(Pooling.MEAN))
        run.submit(f"plain{number}", prompt, PLAIN)
    run.finish()
    assert failed
    for number, prompt in enumerate(prompts):
        check(run.ends[f"e{number}"], twin, prompt, Pooling.MEAN)


def test_one_whose_states_are_not_numbers_ends_alone() -> None:
    loaded = make_loaded(make_model("llama"))
    runner = make_runner(loaded, EngineConfig(), BLOCKS, SIZE)
    loaded.torch_model.get_input_embeddings().weight[7] = float("nan")
    run = Run(runner)
    run.submit("broken", [3, 7, 5], asked(Pooling.MEAN))
    run.submit("sound", [3, 4, 5], asked(Pooling.MEAN))
    run.finish()
    assert run.ends["broken"].error is not None and run.ends["broken"].error.code == "nan_logits"
    check(run.ends["sound"], make_case("llama")[1], [3, 4, 5], Pooling.MEAN)


@pytest.mark.parametrize(
    ("modules", "settings", "wanted"),
    [
        (["Transformer", "Pooling", "Normalize"], {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, Pooling.MEAN),
        (["Transformer", "Pooling"], {"pooling_mode_lasttoken": True}, Pooling.LAST),
        (["Transformer", "Pooling"], {"pooling_mode": "lasttoken"}, Pooling.LAST),
        (["Transformer", "Pooling"], {"pooling_mode_cls_token": True}, None),
        (["Transformer", "Pooling"], {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, None),
        (["Transformer", "Pooling", "Dense"], {"pooling_mode_mean_tokens": True}, None),
        ("no list", {}, None),
        (None, None, Pooling.MEAN),
    ],
)
def test_what_a_model_s_files_say(tmp_path: Path, modules: Any, settings: Any, wanted: Pooling | None) -> None:
    if modules is not None:
        named = [{"type": f"sentence_transformers.models.{kind}"} for kind in modules] if isinstance(modules, list) else modules
        (tmp_path / "modules.json").write_text(json.dumps(named), "utf-8")
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(settings), "utf-8")
    assert declared_pooling(tmp_path) is wanted


def test_a_model_without_a_body_gives_none() -> None:
    model = make_model("llama")
    assert size_of(model) == 64 and size_of(model.model) == 0
