"""Compiles our CUDA C at run time with the compiler library that comes with torch: no compiler and no CUDA toolkit on the person's machine.

Owns the source's place and the call of NVRTC. torch.cuda._compile_kernel would do the same, but asks for an installed toolkit's headers
(torch 2.13: include_paths("cuda") raises where CUDA_HOME is not set), which our source does not need. The tests compile it; it
never ran on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

SOURCE = Path(getattr(sys, "_MEIPASS", Path(__file__).resolve().parents[3])) / "resources" / "kernels" / "paged_decode.cu"


class CompileError(RuntimeError):
    """NVRTC refused the source; the text is its own first line."""


def compile_source(library: Any, source: str, architecture: str, defines: Mapping[str, int]) -> bytes:
    """The machine code for e.g. "sm_90". `library` is NVRTC, by ctypes. Raises CompileError."""
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"omnibus.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}", *(f"-D{name}={value}" for name, value in defines.items())]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), array):
            raise CompileError(_first_error(_text(library, program, "ProgramLog").decode(errors="replace")))
        return _text(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(library: Any, status: int) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines() or ["no reason given"]
    return lines[0].strip()


def find_library() -> Any:
    """NVRTC: as torch finds it, else next to torch, where its packages put it. Raises OSError."""
    from torch.cuda import _utils

    try:
        return _utils._get_gpu_rtc_library()
    except (OSError, AttributeError) as error:  # the latter from a torch that was built without CUDA
        packages = Path(torch.__file__).resolve().parents[1]
        for pattern in ("torch/lib/*nvrtc*", "nvidia/*/lib/libnvrtc.so*", "nvidia/*/bin/nvrtc64*.dll"):
            for path in sorted(packages.glob(pattern)):
                if "builtins" not in path.name and ".alt." not in path.name:
                    return ctypes.CDLL(str(path))
        raise OSError(f"NVRTC, the compiler library of CUDA, was not found: {error}") from error


@functools.cache
def load(device: int, **defines: int) -> dict[str, Any]:
    """The kernels of our source on a GPU, by name, each called with grid, block and args. Raises CompileError, OSError or RuntimeError."""
    from torch.cuda._utils import _cuda_load_module

    major, minor = torch.cuda.get_device_capability(device)
    cubin = compile_source(find_library(), SOURCE.read_text(encoding="utf-8"), f"sm_{major}{minor}", defines)
    with torch.cuda.device(device):
        found: Any = _cuda_load_module(cubin, ["paged_partials", "paged_merge"])
    return dict(found)
