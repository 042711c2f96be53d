"""Parts of torch that its import brings along and a chat on the CPU never uses: left out until somebody asks for them.

torch 2.13 imports `torch.export`, and with it the passes of its graph compiler, and the Python formulas for the shapes of several hundred
operations ("meta" kernels). Neither is needed to run a model that is loaded for the CPU. In their place stand modules that bring the real
one in at the first look at anything of theirs; the formulas are looked at by nobody, so that who needs them calls `bring_in`. Where torch
was imported otherwise, everything is there from the start.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

from engine import early

SHAPES = ("torch._meta_registrations", "torch.distributed._meta_registrations")
PARTS = ("torch.export", *SHAPES)

_lock = threading.Lock()  # never held during an import, which may wait for another thread's


def import_torch() -> None:
    """torch without these parts, unless it is there already."""
    if "torch" in sys.modules:
        return
    early.finish()
    for name in PARTS:
        sys.modules[name] = _Late(name)
    importlib.import_module("torch")
    importlib.import_module("torch._prims.rng_prims")  # completes the class of random generators; else the formulas bring it along


def bring_in() -> bool:
    """What was put off, for work that is not a chat on the CPU. Returns whether there was any of it."""
    return bool([_real(name) for name in PARTS if isinstance(sys.modules.get(name), _Late)])


def _real(name: str) -> ModuleType:
    with _lock:
        if isinstance(sys.modules.get(name), _Late):
            del sys.modules[name]
    real = importlib.import_module(name)
    parent, _, part = name.rpartition(".")
    setattr(sys.modules[parent], part, real)
    return real


class _Late(ModuleType):
    """Stands for a module that is not there yet."""

    def __getattr__(self, part: str) -> Any:
        if part in ("__spec__", "__loader__", "__file__", "__wrapped__"):  # asked of every module by those who list them
            raise AttributeError(part)
        return getattr(_real(self.__name__), part)
