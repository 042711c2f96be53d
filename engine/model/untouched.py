"""Large tensors of zeros whose memory the system hands out as it is first written to, piece by piece and not in gulps."""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

HUGE = 2 << 20  # bytes of a huge page
GOLDEN = 0.618034  # multiples of it, without their whole part, lie evenly spread however many there are
_made = itertools.count()


def untouched_zeros(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in main memory whose pages the system hands out when they are first written: a large pool costs nothing until it is used.

    torch.zeros writes them all at once, which takes a second a gigabyte. Aligned to 64 bytes, as torch's own are.

    On Linux the pages are huge, which are read 2 % faster, but not in a virtual machine: its host may take 6 ms to hand out 2 MB, and as
    the layers' tensors fill alike, a step that was the first to come to a new part of the pool waited for sixty of them (measured: 300 ms
    in place of 150). For the same reason huge ones do not begin at the same place of each tensor.
    """
    size = math.prod(sizes) * dtype.itemsize
    if sys.platform != "linux" or size < HUGE:
        raw = np.zeros(size + 64, dtype=np.uint8)
        start = -raw.ctypes.data % 64
    else:
        pages = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a system without huge pages
            pages.madvise(mmap.MADV_NOHUGEPAGE if _is_virtual() else mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(pages, dtype=np.uint8)
        start = (int(next(_made) * GOLDEN % 1 * HUGE) // 64 * 64 - raw.ctypes.data) % HUGE
    return torch.from_numpy(raw[start : start + size]).view(dtype).view(sizes)


@cache
def _is_virtual(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor says that a hypervisor runs it."""
    try:
        return re.search(r"^flags\b.*\bhypervisor\b", cpuinfo.read_text(), re.MULTILINE) is not None
    except OSError:
        return False
