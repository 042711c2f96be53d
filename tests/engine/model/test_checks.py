"""The look at a model folder before loading: what is missing, cut, foreign or dangerous is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.checks import INDEX, WEIGHTS, inspect_folder, is_plain_name, read_safetensors_header, sanitised
from engine.types import ModelError


def make_safetensors(path: Path, tensors: dict[str, int], **header: Any) -> None:
    """A file of zeros: F32 tensors by name and number of elements."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, count in tensors.items():
        entries[name] = {"dtype": "F32", "shape": [count], "data_offsets": [place, place + 4 * count]}
        place += 4 * count
    raw = json.dumps(entries | header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(place))


def make_folder(place: Path, shards: dict[str, dict[str, int]] | None = None, config: dict[str, Any] | None = None) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"model_type": "llama"} | (config or {})))
    (place / "tokenizer.json").write_text("{}")
    if shards is None:
        make_safetensors(place / WEIGHTS, {"a": 4, "b": 0})
    else:
        for name, tensors in shards.items():
            make_safetensors(place / name, tensors)
        (place / INDEX).write_text(json.dumps({"weight_map": {tensor: name for name, tensors in shards.items() for tensor in tensors}}))
    return place


def refused(action: Callable[[], Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        action()
    assert caught.value.message.endswith(".")
    assert caught.value.hint
    return caught.value


def test_a_good_folder(tmp_path: Path) -> None:
    files = inspect_folder(make_folder(tmp_path / "m"))
    assert (files.model_type, files.weight_bytes, files.custom_code) == ("llama", 16, False)
    assert files.shards == (tmp_path / "m" / WEIGHTS,)
    assert files.tensors["a"].shape == (4,)


def test_a_folder_in_shards(tmp_path: Path) -> None:
    shards = {"model-1.safetensors": {"a": 4}, "model-2.safetensors": {"b": 2, "c": 1}}
    files = inspect_folder(make_folder(tmp_path / "m", shards))
    assert [path.name for path in files.shards] == list(shards)
    assert (sorted(files.tensors), files.weight_bytes) == (["a", "b", "c"], 28)


def test_a_folder_of_links(tmp_path: Path) -> None:
    """Hugging Face's cache is made of links that lead out of the folder."""
    real = make_folder(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for path in real.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    assert inspect_folder(tmp_path / "snapshot").weight_bytes == 16


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    before = sorted(path.name for path in folder.iterdir())
    folder.chmod(0o555)
    try:
        inspect_folder(folder)
    finally:
        folder.chmod(0o755)
    assert sorted(path.name for path in folder.iterdir()) == before


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "gone": (lambda f: f.rename(f.with_name("elsewhere")), "model_not_found", "no model folder"),
    "empty": (lambda f: [path.unlink() for path in f.iterdir()], "empty_folder", "is empty"),
    "no config": (lambda f: (f / "config.json").unlink(), "no_config", "config.json"),
    "adapter": (lambda f: (f / "config.json").rename(f / "adapter_config.json"), "no_config", "adapter"),
    "config is html": (lambda f: (f / "config.json").write_text("<!DOCTYPE html><html>"), "damaged_model", "web page"),
    "config is cut": (lambda f: (f / "config.json").write_text('{"model_type": "lla'), "damaged_model", "config.json is not JSON"),
    "config is deep": (lambda f: (f / "config.json").write_text("[" * 100_000), "damaged_model", "config.json is not JSON"),
    "config has levels": (lambda f: (f / "config.json").write_text('{"a":' * 400 + "1" + "}" * 400), "damaged_model", "nested too deeply"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "damaged_model", "no JSON object"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no_tokenizer", "has no tokenizer"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "no_weights", "has no model.safetensors"),
    "pickles": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "pickle_only", "can run code"),
    "weights are html": (lambda f: (f / WEIGHTS).write_text("<html><body>Sign in"), "not_safetensors", "web page"),
    "weights are a pointer": (
        lambda f: (f / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n"),
        "not_safetensors",
        "pointer",
    ),
    "weights are a pickle": (lambda f: (f / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(90)), "not_safetensors", "can run code"),
    "weights are empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "truncated", "empty"),
    "weights are seven bytes": (lambda f: (f / WEIGHTS).write_bytes(bytes(7)), "truncated", "cut off"),
    "weights lack a byte": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-1]), "truncated", " bytes are there"),
    "weights end in the header": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:40]), "truncated", "40 bytes end inside"),
    "weights have a tail": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes() + b"x"), "damaged_model", "its tensors end at"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders(tmp_path: Path, case: str) -> None:
    break_it, code, words = BROKEN[case]
    folder = make_folder(tmp_path / "m")
    break_it(folder)
    error = refused(lambda: inspect_folder(folder))
    assert (error.code, words in error.message) == (code, True), error.message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", {"m-1.safetensors": {"a": 1}, "m-2.safetensors": {"b": 1}})
    (folder / "m-2.safetensors").unlink()
    error = refused(lambda: inspect_folder(folder))
    assert (error.code, "m-2.safetensors" in error.message) == ("missing_shard", True)


def test_a_tensor_that_the_index_promises_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", {"m-1.safetensors": {"a": 1}, "m-2.safetensors": {"b": 1, "c": 1}})
    make_safetensors(folder / "m-2.safetensors", {"b": 1})
    error = refused(lambda: inspect_folder(folder))
    assert (error.code, error.message) == ("missing_tensors", "m lacks one tensor of the model: c.")


@pytest.mark.parametrize("weight_map", [None, {}, [], {"a": 3}, "x"])
def test_an_index_without_names(tmp_path: Path, weight_map: Any) -> None:
    folder = make_folder(tmp_path / "m", {"m-1.safetensors": {"a": 1}})
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert refused(lambda: inspect_folder(folder)).code == "damaged_model"


HOSTILE_NAMES = (
    "../outside.safetensors",
    "..\\outside.safetensors",
    "/etc/x.safetensors",
    "C:x.safetensors",
    "a/b.safetensors",
    "weights.bin",
    "x.safetensors\0",
    ".safetensors",
    "x.safetensors:stream.safetensors",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    make_safetensors(tmp_path / "outside.safetensors", {"a": 1})
    folder = make_folder(tmp_path / "m", {"m-1.safetensors": {"a": 1}})
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    assert refused(lambda: inspect_folder(folder)).code == "bad_shard_name"


@given(st.text(max_size=30).map(lambda text: f"{text}.safetensors"))
def test_plain_names_stay_in_the_folder(name: str) -> None:
    if is_plain_name(name):
        assert Path("/root/folder", name).parent == Path("/root/folder")
        assert Path(name).name == name


def test_keys_that_could_pull_in_code_are_dropped_at_every_depth() -> None:
    config = {
        "model_type": "llama",
        "auto_map": {"AutoModel": "x.Y"},
        "_attn_implementation_internal": "evil/kernel",
        "attn_implementation": "evil/kernel",
        "_experts_implementation": "x",
        "transformers_weights": "../x",
        "text_config": {"trust_remote_code": True, "hidden_size": 4, "list": [{"auto_map": 1, "kept": 2}]},
    }
    assert sanitised(config) == {"model_type": "llama", "text_config": {"hidden_size": 4, "list": [{"kept": 2}]}}


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 15]},
        {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": ["4"], "data_offsets": [0, 16]},
        {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0]},
        {"dtype": "F32", "shape": [4]},
        {"dtype": "F32", "shape": 4, "data_offsets": [0, 16]},
        "text",
        None,
    ],
)
def test_entries_that_do_not_add_up(tmp_path: Path, entry: Any) -> None:
    make_safetensors(tmp_path / "x.safetensors", {"a": 4}, a=entry)
    assert refused(lambda: read_safetensors_header(tmp_path / "x.safetensors")).code in ("damaged_model", "truncated")


def test_damaged_headers_are_refused_or_read_never_worse(tmp_path: Path) -> None:
    """2,000 damaged copies: each is read or refused with a ModelError; anything else fails the test."""
    path = tmp_path / "x.safetensors"
    make_safetensors(path, {f"layer.{number}.weight": number for number in range(20)})
    data = path.read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    dice = random.Random(3)
    refusals = 0
    for _ in range(2_000):
        copy = bytearray(data)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(min(header_end, len(copy)))
            match dice.randrange(3):
                case 0:
                    copy[place] ^= 1 << dice.randrange(8)
                case 1:
                    copy[place : place + 8] = b"\xff" * 8
                case 2:
                    del copy[place + 1 :]
        path.write_bytes(copy)
        try:
            read_safetensors_header(path)
        except ModelError as error:
            refusals += 1
            assert error.code in ("truncated", "damaged_model", "not_safetensors")
    assert refusals > 1_000
