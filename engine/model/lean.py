"""Brings transformers in without what only training, several machines and compilers need: half of the time to a first token was its import.

Two things of transformers 5.24 are costly. Parts of it import torch.distributed's tensors, and with them sympy, where torch has them: it is
told that this torch has none, which is a build that it supports, and true of us, who are one process on one device. And it marks a few
functions for torch.compile as they are defined, which imports that whole compiler: meanwhile a stand-in answers in its place. The marks
mean nothing outside torch.compile, which we never use; afterwards the real thing is there for whoever asks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
HELPER = f"{COMPILER}._trace_wrapped_higher_order_op"
PARTS = ("transformers.modeling_utils", "transformers.cache_utils", "transformers.masking_utils", "transformers.generation.utils")


def bring_in() -> None:
    """Import what every model needs. The second time does nothing. Call with `LIBRARIES` held."""
    if PARTS[-1] in sys.modules:
        return
    with _one_process(), _no_compiler():
        for part in PARTS:
            importlib.import_module(part)


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
