"""A model opened on the CPU: packed as asked, recorded once, and with the answers of the same model as it was loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.model import lane
from engine.model.loading import LoadedModel, load_model
from engine.model.opening import open_model
from engine.model.rehearsal import Form
from engine.model.runner import TorchRunner, make_runner
from engine.types import EngineConfig, ModelError
from tests.engine.model.tiny import Driver, make_request
from tests.engine.model.tiny_files import make_folder

PROMPTS = [list(range(5, 5 + length)) for length in (1, 9, 30, 4, 17)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; the recordings of one test are never another's."""
    monkeypatch.setenv("OMNIBUS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(lane, "PATIENCE_S", float("inf"))
    return tmp_path / "home" / "cache" / "recordings"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "tiny")


def make_config(folder: Path, dtype: str) -> EngineConfig:
    return EngineConfig(model=str(folder), device="cpu", dtype=dtype, kv_tokens=1024, block_size=4, threads=1)


def make_loaded(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_model(str(folder), make_config(folder, dtype), lambda share, stage: None, lambda: False)


def answers(runner: TorchRunner) -> list[list[int]]:
    requests = [make_request(prompt, name=str(number)) for number, prompt in enumerate(PROMPTS)]
    return Driver(runner, 3).answer(requests, 12, seats=4, chunk=11)


def test_an_opened_model_rides_the_fast_lane_with_the_same_answers(folder: Path, own_cache: Path) -> None:
    config = make_config(folder, "float32")
    expected = answers(make_runner(make_loaded(folder), config, 256, 4))
    for _ in range(2):  # recorded, then read
        opened = open_model(config, lambda share, stage: None, lambda: False)
        runner = opened.runner
        assert isinstance(runner, TorchRunner)
        assert runner.lane == opened.view.lane == "fast"
        assert opened.view.dtype == "float32"
        assert runner.fast is not None
        assert len(runner.fast.forms) == 5
        assert answers(runner) == expected
        assert len(list(own_cache.iterdir())) == 5
        runner.close()
        assert runner.lane == "general"


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "8-bit"])
def test_a_dtype_names_a_class_of_packed_weights(folder: Path, dtype: str) -> None:
    config = make_config(folder, dtype)
    assert lane.config_to_load(config).dtype == (dtype if dtype == "auto" else "float32")
    plain = make_loaded(folder)
    packed = lane.pack(make_loaded(folder), config)
    assert packed.dtype in ("16-bit", "8-bit", "float32")
    assert packed.weight_bytes < plain.weight_bytes or packed.dtype == "float32"
    ids = torch.tensor([PROMPTS[2]])
    with torch.inference_mode():
        want = plain.torch_model(ids, use_cache=False).logits
        got = packed.torch_model(ids, use_cache=False).logits
    assert (got - want).norm() <= 0.05 * want.norm()


def test_weights_off_the_grid_are_not_opened_in_4_bits(folder: Path) -> None:
    with pytest.raises(ModelError) as refused:
        lane.pack(make_loaded(folder), make_config(folder, "4-bit"))
    assert refused.value.code in ("not_on_grid", "no_kernel")


def test_a_plain_engine_runs_the_model_as_it_is(folder: Path, own_cache: Path) -> None:
    opened = open_model(replace(make_config(folder, "auto"), plain=True), lambda share, stage: None, lambda: False)
    try:
        assert opened.view.lane == "general" and opened.view.dtype == "float32"
        assert isinstance(opened.runner, TorchRunner) and opened.runner.fast is None
        assert answers(opened.runner) == answers(make_runner(make_loaded(folder), make_config(folder, "float32"), 256, 4))
    finally:
        opened.close()


def test_a_model_that_cannot_be_recorded_rides_the_general_lane(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.model.trace.record", None)
    opened = open_model(make_config(folder, "float32"), lambda share, stage: None, lambda: False)
    assert opened.view.lane == "general"
    assert all(len(answer) == 12 for answer in answers(opened.runner))  # type: ignore[arg-type]


def test_what_is_not_recorded_in_this_load_runs_eagerly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "PATIENCE_S", 0.0)
    config = make_config(folder, "float32")
    for load in (1, 2):  # each load adds one form
        opened = open_model(config, lambda share, stage: None, lambda: False)
        assert len(opened.runner.fast.forms) == load  # type: ignore[attr-defined]
    assert Form(True, 0) in opened.runner.fast.forms  # type: ignore[attr-defined]
    assert opened.runner.fast.eager_steps == 0  # type: ignore[attr-defined]
    answers(opened.runner)  # type: ignore[arg-type]
    assert opened.runner.fast.eager_steps > 0  # type: ignore[attr-defined]
