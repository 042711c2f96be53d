"""Gives memory that was freed back to the system: allocators keep it for themselves, and a model that was let go would go on counting.
And puts off the search for garbage where there is none."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def give_back() -> None:
    """Collect what nobody refers to, then have the C library return its free pages, and torch its cached ones where it is in use."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; musl returns pages by itself
        if trim is not None:
            trim(0)


_lock = threading.Lock()
_open = 0


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage while open, on any thread: imports leave hardly any, and looking for it takes a tenth of their time."""
    global _open
    with _lock:
        if not gc.isenabled() and not _open:
            ours = False  # somebody else turned it off, and turns it on
        else:
            ours, _open = True, _open + 1
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            if ours:
                _open -= 1
                if not _open:
                    gc.enable()
