"""Brings torch's libraries into memory while a window is still being made: a sixth of a second on a second core, more from a slow disk.

Loading a library needs none of Python's lock, so the window loses nothing by it; torch's own import then finds them there. Owns the thread
that does it, which `finish` joins. Standard library only. Nothing is said of a failure: torch's import says it better.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

# As torch itself opens them, in this order: names, and whether all later libraries may use what is in them.
_LIBRARIES = (("libtorch_global_deps.so", True), ("libtorch_python.so", False))

_thread: threading.Thread | None = None


def begin() -> None:
    """Start, on Linux; elsewhere, and the second time, nothing is done."""
    global _thread
    if _thread is None and sys.platform == "linux" and "torch" not in sys.modules:
        _thread = threading.Thread(target=_load, name="omnibus-early", daemon=True)
        _thread.start()


def finish() -> None:
    """Wait until all is there. Before torch is imported, so that nothing is loaded twice at once."""
    if _thread is not None:
        _thread.join()


def _load() -> None:
    with suppress(Exception):
        spec = importlib.util.find_spec("torch")
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        folder = Path(places[0]) / "lib"
        _announce(folder / "libtorch_cpu.so")
        for name, for_all in _LIBRARIES:
            path = folder / name
            if path.exists():
                _open(path, os.RTLD_LAZY | (os.RTLD_GLOBAL if for_all else os.RTLD_LOCAL))


def _announce(path: Path) -> None:
    """Tell the system that all of a file will be read soon."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _open(path: Path, mode: int) -> None:
    """By the C library's own call: unlike `ctypes.CDLL`, a call of a foreign function lets go of Python's lock."""
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    dlopen(os.fsencode(path), mode)
