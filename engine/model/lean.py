"""Brings transformers in without what only training, several machines and compilers need: half of the time to a first token was its import.

Two things of transformers 5.24 are costly. Parts of it import torch.distributed's tensors, and with them sympy, where torch has them: it is
told that this torch has none, which is a build that it supports, and true of us, who are one process on one device. And it marks a few
functions for torch.compile as they are defined, which imports that whole compiler: meanwhile a stand-in answers in its place. The marks
mean nothing outside torch.compile, which we never use; afterwards the real thing is there for whoever asks.

The same holds while a model is made: its tensors are first only shapes (torch's device "meta"), and giving those random numbers, which
nobody will ever see, leads torch through the compiler and sympy once more.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from engine.model.structure import keep_table

COMPILER = "torch._dynamo"
HELPER = f"{COMPILER}._trace_wrapped_higher_order_op"
INITIALISERS = (
    "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_",
    "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
)  # fmt: skip
PARTS = ("transformers.modeling_utils", "transformers.cache_utils", "transformers.masking_utils", "transformers.generation.utils")


def bring_in() -> None:
    """Import what every model needs. The second time does nothing. Call with `LIBRARIES` held."""
    if PARTS[-1] in sys.modules:
        return
    keep_table()
    with _one_process(), _no_compiler():
        for part in PARTS:
            importlib.import_module(part)


@contextmanager
def lean() -> Iterator[None]:
    """For the making of a model: no compiler, and no numbers for tensors that are only shapes. Hold `LIBRARIES`."""
    with _no_compiler(), _no_numbers_for_shapes(), _ranges_with_numbers():
        yield


@contextmanager
def _no_numbers_for_shapes() -> Iterator[None]:
    from torch.nn import init

    real = {name: getattr(init, name) for name in INITIALISERS}
    for name, function in real.items():
        setattr(init, name, _unless_shape(function))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(init, name, function)


@contextmanager
def _ranges_with_numbers() -> Iterator[None]:
    """What is computed from a range (the frequencies of rotary embeddings) is a few hundred numbers: quicker done than worked out as
    shapes. transformers computes them anew on the right device in any case."""
    import torch

    real = torch.arange

    @functools.wraps(real)
    def arange(*given: Any, **named: Any) -> Any:
        if named.get("device") is None:
            named["device"] = "cpu"
        return real(*given, **named)

    torch.arange = arange
    try:
        yield
    finally:
        torch.arange = real


def _unless_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def initialise(tensor: Any, *given: Any, **named: Any) -> Any:
        return tensor if tensor.is_meta else function(tensor, *given, **named)

    return initialise


@contextmanager
def _one_process() -> Iterator[None]:
    """transformers asks once whether torch can be distributed, and remembers the answer."""
    import torch.distributed
    from transformers.utils import import_utils

    real = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        import_utils.is_torch_distributed_available()
    finally:
        torch.distributed.is_available = real
    yield


@contextmanager
def _no_compiler() -> Iterator[None]:
    """A stand-in for torch's compiler, unless the real one is there already."""
    import torch

    if COMPILER in sys.modules:
        yield
        return
    stand_in, helper = _StandIn(COMPILER), _Helper(HELPER)
    sys.modules[COMPILER], sys.modules[HELPER] = stand_in, helper
    torch._dynamo = stand_in
    try:
        yield
    finally:
        for name, module in ((HELPER, helper), (COMPILER, stand_in)):
            if sys.modules.get(name) is module:
                del sys.modules[name]
        if torch.__dict__.get("_dynamo") is stand_in:
            del torch._dynamo  # torch brings the real one in when it is asked for


class _StandIn(ModuleType):
    """Every mark leaves the function as it is, whether it stands with brackets or without."""

    __path__: list[str] = []  # a package, so that parts of it can stand beside it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _mark


def _mark(function: Any = None, *_: Any, **__: Any) -> Any:
    return function if callable(function) else lambda marked: marked


class _Helper(ModuleType):
    """Names that are imported now and used later: each fetches the real one when it is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def later(*given: Any, **named: Any) -> Any:
            return getattr(importlib.import_module(HELPER), name)(*given, **named)

        return later
