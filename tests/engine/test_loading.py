"""Loading, end to end: the starter model, folders, GGUF files, and every kind of file that must not load."""

from __future__ import annotations

import errno
import json
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import starter
from engine.model import gguf
from engine.model.devices import choose_device, choose_dtype
from engine.model.loading import LoadedModel, load_model, locate
from engine.types import EngineConfig, Message, ModelError
from tests.engine.model.tiny_files import CONTEXT, VOCABULARY, make_folder, make_gguf, make_llama, unpack_here

CPU = EngineConfig(device="cpu")


def quiet(share: float, stage: str) -> None:
    pass


def load(source: Path | str, config: EngineConfig = CPU) -> LoadedModel:
    return load_model(str(source), config, quiet, lambda: False)


def refused(action: Callable[[], Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        action()
    assert caught.value.message.endswith(".")
    assert caught.value.hint
    return caught.value


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "tiny")


# ------------------------------------------------------------------------------------------------------------ the starter


@pytest.mark.model
def test_the_starter_answers() -> None:
    import torch

    said: list[float] = []
    loaded = load_model("starter", CPU, lambda share, stage: said.append(share), lambda: False)
    assert (loaded.name, loaded.family, loaded.architecture) == ("SmolLM2-135M-Instruct", "llama", "LlamaForCausalLM")
    assert (loaded.context, loaded.vocab_size, loaded.device, loaded.dtype) == (8192, 49152, "cpu", "float32")
    assert loaded.weight_bytes == pytest.approx(134_515_008 * 4, rel=1e-3)
    assert loaded.folder == starter.folder()
    assert said == sorted(said)
    assert said[-1] == 1.0
    model = loaded.torch_model
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    prompt = loaded.codec.encode_chat([Message("user", "What is the capital of France?")])
    ids = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=sorted(loaded.codec.eos_ids))
    assert "Paris" in loaded.codec.decode(ids[0, len(prompt) :].tolist())


# --------------------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize("shards", [False, True])
def test_a_folder_gives_the_very_same_model(tmp_path: Path, shards: bool) -> None:
    import torch

    place = make_folder(tmp_path / "mödel 模型 с пробел 😀 #%20'", shards)
    loaded = load(place)
    assert (place / "model.safetensors.index.json").exists() == shards
    assert (loaded.name, loaded.context, loaded.vocab_size) == (place.name, CONTEXT, VOCABULARY)
    expected = make_llama().state_dict()
    state = loaded.torch_model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert loaded.weight_bytes == sum(value.nbytes for value in expected.values()) + sum(b.nbytes for b in loaded.torch_model.buffers())
    assert loaded.codec.eos_ids == {0, 2}


def test_weights_that_are_shared_count_once(tmp_path: Path) -> None:
    tied = load(make_folder(tmp_path / "tied", tie_word_embeddings=True))
    plain = load(make_folder(tmp_path / "plain"))
    assert plain.weight_bytes - tied.weight_bytes == VOCABULARY * 64 * 4


def test_the_context_is_the_models_own_or_less(folder: Path) -> None:
    change_json(folder / "tokenizer_config.json", model_max_length=10**30)
    assert load(folder).context == CONTEXT
    assert load(folder, EngineConfig(device="cpu", context=100)).context == 100
    assert load(folder, EngineConfig(device="cpu", context=10**6)).context == CONTEXT


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes(folder: Path, dtype: str) -> None:
    loaded = load(folder, EngineConfig(device="cpu", dtype=dtype))
    assert loaded.dtype == dtype
    assert {str(parameter.dtype) for parameter in loaded.torch_model.parameters()} == {f"torch.{dtype}"}


def test_the_weights_file_itself_may_be_named(folder: Path) -> None:
    assert load(folder / "model.safetensors").name == "tiny"


def test_a_read_only_folder(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        assert load(folder).vocab_size == VOCABULARY
    finally:
        folder.chmod(0o755)


def test_ends_of_an_answer_come_from_every_file(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=[2, 7])
    change_json(folder / "config.json", eos_token_id=9)
    assert load(folder).codec.eos_ids == {0, 2, 7, 9}


# ------------------------------------------------------------------------------------------------------- what must not load


@pytest.mark.parametrize("shards", [False, True])
def test_a_missing_tensor_is_no_random_tensor(tmp_path: Path, shards: bool) -> None:
    from safetensors.torch import load_file, save_file

    place = make_folder(tmp_path / "m", shards)
    gone = "model.layers.1.mlp.up_proj.weight"
    for path in place.glob("*.safetensors"):
        save_file({name: value for name, value in load_file(path).items() if name != gone}, path, {"format": "pt"})
    if shards:
        index = json.loads((place / "model.safetensors.index.json").read_text())
        del index["weight_map"][gone]
        (place / "model.safetensors.index.json").write_text(json.dumps(index))
    error = refused(lambda: load(place))
    assert (error.code, gone in error.message) == ("missing_tensors", True)


def test_weights_of_another_shape(folder: Path) -> None:
    change_json(folder / "config.json", intermediate_size=200)
    error = refused(lambda: load(folder))
    assert error.code == "damaged_model"


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"model_type": "hal9000"}, "unknown_architecture", "hal9000"),
        ({"model_type": "hal9000", "auto_map": {"AutoConfig": "x.Y"}}, "unknown_architecture", "code of its own"),
        ({"model_type": ""}, "unknown_architecture", "(none)"),
        ({"model_type": "t5"}, "unknown_architecture", "t5"),
        ({"quantization_config": {"quant_method": "magic"}}, "unknown_quantisation", "magic"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "unknown_quantisation", "needs the package gptqmodel"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "unknown_quantisation", "needs the package gptqmodel"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "unknown_quantisation", "needs the package bitsandbytes"),
        ({"num_hidden_layers": "many"}, "bad_config", "config.json"),
        ({"num_hidden_layers": 100_000_000}, "damaged_model", "100,000,000 layers"),
        ({"vision_config": {"num_hidden_layers": 100_000_000}}, "damaged_model", "100,000,000 layers"),
    ],
)
def test_configurations_that_cannot_run(folder: Path, changes: dict[str, Any], code: str, word: str) -> None:
    change_json(folder / "config.json", **changes)
    error = refused(lambda: load(folder))
    assert (error.code, word in error.message) == (code, True), error.message


def test_a_quantiser_that_cannot_run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package seems to be there, but what it needs is not: that is said, and the files are not called damaged."""
    change_json(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    error = refused(lambda: load(folder))
    assert error.code == "unknown_quantisation" and "does not run on this machine" in error.message


@pytest.mark.parametrize("content", ["", "{}", "<html>", '{"version": "1.0", "model": {"type": "BPE", "vocab": 3}}'])
def test_a_tokenizer_that_is_none(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    assert refused(lambda: load(folder)).code == "bad_tokenizer"


def test_a_tokenizer_that_its_library_panics_at(folder: Path) -> None:
    """That is no `Exception` then."""
    change_json(folder / "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": "AA=="})
    error = refused(lambda: load(folder))
    assert error.code == "bad_tokenizer" and "precompiled_charsmap" in error.message


class Canary:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_no_code_of_a_model_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickles lie beside the weights, and every file names Python code: the model loads, none of it runs, no network is asked."""

    def connect(*args: Any) -> None:
        raise AssertionError(f"loading connects to {args[1:]}")

    monkeypatch.setattr(socket.socket, "connect", connect)
    canary = tmp_path / "canary"
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Canary(canary)))
    source = f"from pathlib import Path\nPath({str(canary)!r}).touch()\n"
    for name in ("modeling_evil.py", "tokenization_evil.py", "configuration_evil.py", "generate.py"):
        (folder / name).write_text(source)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(source)
    evil = {"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "configuration_evil.Evil"}
    change_json(folder / "config.json", auto_map=evil, trust_remote_code=True, _attn_implementation_internal="evil/kernel")
    change_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.Evil", None]}, tokenizer_class="Evil")
    loaded = load(folder)
    assert not canary.exists()
    assert loaded.architecture == "LlamaForCausalLM"
    assert "evil" not in str(loaded.torch_model.config._attn_implementation)


def test_only_pickles_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary(tmp_path / "canary")))
    assert refused(lambda: load(folder)).code == "pickle_only"
    assert not (tmp_path / "canary").exists()


def test_too_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    error = refused(lambda: load(folder))
    assert (error.code, "GB of memory" in error.message) == ("out_of_memory", True)


@pytest.mark.parametrize("moment", range(1, 5))
def test_loading_can_be_cancelled(folder: Path, moment: int) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked >= moment

    with pytest.raises(ModelError) as caught:
        load_model(str(folder), CPU, quiet, cancelled)
    assert caught.value.code == "cancelled"
    assert asked == moment


# ----------------------------------------------------------------------------------------------------------------- places


def test_a_gguf_file_gives_the_very_same_model(tmp_path: Path, furnished_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    unpack_here(monkeypatch)
    model = make_gguf(tmp_path / "my model.gguf")
    loaded = load(tmp_path / "my model.gguf")
    assert (loaded.name, loaded.context, loaded.dtype) == ("my model", CONTEXT, "float32")
    ids = torch.tensor([[5, 6, 7, 8]])
    assert torch.equal(loaded.torch_model(ids).logits, model(ids).logits)
    assert loaded.folder.is_relative_to(furnished_home)


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """GGUF files that `locate` wanted unpacked."""
    asked: list[Path] = []

    def ensure_converted(path: Path, progress: Any, cancelled: Any) -> Path:
        asked.append(path)
        return path.parent

    monkeypatch.setattr(gguf, "ensure_converted", ensure_converted)
    return asked


def test_a_folder_with_one_gguf_file(tmp_path: Path, converted: list[Path]) -> None:
    (tmp_path / "best-of-breed.gguf").write_bytes(b"GGUF")
    assert locate(str(tmp_path), quiet, lambda: False)[1] == "best-of-breed"
    assert converted == [tmp_path / "best-of-breed.gguf"]
    (tmp_path / "7-of-9.gguf").write_bytes(b"GGUF")
    error = refused(lambda: locate(str(tmp_path), quiet, lambda: False))
    assert (error.code, "2 GGUF files" in error.message) == ("several_models", True)


def test_a_gguf_file_is_known_by_its_content_too(tmp_path: Path, converted: list[Path]) -> None:
    (tmp_path / "blob").write_bytes(b"GGUF1234")
    assert locate(str(tmp_path / "blob"), quiet, lambda: False) == (tmp_path, "blob")
    assert converted == [tmp_path / "blob"]


@pytest.mark.parametrize(
    ("name", "content", "code", "word"),
    [
        ("page.gguf", b"<!DOCTYPE html>", "not_gguf", "web page"),
        ("old.gguf", b"GGML....", "not_gguf", "older GGML"),
        ("cut.gguf", b"GGUF\x03\x00", "truncated", "incomplete"),
        ("none.gguf", b"", "truncated", "empty"),
        ("model.bin", b"PK\x03\x04" + bytes(40), "not_a_model", "can run code"),
        ("notes.txt", b"hello", "not_a_model", "is not a model file."),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, furnished_home: Path, name: str, content: bytes, code: str, word: str) -> None:
    (tmp_path / name).write_bytes(content)
    error = refused(lambda: load(tmp_path / name))
    assert (error.code, word in error.message) == (code, True), error.message


def test_places_that_are_not_there(tmp_path: Path) -> None:
    assert refused(lambda: load(tmp_path / "nothing")).code == "model_not_found"
    (tmp_path / "empty").mkdir()
    assert refused(lambda: load(tmp_path / "empty")).code == "empty_folder"


def test_a_folder_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)  # rights do not bind root, as whom containers run tests
    error = refused(lambda: load(folder))
    assert (error.code, str(folder) in error.message) == ("no_permission", True)


# ------------------------------------------------------------------------------------------------------- device and dtype


def fake_devices(monkeypatch: pytest.MonkeyPatch, cuda: int = 0, mps: bool = False, bf16: bool = True) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number=0: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number=0: (10**9 * (number + 1), 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args, **kwargs: bf16)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(("cuda", "mps", "chosen"), [(0, False, "cpu"), (0, True, "mps"), (1, False, "cuda"), (2, True, "cuda:1")])
def test_the_best_device_is_chosen(monkeypatch: pytest.MonkeyPatch, cuda: int, mps: bool, chosen: str) -> None:
    fake_devices(monkeypatch, cuda, mps)
    assert choose_device("auto") == chosen
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize("asked", ["mps", "cuda:2", "cuda:x", "cpu:0", "abacus", ""])
def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    fake_devices(monkeypatch, cuda=2)
    assert choose_device("cuda:1") == "cuda:1"
    error = refused(lambda: choose_device(asked))
    assert (error.code, "cpu, cuda" in error.hint) == ("no_device", True)


def test_several_devices_are_named_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_devices(monkeypatch, cuda=2)
    assert choose_device("cuda:0, cuda:1") == "cuda:0,cuda:1" and choose_device("cuda:1,cpu") == "cuda:1,cpu"
    assert "cuda:2" in refused(lambda: choose_device("cuda:0,cuda:2")).message
    assert "twice" in refused(lambda: choose_device("cuda:0,cuda:0")).message


@pytest.mark.parametrize(
    ("asked", "device", "bf16", "chosen"),
    [
        ("auto", "cpu", True, "float32"),
        ("auto", "cuda", True, "bfloat16"),
        ("auto", "cuda:0", False, "float16"),
        ("auto", "mps", True, "bfloat16"),
        ("float16", "cpu", True, "float16"),
    ],
)
def test_the_dtype_follows_the_device(monkeypatch: pytest.MonkeyPatch, asked: str, device: str, bf16: bool, chosen: str) -> None:
    fake_devices(monkeypatch, cuda=1, bf16=bf16)
    assert str(choose_dtype(asked, device)) == f"torch.{chosen}"


def test_a_dtype_that_is_none() -> None:
    assert refused(lambda: choose_dtype("int3", "cpu")).code == "bad_dtype"


@pytest.mark.gpu
@pytest.mark.model
def test_the_starter_on_a_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    loaded = load("starter", EngineConfig())
    assert (loaded.device, loaded.dtype) == ("cuda", "bfloat16")
    assert {parameter.device.type for parameter in loaded.torch_model.parameters()} == {"cuda"}
