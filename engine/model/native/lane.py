"""The fastest lane on the CPU: a packed model's whole step on our own kernels, recorded once, with the cache in bfloat16.

Owns the choice of this lane before memory is planned, its check against the general lane, and the one recording of its step. Where it
cannot be had, the log says why and the general lane runs; where only the recording fails, the step runs eagerly on the same kernels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from engine.model.batch import BatchBuilder, StepInputs
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Recording, record, weights_of
from engine.model.native import library
from engine.model.native.cache import run_tiles, tile_function
from engine.model.native.paged import TileBuilder
from engine.model.native.rewrite import fuse_rotations
from engine.model.packed.kernel import Kernel
from engine.model.rehearsal import vocabulary_of
from engine.model.shape import tile_sizes
from engine.model.shelf import Shelf
from engine.model.step import run_step
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import Priority, SamplingParams

log = logging.getLogger(__name__)

UNIT = 32  # positions that are read at once: a block is so many, or a multiple
ROUNDED = 0.1  # of the largest logit (as in `verify.py`): what keys and values in 16 bits may change beside the general lane's float32
CLOSE = 1e-5  # of the largest logit, between the recording and the eager step: they are the same operations
FORM = "tiles"

Tensors = tuple[torch.Tensor, ...]

# Made-up steps as (start, count) of their rows. No two agree in any size that may differ later; the last is held back for the check.
_STEPS = (
    ((5, 1), (70, 1), (0, 9)),
    ((0, 1), (33, 1), (2, 1), (130, 1), (40, 31), (0, 2)),
    ((64, 1), (31, 1), (3, 17), (0, 5), (95, 1)),
)
_SPARE = (0, 3, 1)  # blocks that stay empty


class TileLane:
    """Runs steps; see `TorchRunner.ride`.

    Attributes:
        builder: makes the inputs of steps.
        recorded: whether steps run without Python.
    """

    def __init__(self, model: Any, geometry: Geometry, block_size: int, recording: Recording | None) -> None:
        self.builder = TileBuilder(block_size, geometry.windows, geometry.group)
        self._model = model
        self._geometry = geometry
        self._recording = recording

    @property
    def recorded(self) -> bool:
        return self._recording is not None

    def eagerly(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """The same, module by module."""
        return run_tiles(self._model, self._geometry, store.keys, store.values, inputs)

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """(logits, finite), as `run_step`."""
        if self._recording is not None:
            try:
                out: Tensors = self._recording(*store.tensors(), *inputs.tensors())
                return out
            except RuntimeError as fault:
                failed = fault
            outcome = run_tiles(self._model, self._geometry, store.keys, store.values, inputs)
            self._recording = None  # the step itself was sound, so the recording is not
            log.warning("steps are no longer run from their recording: %s", str(failed).strip().splitlines()[-1][:300])
            return outcome
        return run_tiles(self._model, self._geometry, store.keys, store.values, inputs)


def tile_geometry(model: Any, geometry: Geometry, block_size: int | None) -> Geometry | None:
    """The geometry with a cache in bfloat16 if this lane can run the model and gives the general lane's logits, else None."""
    reason = _refusal(geometry, block_size) or library.fault()
    if reason is None:
        halved = replace(geometry, layers={number: replace(shape, dtype=torch.bfloat16) for number, shape in geometry.layers.items()})
        try:
            worst = _compare(model, geometry, halved)
        except Exception as fault:  # whatever a model does that our kernels do not know
            worst, reason = 0.0, f"{type(fault).__name__}: {str(fault).strip().splitlines()[0][:200] if str(fault) else ''}"
        if reason is None and not worst <= ROUNDED:
            reason = f"its logits are off by {worst:.2g} of the largest ({ROUNDED} allowed)"
        if reason is None:
            log.info("steps run on our own kernels: logits within %.2g of the general lane's", worst)
            return halved
    log.info("steps do not run on our own kernels: %s", reason)
    return None


def make_tile_lane(model: Any, store: KVStore, shelf: Shelf | None = None) -> TileLane:
    """The lane of a model, for a store of `tile_geometry`'s geometry."""
    began = time.perf_counter()
    recording = None
    try:
        weights = weights_of(model)
        recording = shelf.get(FORM, weights) if shelf is not None else None
        kept = recording is not None
        recording = recording or _record(model, store.geometry, store.block_size, weights)
        _check(model, store.geometry, store.block_size, recording)
        if shelf is not None and not kept:
            shelf.put(FORM, recording)
        took = time.perf_counter() - began
        log.info("the step was %s in %.1f s: %d operations", "read" if kept else "recorded", took, recording.operations)
    except Exception as fault:  # whatever a model does that torch cannot record
        recording = None
        log.warning("steps run eagerly on our own kernels: %s", str(fault).strip().splitlines()[-1][:300] if str(fault) else fault)
    return TileLane(model, store.geometry, store.block_size, recording)


def _refusal(geometry: Geometry, block_size: int | None) -> str | None:
    if not geometry.plain or geometry.device.type != "cpu":
        return "the model has more than packed attention, or is not on the CPU"
    if block_size is not None and block_size % UNIT:
        return f"blocks of {block_size} positions were asked for, not of {UNIT}"
    for shape in geometry.layers.values():
        if shape.dtype != torch.float32 or shape.device.type != "cpu" or not tile_sizes(shape.key_dim, shape.value_dim):
            return f"heads of {shape.key_dim} and {shape.value_dim} numbers in {str(shape.dtype).removeprefix('torch.')}"
    return None


# ------------------------------------------------------------------------------------------------------- made-up steps


def _rows(number: int, vocabulary: int, block_size: int) -> tuple[list[Row], int]:
    """(Rows of a made-up step, blocks they need). Every other row samples."""
    rows: list[Row] = []
    free = 1 + _SPARE[number]
    for place, (start, count) in enumerate(_STEPS[number]):
        end = start + count
        tokens = [(17 + 7919 * position + 31 * place + number) % vocabulary for position in range(end)]
        request = RequestState(f"made up {place}", "", "", SamplingParams(), Priority.IDLE, 0, tokens, 0, end, TimeLedger(0.0))
        blocks = -(-end // block_size)
        request.blocks = list(range(free, free + blocks))
        free += blocks
        rows.append(Row(request, start, count, place % 2 == 0))
    return rows, free - 1


def _made(model: Any, geometry: Geometry, block_size: int, number: int) -> tuple[KVStore, StepInputs]:
    """A made-up step and a cache for it, filled with numbers; the same ones each time."""
    rows, blocks = _rows(number, vocabulary_of(model), block_size)
    inputs = TileBuilder(block_size, geometry.windows, geometry.group).build(rows).inputs
    store = KVStore(geometry, blocks, block_size)
    generator = torch.Generator().manual_seed(number)
    for tensor in store.tensors():
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return store, inputs


def _record(model: Any, geometry: Geometry, block_size: int, weights: dict[str, Any]) -> Recording:
    made = [_made(model, geometry, block_size, number) for number in range(len(_STEPS) - 1)]
    kernels = {path: module for path, module in model.named_modules() if isinstance(module, Kernel)}
    examples: Sequence[Tensors] = [(*store.tensors(), *inputs.tensors()) for store, inputs in made]
    store, like = made[0]
    return record(tile_function(model, store, like), kernels, weights, examples, len(store.tensors()), fuse_rotations)


def _check(model: Any, geometry: Geometry, block_size: int, recording: Recording) -> None:
    """Run the step that was held back both ways; raise ValueError if they part."""
    (ours, inputs), (theirs, _) = (_made(model, geometry, block_size, len(_STEPS) - 1) for _ in range(2))
    with torch.inference_mode():
        logits, finite = recording(*ours.tensors(), *inputs.tensors())
        wanted, wanted_finite = run_tiles(model, geometry, theirs.keys, theirs.values, inputs)
    pairs = [(logits, wanted), *zip(ours.tensors(), theirs.tensors(), strict=True)]
    worst = max(float((left.float() - right.float()).abs().max()) for left, right in pairs)
    if not worst <= CLOSE * float(wanted.abs().max()) or not torch.equal(finite, wanted_finite):
        raise ValueError(f"the recorded step is off by {worst:.3g}")


def _compare(model: Any, geometry: Geometry, halved: Geometry) -> float:
    """How far this lane's logits are from the general lane's, as a share of the largest: two prompts in chunks, then a decode step each."""
    vocabulary = vocabulary_of(model)
    tokens = [[(17 + 7919 * place + 104729 * which) % vocabulary for place in range(40)] for which in range(2)]
    spans = (((0, 33), (0, 2)), ((33, 4), (2, 37)), ((37, 1), (39, 1)))
    found = []
    for shapes, own in ((geometry, False), (halved, True)):
        store = KVStore(shapes, 4, UNIT)
        builder = TileBuilder(UNIT, shapes.windows, shapes.group) if own else BatchBuilder(UNIT, shapes.windows, torch.device("cpu"))
        requests = []
        for which, ids in enumerate(tokens):
            request = RequestState(f"made up {which}", "", "", SamplingParams(), Priority.IDLE, 0, ids, 0, len(ids), TimeLedger(0.0))
            request.blocks = [1 + which, 3 + which]
            requests.append(request)
        logits = []
        with torch.inference_mode():
            for step in spans:
                rows = [Row(request, start, count, True) for request, (start, count) in zip(requests, step, strict=True)]
                inputs = builder.build(rows).inputs
                run = run_tiles if own else run_step
                logits.append(run(model, shapes, store.keys, store.values, inputs)[0].float())
        found.append(torch.cat(logits))
    wanted, got = found
    return float((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))
