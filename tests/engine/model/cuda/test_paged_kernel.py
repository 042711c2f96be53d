"""Our CUDA kernel without a GPU: its every statement, mirrored in `by_hand.py`, gives the textbook's result, and mirror and source agree.

NVIDIA's own compiler, which needs no GPU, makes machine code of the source. What this cannot show: what that code's speed is, and the
widening and narrowing of 16-bit numbers.
"""

from __future__ import annotations

import inspect
import platform
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.model.cuda import nvrtc
from engine.model.cuda.readers import KINDS, Ours, splits_for
from engine.model.cuda.reference import Need, make_case
from tests.engine.model.cuda import by_hand
from tests.engine.model.cuda.by_hand import Memory, Sizes


def statements(text: str) -> list[str]:
    """Lines of CUDA C that do something."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("//") and line != "}"]


def test_the_mirror_has_every_statement_of_the_source() -> None:
    source = nvrtc.SOURCE.read_text(encoding="utf-8")
    for name in ("paged_partials", "paged_merge"):
        body = source.split(f" {name}(", 1)[1].split(") {\n", 1)[1].split("\n}\n", 1)[0]
        mirror = inspect.getsource(getattr(by_hand, name))
        assert statements(body) == [line.strip()[2:] for line in mirror.splitlines() if line.strip().startswith("# ")]
    rescale = re.search(r"__device__ float rescale.*", source)
    assert rescale and f"# {rescale[0]}\n" in inspect.getsource(by_hand.rescale)


def run_by_hand(need: Need, lengths: list[int], splits: int) -> tuple[np.ndarray, torch.Tensor]:
    """(The kernel's result, the textbook's) for one made-up decode step."""
    case = make_case(need, lengths, [1] * len(lengths))
    group, rows, width = need.heads // need.key_heads, len(lengths), case.index.table.shape[1]
    sizes = Sizes(need.key_dim, need.value_dim, need.block_size, group, min(group, 4))

    def flat(tensor: torch.Tensor) -> Memory:
        return Memory(holding=tensor.reshape(-1).numpy().copy())

    tops, sums, outs = (
        Memory(rows * need.heads * splits),
        Memory(rows * need.heads * splits),
        Memory(rows * need.heads * splits * need.value_dim),
    )
    tiles = -(-group // sizes.TILE)
    arguments = [flat(part) for part in (case.query, case.keys, case.values, case.index.table, case.index.lengths)]
    grid = (splits, need.key_heads * tiles, rows)
    by_hand.paged_partials(sizes, grid, *arguments, tops, sums, outs, width, need.key_heads, need.window, need.scale, need.softcap or 0.0)
    result = Memory(rows * need.heads * need.value_dim)
    sinks = flat(case.sinks) if case.sinks is not None else Memory(0)
    by_hand.paged_merge(sizes, (need.heads, rows, 1), tops, sums, outs, sinks, result, splits, int(need.sinks))
    return result.data.reshape(rows, need.heads, need.value_dim), case.want


def make_need(**changes: Any) -> Need:
    usual = {"heads": 2, "key_heads": 1, "key_dim": 16, "value_dim": 16, "dtype": torch.float32, "block_size": 4, "window": 0}
    return Need(**{**usual, "scale": 0.3, "softcap": None, "sinks": False, **changes})


@pytest.mark.parametrize(
    ("need", "lengths", "splits"),
    [
        (make_need(), [1, 37, 16], 2),
        (make_need(window=6, sinks=True), [5, 6, 7, 23], 1),
        (
            make_need(heads=10, key_heads=2, value_dim=8, window=1),
            [3, 20],
            1,
        ),  # five heads a key head: a tile of four and one that is nearly empty
        (make_need(softcap=2.0, sinks=True, block_size=16), [17, 40], 4),  # shares that nothing falls into
        (make_need(key_dim=72, value_dim=80, heads=1), [19], 2),  # the ninth chunk of a key or value is the first lane's second
    ],
)
def test_the_kernels_are_the_textbook(need: Need, lengths: list[int], splits: int) -> None:
    found, wanted = run_by_hand(need, lengths, splits)
    assert np.abs(found - wanted.numpy()).max() < 5e-6


def test_memory_finds_what_must_not_be() -> None:
    memory = Memory(16)
    with pytest.raises(AssertionError, match="place 16"):
        memory[16] = 1.0
    memory[3] = 1.0
    with pytest.raises(AssertionError, match="two threads"):
        memory[3] = 2.0
    with pytest.raises(AssertionError, match="load of 8"):
        memory.load8(4)


def test_the_source_asks_for_no_header_and_gets_all_it_needs() -> None:
    source = nvrtc.SOURCE.read_text(encoding="utf-8")
    assert "#include" not in source
    defined = Ours.defines(make_need(dtype=torch.bfloat16))
    assert defined == {"KIND": 1, "DIM": 16, "VALUE_DIM": 16, "BLOCK": 4, "GROUP": 2, "TILE": 2}
    assert set(KINDS.values()) == {0, 1, 2} and all(re.search(rf"\b{name}\b", source) for name in defined)


def test_splits_fill_the_gpu_and_no_more() -> None:
    assert splits_for(8, 32768, 132) == 64  # one row of eight key heads, long: many shares
    assert splits_for(8, 128, 132) == 2  # short: another share would not pay
    assert splits_for(16 * 8, 32768, 132) == 4
    assert splits_for(10**6, 32768, 132) == 1
    assert splits_for(8, 1, 132) == 1


class FakeCompiler:
    """NVRTC's calls, as far as they are used."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.options: list[bytes] = []
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Size"):
            return lambda program, size: setattr(size._obj, "value", 40) or 0
        raise AttributeError(name)

    def nvrtcCreateProgram(self, program: Any, source: bytes, *rest: Any) -> int:
        self.open += 1
        return 0

    def nvrtcCompileProgram(self, program: Any, count: int, options: Any) -> int:
        self.options = list(options)
        return self.status

    def nvrtcGetProgramLog(self, program: Any, buffer: Any) -> int:
        buffer.value = b"note\nomnibus.cu(3): error: no such\nmore"
        return 0

    def nvrtcGetCUBIN(self, program: Any, buffer: Any) -> int:
        buffer.value = b"machine code"
        return 0

    def nvrtcDestroyProgram(self, program: Any) -> int:
        self.open -= 1
        return 0


def test_compiling() -> None:
    compiler = FakeCompiler()
    assert nvrtc.compile_source(compiler, "int x;", "sm_90", {"DIM": 8}).startswith(b"machine code")
    assert compiler.options == [b"--gpu-architecture=sm_90", b"-DDIM=8"] and compiler.open == 0
    compiler.status = 6
    with pytest.raises(nvrtc.CompileError, match=r"^omnibus.cu\(3\): error: no such$"):
        nvrtc.compile_source(compiler, "int x", "sm_90", {})
    assert compiler.open == 0


# From the oldest architecture that this compiler knows to a present one; every kind of number; sizes of known models.
@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="the compiler comes along on Linux only")
@pytest.mark.parametrize(
    ("architecture", "dtype", "heads", "key_heads", "key_dim", "value_dim", "block"),
    [
        ("sm_70", torch.float32, 9, 3, 64, 64, 32),  # SmolLM2
        ("sm_80", torch.float16, 32, 32, 128, 128, 16),  # Llama 2: no groups
        ("sm_90", torch.bfloat16, 64, 8, 128, 128, 16),  # Llama 3 70B: eight heads a group, two thread blocks' worth
        ("sm_120", torch.bfloat16, 4, 1, 256, 256, 16),  # Gemma 3: the widest heads
        ("sm_90", torch.bfloat16, 16, 16, 192, 128, 32),  # values narrower than keys
    ],
)
def test_the_compiler_accepts_the_source(
    architecture: str, dtype: torch.dtype, heads: int, key_heads: int, key_dim: int, value_dim: int, block: int
) -> None:
    need = make_need(dtype=dtype, heads=heads, key_heads=key_heads, key_dim=key_dim, value_dim=value_dim, block_size=block)
    library = nvrtc.find_library()
    cubin = nvrtc.compile_source(library, nvrtc.SOURCE.read_text(encoding="utf-8"), architecture, Ours.defines(need))
    assert cubin.startswith(b"\x7fELF") and b"paged_partials" in cubin and b"paged_merge" in cubin
    with pytest.raises(nvrtc.CompileError, match=r"^omnibus.cu\(\d+\): error: .*undefined"):
        nvrtc.compile_source(library, nvrtc.SOURCE.read_text(encoding="utf-8"), architecture, {})


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(OSError, match="compiler library of CUDA, was not found"):
        nvrtc.find_library()
