"""What a model is said to need before it is loaded, against what it takes once it is: for every family, and for the starter model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.catalog import paths, starter
from engine.catalog.fit import fit, this_machine
from engine.engine import Engine
from engine.model.checks import INDEX
from engine.model.demand import BROUGHT_IN, demand, packed_bytes
from engine.model.linear import pack_linears
from engine.model.memory import workspace_bytes
from engine.model.native import library
from engine.model.probe import probe
from engine.model.shape import ModelShape, read_shape
from engine.types import EngineConfig
from tests.engine.model.tiny import CONTEXT, FAMILIES, make_model
from tests.engine.model.tiny_files import make_folder, make_gguf, make_tokenizer

CPU = {"device": "cpu", "precision": "16-bit", "block_size": 32, "token_budget": 512}


def save(model: object, place: Path) -> Path:
    model.save_pretrained(str(place))  # type: ignore[attr-defined]
    make_tokenizer().save_pretrained(str(place))
    return place


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_what_the_loaded_model_takes(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    shape = read_shape(save(model, tmp_path / family))
    geometry = probe(model, CONTEXT)
    assert shape.kv_elements * 4 == geometry.bytes_per_position()
    assert len(shape.layers) == len(geometry.layers)
    assert shape.context == CONTEXT
    config = EngineConfig(seats=3, context=CONTEXT)
    need = demand(shape, seats=3, context=CONTEXT, **CPU)
    assert need.work - BROUGHT_IN + need.scoring == pytest.approx(workspace_bytes(model, geometry, config, CONTEXT), rel=0.1)
    report = pack_linears(model, "16-bit")  # in panels of 32 columns, which weigh on tiny layers
    assert packed_bytes(shape, report.precision) == pytest.approx(report.weight_bytes, rel=0.05)


def test_classes_and_devices_cost_what_they_should(tmp_path: Path) -> None:
    shape = read_shape(make_folder(tmp_path / "m"))
    assert not shape.tied
    full, half = packed_bytes(shape, "f32"), packed_bytes(shape, "16-bit")
    assert full == 4 * shape.elements and half < 0.52 * full
    assert packed_bytes(shape, "4-bit") < packed_bytes(shape, "8-bit") < half
    on_gpu = demand(shape, device="cuda", precision="bfloat16", seats=2, context=64, block_size=16, token_budget=64)
    assert on_gpu.weights == on_gpu.loading == 2 * shape.elements
    assert on_gpu.kv == 2 * 64 * shape.kv_elements * 2


def test_blocks_are_counted_whole(tmp_path: Path) -> None:
    shape = read_shape(make_folder(tmp_path / "m"))
    assert demand(shape, seats=3, context=33, **CPU).kv == 3 * 64 * shape.kv_elements * 4


def test_a_folder_in_shards_counts_the_same(tmp_path: Path) -> None:
    whole, shards = make_folder(tmp_path / "a"), make_folder(tmp_path / "b", shards=True)
    assert (shards / INDEX).exists()
    assert read_shape(shards) == read_shape(whole)


@pytest.mark.parametrize("quantised", [False, True])
def test_a_gguf_file_counts_as_the_model_it_holds(tmp_path: Path, quantised: bool) -> None:
    path, folder = tmp_path / "tiny.gguf", make_folder(tmp_path / "m")
    make_gguf(path, "Q8_0" if quantised else "")
    ours, theirs = read_shape(path), read_shape(folder)

    def counts(shape: ModelShape) -> tuple[object, ...]:
        return (
            shape.linear,
            shape.embedding,
            shape.tied,
            shape.layers,
            shape.hidden,
            shape.wide,
            shape.heads,
            shape.vocabulary,
            shape.context,
        )

    assert counts(ours) == counts(theirs)
    assert (ours.file_bytes < theirs.file_bytes) is quantised


@pytest.mark.model
def test_the_starter_takes_what_was_said() -> None:
    with Engine(EngineConfig(seats=2, context=256, kv_tokens=512, device="cpu", threads=1)) as engine:
        view = engine.wait_ready(120).model
    said = CPU | {"precision": "f32" if view.dtype == "float32" else view.dtype}
    need = demand(read_shape(starter.folder()), seats=2, context=256, tiles=library.fault() is None, **said)
    assert need.weights == pytest.approx(view.weight_bytes, rel=0.02)
    assert need.kv == view.kv_bytes


# A process of its own: what it takes beyond its libraries, with every seat's context full and after the largest steps.
_TAKEN = """
from transformers import AutoModelForCausalLM
import engine.model.opening
from engine.engine import Engine
from engine.types import EngineConfig, SamplingParams
from tests.engine.test_unloading import resident

before = resident()
with Engine(EngineConfig(seats=4, context=256, kv_tokens=1024, device="cpu", threads=1)) as engine:
    engine.wait_ready(120)
    asked = SamplingParams(max_tokens=4, ignore_eos=True)
    handles = [engine.submit([place * 7919 % 40000 + seat for place in range(1, 250)], asked) for seat in range(4)]
    assert all(len(handle.result(120).token_ids) == 4 for handle in handles)
    print(resident() - before)
"""


@pytest.mark.model
def test_a_process_with_the_starter_takes_what_was_said(tmp_path: Path) -> None:
    """A model that is loaded for the first time is packed; after that its packed weights are read from the cache, which takes less."""
    said = fit(starter.folder(), this_machine("cpu"), 4, 256).total
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").symlink_to(paths.models_dir(), target_is_directory=True)
    first, kept = (_taken(tmp_path) for _ in range(2))
    assert said == pytest.approx(first, rel=0.15)
    assert kept < 1.05 * said


def _taken(home: Path) -> int:
    whole = os.environ | {paths.HOME_VARIABLE: str(home)}
    done = subprocess.run([sys.executable, "-c", _TAKEN], capture_output=True, text=True, timeout=250, check=False, env=whole)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])
