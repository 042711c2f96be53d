"""The fast lane on the CPU: the step function recorded once, run without Python, the same to the bit.

Owns which forms of a step are recorded, the made-up steps they are recorded from, and the check against the eager step. A form is what
is static in a recording: whether there are decode rows read in place, and how many buckets of chunks there are; every number of rows,
positions, blocks and samples goes through one recording. A step of another form runs eagerly, and so does everything when recording
fails or the results differ: the eager lane is always complete. Must never touch the real cache while it records.

What it buys: some thousand operations a step are started by an interpreter in C++ instead of Python (a third to a half of a small model's
decode step), and the interpreter lock is given back once a step, not after each operation, so that a busy window cannot hold up the model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.model.batch import BatchBuilder, StepInputs
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Recording, Tensors, record, weights_of
from engine.model.packed.kernels import Kernel
from engine.model.shelf import Shelf
from engine.model.step import run_step, step_function
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import Priority, SamplingParams

log = logging.getLogger(__name__)

CLOSE = 1e-5  # of the largest logit: recordings are the same to the bit where the machine's products are
SHARED = 3  # blocks that requests of a made-up step read together


@dataclass(frozen=True, slots=True)
class Form:
    """What is static in a recorded step: decode rows read in place (or gathered), and the number of buckets of chunks."""

    decode: bool
    buckets: int

    @classmethod
    def of(cls, inputs: StepInputs) -> Form:
        return cls(bool(inputs.decode), len(inputs.buckets))


# The made-up steps of each form: rows of (whole blocks before, positions beyond, count, samples). Those of one form differ in every number
# that may change, since what is the same in all is fixed in the recording. The last of each is held back for the check.
_Row = tuple[int, int, int, bool]
_STEPS: dict[Form, tuple[tuple[_Row, ...], ...]] = {
    Form(True, 0): (
        ((0, 3, 1, True), (2, 1, 1, False)),
        ((0, 2, 1, True), (1, 1, 1, True), (4, 0, 1, True)),
        ((0, 0, 1, True),),
        ((3, 2, 1, True), (0, 1, 1, True), (1, 3, 1, False), (2, 2, 1, True), (5, 1, 1, True)),
    ),
    Form(False, 1): (
        ((0, 0, 5, True),),
        ((1, 3, 7, True), (1, 2, 7, True), (2, 0, 6, False)),
        ((2, 1, 2, True), (3, 0, 2, True)),
        ((4, 1, 9, True), (3, 3, 11, True), (4, 2, 10, False), (4, 0, 11, True)),
    ),
    Form(True, 1): (
        ((0, 3, 1, True), (0, 0, 5, False)),
        ((2, 1, 1, True), (1, 0, 1, True), (1, 3, 7, True), (2, 0, 6, False)),
        ((0, 2, 1, False), (0, 1, 1, True), (3, 0, 1, True), (2, 1, 2, True)),
        ((1, 2, 1, True), (4, 3, 1, True), (3, 3, 12, True)),
    ),
    Form(False, 2): (
        ((0, 0, 2, True), (1, 0, 30, False)),
        ((0, 0, 3, False), (0, 1, 3, True), (2, 1, 50, True)),
        ((0, 2, 2, True), (0, 1, 2, True), (0, 3, 2, True), (1, 1, 70, True)),
        ((0, 2, 4, True), (2, 3, 60, True)),
    ),
    Form(True, 2): (
        ((1, 2, 1, True), (0, 0, 2, True), (1, 0, 30, False)),
        ((2, 1, 1, False), (0, 1, 1, True), (0, 0, 3, False), (0, 1, 3, True), (2, 1, 50, True)),
        ((0, 3, 1, True), (3, 0, 1, True), (1, 1, 1, True), (0, 2, 2, True), (0, 1, 2, True), (0, 3, 2, True), (1, 1, 70, True)),
        ((4, 2, 1, True), (0, 2, 4, True), (2, 3, 60, True)),
    ),
}


# Of the recordings that lie on the shelf. All were checked when they were put there, under the same versions.
_CHECKED_AT_LOAD = (Form(True, 0), Form(False, 1))


class FastStep:
    """Runs steps: recorded where their form is, eagerly where it is not.

    Attributes:
        forms: the recorded forms.
        eager_steps: how many steps found no recording.
    """

    def __init__(self, model: Any, geometry: Geometry, recordings: dict[Form, Recording]) -> None:
        self._model = model
        self._geometry = geometry
        self._recordings = recordings
        self.eager_steps = 0

    @property
    def forms(self) -> frozenset[Form]:
        return frozenset(self._recordings)

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """(logits, finite), as `run_step`."""
        recording = self._recordings.get(Form.of(inputs))
        if recording is None:
            self.eager_steps += 1
            return run_step(self._model, self._geometry, store.keys, store.values, inputs)
        return recording(*store.tensors(), *inputs.tensors())


def record_steps(
    model: Any,
    geometry: Geometry,
    block_size: int,
    forms: Sequence[Form] = tuple(_STEPS),
    shelf: Shelf | None = None,
    seconds: float = float("inf"),
    heard: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> FastStep:
    """Record `model`'s step in each of `forms` and check it; a form that cannot be had is left out, and the log says why.

    Takes about a second a form for a model of thirty layers, a tenth of that for what lies on the `shelf`. When recording has
    taken `seconds`, no more is recorded this time. `heard` is told the share that is done, `cancelled` asked between forms.
    """
    spent = 0.0
    recordings: dict[Form, Recording] = {}
    weights = weights_of(model)
    for place, form in enumerate(forms):
        if cancelled():
            break
        began = time.perf_counter()
        recording = _from_shelf(shelf, model, geometry, block_size, form, weights) if shelf else None
        kept = recording is not None
        if not kept and spent > seconds:
            log.info("%s is recorded another time", form)
            continue
        try:
            recordings[form] = recording or _record(model, geometry, block_size, form, weights)
        except Exception as fault:  # whatever a model does that torch cannot record, or a torch that records differently
            log.warning("%s stays in the eager lane: %s", form, _in_a_line(fault))
            break  # the other forms would fail in the same way, after the same time
        if shelf and not kept:
            shelf.put(form, recordings[form])
        took = time.perf_counter() - began
        spent += 0.0 if kept else took
        log.info("%s %s in %.1f s: %d operations a step", form, "read" if kept else "recorded", took, recordings[form].operations)
        heard((place + 1) / len(forms))
    return FastStep(model, geometry, recordings)


def _from_shelf(shelf: Shelf, model: Any, geometry: Geometry, block_size: int, form: Form, weights: dict[str, Any]) -> Recording | None:
    recording = shelf.get(form, weights)
    if recording is not None and form in _CHECKED_AT_LOAD:
        try:
            _check(model, recording, geometry, block_size, form)
        except Exception as fault:
            log.warning("%s is recorded anew: %s", form, _in_a_line(fault))
            return None
    return recording


def _in_a_line(fault: Exception) -> str:
    return str(fault).strip().split("\n", 1)[0] or type(fault).__name__


class _Differs(Exception):
    """A recording gives other results than the function it was made from."""


@dataclass(frozen=True, slots=True)
class _Example:
    """A made-up step and a cache of its own, of its own size."""

    store: KVStore
    inputs: StepInputs

    def tensors(self) -> Tensors:
        return (*self.store.tensors(), *self.inputs.tensors())


def _record(model: Any, geometry: Geometry, block_size: int, form: Form, weights: dict[str, Any]) -> Recording:
    examples = [_example(model, geometry, block_size, step, spare) for spare, step in enumerate(_STEPS[form][:-1])]
    odd = [example for example in examples if Form.of(example.inputs) != form]
    if odd:
        raise ValueError(f"a made-up step is of the form {Form.of(odd[0].inputs)}")
    # Both ways of reading, in place and gathered, whether a step needs both or not: an operation on nothing costs a microsecond.
    like = replace(examples[0].inputs, decode=tuple(replace(index, in_place=True, copies=True) for index in examples[0].inputs.decode))
    kernels = {path: module for path, module in model.named_modules() if isinstance(module, Kernel)}
    cache_tensors = len(examples[0].store.tensors())
    function = step_function(model, examples[0].store, like)
    recording = record(function, kernels, weights, [example.tensors() for example in examples], mutable=cache_tensors)
    _check(model, recording, geometry, block_size, form)
    return recording


def _check(model: Any, recording: Recording, geometry: Geometry, block_size: int, form: Form) -> None:
    """Run the step that was held back both ways; raise _Differs if they part."""
    ours, theirs = (_example(model, geometry, block_size, _STEPS[form][-1], spare=7) for _ in range(2))
    with torch.inference_mode():
        logits, finite = recording(*ours.tensors())
        wanted, wanted_finite = run_step(model, geometry, theirs.store.keys, theirs.store.values, theirs.inputs)
    allowed = CLOSE * float(wanted.abs().max())
    pairs = [(logits, wanted), *zip(ours.store.tensors(), theirs.store.tensors(), strict=True)]
    worst = max(float((left.float() - right.float()).abs().max()) for left, right in pairs)
    if not worst <= allowed or not torch.equal(finite, wanted_finite):
        raise _Differs(f"the recorded step is off by {worst:.3g} ({allowed:.3g} allowed)")


def _example(model: Any, geometry: Geometry, block_size: int, step: Sequence[_Row], spare: int) -> _Example:
    """A step over a cache filled with numbers; requests share the blocks they only read. `spare` varies where blocks lie."""
    text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    rows = []
    free = SHARED + spare + 1  # the next block of the writers' own
    for number, (whole, beyond, count, samples) in enumerate(step):
        start = whole * block_size + beyond
        end = start + count
        tokens = [(17 + 7919 * (number + 1) * (place + 1)) % int(text.vocab_size) for place in range(end)]
        request = RequestState(f"made up {number}", "", "", SamplingParams(), Priority.IDLE, 0, tokens, 0, end, TimeLedger(0.0))
        own = -(-end // block_size) - whole
        request.blocks = [1 + spare + (number + place) % SHARED for place in range(whole)] + list(range(free, free + own))
        free += own
        rows.append(Row(request, start, count, samples))
    store = KVStore(geometry, free, block_size)
    generator = torch.Generator().manual_seed(spare)
    for tensor in store.tensors():
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return _Example(store, BatchBuilder(block_size, geometry.windows, torch.device("cpu")).build(rows).inputs)
