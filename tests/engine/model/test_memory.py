"""The memory plan: what is asked for is given or refused with the numbers, and the default never exceeds what is free."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.memory import RAM_SHARE, _free_ram_linux, free_bytes, free_ram, make_plan
from engine.model.untouched import HUGE, _is_virtual, untouched_zeros
from engine.types import EngineConfig, ModelError
from tests.engine.model.tiny import make_loaded, make_model

GIB = 1 << 30
POSITION = 3 * 2 * (16 + 16) * 4  # bytes: layers, kv heads, key and value sizes, float32


@pytest.fixture
def loaded() -> Any:
    return make_loaded(make_model("llama"))


def test_default_pool_holds_every_seat(loaded: Any) -> None:
    plan = make_plan(loaded, EngineConfig(seats=4), free=64 * GIB)
    assert (plan.num_blocks, plan.block_size, plan.bytes_per_block, plan.slots) == (4 * 256 // 32, 32, POSITION * 32, 0)


def test_default_pool_is_capped_by_a_share_of_free_memory(loaded: Any) -> None:
    plan = make_plan(loaded, EngineConfig(seats=10**4), free=2 * GIB)
    assert plan.num_blocks == int(2 * GIB * RAM_SHARE) // plan.bytes_per_block < 10**4 * 8
    assert plan.num_blocks * plan.bytes_per_block + plan.workspace + plan.reserve <= plan.free


def test_what_is_asked_for(loaded: Any) -> None:
    plan = make_plan(loaded, EngineConfig(kv_tokens=100, block_size=16), free=2 * GIB)
    assert (plan.num_blocks, plan.block_size) == (7, 16)
    with pytest.raises(ModelError, match="positions.* fit") as caught:
        make_plan(loaded, EngineConfig(kv_tokens=10**9), free=2 * GIB)
    assert caught.value.code == "not_enough_memory" and "kv_tokens" in caught.value.hint


def test_the_most_that_is_offered_is_granted(loaded: Any) -> None:
    most = make_plan(loaded, EngineConfig(), free=2 * GIB).most_blocks * 32
    assert make_plan(loaded, EngineConfig(kv_tokens=most), free=2 * GIB).num_blocks * 32 == most
    with pytest.raises(ModelError):
        make_plan(loaded, EngineConfig(kv_tokens=most + 1), free=2 * GIB)


def test_too_little_memory_is_told_before_anything_is_taken(loaded: Any) -> None:
    with pytest.raises(ModelError, match="0 MiB are free|MiB are free"):
        make_plan(loaded, EngineConfig(), free=100 << 20)


def test_workspace_grows_with_the_step(loaded: Any) -> None:
    small = make_plan(loaded, EngineConfig(token_budget=64), free=8 * GIB)
    large = make_plan(loaded, EngineConfig(token_budget=4096), free=8 * GIB)
    assert large.workspace > 10 * small.workspace


def test_free_memory_heeds_the_control_group(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  16000000 kB\nMemAvailable:   8000000 kB\n")
    assert _free_ram_linux(meminfo, tmp_path) == 8000000 * 1024
    (tmp_path / "memory.max").write_text("2147483648\n")
    (tmp_path / "memory.current").write_text("1073741824\n")
    assert _free_ram_linux(meminfo, tmp_path) == GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_ram_linux(meminfo, tmp_path) == 8000000 * 1024


def test_a_large_pool_costs_nothing_until_it_is_used() -> None:
    """The store's zeros are the system's untouched pages, and aligned."""
    tensor = untouched_zeros((1 << 16, 2, 32, 64), torch.bfloat16)
    assert tensor.shape == (1 << 16, 2, 32, 64) and tensor.nbytes == 512 << 20
    assert tensor.data_ptr() % 64 == 0 and tensor.is_contiguous() and not tensor[-1].any()
    if sys.platform == "linux":
        pages = Path("/proc/self/smaps_rollup")
        before = pages.read_text()
        kept = untouched_zeros((1 << 16, 2, 32, 64), torch.bfloat16)
        grown = [int(text.split("Rss:")[1].split()[0]) for text in (before, pages.read_text())]
        assert kept.nbytes == 512 << 20 and grown[1] - grown[0] < 100 << 10


def test_large_tensors_begin_at_places_spread_over_a_huge_page() -> None:
    """So that those of a model's layers, which fill alike, do not all need their next one in the same step."""
    tensors = [untouched_zeros((600, 3, 32, 64), torch.bfloat16) for _ in range(60)]
    places = sorted(tensor.data_ptr() % HUGE for tensor in tensors)
    apart = [after - before for before, after in itertools.pairwise([*places, places[0] + HUGE])]
    assert max(apart) < HUGE / 20 and all(place % 64 == 0 for place in places)
    small = untouched_zeros((6, 3, 32, 64), torch.bfloat16)
    assert small.untyped_storage().nbytes() < small.nbytes + 4096


def test_a_pool_in_a_virtual_machine_takes_what_is_written_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, virtual in (("flags\t\t: fpu vme hypervisor lm\n", True), ("flags\t\t: fpu vme lm\nmodel: hypervisor\n", False)):
        (tmp_path / "cpuinfo").write_text(text)
        _is_virtual.cache_clear()
        assert _is_virtual(tmp_path / "cpuinfo") is virtual
    _is_virtual.cache_clear()
    assert not _is_virtual(tmp_path / "none")
    monkeypatch.setattr("engine.model.untouched._is_virtual", lambda: True)
    tensor = untouched_zeros((600, 3, 32, 64), torch.bfloat16)
    if sys.platform == "linux":
        pages = Path("/proc/self/smaps_rollup")
        before = pages.read_text()
        tensor[::100] = 1.0
        grown = [int(text.split("Rss:")[1].split()[0]) for text in (before, pages.read_text())]
        assert grown[1] - grown[0] < 1 << 10
    assert tensor[100].all() and not tensor[101].any()


def test_this_machine_has_some_memory() -> None:
    assert free_bytes(torch.device("cpu")) == pytest.approx(free_ram(), rel=0.5)
    assert free_ram() > 100 << 20
