"""A model over several devices: where its layers go, that each keeps its cache beside it, and that answers stay what they are.

No machine of ours has two GPUs. What is shown instead: answers are exact through the hooks that move a step from device to device, and
on two devices without numbers (tensors that know their place and shape alone) no operation of a step ever meets tensors of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.model import memory, runner
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.devices import place, spread
from engine.model.memory import make_plan
from engine.model.probe import probe
from engine.model.rope import freeze_rope
from engine.model.step import run_step
from engine.scheduling.plan import Row
from engine.types import EngineConfig, ModelError
from tests.engine.model.tiny import CONTEXT, Driver, make_lane, make_loaded, make_model, make_prompts, make_request, reference_answer

CARDS = ["cuda:0", "cuda:1"]
BARE = ["meta", "cpu"]  # under a FakeTensorMode neither has numbers
GB = 1 << 30


@pytest.mark.parametrize(
    ("layers", "rest", "room", "expected"),
    [
        ([10] * 4, 0, [100, 100], [0, 0, 1, 1]),
        ([10] * 4, 40, [100, 100], [1, 1, 1, 1]),
        ([10] * 6, 0, [200, 100], [0, 0, 0, 0, 1, 1]),
        ([10] * 6, 0, [100, 100, 100], [0, 0, 1, 1, 2, 2]),
        ([10] * 2, 0, [0, 100], [1, 1]),
    ],
)
def test_layers_are_spread_by_room(layers: list[int], rest: int, room: list[int], expected: list[int]) -> None:
    assert spread(layers, rest, room) == expected


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "mixtral"])
def test_every_tensor_has_a_place_and_what_is_no_layer_lies_first(family: str) -> None:
    model = make_model(family)
    found = place(model, CARDS, [GB, GB], 4)
    for name, _ in [*model.named_parameters(), *model.named_buffers()]:
        holders = [path for path in found if name == path or name.startswith(path + ".")]
        assert len(holders) == 1, (name, holders)
    layers = {path: device for path, device in found.items() if path.rpartition(".")[2].isdigit()}
    assert list(layers.values()) == sorted(layers.values()) and set(layers.values()) == set(CARDS)
    assert {device for path, device in found.items() if path not in layers} == {"cuda:0"}


def test_what_does_not_fit_is_told_with_the_numbers() -> None:
    with pytest.raises(ModelError, match=r"needs about .* GB on cuda:0, where 3\.2 GB are free") as caught:
        place(make_model("llama"), CARDS, [3 * GB, GB // 2], 4 * 10**4)
    assert caught.value.code == "out_of_memory"
    with pytest.raises(ModelError, match="not a row of layers"):
        place(torch.nn.Linear(2, 2), CARDS, [GB, GB], 4)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_answers_are_the_same_through_the_hooks(family: str) -> None:
    model, prompts = make_model(family), make_prompts(6, seed=2, longest=30)
    expected = [reference_answer(model, prompt, 8) for prompt in prompts]
    everywhere = dict.fromkeys(place(model, CARDS, [GB, GB], 4), "cpu")
    lane = make_lane(dispatch_model(model, device_map=everywhere, main_device="cpu", force_hooks=True))
    assert any(hasattr(module, "_hf_hook") for module in model.modules())
    requests = [make_request(prompt, name=str(number)) for number, prompt in enumerate(prompts)]
    assert Driver(lane, 1).answer(requests, 8, seats=4, chunk=9) == expected


def split(model: Any) -> Any:
    """The model on two devices without numbers, under the mode that is open."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    for path, device in place(model, BARE, [GB, GB], 4).items():
        module = model.get_submodule(path)
        for inner in module.modules():
            for tensors in (inner._parameters, inner._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        moved = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                        tensors[name] = torch.nn.Parameter(moved, False) if tensors is inner._parameters else moved
        add_hook_to_module(module, AlignDevicesHook(execution_device=torch.device(device)))
    return model


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral", "qwen3"])
def test_no_operation_of_a_step_meets_tensors_of_two_devices(family: str) -> None:
    model = make_model(family)
    model.config.tie_word_embeddings = False
    freeze_rope(model, CONTEXT)
    geometry = probe(model, CONTEXT)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode(False), torch.no_grad():
        model = split(model)
        layers = list(geometry.layers)
        shapes = {
            layer: replace(geometry.layers[layer], device=next(model.get_submodule(f"model.layers.{layer}").parameters()).device)
            for layer in layers
        }
        geometry = replace(geometry, layers=shapes)
        assert [str(device) for device in geometry.devices] == BARE
        store = KVStore(geometry, 30, 4)
        assert [str(store.keys[layer].device) for layer in layers] == [str(shapes[layer].device) for layer in layers]
        requests = [make_request(list(range(3, 20)), name=str(number)) for number in range(3)]
        for number, request in enumerate(requests):
            request.blocks = list(range(1 + 8 * number, 9 + 8 * number))
        rows = [Row(requests[0], 16, 1, True), Row(requests[1], 0, 9, False), Row(requests[2], 4, 13, True)]
        batch = BatchBuilder(4, geometry.windows, torch.device("cpu"), by_row=geometry.by_row).build(rows)
        logits, finite = run_step(model, geometry, store.keys, store.values, batch.inputs.to(torch.device(BARE[0])))
        assert str(logits.device) == BARE[0] and logits.shape[0] == 2
        assert str(finite.device) == BARE[1] and finite.shape == (23,)
        with pytest.raises(RuntimeError, match="at least two devices"):
            store.keys[layers[0]] + store.keys[layers[-1]]  # or the above would show nothing


def test_the_pool_is_as_large_as_the_device_with_least_room_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    loaded, whole = make_loaded(model), make_plan(make_loaded(model), EngineConfig(), free=4 * GB)
    geometry = runner.prepare(loaded, EngineConfig())
    shapes = {layer: replace(shape, device=torch.device("cuda:1" if layer else "cuda:0")) for layer, shape in geometry.layers.items()}
    monkeypatch.setitem(runner._GEOMETRIES, model, replace(geometry, layers=shapes))
    free = {"cuda:0": 3 * GB, "cuda:1": 4 * GB}
    monkeypatch.setattr(memory, "free_bytes", lambda device: free[str(device)])
    config = EngineConfig(block_size=32)
    plan = make_plan(loaded, config)
    per_layer = whole.bytes_per_block // 3
    assert plan.bytes_per_block == 2 * per_layer, "two of the three layers lie on the second"
    assert plan.most_blocks == (free["cuda:1"] - plan.workspace - plan.reserve) // (2 * per_layer) - 1
    assert runner.prepare(loaded, config).bytes_per_position() * plan.block_size == whole.bytes_per_block
