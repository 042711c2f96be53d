"""The recorded step against the eager one, bit for bit, over random work; and the way back when recording fails."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model import eight, trace
from engine.model import shelf as shelf_module
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Recording, weights_of
from engine.model.linear import pack_linears
from engine.model.norms import quicken_norms
from engine.model.probe import probe
from engine.model.rehearsal import Form, rehearse
from engine.model.rope import freeze_rope
from engine.model.shelf import Shelf
from engine.model.step import run_step
from engine.model.trace import FastStep, record_steps
from engine.scheduling.plan import Row
from tests.engine.model.tiny import CONTEXT, VOCABULARY, make_model, make_request

BLOCK = 4
ALL = (Form(True, 0), Form(False, 1), Form(True, 1), Form(False, 2), Form(True, 2))


def make_packed(family: str, precision: str = "f32") -> tuple[Any, Geometry]:
    model = make_model(family)
    pack_linears(model, precision)
    quicken_norms(model)
    freeze_rope(model, CONTEXT)
    return model, probe(model, CONTEXT)


def make_rows(rng: random.Random, singles: int, chunks: Sequence[int], blocks: int) -> list[Row]:
    """Random requests: their past lies in any blocks, also in each other's; what they write is their own."""
    free = list(range(1, blocks + 1))
    rng.shuffle(free)
    rows = []
    for number, count in enumerate([1] * singles + list(chunks)):
        start = rng.randrange(0, 60)
        end = start + count
        request = make_request([rng.randrange(3, VOCABULARY) for _ in range(end)], name=str(number))
        shared = start // BLOCK
        own = -(-end // BLOCK) - shared
        request.blocks = [rng.randint(1, blocks) for _ in range(shared)] + [free.pop() for _ in range(own)]
        rows.append(Row(request, start, count, rng.random() < 0.7 or number == 0))
    return rows


def make_store(geometry: Geometry, blocks: int) -> KVStore:
    store = KVStore(geometry, blocks, BLOCK)
    generator = torch.Generator().manual_seed(blocks)
    for tensor in store.tensors():
        numbers = eight.plain(tensor, torch.float32)
        tensor.copy_(eight.packed(torch.randn(numbers.shape, generator=generator), tensor))
    return store


def assert_same(fast: FastStep, model: Any, geometry: Geometry, rows: Sequence[Row], blocks: int) -> Form:
    """Both steps over the same rows and caches give the same bits. Returns the form that was run."""
    inputs = BatchBuilder(BLOCK, geometry.windows, torch.device("cpu")).build(rows).inputs
    ours, theirs = make_store(geometry, blocks), make_store(geometry, blocks)
    with torch.inference_mode():
        logits, finite = fast(ours, inputs)
        wanted, wanted_finite = run_step(model, geometry, theirs.keys, theirs.values, inputs)
    assert torch.equal(logits, wanted)
    assert torch.equal(finite, wanted_finite)
    for left, right in zip(ours.tensors(), theirs.tensors(), strict=True):
        assert torch.equal(left, right)
    return Form.of(inputs)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss"])
def test_every_form_gives_the_eager_steps_bits(family: str) -> None:
    model, geometry = make_packed(family)
    fast = record_steps(model, geometry, BLOCK)
    assert fast.forms == set(ALL)
    rng = random.Random(5)
    ran = set()
    decodes = [(1, ()), (2, ()), (7, ()), (16, ())]
    prompts = [(0, (9,)), (0, (3, 3, 4)), (0, (31,)), (0, (2, 57)), (0, (40, 3, 2))]
    mixed = [(3, (8,)), (9, (2,)), (1, (2, 57)), (4, (3, 2, 70))]
    for singles, chunks in decodes + prompts + mixed:
        for blocks in (90, 131):
            ran.add(assert_same(fast, model, geometry, make_rows(rng, singles, chunks, blocks), blocks))
    assert ran >= set(ALL)


@pytest.mark.parametrize("precision", ["16-bit", "8-bit"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_class_gives_the_eager_steps_bits(family: str, precision: str) -> None:
    model, geometry = make_packed(family, precision)
    forms = (Form(True, 0), Form(False, 1))
    fast = record_steps(model, geometry, BLOCK, forms)
    assert fast.forms == set(forms)
    rng = random.Random(6)
    for singles, chunks in ((1, ()), (5, ()), (16, ()), (0, (17,)), (0, (3, 4))):
        assert_same(fast, model, geometry, make_rows(rng, singles, chunks, 90), 90)
    assert fast.eager_steps == 0


def test_a_step_of_another_form_runs_eagerly() -> None:
    model, geometry = make_packed("llama")
    fast = record_steps(model, geometry, BLOCK, (Form(True, 0),))
    assert assert_same(fast, model, geometry, make_rows(random.Random(1), 2, (12,), 60), 60) == Form(True, 1)
    assert fast.eager_steps == 1


def test_what_cannot_be_recorded_runs_eagerly_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, geometry = make_packed("llama")

    def refuse(*args: Any, **kwargs: Any) -> Recording:
        raise RuntimeError("unsupported operation\nand a long stack")

    monkeypatch.setattr(trace, "record", refuse)
    with caplog.at_level(logging.INFO, trace.__name__):
        fast = record_steps(model, geometry, BLOCK)
    assert fast.forms == set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "unsupported operation" in caplog.text
    assert "long stack" not in caplog.text
    assert_same(fast, model, geometry, make_rows(random.Random(2), 3, (), 60), 60)


def test_a_recording_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model, geometry = make_packed("llama")
    honest = trace.record

    def lie(*args: Any, **kwargs: Any) -> Any:
        recording = honest(*args, **kwargs)
        function = recording._run
        recording._run = lambda *tensors: (function(*tensors)[0] * 1.001, function(*tensors)[1])
        return recording

    monkeypatch.setattr(trace, "record", lie)
    with caplog.at_level(logging.WARNING, trace.__name__):
        fast = record_steps(model, geometry, BLOCK)
    assert fast.forms == set()
    assert "off by" in caplog.text


def make_fast(monkeypatch: pytest.MonkeyPatch, call: Any) -> tuple[FastStep, Any, Geometry]:
    """A fast lane whose only recording does what `call` does."""
    model, geometry = make_packed("llama")
    recording = object.__new__(Recording)
    monkeypatch.setattr(Recording, "__call__", call)
    return FastStep(model, geometry, {Form(True, 0): recording}), model, geometry


def test_a_recording_that_fails_is_given_up_and_the_step_is_run_eagerly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Recording, *tensors: torch.Tensor) -> Any:
        tensors[0].fill_(7.0)  # half a step's writes
        raise RuntimeError("The following operation failed in the TorchScript interpreter.\nTraceback:\nRuntimeError: shape 3 is not 4")

    fast, model, geometry = make_fast(monkeypatch, fail)
    inputs = BatchBuilder(BLOCK, geometry.windows, torch.device("cpu")).build(make_rows(random.Random(2), 3, (), 60)).inputs
    store = make_store(geometry, 60)
    store.tensors()[0].fill_(7.0)
    with torch.inference_mode():
        wanted, _ = run_step(model, geometry, store.keys, store.values, inputs)
        logits, _ = fast(make_store(geometry, 60), inputs)
    assert torch.equal(logits, wanted)
    assert fast.forms == set()
    assert "shape 3 is not 4" in caplog.text


def test_a_step_that_fails_either_way_is_not_the_recordings_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*anything: Any) -> Any:
        raise RuntimeError("not enough memory")

    fast, _, geometry = make_fast(monkeypatch, fail)
    monkeypatch.setattr(trace, "run_step", fail)
    inputs = BatchBuilder(BLOCK, geometry.windows, torch.device("cpu")).build(make_rows(random.Random(2), 3, (), 60)).inputs
    with pytest.raises(RuntimeError, match="not enough memory"):
        fast(make_store(geometry, 60), inputs)
    assert fast.forms == {Form(True, 0)}


def test_recording_ends_when_it_is_no_longer_wanted_and_tells_how_far_it_is() -> None:
    model, geometry = make_packed("llama")
    heard: list[float] = []
    fast = record_steps(model, geometry, BLOCK, ALL, heard=heard.append, cancelled=lambda: len(heard) == 1)
    assert len(fast.forms) == 1
    assert heard == [0.2]


def test_what_was_recorded_before_is_read_from_the_shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forms = (Form(True, 0), Form(False, 2))
    model, geometry = make_packed("llama", "16-bit")
    assert record_steps(model, geometry, BLOCK, forms, Shelf(tmp_path, model, geometry, BLOCK, CONTEXT)).forms == set(forms)
    assert len(list(tmp_path.iterdir())) == 2

    monkeypatch.setattr(trace, "record", None)  # from here on nothing can be recorded
    twin, geometry = make_packed("llama", "16-bit")
    twin.lm_head = make_packed("llama", "16-bit")[0].lm_head
    fast = record_steps(twin, geometry, BLOCK, forms, Shelf(tmp_path, twin, geometry, BLOCK, CONTEXT))
    assert fast.forms == set(forms)
    rng = random.Random(3)
    for singles, chunks in ((1, ()), (9, ()), (0, (2, 57))):
        assert_same(fast, twin, geometry, make_rows(rng, singles, chunks, 90), 90)
    assert fast.eager_steps == 0


def test_another_models_recording_is_not_taken(tmp_path: Path) -> None:
    model, geometry = make_packed("llama")
    recording = object.__new__(Recording)
    recording.portable = True
    recording.to_bytes = lambda: b"a recording"  # type: ignore[method-assign]
    Shelf(tmp_path, model, geometry, BLOCK, CONTEXT).put("form", recording)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 1
    other, other_geometry = make_packed("llama", "16-bit")
    wider, wider_geometry = make_packed("qwen3")
    for shelf in (
        Shelf(tmp_path, other, other_geometry, BLOCK, CONTEXT),
        Shelf(tmp_path, wider, wider_geometry, BLOCK, CONTEXT),
        Shelf(tmp_path, model, geometry, BLOCK * 2, CONTEXT),
        Shelf(tmp_path, model, geometry, BLOCK, CONTEXT * 2),
    ):
        shelf.put("form", recording)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_file_that_gives_other_results_is_recorded_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    form = Form(True, 0)
    model, geometry = make_packed("llama", "16-bit")
    shelf = Shelf(tmp_path, model, geometry, BLOCK, CONTEXT)
    weights = weights_of(model)
    swapped = {**weights, "model.norm.weight": weights["model.norm.weight"] * 2}
    true = trace._record(model, geometry, BLOCK, form, weights)
    assert trace._from_shelf(shelf, model, geometry, BLOCK, form, weights) is None
    shelf.put(form, true)
    assert trace._from_shelf(shelf, model, geometry, BLOCK, form, weights) is not None
    assert trace._from_shelf(shelf, model, geometry, BLOCK, form, swapped) is None
    assert "recorded anew" in caplog.text
    for path in tmp_path.iterdir():
        path.write_bytes(b"not an archive")
    assert shelf.get(form, weights) is None


def test_recording_stops_when_it_has_taken_its_time() -> None:
    model, geometry = make_packed("llama")
    fast = record_steps(model, geometry, BLOCK, ALL, seconds=0.0)
    assert fast.forms == {ALL[0]}


def test_a_shelf_keeps_the_files_last_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "KEPT", 2)
    model, geometry = make_packed("llama")
    shelf = Shelf(tmp_path, model, geometry, BLOCK, CONTEXT)
    recording = object.__new__(Recording)
    recording.portable = True
    recording.to_bytes = lambda: b"a recording"  # type: ignore[method-assign]
    for age, form in ((30, "a"), (10, "b"), (0, "c")):
        shelf.put(form, recording)
        os.utime(shelf._path(form), (time.time() - age, time.time() - age))
    shelf.put("d", recording)
    assert {path.name for path in tmp_path.iterdir()} == {shelf._path("c").name, shelf._path("d").name}


@pytest.mark.parametrize("windows", [(0,), (0, 9), (5,)])
@pytest.mark.parametrize("block_size", [4, 16, 32])
@pytest.mark.parametrize("form", ALL)
def test_made_up_steps_differ_in_every_number_that_may_change(form: Form, block_size: int, windows: tuple[int, ...]) -> None:
    steps, held_back = rehearse(form, windows, block_size, 50)
    assert {Form.of(step.inputs) for step in (*steps, held_back)} == {form}
    assert len({step.blocks for step in steps}) > 1
    fixed = {"ids": (0,), "positions": (0,), "unpad": () if form.buckets else (0,)}
    for name, tensors in _by_name([step.inputs for step in steps]):
        for dimension in range(tensors[0].dim()):
            sizes = {tensor.shape[dimension] for tensor in tensors}
            always = dimension in fixed.get(name, ()) or (name.endswith(".bias") and dimension == 1)
            assert always or len(sizes) > 1, f"{name} has {sizes.pop()} in dimension {dimension} of every step"


def _by_name(items: Sequence[Any], name: str = "") -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Corresponding tensors of nested dataclasses."""
    if isinstance(items[0], torch.Tensor):
        yield name, tuple(items)
    elif isinstance(items[0], tuple):
        for place, parts in enumerate(zip(*items, strict=True)):
            yield from _by_name(parts, f"{name}[{place}]")
    elif is_dataclass(items[0]):
        for part in fields(items[0]):
            yield from _by_name([getattr(item, part.name) for item in items], f"{name}.{part.name}".lstrip("."))
