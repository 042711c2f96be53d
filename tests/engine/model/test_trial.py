"""The check before a load: a sound model passes without being loaded, and each fault has one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.catalog import paths
from engine.model.checks import WEIGHTS
from engine.model.trial import check_model
from engine.types import ModelError
from tests.engine.model.tiny_files import make_folder, make_gguf


@pytest.fixture(autouse=True)
def home(furnished_home: Path) -> Path:
    return furnished_home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "tiny")


def refused(source: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        check_model(str(source))
    assert caught.value.message.endswith(".") and "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def without_tensor(path: Path, name: str) -> None:
    """Rewrite a safetensors file without one tensor."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path, {"format": "pt"})


def test_a_sound_folder(folder: Path) -> None:
    approval = check_model(str(folder))
    assert (approval.name, approval.family, approval.template, approval.notes) == ("tiny", "llama", "model", ())


def test_a_sound_folder_of_shards_in_a_folder_that_is_read_only(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny, über #1...", shards=True)
    before = sorted(folder.iterdir())
    folder.chmod(0o555)
    try:
        assert check_model(str(folder)).family == "llama"
    finally:
        folder.chmod(0o755)
    assert sorted(folder.iterdir()) == before


def test_a_sound_gguf_file_is_not_unpacked(tmp_path: Path) -> None:
    make_gguf(tmp_path / "tiny.gguf")
    assert check_model(str(tmp_path / "tiny.gguf")).template == "model"
    assert not paths.converted_dir().exists()


def test_a_missing_tensor_is_named(folder: Path) -> None:
    without_tensor(folder / WEIGHTS, "model.layers.1.mlp.up_proj.weight")
    error = refused(folder)
    assert error.code == "missing_tensors" and "up_proj" in error.message


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "blk.0.attn_q.weight", "token_embd.weight"])
def test_a_missing_tensor_of_a_gguf_file_is_named(tmp_path: Path, name: str) -> None:
    make_gguf(tmp_path / "tiny.gguf", leave_out=name)
    error = refused(tmp_path / "tiny.gguf")
    assert error.code == "missing_tensors" and name in error.message


def test_other_shapes_than_the_configuration_says(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 100}))
    assert refused(folder).code == "damaged_model"


def test_an_unknown_architecture(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "quantum"}))
    assert refused(folder).code == "unknown_architecture"
    make_gguf(tmp_path / "q.gguf", architecture="quantum")
    assert "'quantum'" in refused(tmp_path / "q.gguf").message


def test_code_of_its_own_is_never_run(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    assert "code of its own" in refused(folder).message
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert check_model(str(folder)).notes == ("It comes with program code of its own, which is not run.",)
    assert not (folder / "ran").exists()


def test_an_unknown_quantisation(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "magic"}}))
    assert "'magic'" in refused(folder).message


def test_a_web_page_and_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
    assert "web page" in refused(tmp_path / "model.gguf").message
    (tmp_path / "empty.gguf").touch()
    assert refused(tmp_path / "empty.gguf").code == "truncated"


def test_no_tokenizer_and_one_that_is_damaged(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')
    assert refused(folder).code == "bad_tokenizer"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert refused(folder).code == "no_tokenizer"


def test_no_chat_template_and_a_broken_one_have_a_safe_default(folder: Path) -> None:
    template = folder / "chat_template.jinja"
    template.write_text("{% for m in messages %}{{ m.content")
    approval = check_model(str(folder))
    assert approval.template == "chatml" and "cannot be used" in approval.notes[0]
    template.unlink()
    approval = check_model(str(folder))
    assert approval.template == "chatml" and "no chat template of its own" in approval.notes[0]
