"""Thousands of damaged headers, GGUF and safetensors: each is read or refused with a sentence; nothing crashes, hangs or swells."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.model.checks import read_safetensors_header
from engine.model.demand import demand
from engine.model.gguf_header import read_header
from engine.model.shape import gguf_shape
from engine.model.trial import _missing
from engine.types import ModelError
from tests.engine.model.tiny_files import make_folder, make_gguf

MUTANTS = 4000
MOST_MEMORY = 64 << 20  # bytes that reading a header of some kB may take at most, whatever it claims
NASTY = (0, 1, 2, 7, 8, 9, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def look_at_gguf(path: Path) -> None:
    """All that is done with a header before a library sees the file."""
    header = read_header(path)
    _missing(header)
    shape = gguf_shape(header)
    demand(shape, device="cpu", precision="16-bit", seats=2, context=64, block_size=32, token_budget=64)


def look_at_safetensors(path: Path) -> None:
    read_safetensors_header(path)


def outcome(look: Callable[[Path], None], path: Path) -> str:
    try:
        look(path)
    except ModelError as error:
        assert error.message.endswith(".") and error.hint and len(error.message) < 2000
        return error.code
    return "read"


class Patched:
    """A file whose bytes are changed and changed back, without writing it anew each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self._file = path.open("r+b")

    def with_bytes(self, changes: dict[int, bytes], look: Callable[[Path], None]) -> str:
        for at, new in changes.items():
            self._write(at, new)
        try:
            return outcome(look, self.path)
        finally:
            for at, new in changes.items():
                self._write(at, self.data[at : at + len(new)])

    def _write(self, at: int, new: bytes) -> None:
        self._file.seek(at)
        self._file.write(new[: len(self.data) - at])
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patched]:
    path = tmp_path_factory.mktemp("fuzz") / "tiny.gguf"
    make_gguf(path)
    made = Patched(path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patched]:
    made = Patched(make_folder(tmp_path_factory.mktemp("fuzz") / "tiny") / "model.safetensors")
    yield made
    made.close()


def mutations(rng: random.Random, length: int) -> dict[int, bytes]:
    """One to three places of a header of `length` bytes, with what is put there."""
    changes = {}
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(length)
        kind = rng.randrange(4)
        if kind == 0:
            changes[at] = bytes([rng.randrange(256)])
        elif kind == 1:
            changes[at] = struct.pack("<Q", rng.choice(NASTY))
        elif kind == 2:
            changes[at] = struct.pack("<I", rng.choice(NASTY) & 0xFFFFFFFF)
        else:
            changes[at] = rng.randbytes(rng.randint(1, 16))
    return changes


def run(made: Patched, length: int, look: Callable[[Path], None], seed: int) -> Counter[str]:
    rng = random.Random(seed)
    tracemalloc.start()
    try:
        found = Counter(made.with_bytes(mutations(rng, length), look) for _ in range(MUTANTS))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert sum(found.values()) == MUTANTS
    assert made.path.read_bytes() == made.data
    return found


def test_damaged_gguf_headers(gguf: Patched) -> None:
    length = min(tensor.offset for tensor in read_header(gguf.path).tensors)
    found = run(gguf, length, look_at_gguf, seed=1)
    assert {"damaged_model", "truncated", "read"} <= set(found), found


def test_damaged_safetensors_headers(safetensors: Patched) -> None:
    length = 8 + int.from_bytes(safetensors.data[:8], "little")
    found = run(safetensors, length, look_at_safetensors, seed=2)
    assert {"damaged_model", "not_safetensors", "read"} <= set(found), found


def test_every_length_of_a_cut_file(gguf: Patched, safetensors: Patched, tmp_path: Path) -> None:
    rng = random.Random(3)
    for made, look in ((gguf, look_at_gguf), (safetensors, look_at_safetensors)):
        path = tmp_path / made.path.name
        for _ in range(300):
            path.write_bytes(made.data[: rng.choice((rng.randrange(64), rng.randrange(12_000), rng.randrange(len(made.data))))])
            assert outcome(look, path) != "read"


def test_headers_that_claim_a_great_deal(tmp_path: Path) -> None:
    """Counts and lengths that would take a machine's memory if they were believed."""
    start = b"GGUF" + struct.pack("<I", 3)
    key = struct.pack("<Q", 1) + b"k"
    claims = [
        start + struct.pack("<QQ", 1 << 62, 1),
        start + struct.pack("<QQ", 1, 1_000_000) + b"\0" * 64,
        start + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1 << 62),
        start + struct.pack("<QQ", 0, 1) + key + struct.pack("<IIQ", 9, 8, 1 << 60),
        start + struct.pack("<QQ", 0, 1) + key + struct.pack("<IIQ", 9, 10, (1 << 61) + 1),
        start + struct.pack("<QQ", 0, 1) + key + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1 << 30) * 50,
    ]
    tracemalloc.start()
    try:
        for number, claim in enumerate(claims):
            path = tmp_path / f"{number}.gguf"
            path.write_bytes(claim + bytes(100))
            assert outcome(look_at_gguf, path) in ("damaged_model", "truncated")
        tensor = {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 1 << 82]}
        for number, header in enumerate(
            ({"a": tensor}, {"a": tensor | {"shape": [0.5]}}, {"a": tensor | {"data_offsets": [0.0, 4.0]}}, {"a": 1})
        ):
            raw = json.dumps(header).encode()
            path = tmp_path / f"{number}.safetensors"
            path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))
            assert outcome(look_at_safetensors, path) in ("damaged_model", "truncated")
        path.write_bytes((50_000).to_bytes(8, "little") + b"{" + b"[" * 60_000)
        assert outcome(look_at_safetensors, path) == "damaged_model"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
