"""`omnibus bench gpu` without a GPU: that it says so, its shapes, its time, its report, and its measurements on a tiny model on the CPU."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.bench import gpu, gpu_model
from engine.bench.gpu import EXPECTED, Budget, Report, measure
from engine.bench.gpu_model import SHAPES, ModelFigures, Shape
from engine.model.cuda.choice import Verdict
from engine.model.cuda.readers import Gathered, Ours
from engine.model.cuda.reference import probe_cases
from tests.engine.model.cuda_by_row import CPU, ByRow, FakeGraph

TINY = Shape(64, 2, 4, 2, 96, 128, True)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    gpu.add_parser(parser.add_subparsers())
    return parser.parse_args(["gpu", *words])


@pytest.mark.parametrize(
    ("cuda", "sentence"), [(None, "is built without CUDA. Nothing was run."), ("13.0", "finds no NVIDIA GPU or no driver for it.")]
)
def test_without_a_gpu_it_says_so(
    cuda: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = tmp_path / "gpu.json"
    assert gpu.run(parse("--json", str(file))) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("There is no GPU to measure: ") and sentence in said.err
    assert not file.exists()


def test_a_document_that_cannot_be_written_is_found_out_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.run(parse("--json", str(tmp_path))) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_shapes_are_the_models_they_are_named_after() -> None:
    """Counted from a model of that configuration, without making its weights."""
    for name, billions in (("1B", 1.24), ("8B", 8.03)):
        shape = SHAPES[name]
        with torch.device("meta"):
            model = gpu_model.make_model(shape, torch.device("meta"))
        total = sum(weight.numel() for weight in model.parameters())
        assert total / 1e9 == pytest.approx(billions, abs=0.01)
        norms = (2 * shape.layers + 1) * shape.hidden
        assert total == shape.products + shape.head * (1 if shape.tied else 2) + norms
    assert SHAPES["8B"].bytes_per_position() == 131072
    assert SHAPES["8B"].decode_bytes(2, 1000) == 2 * (SHAPES["8B"].products + SHAPES["8B"].head) + 2000 * 131072
    assert SHAPES["1B"].prefill_operations(10) == 20 * SHAPES["1B"].products


# ------------------------------------------------------------------------------------------------------- order and time


class Tools:
    """Stands in for the measurements; each takes as long as it is said to."""

    def __init__(self, takes: dict[str, float], raises: dict[str, Exception] | None = None, worst: float = 0.001) -> None:
        self.now, self.done = 0.0, []
        self._takes, self._raises, self._worst = takes, raises or {}, worst

    def clock(self) -> float:
        return self.now

    def _spend(self, part: str) -> None:
        self.done.append(part)
        self.now += self._takes.get(part, 1.0)
        if part in self._raises:
            raise self._raises[part]

    def limits(self, device: torch.device) -> dict[str, float]:
        self._spend("limits")
        return {"gb_s": 1000.0, "tflop_s": 100.0}

    def try_kernels(self, device: torch.device) -> list[tuple[Verdict, int]]:
        self._spend("kernels")
        need = gpu_model.kernel_needs()[0]
        return [(Verdict(Ours.label, need, None, 1e-4), 10_000), (Verdict("another", need, "its result is off by 3.0e-01"), 10_000)]

    def compare_graphs(self, device: torch.device) -> dict[str, Any]:
        self._spend("graphs")
        return {"kernels": "", "allowed": 0.01, "worst": {1: self._worst, 2: 0.0}, "failed": None, "recorded": [1, 2]}

    def measure_model(self, name: str, device: torch.device, limits: dict[str, float]) -> list[ModelFigures]:
        self._spend(name)
        return [
            ModelFigures(name, 8, 5.0, 1600.0, 4.0, 0.8, True, "", 9.0, 400.0),
            ModelFigures(name, 0, 50.0, 80000.0, None, None, False, ""),
        ]


def measured(tools: Tools, parts: list[str] | None = None, seconds: float = 450.0) -> tuple[Report, str]:
    human = io.StringIO()
    report = measure(CPU, parts or list(EXPECTED), Budget(seconds, tools.clock), human, tools)
    return report, human.getvalue()


def test_all_is_reported() -> None:
    tools = Tools({})
    report, said = measured(tools)
    assert tools.done == list(EXPECTED) and not report.wrong and not report.left_out and report.seconds == 5.0
    assert json.loads(json.dumps(gpu.asdict(report)))["models"][0]["peer_tok_s"] == 400.0
    assert report.kernels[0]["us"] == pytest.approx(100) and report.kernels[0]["share"] == pytest.approx(10_000 * 8 * 256 * 2 / 1e-4 / 1e12)
    assert report.kernels[1] | {"right": False, "fault": "its result is off by 3.0e-01"} == report.kernels[1]
    assert "1B, decode at 8: 5.00 ms, 1,600 tok/s, 80% of the limit (4.00 ms), eager 9.00 ms; transformers' continuous" in said
    assert "400 tok/s (4.0 x)" in said and "8B, a prompt of 4096: 50.00 ms, 80,000 tok/s\n" in said
    assert said.endswith("All that was checked is right.\n")


def test_the_parts_fit_their_time_and_the_whole_is_under_eight_minutes() -> None:
    assert sum(EXPECTED.values()) <= gpu.SECONDS < 480
    tools = Tools({"kernels": 300.0})
    report, said = measured(tools)
    assert tools.done == ["limits", "kernels", "graphs"] + ["1B"] * (301 + 1 + 90 <= 450) and "8B" in report.left_out
    assert "8B: left out, it may take 150 s, and 30" in said and "Not measured: 8B" in said
    assert measured(Tools({}), seconds=1.0)[0].left_out.keys() == EXPECTED.keys()


def test_only_some_parts() -> None:
    tools = Tools({})
    report, _ = measured(tools, ["graphs", "limits"])
    assert tools.done == ["limits", "graphs"] and report.models == []


def test_what_is_wrong_is_told_and_costs_no_other_part() -> None:
    tools = Tools({}, {"kernels": RuntimeError("no such thing\nat all")}, worst=float("nan"))
    report, said = measured(tools)
    assert tools.done == list(EXPECTED)
    assert report.wrong[0] == "kernels failed: no such thing" and "graphs are not the eager step" in report.wrong[1]
    assert "WRONG: kernels failed: no such thing" in said


def test_a_lost_gpu_ends_it() -> None:
    tools = Tools({}, {"kernels": torch.AcceleratorError("CUDA error: an illegal memory access was encountered")})
    report, _ = measured(tools)
    assert tools.done == ["limits", "kernels"] and report.wrong == ["kernels failed: CUDA error: an illegal memory access was encountered"]


def test_our_own_kernel_must_be_right() -> None:
    need = gpu_model.kernel_needs()[1]
    report = Report("", "")
    lines = gpu.note_kernels(report, [(Verdict(Ours.label, need, "off", None), 1), (Verdict("torch varlen", need, "off", None), 1)])
    assert report.wrong == [f"{Ours.label} ({need.words}): off"] and len(lines) == 2
    assert report.kernels[0]["share"] is None


# ------------------------------------------------------------------------------------- measurements, on the CPU and tiny


def stopwatch(action: Any) -> float:
    action()
    return 0.25


def test_limits_come_from_bytes_and_operations() -> None:
    found = gpu_model.limits(CPU, stopwatch, mib=4, side=32)
    assert found == {"gb_s": 2 * 4 * 2**20 / 0.25 / 1e9, "tflop_s": 2 * 32**3 / 0.25 / 1e12}


def test_the_needs_hold_one_of_each_thing() -> None:
    needs = gpu_model.kernel_needs()
    assert (
        {bool(need.window) for need in needs} == {bool(need.softcap) for need in needs} == {need.sinks for need in needs} == {True, False}
    )
    assert {need.dtype for need in needs} == {torch.bfloat16, torch.float16, torch.float32}
    assert {need.heads // need.key_heads for need in needs} >= {1, 4, 7} and {need.block_size for need in needs} == {16, 256}
    small = [gpu_model.Need(4, 2, 8, 8, torch.float32, 4, 5, 0.3, None, True)]
    tried = gpu_model.try_kernels(CPU, stopwatch, small, (Gathered,))
    assert [(verdict.label, verdict.fault) for verdict, _ in tried] == [(Gathered.label, None)]
    assert tried[0][1] == 5 * 8  # a window of five, eight rows
    probe_cases.cache_clear()


@pytest.fixture
def tiny_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CONTEXT": 20, "PROMPT": 24, "CHUNK": 16, "ROOM": 64, "STEPS": 3, "WARM_UPS": 1, "PEER_TOKENS": 2}.items():
        monkeypatch.setattr(gpu_model, name, value)
    monkeypatch.setattr("engine.model.cuda.choice.SINGLES", (ByRow,))
    monkeypatch.setattr("engine.model.cuda.choice.choose.__defaults__", (None, (ByRow,), ()))
    monkeypatch.setattr("engine.model.cuda.choice.TIMED_LENGTH", 8)


@pytest.mark.usefixtures("tiny_work")
def test_a_model_is_measured_with_graphs_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    def answer(model: Any, rows: int, prompt: int, tokens: int) -> float:
        asked.append((rows, prompt, tokens))
        if rows == 2:
            raise ValueError("paged attention is not for this model\nmore")
        return 1.0 + 0.5 * tokens

    whole = gpu_model.with_peer
    monkeypatch.setattr(gpu_model, "with_peer", lambda figures, shape, device, dtype: whole(figures, shape, device, dtype, answer))
    found = {"gb_s": 10.0, "tflop_s": 1.0}
    figures = gpu_model.measure_model("1B", CPU, found, TINY, (1, 2), stopwatch, lambda device: FakeGraph(), torch.float32)
    assert [item.rows for item in figures] == [1, 2, 0]
    assert all(item.graphs and item.eager_ms is not None for item in figures[:2]) and figures[2].eager_ms is None
    assert figures[0].floor_ms == pytest.approx(1000 * TINY.decode_bytes(1, 20, 4) / 10e9)
    assert figures[0].share == pytest.approx(figures[0].floor_ms / figures[0].ms)
    assert figures[0].peer_tok_s == pytest.approx(2.0) and figures[1].peer_fault == "paged attention is not for this model"
    assert figures[2].peer_tok_s == pytest.approx(24 / 1.5)
    assert asked == [(1, 20, 2), (1, 20, 4), (2, 20, 2), (1, 24, 1)]
    assert "did not run: paged attention is not for this model" in figures[1].words


@pytest.mark.usefixtures("tiny_work")
def test_graphs_are_compared_at_and_between_their_sizes() -> None:
    found = gpu_model.compare_graphs(CPU, TINY, stopwatch, lambda device: FakeGraph(), torch.float32, most=4)
    assert found["recorded"] == [1, 2, 4, 8, 16] and list(found["worst"]) == [1, 2, 3, 4]
    assert max(found["worst"].values()) < found["allowed"]
    failed = gpu_model.compare_graphs(CPU, TINY, stopwatch, lambda device: FakeGraph(fail_at=1), torch.float32, most=4)
    assert failed["worst"] == {} and "capturing" in failed["failed"]


class Peer:
    """A model with transformers' continuous batching, which gives two tokens to each, or stops."""

    def __init__(self, stops: bool = False) -> None:
        self._stops = stops
        self._open = 0

    @contextmanager
    def continuous_batching_context_manager(self, **settings: Any) -> Iterator[Peer]:
        yield self

    def add_requests(self, inputs: list[list[int]], max_new_tokens: int) -> None:
        self._open = len(inputs)

    def is_running(self) -> bool:
        return not self._stops

    def get_result(self, timeout: float) -> Any:
        if self._stops:
            return None
        self._open -= 1
        assert self._open >= 0
        return SimpleNamespace(is_finished=lambda: True, generated_tokens=[1, 2])


def test_the_peer_must_give_every_token() -> None:
    clock = iter(range(10))
    assert gpu_model.peer_seconds(Peer(), 3, 5, 2, lambda: float(next(clock))) == 1.0
    with pytest.raises(RuntimeError, match="it gave 6 of 9 tokens"):
        gpu_model.peer_seconds(Peer(), 3, 5, 3)
    with pytest.raises(RuntimeError, match="it stopped"):
        gpu_model.peer_seconds(Peer(stops=True), 3, 5, 3)
