"""The tensors of the second KV tier: blocks of idle chats in host memory, or in a file that the system pages in and out.

Carries out the copies that `engine/kv/tier.py` orders. Values come back bit for bit, so a restored answer is the same answer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import torch

from engine.catalog.folders import megabytes
from engine.kv.copies import Copy
from engine.model.cache import KVStore
from engine.types import EngineError, Sentence


class HostStore:
    """`slots` places for blocks of a KVStore.

    Args:
        folder: keep them in a file in this folder, which only its owner can read and which is gone at the end; None is memory
            (pinned when the device is a GPU, so that copies are fast).

    Raises EngineError("tier_failed") when there is no room for it.
    """

    def __init__(self, store: KVStore, slots: int, folder: str | None = None) -> None:
        self._store = store
        self._file: Path | None = None
        try:
            self._layers = list(self._in_file(slots, Path(folder)) if folder else self._in_memory(slots))
        except (OSError, RuntimeError) as error:
            self.close()
            size = megabytes(slots * store.bytes_per_block)
            if folder and isinstance(error, OSError):
                why = error.strerror or str(error)
                raise EngineError(
                    "tier_failed",
                    Sentence("The folder {0} cannot take {1} of set-aside chats: {2}.", folder, size, why),
                    "Make tier_tokens smaller, or choose another tier_folder.",
                ) from error
            raise EngineError(
                "tier_failed", Sentence("There is no room for {0} of set-aside chats: {1}", size, error), "Make tier_tokens smaller."
            ) from error

    def copy(self, copies: Sequence[Copy]) -> None:
        """Carry the copies out, in order."""
        for save, group in groupby(copies, key=lambda item: item.save):
            items = list(group)
            if save:  # a slot or block named twice in a run keeps the order of the copies: the last one counts
                items = list({item.slot: item for item in items}.values())
            blocks, slots = torch.tensor([item.block for item in items]), torch.tensor([item.slot for item in items])
            for device, host in self._layers:
                source = self._store_tensor(device)
                if save:
                    host.index_copy_(0, slots, source.index_select(0, blocks.to(source.device)).to("cpu"))
                else:
                    source.index_copy_(0, blocks.to(source.device), host.index_select(0, slots).to(source.device))

    def close(self) -> None:
        self._layers = []
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None

    # A resized store has new tensors, so they are named by place and looked up at each copy.
    def _store_tensor(self, place: int) -> torch.Tensor:
        return self._store.tensors()[place]

    def _in_memory(self, slots: int) -> Iterator[tuple[int, torch.Tensor]]:
        for place, tensor in enumerate(self._store.tensors()):
            pinned = tensor.device.type == "cuda"
            yield place, torch.empty((slots, *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=pinned)

    def _in_file(self, slots: int, folder: Path) -> Iterator[tuple[int, torch.Tensor]]:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="omnibus-kv-", suffix=".tmp", dir=folder)  # mode 0600
        self._file = Path(name)
        total = sum(slots * tensor[0].numel() * tensor.element_size() for tensor in self._store.tensors())
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, total)  # a full disk is found now, not as a bus error in the middle of a step
            else:
                os.truncate(handle, total)
        finally:
            os.close(handle)
        whole = torch.from_file(name, shared=True, size=total, dtype=torch.uint8)
        start = 0
        for place, tensor in enumerate(self._store.tensors()):
            size = slots * tensor[0].numel() * tensor.element_size()
            yield place, whole[start : start + size].view(tensor.dtype).view(slots, *tensor.shape[1:])
            start += size
