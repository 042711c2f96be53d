"""The step function is a function of its tensors: running it again changes nothing, and one trace serves every size."""

from __future__ import annotations

import pytest
import torch

from engine.model.batch import BatchBuilder
from engine.model.step import run_step, step_function
from engine.scheduling.plan import Row
from tests.engine.model.tiny import make_lane, make_model, make_prompts, make_request

CPU = torch.device("cpu")


def make_steps(seed: int, requests: int, chunk: int, block_size: int = 4) -> list[list[Row]]:
    """A few steps over one set of requests: whole prompts, then decodes (of made-up tokens) beside a chunked newcomer."""
    prompts = make_prompts(requests + 1, seed, shortest=12, longest=40)
    states = [make_request(prompt, name=str(number)) for number, prompt in enumerate(prompts)]
    for number, state in enumerate(states):
        state.blocks = list(range(1 + 15 * number, 16 + 15 * number))
    newcomer = states.pop()
    steps = [[Row(state, 0, len(state.tokens) - 3, False) for state in states]]
    done = 0
    for back in (3, 2, 1):
        rows = [Row(state, len(state.tokens) - back, 1, True) for state in states]
        if done + chunk <= len(newcomer.tokens):
            rows.append(Row(newcomer, done, chunk, False))
            done += chunk
        steps.append(rows)
    return steps


def test_running_a_step_again_writes_the_same() -> None:
    lane = make_lane(make_model("gemma3"))
    store, builder = lane.store, BatchBuilder(4, lane.store.geometry.windows, CPU)
    with torch.inference_mode():
        for rows in make_steps(1, 4, 5):
            inputs = builder.build(rows).inputs
            first = run_step(lane._model, store.geometry, store.keys, store.values, inputs)[0]
            before = [tensor.clone() for tensor in store.tensors()]
            again = run_step(lane._model, store.geometry, store.keys, store.values, inputs)[0]
            assert torch.equal(first, again)
            assert all(torch.equal(a, b) for a, b in zip(before, store.tensors(), strict=True))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "gemma2"])
def test_one_trace_a_mode_serves_every_size(family: str) -> None:
    """Traced at the first step of its mode, run on others with more requests and other lengths: bit-equal to running eagerly."""
    lane = make_lane(make_model(family))
    store, builder = lane.store, BatchBuilder(4, lane.store.geometry.windows, CPU, join=30)
    traced: dict[object, torch.jit.ScriptFunction] = {}
    served = set()
    with torch.no_grad():
        for seed, requests, chunk in ((2, 2, 5), (3, 7, 4), (4, 5, 9), (5, 1, 3), (6, 6, 6)):
            for rows in make_steps(seed, requests, chunk):
                inputs = builder.build(rows).inputs
                expected = run_step(lane._model, store.geometry, store.keys, store.values, inputs)
                if inputs.mode not in traced:
                    step = step_function(lane._model, store, inputs)
                    traced[inputs.mode] = torch.jit.trace(step, (*store.tensors(), *inputs.tensors()), check_trace=False)
                    continue
                found = traced[inputs.mode](*store.tensors(), *inputs.tensors())
                assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
                served.add(inputs.mode)
    assert len(served) >= 3
