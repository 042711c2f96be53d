"""A recorded step in programs does what its operations did, to the bit, whatever rides in it and however many threads there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Recording
from engine.model.native import lane as lane_module
from engine.model.native import library, whole
from engine.model.native.lane import TileLane, make_tile_lane, tile_geometry
from engine.scheduling.plan import Row
from tests.engine.model.native.test_tile_lane import SIZE, packed, request
from tests.engine.model.tiny import FAMILIES

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

WHOLE = ("llama", "qwen3", "mistral", "gemma2", "gemma3")  # one program up to the last attention, one of the rows that sample
IN_PARTS = ("gemma4", "mixtral")
BLOCKS = 14


def play(recording: Recording, lane: TileLane, geometry: Geometry) -> list[torch.Tensor]:
    """What some steps give, and the pool that they leave."""
    one = request("one", [(7 * place + 3) % 100 for place in range(230)], [5, 2, 9, 1, 8, 10, 11, 12])
    two = request("two", [(11 * place + 1) % 100 for place in range(40)], [3, 7])
    steps = [
        [Row(one, 0, 60, True), Row(two, 0, 33, True)],
        [Row(two, 33, 5, True), Row(one, 60, 1, True)],
        [Row(one, 61, 1, True)],
        [Row(two, 38, 1, True), Row(one, 62, 131, False)],
    ]
    store = KVStore(geometry, BLOCKS, SIZE)
    given: list[torch.Tensor] = []
    with torch.inference_mode():
        for rows in steps:
            given.extend(recording(*store.tensors(), *lane.builder.build(rows).inputs.tensors())[:2])
    return [*given, *store.tensors()]


def recorded(family: str, in_eight: bool = False) -> tuple[TileLane, Recording, Geometry] | None:
    """The family's lane as it is made, and its recording; None for a family that the lane leaves alone."""
    model, geometry = packed(family)
    halved = tile_geometry(model, geometry.in_eight_bits() if in_eight else geometry, None)
    if halved is None:
        return None
    lane = make_tile_lane(model, KVStore(halved, BLOCKS, SIZE))
    assert lane.recording is not None
    return lane, lane.recording, halved


def programs(recording: Recording) -> int:
    return sum("run_" in node.kind() for node in recording._run.graph.nodes())


def test_a_step_finds_the_pool_where_it_lies_now() -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    assert recording.placed == 2 * len(geometry.layers)
    rows = [Row(request("one", [4] * 40, [3, 1]), 0, 40, True)]
    given = []
    for store in (KVStore(geometry, 4, SIZE), KVStore(geometry, 9, SIZE)):
        for blocks in (4, 12, 5):
            if blocks != store.num_blocks:
                store.resize(blocks)
            assert store.places()[:, 0].tolist() == [tensor.data_ptr() for tensor in store.tensors()]
            assert store.places()[:, 1:].tolist() == [list(tensor.shape) for tensor in store.tensors()]
            with torch.inference_mode():
                given.append(lane(store, lane.builder.build(rows).inputs)[0].clone())
            assert bool(store.keys[0][3].any())
            store.keys[0].zero_()
    assert all(torch.equal(each, given[0]) for each in given)


@pytest.fixture
def threads() -> Iterator[list[int]]:
    before = torch.get_num_threads()
    yield [1, 3]
    torch.set_num_threads(before)


@pytest.mark.parametrize("in_eight", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_in_programs_is_the_same_to_the_bit(family: str, in_eight: bool, threads: list[int]) -> None:
    made = recorded(family, in_eight)
    if made is None:
        return
    lane, recording, geometry = made
    in_programs = []
    assert programs(recording) == 2 if family in WHOLE else programs(recording) > 2 if family in IN_PARTS else True
    for count in threads:
        torch.set_num_threads(count)
        in_programs.append(play(recording, lane, geometry))
    assert recording.run_plainly() == (family in (*WHOLE, *IN_PARTS))
    assert programs(recording) == 0
    for count, given in zip(threads, in_programs, strict=True):
        torch.set_num_threads(count)
        wanted = play(recording, lane, geometry)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(given, wanted, strict=True))


def test_a_recording_with_programs_is_written_down_as_it_was_recorded_and_read_again() -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    again = Recording.of_bytes(recording.to_bytes(), dict(zip(recording.names, recording.weights, strict=True)))
    assert again.operations > 3 * recording.operations
    lane_module.quicken(again, geometry)
    assert programs(again) == 2 and again.operations < recording.operations + 5
    for mine, theirs in zip(play(again, lane, geometry), play(recording, lane, geometry), strict=True):
        assert torch.equal(mine, theirs)


def test_tensors_of_other_sizes_are_refused_and_the_step_runs_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    wanted = play(recording, lane, geometry)
    program = recording._beside[0]
    widths = program._held[1]
    widths[widths.nonzero()[0][-1]] += 1
    with pytest.raises(RuntimeError, match="other sizes"):
        play(recording, lane, geometry)
    with caplog.at_level(logging.WARNING):
        store = KVStore(geometry, BLOCKS, SIZE)
        rows = [Row(request("one", [4] * 40, [3, 1]), 0, 40, True)]
        with torch.inference_mode():
            logits, finite = lane(store, lane.builder.build(rows).inputs)
    assert bool(finite.all()) and logits.shape[0] == 1
    assert "no longer run from their recording" in caplog.text
    recording.run_plainly()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(play(recording, lane, geometry), wanted, strict=True))


def test_memory_that_runs_out_is_said_and_the_next_step_is_sound() -> None:
    made = recorded("llama")
    assert made is not None
    lane, recording, geometry = made
    wanted = play(recording, lane, geometry)
    head = recording._beside[0]._held[0]
    floats, head[4] = int(head[4]), 1 << 44
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        play(recording, lane, geometry)
    head[4] = floats
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(play(recording, lane, geometry), wanted, strict=True))


def test_a_graph_that_torch_refuses_runs_operation_by_operation(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refused(inputs: int, outputs: int) -> str:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(whole.library, "define_run", refused)
    with caplog.at_level(logging.INFO):
        made = recorded("llama")
    assert made is not None and programs(made[1]) == 0
    assert "operation by operation: no such operation" in caplog.text


def test_a_program_that_gives_something_else_is_given_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As found by the check that every recording passes before it is used."""
    quicken = lane_module.quicken

    def wrong(recording: Recording, geometry: Geometry) -> None:
        quicken(recording, geometry)
        run = recording._run
        recording._run = lambda *tensors: (run(*tensors)[0] * 1.001, *run(*tensors)[1:])

    monkeypatch.setattr(lane_module, "quicken", wrong)
    with caplog.at_level(logging.INFO):
        made = recorded("llama")
    assert made is not None and programs(made[1]) == 0
    assert "operation by operation" in caplog.text
