"""Between main memory and a device without standing still: copies in that wait for nothing, and copies out that are waited for when read.

On the CPU nothing is copied. On CUDA a copy waits for the device unless its host side is page-locked; torch keeps such memory until the
copy is over. Owns that knowledge and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`tensor`, which lies in main memory, on `device`."""
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def put(
    values: Sequence[int] | Sequence[float] | Sequence[Sequence[int]], device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Plain numbers as a tensor on `device`."""
    return upload(torch.tensor(values, dtype=dtype), device)


class Download:
    """The copy of a tensor to main memory, begun now and waited for in `get`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._copy = tensor
        if tensor.is_cuda:
            self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copy.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensor.device))

    def get(self) -> torch.Tensor:
        if self._event is not None:
            self._event.synchronize()
        return self._copy if self._copy.is_cpu else self._copy.cpu()
