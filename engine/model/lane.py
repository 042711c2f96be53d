"""The fast lane of a loaded model: which precision its weights are packed in, and its recorded steps.

Owns the order of things at load and what a configuration's dtype means on the CPU. On other devices the model stays as it was loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from engine.catalog import paths
from engine.model.cache import KVStore
from engine.model.devices import choose_device
from engine.model.linear import pack_linears
from engine.model.loading import LoadedModel
from engine.model.native.lane import make_tile_lane, tile_geometry
from engine.model.norms import quicken_norms
from engine.model.runner import TorchRunner, prepare, reshape_cache
from engine.model.shelf import Shelf
from engine.model.trace import FastStep, record_steps
from engine.model.verify import check_lane
from engine.types import EngineConfig

log = logging.getLogger(__name__)

PATIENCE_S = 4.0  # spent on recording in one load; what is left is recorded in the next, and runs eagerly until then
SMALL = 1 << 30  # bytes of weights: below, a made-up step is over sooner than several threads have found each other on a busy machine

# What a configuration's dtype asks of packed weights. Activations and the cache are float32 in all of them.
PRECISION = {"auto": "auto", "float32": "f32", "bfloat16": "16-bit", "float16": "16-bit", "8-bit": "8-bit", "4-bit": "4-bit"}


def config_to_load(config: EngineConfig) -> EngineConfig:
    """How to read the weights: exactly, where they will be packed, since rounding them twice would lose more."""
    if config.dtype in ("auto", "float32") or config.dtype not in PRECISION or choose_device(config.device) != "cpu":
        return config
    return replace(config, dtype="float32")


def pack(loaded: LoadedModel, config: EngineConfig) -> LoadedModel:
    """The same model with its weights packed, if it is on the CPU. Raises ModelError (see `pack_linears`)."""
    if loaded.device != "cpu":
        return loaded
    report = pack_linears(loaded.torch_model, PRECISION[config.dtype])
    norms = quicken_norms(loaded.torch_model, native=report.precision != "f32")
    log.info("%s in %s, %d norms quickened", loaded.name, report.summary, norms)
    dtype = "float32" if report.precision == "f32" else report.precision
    return replace(loaded, dtype=dtype, weight_bytes=report.weight_bytes)


def fast_step(
    loaded: LoadedModel,
    store: KVStore,
    context: int,
    heard: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> FastStep | None:
    """The recorded steps of a packed model, read from the cache folder if they were made before; None where nothing is recorded."""
    if loaded.device != "cpu" or not store.geometry.plain:
        return None
    shelf = Shelf(paths.recordings_dir(), loaded.torch_model, store.geometry, store.block_size, context)
    step = record_steps(
        loaded.torch_model, store.geometry, store.block_size, shelf=shelf, seconds=PATIENCE_S, heard=heard, cancelled=cancelled
    )
    return step if step.forms else None


def tiles_fit(loaded: LoadedModel, config: EngineConfig) -> bool:
    """Whether steps of a packed model will run on our own kernels; from then on its cache is planned in bfloat16.

    Raises ModelError("model_cannot_ride" | "lane_mismatch", ...). Exact float32 keeps the general lane, whose cache is float32 too.
    """
    if loaded.device != "cpu" or loaded.dtype == "float32":
        return False
    plain = prepare(loaded, config)
    geometry = tile_geometry(loaded.torch_model, plain, config.block_size)
    if geometry is None:
        return False
    check_lane(loaded.torch_model, plain, loaded.dtype)  # the general lane, which this one was compared with
    reshape_cache(loaded.torch_model, geometry)
    return True


def ride_tiles(loaded: LoadedModel, runner: TorchRunner) -> None:
    """Let a runner's steps run on our own kernels."""
    store = runner.store
    shelf = Shelf(paths.recordings_dir(), loaded.torch_model, store.geometry, store.block_size, runner.context)
    runner.ride(make_tile_lane(loaded.torch_model, store, shelf))


@contextmanager
def few_threads(loaded: LoadedModel) -> Iterator[None]:
    """One torch thread while a small model is tried out, as many as before afterwards."""
    before = torch.get_num_threads()
    if loaded.weight_bytes < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
