"""The debugging runner: believes nothing. Every block read must hold what was written to it, by the books and by the bytes.

Two checks before each forward pass. By the books: a shadow of the simulator's cache remembers which history every slot was computed
from, so that a block given to two owners, freed too early or matched to the wrong prefix is found. By the bytes: each complete block
carries a canary, the checksum of its keys and values in all layers, so that a stray write is found, and takes it along to the second
tier and back. Slow; switched on by `EngineConfig.debug_audit`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from engine.kv.copies import Copy, Move
from engine.scheduling.plan import Row, Sampled
from engine.scheduling.request import RequestState
from engine.sim import CacheCorruption, SimRunner

Place = tuple[int, bool]


class CheckedRunner:
    """Wraps a TorchRunner; see `engine.scheduling.plan.Runner` for the contract.

    Raises CacheCorruption, which is no Exception: such a fault must not be blamed on a request and survived.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._size = runner.store.block_size
        self._shadow = SimRunner(runner.store.num_blocks, self._size, context=runner.context, rules=runner.rules)
        # By where it lies: (block, False) in the layers that go by block, (slot, True) in those that keep blocks in slots.
        self._canaries: dict[Place, int] = {}
        self._away: dict[int, int | None] = {}  # by slot of the second tier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        self._shadow.forward(rows)
        self._verify(rows)
        results: list[Sampled | None] = self._runner.forward(rows)
        self._write_canaries(rows)
        return results

    def forget(self, request: RequestState) -> None:
        self._shadow.forget(request)
        self._runner.forget(request)

    def resize(self, num_blocks: int) -> None:
        self._shadow.resize(num_blocks)
        self._runner.resize(num_blocks)
        self._canaries = {place: canary for place, canary in self._canaries.items() if place[1] or place[0] <= num_blocks}

    def copy(self, copies: Sequence[Move]) -> None:
        self._shadow.copy(copies)
        self._runner.copy(copies)
        for item in copies:
            if not isinstance(item, Copy):  # not a complete block yet
                self._canaries.pop((item.target, False), None)
                self._canaries.pop((item.slots[1] if item.slots else 0, True), None)
            elif item.save:
                self._away[item.slot] = self._canaries.get((item.block, False))
            elif (canary := self._away.get(item.slot)) is not None:
                self._canaries[item.block, False] = canary
            else:
                self._canaries.pop((item.block, False), None)

    def _verify(self, rows: Sequence[Row]) -> None:
        for row in rows:
            request, full = row.request, row.start // self._size
            places = [(block, False) for block in request.blocks[request.gone : full]]
            for place in places + [(slot, True) for slot in request.slots[request.slots_gone : full]]:
                canary = self._canaries.get(place)
                if canary is None or canary != self._checksum(place):
                    where = f"{'slot' if place[1] else 'block'} {place[0]}"
                    raise CacheCorruption(f"{where} of {request.id} does not hold the bytes that were written to it")

    def _write_canaries(self, rows: Sequence[Row]) -> None:
        for row in rows:
            end = row.start + row.count
            for index in range(row.start // self._size, -(-end // self._size)):
                for place in [(row.request.blocks[index], False), *((slot, True) for slot in row.request.slots[index : index + 1])]:
                    self._canaries.pop(place, None)
                    if (index + 1) * self._size <= end:
                        self._canaries[place] = self._checksum(place)

    def _checksum(self, place: Place) -> int:
        where, in_slots = place
        store = self._runner.store
        canary = 0
        with torch.inference_mode():
            for tensors in (store.keys, store.values):
                for layer, tensor in tensors.items():
                    if store.geometry.in_slots(layer) == in_slots:
                        canary = zlib.crc32(tensor[where].contiguous().view(torch.uint8).cpu().numpy(), canary)
        return canary
