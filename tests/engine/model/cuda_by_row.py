"""Readers for tests of the GPU lane on the CPU: the textbook, row by row, so that no row's result depends on any other or on padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.model.cuda.choice import Choice, Marks, choose, needs_of
from engine.model.cuda.paged import PackedChunks, PackedKeys, PagedIndex
from engine.model.cuda.readers import PackedVarlen, Reader
from engine.model.cuda.reference import Need, textbook
from engine.model.runner import TorchRunner

CPU = torch.device("cpu")


class ByRow(Reader):
    label = "by row"

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        rows = []
        for row, length in enumerate(index.lengths.tolist()):
            at = torch.arange(length)
            blocks, offsets = index.table[row].long()[at // self.need.block_size], at % self.need.block_size
            rows.append(textbook(query[row : row + 1], keys[blocks, :, offsets], values[blocks, :, offsets], self.need, sinks))
        return torch.cat(rows).to(query.dtype)


class ByChunk(PackedVarlen):
    label = "by chunk"

    def __init__(self, need: Need, device: torch.device) -> None:
        self.need = need

    def read(self, query: Tensor, keys: Tensor, values: Tensor, chunks: PackedChunks, seen: PackedKeys, sinks: Tensor | None) -> Tensor:
        rows = []
        for number in range(len(chunks.ends) - 1):
            asked, keyed = slice(*chunks.ends[number : number + 2].tolist()), slice(*seen.ends[number : number + 2].tolist())
            blocks, offsets = seen.blocks[keyed], seen.offsets[keyed]
            rows.append(textbook(query[asked], keys[blocks, :, offsets], values[blocks, :, offsets], self.need, sinks))
            assert asked.stop - asked.start <= chunks.longest and keyed.stop - keyed.start <= seen.longest
        return torch.cat(rows).to(query.dtype)


def make_choice(runner: TorchRunner, singles: Any = (ByRow,), chunks: Any = (ByChunk,)) -> Choice:
    needs = needs_of(runner._model, runner.store.geometry)
    choice = choose(needs, CPU, lambda action: 1.0, Marks(None), runner.store.block_size, singles, chunks)
    assert choice is not None
    return choice


class FakeGraph:
    """Stands in for CUDA graphs: remembers the function and the memory that it returned, calls it again, and fills that memory anew."""

    def __init__(self, fail_at: int = 0) -> None:
        self.recorded = 0
        self._fail_at = fail_at

    def __call__(self, function: Any) -> Any:
        self.recorded += 1
        if self.recorded == self._fail_at:
            raise RuntimeError("operation not permitted when stream is capturing\nmore of it")
        results = tuple(tensor.clone() for tensor in function())

        def replay() -> Any:
            for held, made in zip(results, function(), strict=True):
                held.copy_(made)
            return results

        return replay
