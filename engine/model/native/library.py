"""Makes the compiled kernels known to torch as operations `torch.ops.omnibus.*`, which recordings can hold.

Goes through libtorch's stable C interface (torch/csrc/stable and inductor/aoti_torch), by ctypes: no header and no compiler of C++ is
needed. The handles of the registration live as long as the process. Owns the choice between the kinds of `build.py`: the best that this CPU
can run, or what the variable OMNIBUS_KERNELS says, which is for tests and comparisons: the name of a kind, or "none".
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from pathlib import Path
from typing import Any

import torch

from engine.model.native.build import KINDS, Kind, NoKernels, find

log = logging.getLogger(__name__)

# What the kernels call, in the order of `Torch` in common.h.
_CALLED = (
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_get_dim",
    "aoti_torch_empty_strided",
    "aoti_torch_delete_tensor_object",
    "torch_parallel_for",
    "torch_get_num_threads",
    "aoti_torch_check",
)

_OPERATIONS = {
    "linear": "linear(Tensor x, Tensor weight, Tensor scale, Tensor bias, int columns) -> Tensor",
    "gated": "gated(Tensor x, Tensor weight, Tensor scale, int act, int columns) -> Tensor",
    "rms_norm": "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor",
    "rotate": "rotate(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    "store_": "store_(Tensor(a!) keys, Tensor(b!) values, Tensor key, Tensor value, Tensor block, Tensor offset, Tensor steps) -> ()",
    "attend": "attend(Tensor query, Tensor keys, Tensor values, Tensor tiles, Tensor table, float scale, float softcap, int window, "
    "Tensor sinks, Tensor steps) -> Tensor",
    "finite": "finite(Tensor key, Tensor value) -> Tensor",
    "draw": "draw(Tensor logits, Tensor settings, Tensor keys) -> Tensor",
}


def fault() -> str | None:
    """Why the kernels cannot be used here, or None: then they are registered. Found out once, whoever asks meanwhile waits: torch takes
    an operation's name once, and a model may be loaded while somebody looks whether another one fits."""
    with _FINDING_OUT:
        return _fault()


@functools.cache
def _fault() -> str | None:
    try:
        _register()
    except NoKernels as reason:
        log.info("no kernels of our own: %s", reason)
        return str(reason)
    return None


def kind() -> str | None:
    """The kind of CPU that the kernels in use are made for (see `build.KINDS`); None without kernels."""
    return choose().name if fault() is None else None


def choose() -> Kind:
    """The kind of kernels for this process. Raises NoKernels."""
    asked = os.environ.get("OMNIBUS_KERNELS", "")
    if asked == "none":
        raise NoKernels("OMNIBUS_KERNELS says so")
    if asked and asked not in [kind.name for kind in KINDS]:
        raise NoKernels(f"OMNIBUS_KERNELS is {asked!r}, not " + ", ".join([*(kind.name for kind in KINDS), "none"]))
    able = torch.cpu.get_capabilities()
    for kind in KINDS:
        if asked in ("", kind.name) and all(able.get(name) for name in kind.features):
            return kind
    raise NoKernels(f"this CPU cannot run those for {asked}" if asked else "this CPU has neither AVX512-BF16 nor AVX2, FMA and F16C")


def define_run(inputs: int, outputs: int) -> str:
    """The name of the operation that runs programs with so many tensors coming in and going out, made known to torch if it was not yet.
    Raises NoKernels."""
    name = f"run_{inputs}_{outputs}"
    with _FINDING_OUT:
        if name not in _RUNS:
            host, kernels, library, implementations = _KEPT
            results = ", ".join(["Tensor"] * outputs)
            takes = "".join(f", Tensor a{number}" for number in range(inputs))
            schema = f"{name}(int program, Tensor pools{takes}) -> " + (f"({results})" if outputs > 1 else results)
            _call(host, "aoti_torch_library_def", library, schema.encode())
            function = ctypes.cast(kernels.omnibus_run, ctypes.c_void_p)
            _call(host, "aoti_torch_library_impl", implementations, name.encode(), function)
            _RUNS.add(name)
    return f"omnibus::{name}"


def _register() -> None:
    path = find(choose())
    host = _libtorch()
    try:
        kernels = ctypes.CDLL(str(path))
    except OSError as reason:
        raise NoKernels(f"{path.name} cannot be loaded: {reason}") from reason
    functions = (ctypes.c_void_p * len(_CALLED))(*(ctypes.cast(_symbol(host, name), ctypes.c_void_p) for name in _CALLED))
    kernels.omnibus_init(functions)
    library, implementations = ctypes.c_void_p(), ctypes.c_void_p()
    _call(host, "aoti_torch_library_init_fragment", b"omnibus", b"library.py", 0, ctypes.byref(library))
    for schema in _OPERATIONS.values():
        _call(host, "aoti_torch_library_def", library, schema.encode())
    _call(host, "aoti_torch_library_init_impl", b"omnibus", b"CPU", b"library.py", 0, ctypes.byref(implementations))
    for name in _OPERATIONS:
        function = ctypes.cast(getattr(kernels, f"omnibus_{name.rstrip('_')}"), ctypes.c_void_p)
        _call(host, "aoti_torch_library_impl", implementations, name.encode(), function)
    _KEPT.extend((host, kernels, library, implementations))


_FINDING_OUT = threading.Lock()
_KEPT: list[Any] = []
_RUNS: set[str] = set()


def _libtorch() -> ctypes.CDLL:
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return ctypes.CDLL(str(path))  # loaded long ago: this is a handle to it
    except OSError as reason:
        raise NoKernels(f"torch's library cannot be asked: {reason}") from reason


def _symbol(host: ctypes.CDLL, name: str) -> Any:
    try:
        return getattr(host, name)
    except AttributeError:
        raise NoKernels(f"torch {torch.__version__} has no {name}; they need torch 2.10 or newer") from None


def _call(host: ctypes.CDLL, name: str, *arguments: Any) -> None:
    if _symbol(host, name)(*arguments):
        raise NoKernels(f"torch refused {name}")
