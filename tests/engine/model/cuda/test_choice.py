"""Choosing kernels: wrong ones are found out by their results, slow ones by the watch, and what took the process down is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.model.cuda import lane as lane_module
from engine.model.cuda.choice import SINGLES, Marks, choose, fault, needs_of
from engine.model.cuda.lane import choose_readers, gpu_kernels
from engine.model.cuda.paged import PagedIndex
from engine.model.cuda.readers import FlashAttention3, FlashInfer, Gathered, PackedVarlen, Reader, Unfit, Varlen, _with_sinks
from engine.model.cuda.reference import Need
from engine.types import EngineConfig, ModelError
from tests.engine.model import tiny
from tests.engine.model.cuda_by_row import CPU, ByChunk, ByRow
from tests.engine.model.tiny import make_model


def make_need(**changes: Any) -> Need:
    usual = {"heads": 4, "key_heads": 2, "key_dim": 16, "value_dim": 16, "dtype": torch.float32, "block_size": 16, "window": 0}
    return Need(**{**usual, "scale": 0.25, "softcap": None, "sinks": False, **changes})


KINDS_OF_ATTENTION = [
    make_need(),
    make_need(window=9),
    make_need(softcap=2.0),
    make_need(sinks=True, window=1),
    make_need(key_dim=8, value_dim=24, sinks=True, softcap=3.0),
    make_need(dtype=torch.bfloat16, heads=8),
    make_need(dtype=torch.float16, block_size=256),
]


@pytest.mark.parametrize("need", KINDS_OF_ATTENTION, ids=lambda need: need.words)
def test_the_floor_and_the_textbook_readers_are_right(need: Need) -> None:
    for kind in (Gathered, ByRow, ByChunk):
        assert fault(kind, need, CPU, Marks(None)) is None


class OneTooFew(ByRow):
    """Misses each row's first position."""

    label = "one too few"

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        lengths = (index.lengths - 1).clamp(min=1)
        return super().read(query, keys, values, PagedIndex(index.table, lengths, index.window), sinks)


class NeighboursBlock(ByRow):
    label = "a neighbour's block"

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        table = index.table.clone()
        table[-1, -1] = 0
        return super().read(query, keys, values, PagedIndex(table, index.lengths, index.window), sinks)


class Deaf(ByRow):
    """Knows nothing of windows or sinks."""

    label = "deaf"

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        plain = ByRow(make_need(block_size=self.need.block_size), CPU)
        return plain.read(query, keys, values, index, None)


class Choosy(ByRow):
    label = "choosy"

    def __init__(self, need: Need, device: torch.device) -> None:
        super().__init__(need, device)
        raise Unfit("it takes nothing today")


class Raising(ByRow):
    label = "raising"

    def read(self, *arguments: Any) -> Tensor:
        raise TypeError("unexpected keyword\nand more")


class Lost(ByRow):
    label = "lost"

    def read(self, *arguments: Any) -> Tensor:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("kind", [OneTooFew, NeighboursBlock])
@pytest.mark.parametrize("need", KINDS_OF_ATTENTION[:3], ids=lambda need: need.words)
def test_an_off_by_one_is_found_out(kind: type[Reader], need: Need) -> None:
    said = fault(kind, need, CPU, Marks(None))
    assert said is not None and said.startswith("its result is off by")


@pytest.mark.parametrize("need", [make_need(window=9), make_need(sinks=True)], ids=lambda need: need.words)
def test_a_kernel_that_ignores_a_window_or_sinks_is_found_out(need: Need) -> None:
    assert fault(Deaf, make_need(), CPU, Marks(None)) is None
    assert "off by" in (fault(Deaf, need, CPU, Marks(None)) or "")


def test_what_cannot_run_says_why() -> None:
    assert fault(Choosy, make_need(), CPU, Marks(None)) == "it takes nothing today"
    assert fault(Raising, make_need(), CPU, Marks(None)) == "unexpected keyword"
    assert fault(Varlen, make_need(), CPU, Marks(None)) == "it takes blocks of multiples of 256 positions"
    assert "no soft capping" in (fault(Varlen, make_need(block_size=256, softcap=1.0, dtype=torch.bfloat16), CPU, Marks(None)) or "")
    assert "not installed" in (fault(FlashInfer, make_need(), CPU, Marks(None)) or "")
    assert "not installed" in (fault(FlashAttention3, make_need(), CPU, Marks(None)) or "")
    for kind in (Varlen, PackedVarlen):  # torch has no such operation on the CPU, and says so
        assert fault(kind, make_need(block_size=256, dtype=torch.bfloat16), CPU, Marks(None))


def test_on_the_cpu_only_the_floor_is_right() -> None:
    choice = choose([make_need()], CPU, lambda action: 1.0, Marks(None))
    assert choice is not None and not choice.fixed and not choice.packed and choice.block_size == 16
    right = {verdict.label for verdict in choice.verdicts if verdict.fault is None}
    assert right == {Gathered.label} and len(choice.verdicts) == 2 * len(SINGLES) + 1


ran: list[str] = []


class Slow(ByRow):
    label = "slow"

    def read(self, *arguments: Any) -> Tensor:
        ran.append(self.label)
        return super().read(*arguments)


class Fast(Slow):
    label = "fast"


class Large(Slow):
    label = "large"
    pages = 256


@pytest.mark.parametrize(("seconds", "label", "size"), [(1.4, "fast", 16), (2.4, "fast", 16), (2.6, "large", 256)])
def test_the_fastest_wins_and_large_blocks_have_a_price(seconds: float, label: str, size: int) -> None:
    times = {"slow": 9.0, "fast": seconds, "large": 1.9}

    def stopwatch(action: Callable[[], Any]) -> float:
        action()
        return times[ran[-1]] * (1.0 if ran[-1] == "large" or size == 16 else 1.1)

    kinds = (Slow, Large, Fast)
    choice = choose([make_need(), make_need(window=3)], CPU, stopwatch, Marks(None), None, kinds, (ByChunk,))
    assert choice is not None and choice.packed
    assert choice.words == f"blocks of {size}, read by by chunk, {label}"
    fixed = choose([make_need()], CPU, stopwatch, Marks(None), 16, kinds, ())
    assert fixed is not None and fixed.words == "blocks of 16, read by fast" and not fixed.packed


def test_there_is_no_choice_where_one_need_is_served_by_none() -> None:
    def with_needs(*needs: Need) -> object:
        return choose(needs, CPU, lambda action: 1.0, Marks(None), None, (Deaf, Raising), ())

    assert with_needs(make_need()) is not None
    assert with_needs(make_need(), make_need(window=3)) is None


def test_what_the_process_did_not_come_back_from_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "tried.json"
    with pytest.raises(torch.AcceleratorError):
        fault(Lost, make_need(), CPU, Marks(file))
    assert fault(ByRow, make_need(), CPU, Marks(file)) is None  # and the mark stays
    marks = Marks(file)
    assert fault(Lost, make_need(), CPU, marks) == "the process did not come back from trying it"
    marks.forget()
    assert Marks(file).lost == frozenset()
    file.write_text("[damaged")
    assert Marks(file).lost == frozenset()


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "gemma3"])
def test_what_a_model_needs_is_found_by_running_it(family: str) -> None:
    runner = tiny.make_lane(make_model(family))
    needs = needs_of(runner._model, runner.store.geometry)
    assert {need.window for need in needs} == {0, 9}
    assert {need.softcap for need in needs} == {3.0 if family == "gemma2" else None}
    assert {need.sinks for need in needs} == {family == "gpt_oss"}
    assert all((need.heads, need.key_heads, need.key_dim, need.value_dim) == (8, 2, 16, 16) for need in needs)


def test_sinks_from_a_log_sum() -> None:
    """In both layouts that torch is said to return."""
    out, log_sum, sinks = torch.ones(3, 2, 4), torch.randn(2, 3), torch.tensor([0.5, -1.0])
    share = log_sum.exp() / (log_sum.exp() + sinks.exp()[:, None])
    for given in (log_sum, log_sum.T.contiguous()):
        assert torch.allclose(_with_sinks(out, given, sinks)[..., 0], share.T)
    assert _with_sinks(out, log_sum, None) is out


# --------------------------------------------------------------------------------------------------------------- at load


def test_nothing_is_tried_for_a_model_on_the_cpu() -> None:
    loaded = tiny.make_loaded(make_model("llama"))
    loaded.device = "cpu"
    assert gpu_kernels(loaded, EngineConfig(), lambda: pytest.fail("nothing is to be tried")) is None


@pytest.mark.parametrize(("device", "tried"), [("cuda", True), ("cuda:1", True), ("cuda:0,cuda:1", False), ("mps", False), ("cpu", False)])
def test_kernels_are_tried_on_any_single_card(monkeypatch: pytest.MonkeyPatch, device: str, tried: bool) -> None:
    """With that card as the present one, which the stopwatch times."""
    present: list[str] = []
    chosen: list[tuple[Any, list[str], int | None]] = []

    @contextmanager
    def card(name: str) -> Iterator[None]:
        present.append(name)
        yield
        present.pop()

    def choosing(model: Any, geometry: Any, block_size: int | None, marks: Marks) -> str:
        chosen.append((model, list(present), block_size))
        return "the choice"

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device", card)
    monkeypatch.setattr(lane_module, "choose_readers", choosing)
    loaded = tiny.make_loaded(make_model("llama"))
    loaded.device = device
    began: list[bool] = []
    choice = gpu_kernels(loaded, EngineConfig(block_size=16), lambda: began.append(True))
    assert choice == ("the choice" if tried else None)
    assert chosen == ([(loaded.torch_model, [device], 16)] if tried else []) and began == [True] * tried
    assert gpu_kernels(loaded, EngineConfig(plain=True), lambda: pytest.fail("the plain lane was asked for")) is None


def test_a_lost_gpu_is_an_error_anything_else_the_general_lane(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    runner = tiny.make_lane(make_model("llama"))
    model, geometry = runner._model, runner.store.geometry

    def choosing(*kinds: type[Reader]) -> Any:
        marks, watch = Marks(None), lambda action: 1.0
        monkeypatch.setattr(lane_module, "choose", lambda needs, device, *rest: choose(needs, device, watch, marks, 4, kinds, ()))
        return choose_readers(model, geometry, 4, marks)

    assert choosing(ByRow).words == "blocks of 4, read by by row"
    assert choosing(Raising) is None and "no kernel reads this model's cache rightly" in caplog.text
    with pytest.raises(ModelError) as raised:
        choosing(Lost)
    assert raised.value.code == "gpu_lost" and "illegal memory access" in str(raised.value)
    monkeypatch.setattr(lane_module, "choose", lambda *rest: 1 / 0)
    assert choose_readers(model, geometry, 4, Marks(None)) is None and "no kernel could be chosen" in caplog.text
