"""Gives memory that was freed back to the system: allocators keep it for themselves, and a model that was let go would go on counting."""

from __future__ import annotations

import ctypes
import gc
import sys


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
