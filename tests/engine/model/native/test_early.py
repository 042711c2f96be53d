"""What follows the last attention is done for the rows that sample, and for no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.cache import KVStore
from engine.model.native import early, library
from engine.model.native.early import choose_early
from engine.scheduling.plan import Row
from tests.engine.model.native.test_tile_lane import SIZE, request
from tests.engine.model.native.test_whole import BLOCKS, WHOLE, recorded

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))


def kinds(graph: Any) -> list[str]:
    return [node.kind() for node in graph.nodes()]


@pytest.mark.parametrize("family", WHOLE)
def test_the_choice_stands_behind_the_last_attention(family: str) -> None:
    made = recorded(family)
    assert made is not None
    graph = made[1].graph()
    before = kinds(graph)
    choose_early(graph)
    after = kinds(graph)
    last = max(place for place, kind in enumerate(after) if kind == "omnibus::attend")
    first = after.index("aten::index")
    assert last < first and not {"omnibus::linear", "omnibus::gated"} & set(after[last:first])
    assert after.count("aten::index") == before.count("aten::index") + 1  # of what attention gave, and of what goes past it
    assert len(list(next(graph.outputs()).node().inputs())) == 2
    torch._C._jit_pass_lint(graph)


def test_a_step_in_which_nobody_samples_writes_the_pool_and_gives_no_logits() -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    rows = [Row(request("one", [(7 * place + 3) % 100 for place in range(70)], [5, 2, 9]), 0, 60, False)]
    inputs = lane.builder.build(rows).inputs
    ours, theirs = KVStore(geometry, BLOCKS, SIZE), KVStore(geometry, BLOCKS, SIZE)
    with torch.inference_mode():
        logits, finite = lane(ours, inputs)
        wanted = recording.as_recorded(*theirs.tensors(), *inputs.tensors())
    assert logits.shape == wanted[0].shape and logits.shape[0] == 0
    assert torch.equal(finite, wanted[1])
    assert all(torch.equal(mine, their) for mine, their in zip(ours.tensors(), theirs.tensors(), strict=True))


def test_who_wants_hidden_states_gets_those_of_all_rows() -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    rows = [Row(request("one", [4] * 40, [3, 1]), 0, 40, True)]
    store = KVStore(geometry, BLOCKS, SIZE)
    inputs = lane.builder.build(rows).inputs
    with torch.inference_mode():
        told = lane.hear(store, inputs)
        logits, finite = lane(store, inputs)
    assert told is not None and told[2].shape[:2] == (1, 40)
    assert torch.equal(told[0], logits) and torch.equal(told[1], finite)


def test_a_graph_without_a_choice_or_with_nothing_behind_it_stays_as_it_is() -> None:
    def last(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sin(x)[:, places], x

    def none(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sin(x), places

    for function in (last, none):
        graph = torch.jit.trace(function, (torch.randn(1, 5, 4), torch.tensor([2]))).graph
        before = str(graph)
        choose_early(graph)
        assert str(graph) == before


def test_rows_that_somebody_else_reads_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(early._BY_ROWS, "aten::relu", (0,))

    def function(x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x + y
        return torch.ops.aten.index(hidden.relu() + hidden, [None, places]), hidden.sum()

    graph = torch.jit.trace(function, (torch.randn(1, 5, 4), torch.randn(1, 5, 4), torch.tensor([2]))).graph
    choice = next(node for node in graph.nodes() if node.kind() == "aten::index")
    tail = early._tail(graph, choice, next(graph.outputs()).node())
    assert [node.kind() for node in tail] == ["aten::relu", "aten::add"]  # not the sum that `hidden.sum()` reads
