"""The GPU lane with the textbook for its kernels and a stand-in for graphs: answers are the general lane's, graphs the eager step."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.kv.pool import BlockPool
from engine.model.cuda.graphs import DecodeGraphs, sizes_up_to
from engine.model.cuda.lane import PagedLane, make_lane
from engine.model.cuda.readers import Gathered
from engine.model.runner import TorchRunner
from engine.scheduling.plan import Row
from tests.engine.model import tiny
from tests.engine.model.cuda_by_row import CPU, FakeGraph, make_choice
from tests.engine.model.tiny import CONTEXT, Driver, make_model, make_prompts, make_request

SEATS = 16


def make_riding(family: str, capture: Any = None, blocks: int = 200, **choice: Any) -> tuple[TorchRunner, PagedLane]:
    runner = tiny.make_lane(make_model(family), blocks=blocks)
    lane = make_lane(runner._model, runner.store, make_choice(runner, **choice), CONTEXT, SEATS, capture)
    runner.ride(lane)
    return runner, lane


def answers(runner: TorchRunner, seed: int = 3) -> list[list[int]]:
    requests = [make_request(prompt, name=str(number)) for number, prompt in enumerate(make_prompts(6, 5))]
    return Driver(runner, seed).answer(requests, 10, seats=4, chunk=11, preempt=0.1)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "gpt_oss"])
def test_answers_are_the_general_lanes(family: str) -> None:
    """Windows, soft capping, sinks; chunks packed, chunks padded, decode rows gathered by torch, and graphs."""
    expected = answers(tiny.make_lane(make_model(family)))
    packed, lane = make_riding(family, FakeGraph())
    assert lane.builder.packed and answers(packed) == expected
    assert lane.graphs is not None and lane.graphs.replays > 5
    padded, lane = make_riding(family, FakeGraph(), singles=(Gathered,), chunks=())
    assert not lane.builder.packed and lane.graphs is None  # the floor's work grows with the table, so it is not recorded
    assert answers(padded) == expected


# ------------------------------------------------------------------------------------------------- graphs, to the bit


@pytest.fixture
def row_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear layers whose rows do not depend, by a bit, on how many there are; BLAS libraries give no such promise."""

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = (x.unsqueeze(-2) * weight).sum(-1)
        return y if bias is None else y + bias

    monkeypatch.setattr(torch.nn.functional, "linear", linear)


def make_rows(count: int, blocks: int, block_size: int, rng: random.Random, sampling: float = 1.0) -> list[Row]:
    """Decode rows of all lengths; each writes to blocks of its own, and reads anyone's."""
    free = list(range(1, blocks + 1))
    rng.shuffle(free)
    rows = []
    for number in range(count):
        length = rng.randint(1, 30)
        request = make_request([rng.randrange(3, tiny.VOCABULARY) for _ in range(length)], name=str(number))
        request.blocks = [rng.randint(1, blocks) for _ in range((length - 1) // block_size)] + [free.pop()]
        rows.append(Row(request, length - 1, 1, number == 0 or rng.random() < sampling))
    return rows


@pytest.mark.usefixtures("row_exact")
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_graph_is_the_eager_step_at_every_number_of_rows(family: str) -> None:
    runner, lane = make_riding(family, FakeGraph())
    store, rng = runner.store, random.Random(8)
    graphs = lane.graphs
    assert graphs is not None and graphs.recorded == (1, 2, 4, 8, 16)
    with torch.inference_mode():
        for tensor in store.tensors():
            tensor.normal_()
        for count in range(1, SEATS + 1):
            rows = make_rows(count, store.num_blocks, store.block_size, rng, sampling=0.8)
            inputs = lane.builder.build(rows).inputs
            before = [tensor.clone() for tensor in store.tensors()]
            logits, finite = (tensor.clone() for tensor in lane(store, inputs))
            ours = [tensor.clone() for tensor in store.tensors()]
            for tensor, old in zip(store.tensors(), before, strict=True):
                tensor.copy_(old)
            wanted, wanted_finite = lane.eager(store, inputs)
            assert torch.equal(logits, wanted) and torch.equal(finite, wanted_finite)
            assert finite.shape == (count,)
            for left, right in zip(ours, store.tensors(), strict=True):
                assert torch.equal(left[1:], right[1:])  # block 0 takes what the padding writes
                assert left.isfinite().all()
    assert graphs.replays == SEATS + 1  # and one when it was checked


def test_what_has_no_graph_runs_eagerly() -> None:
    runner, lane = make_riding("llama", FakeGraph())
    graphs = lane.graphs
    assert graphs is not None
    before = graphs.replays
    rng = random.Random(1)
    with torch.inference_mode():
        many = lane.builder.build(make_rows(SEATS + 1, 200, 4, rng)).inputs
        assert graphs(runner.store, many) is None and lane(runner.store, many)[0].shape[0] == SEATS + 1
        chunk = make_request(list(range(9)))
        chunk.blocks = [1, 2, 3]
        mixed = lane.builder.build([*make_rows(2, 200, 4, rng), Row(chunk, 0, 9, True)]).inputs
        assert graphs(runner.store, mixed) is None and lane(runner.store, mixed)[0].shape[0] == 3
    assert graphs.replays == before


def test_a_cache_of_another_size_is_recorded_anew() -> None:
    capture = FakeGraph()
    runner, lane = make_riding("llama", capture)
    assert lane.graphs is not None and capture.recorded == 5
    rows = make_rows(3, 100, 4, random.Random(2))
    with torch.inference_mode():
        first = lane(runner.store, lane.builder.build(rows).inputs)[0].clone()
        runner.resize(120)
        assert torch.allclose(lane(runner.store, lane.builder.build(rows).inputs)[0], first)
    assert capture.recorded == 6 and lane.graphs.recorded == (4,)  # what is needed again, when it is needed


def test_a_recording_that_fails_leaves_everything_eager_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    expected = answers(tiny.make_lane(make_model("llama")))
    runner, lane = make_riding("llama", FakeGraph(fail_at=2))
    assert "decode steps of 8 rows stay eager: operation not permitted when stream is capturing" in caplog.text
    assert lane.graphs is not None and lane.graphs.recorded == (16,)
    assert answers(runner) == expected
    assert lane.graphs.replays == 0


def test_a_graph_that_differs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(FakeGraph):
        def __call__(self, function: Any) -> Any:
            replay = super().__call__(function)
            return lambda: (replay()[0] * 1.5, replay()[1])

    expected = answers(tiny.make_lane(make_model("llama")))
    runner, lane = make_riding("llama", Wrong())
    assert lane.graphs is None and "as graphs their logits are off" in caplog.text
    assert answers(runner) == expected


def test_the_check_leaves_an_empty_cache() -> None:
    for capture in (FakeGraph(), None):
        runner, _ = make_riding("gemma3", capture, blocks=2)
        assert all(not tensor[1:].any() for tensor in runner.store.tensors())
        assert BlockPool(runner.store.num_blocks, 4).total == 2


def test_loading_can_be_cancelled_between_graphs_and_tells_how_far_it_is() -> None:
    runner = tiny.make_lane(make_model("llama"))
    heard: list[float] = []
    capture = FakeGraph()
    lane = make_lane(runner._model, runner.store, make_choice(runner), CONTEXT, 4, capture, heard.append, lambda: len(heard) == 2)
    assert heard == [0.2, 0.4]
    assert isinstance(lane.graphs, DecodeGraphs)


def test_sizes() -> None:
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(9) == (1, 2, 4, 8, 16)
    assert sizes_up_to(10**6)[-1] == 256
    assert CPU.type == "cpu"
