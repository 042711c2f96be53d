"""The fastest lane on the CPU: a packed model's whole step on our own kernels, recorded once, with the cache in bfloat16 or 8 bits.

Owns the choice of this lane before memory is planned, its check against the general lane, and the one recording of its step. Where it
cannot be had, the log says why and the general lane runs; where only the recording fails, the step runs eagerly on the same kernels.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Held, Recording, record, weights_of
from engine.model.inputs import StepInputs
from engine.model.native import library
from engine.model.native.cache import run_tiles, tile_function
from engine.model.native.paged import TileBuilder
from engine.model.native.rewrite import fuse_rotations
from engine.model.native.whole import use_programs
from engine.model.packed.kernel import Kernel
from engine.model.rehearsal import Rehearsal, give_slots, made_up, vocabulary_of
from engine.model.shape import tile_sizes
from engine.model.shelf import Shelf
from engine.model.step import run_step
from engine.model.trace import Differs, check_recording, in_a_line
from engine.scheduling.plan import Row

log = logging.getLogger(__name__)

UNIT = 32  # positions that are read at once: a block is so many, or a multiple
ROUNDED = 0.1  # of the largest logit (as in `verify.py`): what keys and values in 16 bits may change beside the general lane's float32
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
        recording: the step without Python.
    """

    def __init__(
        self,
        model: Any,
        geometry: Geometry,
        block_size: int,
        recording: Recording | None,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """`failed`: there is nothing of the model but its recording (see `engine.model.kept`); this hears of a step that failed on it."""
        self.builder = TileBuilder(block_size, geometry.windows, geometry.group, geometry.slotted)
        self._model = model
        self._geometry = geometry
        self.recording = recording
        self._failed = failed
        self._held: tuple[StepInputs, Held] | None = None  # the last step's

    @property
    def recorded(self) -> bool:
        return self.recording is not None

    def eagerly(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """The same, module by module, where there are any: of a model that was kept there is only the recording."""
        if self._model is None:
            return self(store, inputs)
        return run_tiles(self._model, self._geometry, store.keys, store.values, inputs)

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """(logits, finite), as `run_step`."""
        if self.recording is not None:
            try:
                return self._recorded(self.recording, store, inputs)[:2]
            except RuntimeError as fault:
                if self._failed is not None:
                    raise
                failed = fault
            outcome = self.eagerly(store, inputs)
            self.recording = None  # the step itself was sound, so the recording is not
            log.warning("steps are no longer run from their recording: %s", in_a_line(failed))
            return outcome
        return self.eagerly(store, inputs)

    def hear(self, store: KVStore, inputs: StepInputs) -> Tensors | None:
        """(logits, finite, hidden states [1, T, size]); None where only the modules can tell the last."""
        if self.recording is None:
            return None
        try:
            out = tuple(self.recording.as_recorded(*store.tensors(), *inputs.tensors()))
        except RuntimeError:
            if self._failed is not None:
                self._failed()
                raise
            return None
        return out if len(out) > 2 else None

    def _recorded(self, recording: Recording, store: KVStore, inputs: StepInputs) -> Tensors:
        try:
            if not recording.placed:
                tensors = (*store.tensors(), *inputs.tensors())
                return tuple(recording.at(store.places(), Held(tensors)) if recording.pools else recording(*tensors))
            if self._held is None or self._held[0] is not inputs:  # few steps: those of single positions write into the same tensors
                self._held = inputs, Held(inputs.tensors())
            return tuple(recording.at(store.places(), self._held[1]))
        except RuntimeError:
            if self._failed is not None:
                self._failed()
            raise


def tile_geometry(model: Any, geometry: Geometry, block_size: int | None) -> Geometry | None:
    """The geometry with a cache in bfloat16, or in 8 bits where it is so already, if this lane can run the model and gives the general
    lane's logits, else None."""
    reason = _refusal(geometry, block_size) or library.fault()
    if reason is None:
        layers = {number: replace(shape, dtype=torch.bfloat16) for number, shape in geometry.layers.items()}
        halved = replace(geometry, layers=layers, in_place=True)
        try:
            worst = _compare(model, geometry, halved)
        except Exception as fault:  # whatever a model does that our kernels do not know
            worst, reason = 0.0, f"{type(fault).__name__}: {in_a_line(fault)}"
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
        if recording is None:
            recording = _record(model, store.geometry, store.block_size, weights)
            _check(model, store.geometry, store.block_size, recording)
        quicken(recording, store.geometry)
        try:
            _check(model, store.geometry, store.block_size, recording)
        except (RuntimeError, Differs) as fault:
            if not recording.run_plainly():
                raise
            log.info("steps run operation by operation: %s", in_a_line(fault))
            _check(model, store.geometry, store.block_size, recording)
        if shelf is not None and not kept:
            shelf.put(FORM, recording)
        took = time.perf_counter() - began
        log.info("the step was %s in %.1f s: %d operations", "read" if kept else "recorded", took, recording.operations)
    except Exception as fault:  # whatever a model does that torch cannot record
        recording = None
        log.warning("steps run eagerly on our own kernels: %s", in_a_line(fault))
    return TileLane(model, store.geometry, store.block_size, recording)


def quicken(recording: Recording, geometry: Geometry) -> None:
    """Let the recording run in programs. Its results are the same, so where it cannot be nothing is lost but time."""
    try:
        use_programs(recording, 2 * len(geometry.layers))
    except Exception as fault:  # whatever torch has against the graph
        log.info("steps run operation by operation: %s", in_a_line(fault))


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
        blocks = -(-end // block_size)
        request = made_up(f"made up {place}", tokens, range(free, free + blocks))
        free += blocks
        rows.append(Row(request, start, count, place % 2 == 0))
    return rows, free - 1


def _made(model: Any, geometry: Geometry, block_size: int, number: int) -> Rehearsal:
    """A made-up step; the same one each time."""
    rows, blocks = _rows(number, vocabulary_of(model), block_size)
    slots = give_slots(rows, blocks, 2 + 3 * number) if geometry.slotted else 0
    builder = TileBuilder(block_size, geometry.windows, geometry.group, geometry.slotted)
    return Rehearsal(builder.build(rows).inputs, blocks, slots)


def _record(model: Any, geometry: Geometry, block_size: int, weights: dict[str, Any]) -> Recording:
    made = [_made(model, geometry, block_size, number) for number in range(len(_STEPS) - 1)]
    stores = [step.store(geometry, block_size) for step in made]
    kernels = {path: module for path, module in model.named_modules() if isinstance(module, Kernel)}
    examples: Sequence[Tensors] = [(*store.tensors(), *step.inputs.tensors()) for store, step in zip(stores, made, strict=True)]
    function = tile_function(model, stores[0], made[0].inputs)
    return record(function, kernels, weights, examples, len(stores[0].tensors()), fuse_rotations)


def _check(model: Any, geometry: Geometry, block_size: int, recording: Recording) -> None:
    """Run the step that was held back both ways; raise Differs if they part."""
    step = _made(model, geometry, block_size, len(_STEPS) - 1)

    def eagerly(store: KVStore) -> Tensors:
        return tile_function(model, store, step.inputs)(*store.tensors(), *step.inputs.tensors())

    check_recording(recording, step, geometry, block_size, eagerly)


def proof(model: Any, geometry: Geometry, block_size: int, recording: Recording) -> str:
    """A hash of everything that the step that was held back gives, to the bit: another weight, kernel or processor gives another one."""
    step = _made(model, geometry, block_size, len(_STEPS) - 1)
    store = step.store(geometry, block_size)
    with torch.inference_mode():
        given = recording(*store.tensors(), *step.inputs.tensors())
    found = hashlib.sha256()
    for tensor in (*given, *store.tensors()):
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _compare(model: Any, geometry: Geometry, halved: Geometry) -> float:
    """How far this lane's logits are from the general lane's, as a share of the largest: two prompts in chunks, then a decode step each."""
    vocabulary = vocabulary_of(model)
    tokens = [[(17 + 7919 * place + 104729 * which) % vocabulary for place in range(40)] for which in range(2)]
    spans = (((0, 33), (0, 2)), ((33, 4), (2, 37)), ((37, 1), (39, 1)))
    found = []
    for shapes, own in ((geometry, False), (halved, True)):
        store = KVStore(shapes, 4, UNIT)
        builder = TileBuilder(UNIT, shapes.windows, shapes.group) if own else BatchBuilder(UNIT, shapes.windows, torch.device("cpu"))
        requests = [made_up(f"made up {which}", ids, (1 + which, 3 + which)) for which, ids in enumerate(tokens)]
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
