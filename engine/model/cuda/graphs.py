"""Decode steps as graphs: recorded once a number of rows, replayed with other numbers in the same memory.

Owns the numbers of rows that are recorded, the padding up to them, and the one tensor that carries a step's inputs. Knows no device: what
records and replays comes in as a function, on CUDA `CudaCapture`, in tests one that simply calls again. A step that has no graph, and every
step after a recording has failed, is the caller's to run eagerly.

A graph holds on to the memory that it was recorded with, the cache's tensors among it; when the cache has others, all is recorded anew.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from engine.model.cache import KVStore
from engine.model.cuda.paged import Flat
from engine.model.inputs import StepInputs

log = logging.getLogger(__name__)

Tensors = tuple[torch.Tensor, torch.Tensor]
MOST_ROWS = 256  # of the largest graph


class Capture(Protocol):
    """Records a function that takes nothing and returns tensors; the result replays it and returns those same tensors, filled anew."""

    def __call__(self, function: Callable[[], Tensors]) -> Callable[[], Tensors]: ...


Step = Callable[[KVStore, StepInputs], Tensors]


def sizes_up_to(rows: int) -> tuple[int, ...]:
    """1, 2, 4, 8, … up to the first that is at least `rows`, or `MOST_ROWS`."""
    sizes = [1]
    while sizes[-1] < min(rows, MOST_ROWS):
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


class DecodeGraphs:
    """Runs steps that are nothing but decode rows.

    Args:
        step: the eager step, on inputs that lie on `device`.
        sizes: rows a graph, ascending.
        width: blocks of the longest request there may be.
        windows: as in the builder.

    Attributes:
        replays: steps that ran as graphs.
        failed: why no more is recorded, or None.
    """

    def __init__(
        self, step: Step, sizes: Sequence[int], width: int, windows: Sequence[int], device: torch.device, capture: Capture
    ) -> None:
        self._step = step
        self._sizes = tuple(sizes)
        self._width = width
        self._windows = tuple(windows)
        self._capture = capture
        self._replay: dict[int, Callable[[], Tensors]] = {}
        self._memory: tuple[int, ...] = ()
        most = Flat(self._sizes[-1], width).size
        # The step before has been read back by now, so its copy is over and the memory free for the next.
        self._host = torch.zeros(most, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._flat = torch.zeros(most, dtype=torch.int32, device=device)
        self.replays = 0
        self.failed: str | None = None

    @property
    def recorded(self) -> tuple[int, ...]:
        return tuple(sorted(self._replay))

    def prepare(self, store: KVStore, heard: Callable[[float], None] = lambda share: None, cancelled: Callable[[], bool] = bool) -> None:
        """Record all sizes, the largest first, whose memory the smaller ones then share. Runs made-up steps that write to block 0 alone."""
        for done, rows in enumerate(reversed(self._sizes)):
            if cancelled() or not self._ready(store, rows):
                return
            heard((done + 1) / len(self._sizes))

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors | None:
        """(logits, finite) as `run_step`, of a step without chunks whose inputs lie on the host; None if there is no graph for it.

        The result lies in memory that the next call writes to.
        """
        if not inputs.decode or inputs.buckets:
            return None
        there = inputs.ids.shape[1]
        place = bisect.bisect_left(self._sizes, there)
        index: Any = inputs.decode[0]
        if place == len(self._sizes) or index.table.shape[1] > self._width or not self._ready(store, self._sizes[place]):
            return None
        layout = Flat(self._sizes[place], self._width)
        layout.pack(self._host[: layout.size], inputs)
        self._flat[: layout.size].copy_(self._host[: layout.size], non_blocking=True)
        logits, finite = self._replay[layout.rows]()
        self.replays += 1
        return _rows(logits, inputs.sample), finite[:there]

    def padded(self, store: KVStore, rows: int) -> Tensors:
        """The eager step over what a graph of `rows` rows would read now: what its results must equal."""
        layout = Flat(rows, self._width)
        return self._step(store, layout.unpack(self._flat[: layout.size], store.block_size, self._windows))

    def _ready(self, store: KVStore, rows: int) -> bool:
        memory = tuple(tensor.data_ptr() for tensor in store.tensors())
        if memory != self._memory:
            self._replay.clear()
            self._memory = memory
        if rows in self._replay:
            return True
        if self.failed:
            return False
        self._flat.zero_()
        try:
            self._replay[rows] = self._capture(lambda: self.padded(store, rows))
        except Exception as fault:  # whatever a model does that cannot be recorded
            self.failed = (str(fault).strip().splitlines() or [type(fault).__name__])[0][:200]
            log.warning("decode steps of %d rows stay eager: %s", rows, self.failed)
            return False
        return True


def _rows(logits: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """The rows `sample` (on the host) of the logits; mostly they are the first ones, in order."""
    count = sample.shape[0]
    if torch.equal(sample, torch.arange(count)):
        return logits[:count]
    return logits.index_select(0, sample.to(logits.device))
