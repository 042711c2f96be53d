"""Whole models on our own kernels: against the general lane, recorded against eager, alone against in company."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.linear import pack_linears
from engine.model.native import library
from engine.model.native.company import same_in_company, torch_multiplies
from engine.model.native.lane import TileLane, make_tile_lane, tile_geometry
from engine.model.norms import quicken_norms
from engine.model.probe import probe
from engine.model.rope import freeze_rope
from engine.model.runner import TorchRunner
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import Priority, SamplingParams
from tests.engine.model.tiny import FAMILIES, make_model

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

CONTEXT, SIZE = 256, 32


def request(name: str, tokens: list[int], blocks: list[int]) -> RequestState:
    state = RequestState(name, name, name, SamplingParams(), Priority.IDLE, 0, tokens, 0, len(tokens), TimeLedger(0.0))
    state.blocks = blocks
    return state


def packed(family: str, **changes: Any) -> tuple[Any, Geometry]:
    """A model whose products are packed, and its cache. `changes`: to its configuration."""
    model = make_model(family, **changes)
    freeze_rope(model, CONTEXT)
    geometry = probe(model, CONTEXT)
    pack_linears(model, "16-bit")
    quicken_norms(model, native=True)
    return model, geometry


def plain_heads(geometry: Geometry) -> bool:
    return all(shape.value_dim % 16 == 0 for shape in geometry.layers.values())


@pytest.mark.parametrize(("family", "in_eight"), [*((family, False) for family in FAMILIES), ("llama", True), ("gpt_oss", True)])
def test_a_family_rides_or_is_left_to_the_general_lane(family: str, in_eight: bool) -> None:
    model, geometry = packed(family)
    geometry = geometry.in_eight_bits() if in_eight else geometry
    halved = tile_geometry(model, geometry, None)
    assert (halved is not None) == (geometry.plain and plain_heads(geometry))
    if halved is None:
        return
    assert halved.bytes_per_position() * (1 if in_eight else 2) == geometry.bytes_per_position()
    assert halved.in_place and halved.unpacked_bytes() == 0
    store = KVStore(halved, 12, SIZE)
    lane = make_tile_lane(model, store)
    assert lane.recorded
    experts = family in ("gpt_oss", "mixtral")
    assert torch_multiplies(lane) is experts and torch_multiplies(TileLane(model, halved, SIZE, None)) is None
    runner = TorchRunner(model, store, frozenset(), CONTEXT)
    runner.ride(lane)
    assert runner.drafts is not experts, "what is guessed changes no bit of an answer, and experts' products are torch's"
    if experts:
        assert not same_in_company(lane, model, store), "whatever a few made-up steps happen to show"
    one = request("one", [(7 * place + 3) % 100 for place in range(70)], [5, 2, 9])
    two = request("two", [(11 * place + 1) % 100 for place in range(40)], [1, 7])
    together = [
        run(lane, store, [Row(one, 0, 60, True), Row(two, 0, 33, True)]),
        run(lane, store, [Row(two, 33, 5, True), Row(one, 60, 1, True)]),
        run(lane, store, [Row(one, 61, 1, True), Row(two, 38, 1, True)]),
    ]
    alone = KVStore(halved, 12, SIZE)
    # The same positions in other chunks and without company.
    assert torch.equal(run(lane, alone, [Row(one, 0, 1, False), Row(one, 1, 59, True)]), together[0][:1])
    assert torch.equal(run(lane, alone, [Row(one, 60, 1, True)]), together[1][1:])
    assert torch.equal(run(lane, alone, [Row(one, 61, 1, True)]), together[2][:1])
    assert torch.equal(alone.keys[min(alone.keys)][[5, 2]], store.keys[min(store.keys)][[5, 2]])


def run(lane: TileLane, store: KVStore, rows: list[Row]) -> torch.Tensor:
    """Logits of the rows that sample, in the order of `rows`."""
    with torch.inference_mode():
        batch = lane.builder.build(rows)
        logits, finite = lane(store, batch.inputs)
    assert bool(finite.all())
    order = sorted(range(len(batch.sampling)), key=lambda place: batch.sampling[place])
    return logits[order]


def test_what_is_no_number_is_flagged_at_its_own_token_alone() -> None:
    model, geometry = packed("llama")
    halved = tile_geometry(model, geometry, None)
    assert halved is not None
    store = KVStore(halved, 4, SIZE)
    lane = make_tile_lane(model, store)
    sick, sound = request("sick", [1] * 9, [1]), request("sound", [2] * 9, [2])
    with torch.inference_mode():
        store.values[0][1] = float("nan")
        logits, finite = lane(store, lane.builder.build([Row(sick, 3, 1, True), Row(sound, 0, 5, True)]).inputs)
        assert finite.tolist() == [False, True, True, True, True, True]
        store.clean([1])
        assert bool(store.values[0].isfinite().all())
    assert bool(logits[1].isfinite().all())


def test_a_block_that_cannot_be_read_in_tiles_is_left_to_the_general_lane() -> None:
    model, geometry = packed("llama")
    assert tile_geometry(model, geometry, 16) is None
    assert tile_geometry(model, geometry, 64) is not None


def test_a_recording_that_fails_is_given_up_and_the_step_is_not() -> None:
    model, geometry = packed("llama")
    halved = tile_geometry(model, geometry, None)
    assert halved is not None
    store = KVStore(halved, 4, SIZE)
    lane = make_tile_lane(model, store)
    rows = [Row(request("one", [4] * 40, [3, 1]), 0, 40, True)]
    wanted = run(lane, store, rows)

    def broken(*tensors: object) -> None:
        raise RuntimeError("a graph that nobody can run")

    assert lane.recording is not None
    lane.recording._run = broken
    assert torch.equal(run(lane, store, rows), wanted)
    assert not lane.recorded


def test_a_recorded_step_rotates_in_one_operation() -> None:
    model, geometry = packed("llama")
    halved = tile_geometry(model, geometry, None)
    assert halved is not None
    lane = make_tile_lane(model, KVStore(halved, 4, SIZE))
    assert lane.recording is not None
    kinds = [node.kind() for node in lane.recording._function.graph.nodes()]
    assert kinds.count("omnibus::rotate") == 2 * kinds.count("omnibus::attend") > 0
    assert "aten::neg" not in kinds
