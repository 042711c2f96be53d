"""MOD: model files that are not what they seem, odd places, full disks and memories, hubs that say no, and changing one's mind."""

from __future__ import annotations

import errno
import gc
import json
import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import Engine, EngineConfig, EngineError, EngineState, FinishReason, OpenModel, SamplingParams
from engine.catalog import folders, hub, transfer
from engine.catalog.progress import State
from engine.catalog.registry import Registry
from engine.model import gguf
from engine.model.devices import choose_device
from engine.model.gguf_header import read_header
from engine.model.loading import locate
from engine.types import ModelError
from tests.engine.catalog.made_up_hub import MadeUpHub, serving
from tests.engine.catalog.test_transfer import DATA, FILE, REPOSITORY, fetch, make_download
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine, the_end, wait_for
from tests.engine.model.tiny_files import make_folder, make_gguf, unpack_here
from tests.engine.server.made_up_server import Client, make_server
from tests.engine.test_loading import fake_devices, load, refused


@pytest.fixture(autouse=True)
def home(furnished_home: Path) -> Path:
    return furnished_home


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "tiny.gguf"
    make_gguf(path)
    return path


@pytest.mark.case("MOD-01")
@pytest.mark.parametrize("length", [0, 200, -2, -1], ids=["empty", "200 bytes", "half", "a byte short"])
def test_an_incomplete_file_says_so_with_the_numbers(tiny_gguf: Path, tmp_path: Path, length: int) -> None:
    data = tiny_gguf.read_bytes()
    cut = {-1: len(data) - 33, -2: len(data) // 2}.get(length, length)  # the last bytes may be padding
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[:cut])
    error = refused(lambda: load(path))
    assert error.code == "truncated" and (cut < 1000 or f"{cut:,} of " in error.message), error.message


@pytest.mark.case("MOD-02")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>Sign in", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1", "pointer"),
        (b"GGML" + bytes(60), "older GGML"),
        (b"GGUF" + struct.pack("<IQQ", 99, 1, 1) + bytes(60), "version 99"),
    ],
    ids=["page", "pointer", "old", "version 99"],
)
def test_what_was_saved_as_a_model_is_named_for_what_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert words in refused(lambda: load(tmp_path / "x.gguf")).message
    if b"GGUF" not in content and b"GGML" not in content:
        folder = make_folder(tmp_path / "m")
        (folder / "model.safetensors").write_bytes(content)
        assert words in refused(lambda: load(folder)).message


@pytest.mark.case("MOD-02")
def test_empty_weights_are_said_to_be_empty(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"")
    assert "empty" in refused(lambda: load(folder)).message


@pytest.mark.case("MOD-04")
def test_a_file_that_lacks_a_tensor_is_refused_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack_here(monkeypatch)
    make_gguf(tmp_path / "m.gguf", leave_out="blk.1.ffn_up.weight")
    assert "blk.1.ffn_up.weight" not in {tensor.name for tensor in read_header(tmp_path / "m.gguf").tensors}
    error = refused(lambda: load(tmp_path / "m.gguf"))
    assert "layers.1.mlp.up_proj" in error.message or "blk.1.ffn_up" in error.message, error.message


@pytest.mark.case("MOD-04")
def test_a_file_with_a_tensor_too_many_loads_or_says_that_it_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack_here(monkeypatch)
    make_gguf(tmp_path / "m.gguf", extra=True)
    try:
        assert load(tmp_path / "m.gguf").vocab_size
    except ModelError as error:
        assert error.hint and ("newer" in error.message or "quantum_gate" in error.message)


@pytest.mark.case("MOD-06")
@pytest.mark.parametrize(
    "name", ["best-of-breed.gguf", "m-00001-of-00001.gguf", "m-00000-of-00002.gguf", "m-00005-of-00002.gguf", "7-of-9.gguf"]
)
def test_names_that_look_like_parts_are_single_files(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """None is waited for, and none is refused for its name; how such a file is unpacked is tests/engine/model/test_gguf.py's."""
    unpacked: list[Path] = []
    monkeypatch.setattr(gguf, "ensure_converted", lambda path, *rest: (unpacked.append(path), path.parent)[1])
    shutil.copy(tiny_gguf, tmp_path / name)
    for source in (tmp_path / name, tmp_path):
        assert locate(str(source), lambda share, stage: None, lambda: False) == (tmp_path, name.removesuffix(".gguf"))
    assert unpacked == [tmp_path / name] * 2 and read_header(tmp_path / name).tensors


@pytest.mark.case("MOD-07")
def test_a_missing_shard_or_tensor_is_refused_by_name(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_folder(tmp_path / "m", shards=True)
    gone = sorted(folder.glob("model-*.safetensors"))[1]
    kept = gone.read_bytes()
    gone.unlink()
    assert gone.name in refused(lambda: load(folder)).message
    gone.write_bytes(kept)
    tensor = "model.layers.1.mlp.up_proj.weight"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    path = folder / index["weight_map"].pop(tensor)
    save_file({name: value for name, value in load_file(path).items() if name != tensor}, path, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert tensor in refused(lambda: load(folder)).message
    assert load(make_folder(tmp_path / "tied", tie_word_embeddings=True)).vocab_size


ODD = ("mödel 模型 с пробел 😀", "田中\u3000x", "a#b%20c'd", "dot.", "x" * 120)


@pytest.mark.case("MOD-09")
@pytest.mark.parametrize("name", ODD, ids=["scripts", "wide space", "signs", "dot", "long"])
def test_odd_places_load_and_have_one_name_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place = tmp_path / "x" / name
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    (tmp_path / name).mkdir()
    folder = make_folder(place)
    assert load(folder).name == folder.name
    (entry,) = Registry().add(folder)
    assert entry.name == folder.name and Registry().find(entry.name).source == str(folder)
    workshop = Workshop()
    engine = Engine(EngineConfig(model=entry.name), opener=workshop.open)
    with engine:
        engine.wait_ready(PATIENCE)
        server = make_server(engine)
        try:
            client = Client(server)
            (listed,) = [item["id"] for item in client.get("/v1/models").json["data"]]
            assert client.chat(model=listed, max_tokens=2).status == 200
        finally:
            assert server.stop(PATIENCE)


@pytest.fixture
def made() -> Iterator[MadeUpHub]:
    made = MadeUpHub()
    made.repositories[REPOSITORY] = {FILE: DATA}
    with serving(made):
        yield made


@pytest.mark.case("MOD-13")
def test_a_disk_that_is_too_full_is_said_before_with_both_numbers(made: MadeUpHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folders.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: real._replace(free=1000))
    ended = fetch(make_download(made, tmp_path))
    assert ended.error is not None and ended.error.code == "disk_full" and made.asked == []
    assert sum(letter.isdigit() for letter in ended.error.message) >= 2


@pytest.mark.case("MOD-13")
def test_a_disk_that_fills_half_way_keeps_what_came(made: MadeUpHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = transfer._Part.write, []

    def full(self: Any, place: int, data: bytes) -> None:
        if len(written) >= 3:
            with folders.told("write to", self.path):
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        written.append(place)
        write(self, place, data)

    monkeypatch.setattr(transfer._Part, "write", full)
    job = make_download(made, tmp_path)
    ended = fetch(job)
    assert ended.state is State.FAILED and ended.error is not None and "full" in ended.error.message.lower()
    assert ended.error.hint and not (tmp_path / "acme--Tiny-GGUF").exists()
    monkeypatch.setattr(transfer._Part, "write", write)
    before = len(made.asked)
    assert fetch(job).state is State.DONE and len(made.asked) - before < 8, "what was there is not fetched again"


@pytest.mark.case("MOD-15")
def test_each_no_of_a_hub_has_its_own_sentence_and_next_step(made: MadeUpHub) -> None:
    endpoint = "https://hub.example"
    found = [hub.refused(status, endpoint, "acme/m") for status in (401, 403, 404, 407, 429, 500)]
    for cause in (ConnectionRefusedError("no"), ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED"), socket.gaierror(-2, "unknown")):
        error = OSError("outer")
        error.__cause__ = cause
        found.append(hub.unreachable(endpoint, error))
    assert len({error.message for error in found}) == len(found)
    assert all(error.hint for error in found) and len({error.hint for error in found}) >= 7
    made.gated.add(REPOSITORY)
    made.private.add("acme/secret")


@pytest.mark.case("MOD-15")
def test_a_model_on_the_disk_asks_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*args: Any) -> None:
        raise AssertionError(f"loading connects to {args[1:]}")

    folder = make_folder(tmp_path / "m")
    monkeypatch.setattr(socket.socket, "connect", connect)
    assert load(folder).vocab_size


def real_engine(folder: Path) -> Engine:
    return Engine(EngineConfig(model=str(folder), device="cpu", kv_tokens=2048, threads=1, plain=True))


@pytest.mark.case("MOD-18")
def test_too_little_memory_at_a_load_leaves_an_engine_that_loads_a_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    small, large = make_folder(tmp_path / "small"), make_folder(tmp_path / "large")
    real = AutoModelForCausalLM.from_pretrained

    def limited(place: str, *args: Any, **kwargs: Any) -> Any:
        if "large" in str(place):
            raise MemoryError
        return real(place, *args, **kwargs)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", limited)
    with real_engine(small) as engine:
        engine.wait_ready(60)
        engine.load(str(large))
        with pytest.raises(EngineError) as failed:
            engine.wait_ready(60)
        assert failed.value.code == "out_of_memory" and "GB of memory" in failed.value.message
        engine.load(str(small))
        engine.wait_ready(60)
        assert engine.submit("hi", SamplingParams(max_tokens=3, ignore_eos=True)).result(60).reason is FinishReason.LENGTH


@pytest.mark.slow
@pytest.mark.case("MOD-20")
def test_memory_comes_back_with_every_unload_and_every_load_that_fails(tmp_path: Path, real_heap: None) -> None:
    """One model that stayed would be more than the twentieth that may."""
    folder = make_folder(tmp_path / "m", hidden_size=512, intermediate_size=2048, num_hidden_layers=3)
    assert (folder / "model.safetensors").stat().st_size > 40 << 20
    process, sizes = psutil.Process(), []
    engine = real_engine(folder)
    opener, fails = engine.opener, threading.Event()

    def open_or_fail(config: EngineConfig, progress: Any, cancelled: Any) -> OpenModel:
        reached = 0.0

        def heard(share: float, stage: str) -> None:
            nonlocal reached
            reached = share
            progress(share, stage)

        return opener(config, heard, lambda: cancelled() or (fails.is_set() and reached > 0.65))  # when the weights are there

    engine.opener = open_or_fail
    with engine:
        for _ in range(3):
            engine.wait_ready(60)
            engine.submit("hi", SamplingParams(max_tokens=3, ignore_eos=True)).result(60)
            fails.set()
            engine.restart()
            with pytest.raises(EngineError, match="cancelled"):
                engine.wait_ready(60)
            fails.clear()
            engine.restart()
            engine.wait_ready(60)
            engine.unload()
            wait_for(engine, lambda: engine.snapshot.state is EngineState.EMPTY)
            gc.collect()
            sizes.append(process.memory_info().rss)
            engine.restart()
    assert sizes[-1] <= 1.05 * sizes[0], [size >> 20 for size in sizes]


@pytest.mark.case("MOD-21")
def test_of_several_cards_the_freest_usable_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def cards(*found: tuple[int, tuple[int, int]]) -> str:
        """(free bytes, capability) of each."""
        fake_devices(monkeypatch, cuda=len(found))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number=0: (found[number][0], 8 << 30))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number=0: found[number][1])
        return choose_device("auto")

    assert cards((512 << 20, (9, 0)), (8 << 30, (9, 0))) == "cuda:1"
    assert cards((1 << 20, (9, 0)), (7 << 30, (8, 0))) == "cuda:1"
    assert cards((8 << 30, (3, 5)), (1 << 30, (9, 0))) == "cuda:1", "an old card is no card"
    assert cards((8 << 30, (3, 5))) == "cpu"
    assert cards() == "cpu"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number=0: (_ for _ in ()).throw(RuntimeError("driver too old")))
    fake_devices(monkeypatch, cuda=1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number=0: (_ for _ in ()).throw(RuntimeError("driver too old")))
    assert choose_device("auto") == "cpu"


@pytest.mark.case("MOD-23")
def test_the_last_choice_of_a_model_wins_whatever_is_going_on() -> None:
    workshop = Workshop()
    with make_engine(workshop) as engine:
        engine.wait_ready(PATIENCE)
        for _ in range(4):
            riding = [engine.submit("x", SamplingParams(max_tokens=150)) for _ in range(3)]
            for name in ("b", "a", "b", "a"):
                engine.load(name)
            for handle in riding:
                end = the_end(handle)  # to its end, or told why not
                assert end.reason is FinishReason.LENGTH or (end.error is not None and end.error.code == "model_changed")
            assert engine.wait_ready(PATIENCE).model.name == "a"
        workshop.gate.clear()
        workshop.loading.clear()
        engine.load("b")
        assert workshop.loading.wait(PATIENCE)
        waits = engine.submit("x", SamplingParams(max_tokens=3))
        engine.load("c")  # while the other one still loads
        workshop.gate.set()
        assert engine.wait_ready(PATIENCE).model.name == "c"
        assert the_end(waits).reason is FinishReason.LENGTH and workshop.opened[-1] == "c"
        workshop.gate.clear()
        workshop.loading.clear()
        engine.load("b")
        assert workshop.loading.wait(PATIENCE)
    assert sorted(workshop.closed) == sorted(workshop.opened), "no model stays in memory"


@pytest.mark.case("MOD-26")
def test_nothing_is_written_beside_a_model(tmp_path: Path, tiny_gguf: Path) -> None:
    folder = make_folder(tmp_path / "m")
    place = tmp_path / "g"
    place.mkdir()
    shutil.copy(tiny_gguf, place / "tiny.gguf")
    before = {path: path.stat().st_mtime_ns for root in (folder, place) for path in root.rglob("*")}
    for root in (folder, place):
        root.chmod(0o555)
    try:
        for source in (folder, place / "tiny.gguf"):
            with real_engine(source) as engine:
                engine.wait_ready(60)
                assert engine.submit("hi", SamplingParams(max_tokens=2, ignore_eos=True)).result(60).reason is FinishReason.LENGTH
    finally:
        for root in (folder, place):
            root.chmod(0o755)
    assert {path: path.stat().st_mtime_ns for root in (folder, place) for path in root.rglob("*")} == before
