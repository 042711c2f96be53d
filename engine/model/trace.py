"""The fast lane on the CPU: the step function recorded once, run without Python, the same to the bit.

Owns which forms of a step are recorded, and the check against the eager step. Every number of rows, positions, blocks and samples goes
through the one recording of a form. A step of another form runs eagerly, and so does everything when recording fails or the results
differ: the eager lane is always complete. Must never touch the real cache while it records.

What it buys: some thousand operations a step are started by an interpreter in C++ instead of Python (a third to a half of a small model's
decode step), and the interpreter lock is given back once a step, not after each operation, so that a busy window cannot hold up the model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from engine.model import eight
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.graph import Recording, Tensors, record, weights_of
from engine.model.inputs import StepInputs
from engine.model.packed.kernel import Kernel
from engine.model.rehearsal import Form, Rehearsal, rehearse, vocabulary_of
from engine.model.shelf import Shelf
from engine.model.step import run_step, step_function

log = logging.getLogger(__name__)

CLOSE = 1e-5  # of the largest logit: recordings are the same to the bit where the machine's products are


# The forms worth a recording: decode alone, chunks alone (or decode rows gathered like chunks), and both, with up to two buckets.
FORMS = (Form(True, 0), Form(False, 1), Form(True, 1), Form(False, 2), Form(True, 2))

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

    def eagerly(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """The same, module by module."""
        self.eager_steps += 1
        return run_step(self._model, self._geometry, store.keys, store.values, inputs)

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """(logits, finite), as `run_step`."""
        form = Form.of(inputs)
        recording = self._recordings.get(form)
        fault: RuntimeError | None = None
        if recording is not None:
            try:
                return recording(*store.tensors(), *inputs.tensors())
            except RuntimeError as raised:
                fault = raised
        outcome = self.eagerly(store, inputs)
        if fault is not None:  # the step itself was sound, so the recording is not
            del self._recordings[form]
            log.warning("%s goes back to the eager lane: %s", form, in_a_line(fault))
        return outcome


def record_steps(
    model: Any,
    geometry: Geometry,
    block_size: int,
    forms: Sequence[Form] = FORMS,
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
            log.warning("%s stays in the eager lane: %s", form, in_a_line(fault))
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
            log.warning("%s is recorded anew: %s", form, in_a_line(fault))
            return None
    return recording


def in_a_line(fault: Exception) -> str:
    """The reason; TorchScript puts it last, after its own stack."""
    lines = str(fault).strip().splitlines()
    said = [line for line in lines if line.startswith("RuntimeError: ")]
    return (said[-1] if said else lines[0])[:300] if lines else type(fault).__name__


class Differs(Exception):
    """A recording gives other results than the function it was made from."""


def _record(model: Any, geometry: Geometry, block_size: int, form: Form, weights: dict[str, Any]) -> Recording:
    steps, _ = rehearse(form, geometry.windows, block_size, vocabulary_of(model), geometry.slotted)
    stores = [step.store(geometry, block_size) for step in steps]
    # Both ways of reading, in place and gathered, whether a step needs both or not: an operation on nothing costs a microsecond.
    inputs = steps[0].inputs
    like = replace(inputs, decode=tuple(replace(index, in_place=True, copies=True) for index in inputs.decode))
    kernels = {path: module for path, module in model.named_modules() if isinstance(module, Kernel)}
    examples = [(*store.tensors(), *step.inputs.tensors()) for store, step in zip(stores, steps, strict=True)]
    recording = record(step_function(model, stores[0], like), kernels, weights, examples, mutable=len(stores[0].tensors()))
    _check(model, recording, geometry, block_size, form)
    return recording


def _check(model: Any, recording: Recording, geometry: Geometry, block_size: int, form: Form) -> None:
    """Run the step that was held back both ways; raise Differs if they part."""
    _, step = rehearse(form, geometry.windows, block_size, vocabulary_of(model), geometry.slotted)
    check_recording(recording, step, geometry, block_size, lambda store: run_step(model, geometry, store.keys, store.values, step.inputs))


def check_recording(
    recording: Recording, step: Rehearsal, geometry: Geometry, block_size: int, eagerly: Callable[[KVStore], Tensors]
) -> None:
    """Run a made-up step both ways, each on a cache of its own; raise Differs if they part. Both give logits, flags, and perhaps
    more, the recording no more than the other."""
    ours, theirs = step.store(geometry, block_size), step.store(geometry, block_size)
    with torch.inference_mode():
        logits, finite, *more = recording(*ours.tensors(), *step.inputs.tensors())
        wanted, wanted_finite, *wanted_more = eagerly(theirs)
    allowed = CLOSE * float(wanted.abs().max())
    pairs = [(logits, wanted), *zip(more, wanted_more, strict=False), *zip(ours.tensors(), theirs.tensors(), strict=True)]
    worst = max(float((_numbers(left) - _numbers(right)).abs().max()) for left, right in pairs)
    if not worst <= allowed or not torch.equal(finite, wanted_finite):
        raise Differs(f"the recorded step is off by {worst:.3g} ({allowed:.3g} allowed)")


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    return eight.plain(tensor, torch.float32).float()
