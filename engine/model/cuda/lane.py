"""The fast lane of a model on one NVIDIA GPU: chosen kernels, steps that wait for nothing, decode steps as graphs.

Owns the order of things at load. Whatever fails here is said in the log, and the model rides the general lane or runs its steps eagerly;
only a GPU that the process has lost is an error. Unproven on a GPU; everything but `CudaCapture` and the kernels is tested on the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from engine.catalog import paths
from engine.model.cache import KVStore
from engine.model.cuda.cache import run_paged
from engine.model.cuda.choice import Choice, Marks, Stopwatch, choose, cuda_stopwatch, needs_of
from engine.model.cuda.graphs import Capture, DecodeGraphs, Tensors, sizes_up_to
from engine.model.cuda.paged import PagedBuilder
from engine.model.geometry import Geometry
from engine.model.inputs import StepInputs
from engine.model.rehearsal import made_up
from engine.model.upload import upload
from engine.scheduling.plan import Row
from engine.types import EngineConfig, ModelError, Sentence

log = logging.getLogger(__name__)

WARM_UPS = 3  # before a recording: libraries set themselves up at the first calls, which cannot be recorded
LEAST_SEATS = 16  # graphs are recorded for so many rows, even if there are fewer seats now
CLOSE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}  # of the largest logit: other kernels, other rounding
PROBE_ROWS = 3


class CudaCapture:
    """Records CUDA graphs that share one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()

    def __call__(self, function: Callable[[], Tensors]) -> Callable[[], Tensors]:
        with torch.cuda.device(self._device):
            present = torch.cuda.current_stream()
            self._stream.wait_stream(present)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    function()
            present.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU meanwhile; only what this one does is recorded, and forbidden to wait.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                results = function()

        def replay() -> Tensors:
            graph.replay()
            return results

        return replay


class PagedLane:
    """Runs the steps of one model; `builder` makes their inputs.

    Attributes:
        graphs: None where nothing is recorded.
    """

    def __init__(
        self,
        model: Any,
        geometry: Geometry,
        choice: Choice,
        device: torch.device,
        context: int,
        sizes: Sequence[int] = (),
        capture: Capture | None = None,
    ) -> None:
        self.builder = PagedBuilder(choice.block_size, geometry.windows, choice.packed)
        self._model = model
        self._geometry = geometry
        self._choice = choice
        self._device = device
        self.graphs: DecodeGraphs | None = None
        if capture is not None and choice.fixed:
            self.graphs = DecodeGraphs(self.eager, sizes, -(-context // choice.block_size), geometry.windows, device, capture)

    def __call__(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """(logits, finite), as `run_step`; the inputs lie on the host."""
        replayed = self.graphs(store, inputs) if self.graphs is not None else None
        return self.eagerly(store, inputs) if replayed is None else replayed

    def eagerly(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """The same without a graph."""
        return self.eager(store, self._moved(inputs))

    def eager(self, store: KVStore, inputs: StepInputs) -> Tensors:
        """The step on inputs that lie on the device."""
        with present(self._device):
            return run_paged(self._model, self._geometry, store.keys, store.values, inputs, self._choice)

    def check(self, store: KVStore) -> float:
        """Run one made-up step as a graph and eagerly, with and without its padding; at load, while no block is anyone's.

        Returns the largest difference as a share of the largest logit, and gives the graphs up where it is too large.
        """
        if self.graphs is None or self.graphs.failed:
            return 0.0
        rows = [_made_up(number, store.block_size) for number in range(min(PROBE_ROWS, store.num_blocks))]
        with torch.inference_mode():
            inputs = self.builder.build(rows).inputs
            wanted = self.eager(store, self._moved(inputs))[0].float()
            replayed = self.graphs(store, inputs)
            if replayed is None:
                return 0.0
            worst = max(
                float((replayed[0].float() - wanted).abs().max()),
                float((replayed[0].float() - self.graphs.padded(store, sizes_up_to(len(rows))[-1])[0][: len(rows)].float()).abs().max()),
            ) / float(wanted.abs().max().clamp_min(1e-6))
            for tensor in store.tensors():
                tensor[: len(rows) + 1].zero_()
        allowed = CLOSE.get(next(iter(self._geometry.layers.values())).dtype, 1e-2)
        if not worst <= allowed:
            log.warning("decode steps stay eager: as graphs their logits are off by %.2g of the largest (%.2g allowed)", worst, allowed)
            self.graphs = None
        return worst

    def _moved(self, inputs: StepInputs) -> StepInputs:
        return inputs.changed(lambda tensor: upload(tensor, self._device))


def present(device: torch.device) -> AbstractContextManager[object]:
    """The card of a step is the present one while it runs: kernels from other libraries do not all look where their tensors lie."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _made_up(number: int, block_size: int) -> Row:
    length = 1 + (5 * number + 2) % block_size
    tokens = [1 + number + place for place in range(length)]
    return Row(made_up(f"made up {number}", tokens, [1 + number]), length - 1, 1, True)


# ------------------------------------------------------------------------------------------------------------- at load


class Loaded(Protocol):
    """The parts of a loaded model that are needed here."""

    codec: Any
    context: int
    dtype: str
    device: str
    torch_model: Any


class Runner(Protocol):
    """The parts of a runner that are needed here."""

    store: KVStore
    context: int

    def ride(self, lane: PagedLane) -> None: ...


def gpu_kernels(loaded: Loaded, config: EngineConfig, begin: Callable[[], None]) -> Choice | None:
    """The kernels for a loaded model on a GPU; None for any other, and where it must ride the general lane: then the log says why.

    `begin` is called before any is tried. Raises ModelError("gpu_lost" | "model_cannot_ride", ...).
    """
    if not one_card(loaded.device) or config.plain or torch.version.cuda is None:
        return None
    from engine.model.runner import prepare  # which needs this module's types

    begin()
    with torch.cuda.device(loaded.device):  # the present card is otherwise the first, and the watch would time that one
        return choose_readers(loaded.torch_model, prepare(loaded, config), config.block_size, Marks(paths.cache_dir() / "gpu-tried.json"))


def one_card(device: str) -> bool:
    """Whether a model's device (see `devices.py`) is a single NVIDIA GPU, whichever of a machine's it is."""
    return device.partition(":")[0] == "cuda" and "," not in device


def choose_readers(
    model: Any, geometry: Geometry, block_size: int | None, marks: Marks, stopwatch: Stopwatch = cuda_stopwatch
) -> Choice | None:
    """See `gpu_kernels`."""
    if geometry.eight:
        log.info("the model rides the general lane: no kernel reads keys and values in 8 bits")
        return None
    devices = {shape.device for shape in geometry.layers.values()}
    if not geometry.plain or len(devices) != 1:
        log.info("the model rides the general lane: its steps are not the same operations each time, or it lies on several GPUs")
        return None
    try:
        choice = choose(needs_of(model, geometry), devices.pop(), stopwatch, marks, block_size)
    except torch.AcceleratorError as fault:
        raise ModelError(
            "gpu_lost",
            Sentence("The GPU gave up while a kernel was being tried: {0}", str(fault).splitlines()[0]),
            "Start Omnibus again; that kernel will be left out then.",
        ) from fault
    except Exception:
        log.exception("no kernel could be chosen: the model rides the general lane")
        return None
    if choice is None:
        log.warning("no kernel reads this model's cache rightly: it rides the general lane")
        return None
    for verdict in choice.verdicts:
        outcome = verdict.fault or ("right" if verdict.seconds is None else f"right, {1e6 * verdict.seconds:.0f} us")
        log.info("%s, %s, blocks of %d: %s", verdict.label, verdict.need.words, verdict.need.block_size, outcome)
    log.info("the cache has %s", choice.words)
    return choice


def ride_gpu(
    runner: Runner, loaded: Loaded, choice: Choice, seats: int, heard: Callable[[float], None], cancelled: Callable[[], bool]
) -> None:
    """Let a runner's steps run through `choice`, decode steps as CUDA graphs."""
    capture = CudaCapture(runner.store.geometry.device)
    runner.ride(make_lane(loaded.torch_model, runner.store, choice, runner.context, seats, capture, heard, cancelled))


def make_lane(
    model: Any,
    store: KVStore,
    choice: Choice,
    context: int,
    seats: int,
    capture: Capture | None,
    heard: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> PagedLane:
    """The lane of a loaded model, its graphs recorded and checked. `capture` None records nothing."""
    lane = PagedLane(model, store.geometry, choice, store.geometry.device, context, sizes_up_to(max(seats, LEAST_SEATS)), capture)
    if lane.graphs is not None:
        with torch.inference_mode():
            lane.graphs.prepare(store, heard, cancelled)
        lane.check(store)
        if lane.graphs is not None and lane.graphs.recorded:
            log.info("decode steps of up to %d rows are replayed as graphs", lane.graphs.recorded[-1])
    return lane
