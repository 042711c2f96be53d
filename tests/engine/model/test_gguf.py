"""GGUF files: the header is read whole or refused with a reason, and unpacking gives the very same weights."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import manifest
from engine.model import gguf
from engine.model.checks import inspect_folder
from engine.model.gguf_header import read_header
from engine.text.codec import Codec
from engine.types import Message, ModelError
from tests.engine.model.tiny_files import CONTEXT, make_gguf

STAGES = ["reading the model file", "reading the vocabulary", "unpacking the weights", "writing the weights", "checking"]


@pytest.fixture(autouse=True)
def home(furnished_home: Path) -> Path:
    return furnished_home


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    make_gguf(path)
    return path


def test_a_file_that_went_while_it_was_read_is_said_to_be_gone(tmp_path: Path) -> None:
    error = gguf._explained(OSError("… Checkout 'https://huggingface.co/…' for available files."), tmp_path / "gone.gguf", "llama")
    assert error.code == "model_not_found" and error.message == f"There is no model at {tmp_path / 'gone.gguf'}." and error.hint


def refused(action: Callable[[], Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        action()
    assert caught.value.message.endswith(".")
    assert caught.value.hint
    return caught.value


# ------------------------------------------------------------------------------------------------------------- header


def test_header(tiny: Path) -> None:
    header = read_header(tiny)
    assert (header.architecture, header.version, header.file_size) == ("llama", 3, tiny.stat().st_size)
    assert header.metadata["llama.context_length"] == CONTEXT
    assert header.metadata["tokenizer.ggml.tokens"][1] == "<|im_start|>"
    assert len(header.tensors) == 2 * 9 + 3
    last = max(header.tensors, key=lambda tensor: tensor.offset)
    assert 0 <= tiny.stat().st_size - last.offset - last.size < 32
    by_name = {tensor.name: tensor for tensor in header.tensors}
    assert (by_name["token_embd.weight"].shape, by_name["token_embd.weight"].size) == ((64, 260), 64 * 260 * 4)


def test_a_truncated_file_says_what_is_there_and_what_should_be(tiny: Path, tmp_path: Path) -> None:
    data = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in (len(data) - 33, len(data) // 2):
        path.write_bytes(data[:length])
        error = refused(lambda: read_header(path))
        assert error.code == "truncated"
        assert f"{length:,} of " in error.message
    path.write_bytes(data[:200])
    error = refused(lambda: read_header(path))
    assert (error.code, "200 bytes end inside its header" in error.message) == ("truncated", True)
    path.write_bytes(b"")
    assert refused(lambda: read_header(path)).code == "truncated"


@pytest.mark.parametrize(
    ("start", "code", "word"),
    [
        (b"<!DOCTYPE html><html>", "not_gguf", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "not_gguf", "Git LFS pointer"),
        (b"GGML" + bytes(60), "not_gguf", "older GGML"),
        (b'{"error":"Access denied"}', "not_gguf", "error message"),
        (b"PK\x03\x04" + bytes(60), "not_gguf", "can run code"),
        (b"random noise", "not_gguf", "is not a GGUF file."),
        (b"GGUF" + struct.pack("<IQQ", 99, 1, 1), "gguf_version", "version 99"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "gguf_version", "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "damaged_model", "counts"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "damaged_model", "architecture"),
    ],
)
def test_what_is_no_gguf_file_is_named_for_what_it_is(tmp_path: Path, start: bytes, code: str, word: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(start)
    error = refused(lambda: read_header(path))
    assert error.code == code
    assert word in error.message


def test_damaged_headers_are_refused_or_read_never_worse(tiny: Path, tmp_path: Path) -> None:
    """2,000 damaged copies: each is read or refused with a ModelError; a crash or another exception fails the test."""
    data = tiny.read_bytes()
    header_end = min(tensor.offset for tensor in read_header(tiny).tensors)
    dice = random.Random(5)
    path = tmp_path / "fuzzed.gguf"
    refusals = 0
    for _ in range(2_000):
        copy = bytearray(data)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(4, min(header_end, len(copy)))
            match dice.randrange(4):
                case 0:
                    copy[place] ^= 1 << dice.randrange(8)
                case 1:
                    copy[place : place + 8] = b"\xff" * 8
                case 2:
                    copy[place : place + 8] = struct.pack("<Q", dice.choice([0, 1, 2**31, 2**40, 2**63]))
                case 3:
                    del copy[place + 1 :]
        path.write_bytes(copy)
        try:
            read_header(path)
        except ModelError as error:
            refusals += 1
            assert error.code in ("truncated", "damaged_model", "gguf_version", "gguf_type", "not_gguf")
    assert refusals > 500


# ---------------------------------------------------------------------------------------------------------- unpacking


def unpack(source: Path, folder: Path) -> list[str]:
    folder.mkdir()
    said: list[str] = []
    gguf.unpack(source, folder, "tiny", lambda share, stage, span=0.0: said.append(stage))
    return said


def test_weights_are_the_very_same(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    model = make_gguf(tmp_path / "a b" / "tïny 模型 😀 #%20'.gguf")
    source = next((tmp_path / "a b").iterdir())
    assert unpack(source, tmp_path / "out") == STAGES
    state = load_file(tmp_path / "out" / "model.safetensors")
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    files = inspect_folder(tmp_path / "out")
    assert files.config["max_position_embeddings"] == CONTEXT
    assert manifest.changed(tmp_path / "out", thorough=True) == []
    assert "tmp" not in (tmp_path / "out" / "config.json").read_text() + (tmp_path / "out" / "tokenizer_config.json").read_text()


def test_quantised_weights_are_unpacked_exactly(tmp_path: Path) -> None:
    import torch
    from gguf import GGMLQuantizationType, quants
    from safetensors.torch import load_file

    model = make_gguf(tmp_path / "q.gguf", quantised="Q8_0")
    unpack(tmp_path / "q.gguf", tmp_path / "out")
    state = load_file(tmp_path / "out" / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    packed = quants.quantize(model.state_dict()[name].numpy(), GGMLQuantizationType.Q8_0)
    assert torch.equal(state[name], torch.from_numpy(quants.dequantize(packed, GGMLQuantizationType.Q8_0)))


def test_weights_that_fit_bf16_are_kept_as_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tests.engine.model import tiny_files

    plain = tiny_files.make_llama
    monkeypatch.setattr(tiny_files, "make_llama", lambda: plain().to(torch.bfloat16).to(torch.float32))
    make_gguf(tmp_path / "b.gguf")
    unpack(tmp_path / "b.gguf", tmp_path / "out")
    assert {tensor.dtype for tensor in inspect_folder(tmp_path / "out").tensors.values()} == {"BF16"}


def test_the_tokenizer_is_the_models(tmp_path: Path, tiny: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    unpack(tiny, tmp_path / "out")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(tmp_path / "out"))
    codec = Codec(tokenizer)
    assert codec.eos_ids == {0, 2}
    assert codec.decode(codec.encode_chat([Message("user", "Hi 12")])) == "user\nHi 12\nassistant\n"
    assert [codec.token_bytes(token_id) for token_id in codec.encode("a  1")] == [b"a", b"  ", b"1"]
    assert tokenizer.model_max_length == CONTEXT


@pytest.mark.parametrize("missing", ["token_embd.weight", "blk.1.ffn_up.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, missing: str) -> None:
    make_gguf(tmp_path / "m.gguf", leave_out=missing)
    error = refused(lambda: unpack(tmp_path / "m.gguf", tmp_path / "out"))
    assert error.code == "missing_tensors"
    assert {"token_embd.weight": "model.embed_tokens.weight", "blk.1.ffn_up.weight": "model.layers.1.mlp.up_proj.weight"}[
        missing
    ] in error.message


def test_a_tensor_too_many_does_no_harm(tmp_path: Path) -> None:
    make_gguf(tmp_path / "e.gguf", extra=True)
    unpack(tmp_path / "e.gguf", tmp_path / "out")
    assert "quantum" not in "".join(inspect_folder(tmp_path / "out").tensors)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    make_gguf(tmp_path / "u.gguf", architecture="hal9000")
    error = refused(lambda: unpack(tmp_path / "u.gguf", tmp_path / "out"))
    assert error.code == "unknown_architecture"
    assert "hal9000" in error.message


# -------------------------------------------------------------------------------------------------------------- cache


def test_the_cache_knows_a_file_wherever_it_lies(tmp_path: Path, tiny: Path, home: Path) -> None:
    said: list[tuple[float, str]] = []
    source = tmp_path / "one" / "my model.gguf"
    source.parent.mkdir()
    source.write_bytes(tiny.read_bytes())
    folder = gguf.ensure_converted(source, lambda share, stage: said.append((share, stage)))
    assert folder.parent == home / "cache" / "converted"
    assert [stage for stage in dict.fromkeys(stage for _, stage in said)] == STAGES
    assert [share for share, _ in said] == sorted(share for share, _ in said)
    inspect_folder(folder)
    moved = source.rename(tmp_path / "my model.gguf")
    said.clear()
    assert gguf.ensure_converted(moved, lambda share, stage: said.append((share, stage))) == folder
    assert not said
    data = bytearray(moved.read_bytes())
    data[-1] ^= 1
    moved.write_bytes(data)
    assert f"my_model-{gguf.fingerprint(moved)}" != folder.name


def test_cancelling_ends_the_process_and_leaves_nothing(tmp_path: Path, tiny: Path, home: Path) -> None:
    said: list[str] = []
    error = None
    try:
        gguf.ensure_converted(tiny, lambda share, stage: said.append(stage), lambda: bool(said))
    except ModelError as caught:
        error = caught
    assert error is not None
    assert error.code == "cancelled"
    assert [path.suffix for path in (home / "cache" / "converted").iterdir()] == [".lock"]


def test_an_error_in_the_process_comes_out_as_it_is(tmp_path: Path) -> None:
    make_gguf(tmp_path / "m.gguf", leave_out="output_norm.weight")
    error = refused(lambda: gguf.ensure_converted(tmp_path / "m.gguf", lambda share, stage: None))
    assert error.code == "missing_tensors"
    assert "model.norm.weight" in error.message
