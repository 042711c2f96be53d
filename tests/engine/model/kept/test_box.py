"""The first start of a bundle: the model comes out of the box ready to run, and is unpacked behind the first answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from engine.catalog import boxed, starter
from engine.model.kept import box, place
from engine.model.native import library
from engine.model.opening import open_model
from engine.opened import OpenModel
from engine.types import EngineConfig
from tests.engine.catalog import test_boxed
from tests.engine.model.kept.test_kept import runner_of, steps, wait_for_keeping, was_taken
from tests.engine.model.tiny_files import VOCABULARY, make_llama, make_tokenizer

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "LEAST", 0)
    monkeypatch.setattr(place, "DELAY_S", 0.0)
    monkeypatch.setattr(place, "BOX_DELAY_S", 0.0)
    monkeypatch.setattr(place, "_FAILED", set())
    monkeypatch.setattr(box, "SMALL", 1000)  # bytes; a norm's vector has 256


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The box of a tiny model that no load has kept yet."""
    monkeypatch.setattr(test_boxed, "WORDS", VOCABULARY)
    prepared, source = test_boxed.make_pair(tmp_path)
    shape = {"num_attention_heads": test_boxed.HEADS, "num_key_value_heads": test_boxed.KV_HEADS, "intermediate_size": test_boxed.INNER}
    model = make_llama(**shape, num_hidden_layers=test_boxed.LAYERS, hidden_size=test_boxed.WIDTH, tie_word_embeddings=True)
    (prepared / "config.json").write_text(json.dumps(model.config.to_dict()))
    make_tokenizer().save_pretrained(str(prepared))
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "bundle"), raising=False)
    boxed.pack(prepared, source, tmp_path / "bundle" / boxed.PLACE)
    return tmp_path / "bundle" / boxed.PLACE


def first_start(home: Path, monkeypatch: pytest.MonkeyPatch, dtype: str = "auto") -> OpenModel:
    monkeypatch.setenv("OMNIBUS_HOME", str(home))
    (home / "cache").mkdir(parents=True, exist_ok=True)
    config = EngineConfig(kv_tokens=1024, threads=1, device="cpu", dtype=dtype)
    return open_model(config, lambda share, stage: None, lambda: False)


def packed(bundle: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> OpenModel:
    """What the build does: a load of the bundle's own keeps the model, and the box gets it."""
    model = first_start(home, monkeypatch)
    wait_for_keeping(model)
    (kept,) = (home / "cache" / "kept").glob("*.model")
    box.pack(kept, bundle, place.USUAL)
    return model


def test_the_first_start_is_the_same_to_the_bit_and_the_next_needs_no_box(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = packed(bundle, tmp_path / "build", monkeypatch)
    assert not was_taken(theirs) and "4-bit" in theirs.view.dtype
    monkeypatch.setattr(place, "BOX_DELAY_S", 3600.0)
    hasty = first_start(tmp_path / "hasty", monkeypatch)
    assert was_taken(hasty) and not starter.ready(), "nothing is unpacked before the model is there"
    hasty.close()
    monkeypatch.setattr(place, "BOX_DELAY_S", 0.0)
    ours = first_start(tmp_path / "home", monkeypatch)
    assert was_taken(ours)
    assert all(torch.equal(mine, its) for mine, its in zip(steps(ours), steps(theirs), strict=True))
    wait_for_keeping(ours)
    assert starter.ready()
    monkeypatch.setattr(box, "complete", None)
    again = first_start(tmp_path / "home", monkeypatch)
    assert was_taken(again)
    assert all(torch.equal(mine, its) for mine, its in zip(steps(again), steps(theirs), strict=True))


@pytest.mark.parametrize("harm", ["file", "weights", "other code", "asked otherwise", "failed before"])
def test_what_cannot_be_used_of_the_box_is_made_the_long_way(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    theirs = packed(bundle, tmp_path / "build", monkeypatch)
    ready = box.file_of(bundle)
    data = bytearray(ready.read_bytes())
    data[-100] ^= 1
    if harm == "file":
        ready.write_bytes(data)
    elif harm == "weights":  # as they would come out of another GGUF file
        monkeypatch.setitem(box._WAYS, "halves", lambda weights: box.panels(weights[0] * 2))
    elif harm == "other code":
        monkeypatch.setattr(place, "versions", lambda: ("another",))
    elif harm == "failed before":
        place.Place(starter.folder(), starter.NAME, EngineConfig(), bundle).forget()
    model = first_start(tmp_path / "home", monkeypatch, "8-bit" if harm == "asked otherwise" else "auto")
    assert not was_taken(model) and starter.ready() and ready.exists()
    if harm != "asked otherwise":
        assert all(torch.equal(mine, its) for mine, its in zip(steps(model), steps(theirs), strict=True))
    wait_for_keeping(model)


def test_a_model_that_cannot_be_made_of_the_box_is_not_packed(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = first_start(tmp_path / "build", monkeypatch)
    wait_for_keeping(model)
    (kept,) = (tmp_path / "build" / "cache" / "kept").glob("*.model")
    with pytest.raises(ValueError, match="usual"):
        box.pack(kept, bundle, ["8-bit", "auto", None, None])
    monkeypatch.setattr(box, "SMALL", 0)
    with pytest.raises(ValueError, match="nobody knows"):
        box.pack(kept, bundle, place.USUAL)
    monkeypatch.setattr(box, "SMALL", 1000)
    monkeypatch.setitem(box._WAYS, "halves", lambda weights: box.panels(weights[0] * 2))
    with pytest.raises(ValueError, match=r"lm_head\.packed"):
        box.pack(kept, bundle, place.USUAL)
    assert not box.file_of(bundle).exists()
    assert runner_of(model).lane == "fast"
