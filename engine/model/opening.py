"""From a configuration to something that runs: load, plan the memory, build the runner.

The one place that the engine thread calls into torch's side of the house.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import torch

from engine.catalog.registry import Registry
from engine.model.checked import CheckedRunner
from engine.model.cuda.lane import gpu_kernels, ride_gpu
from engine.model.kept.contents import Kept
from engine.model.kept.place import Place, place_of
from engine.model.lane import config_to_load, fast_step, few_threads, pack, ride_tiles, tiles_fit
from engine.model.loading import load_model
from engine.model.memory import MemoryPlan, check_tier, make_plan
from engine.model.pooling import declared_pooling, size_of
from engine.model.runner import make_runner
from engine.model.threads import ThreadChooser
from engine.opened import OpenModel, Progress
from engine.text.codec import Codec
from engine.text.forms import form_named
from engine.text.grammar import GrammarCompiler
from engine.types import EngineConfig, ModelView, Pooling

log = logging.getLogger(__name__)


def sensible_threads(cores: int) -> int:
    """One core is left to the window where there are more than two; with two, the second is worth more to the model."""
    return cores if cores <= 2 else cores - 1


def open_model(config: EngineConfig, progress: Progress, cancelled: Callable[[], bool]) -> OpenModel:
    """Load `config.model` and make room for its KV blocks. Raises ModelError."""
    place = place_of(config, lambda share, stage: progress(0.05 + 0.5 * share, stage), cancelled)
    kept, plan = _taken(place, config)
    if kept is not None:
        loaded = kept.loaded
    else:
        loaded = load_model(config.model, config_to_load(config), lambda share, stage: progress(0.05 + 0.75 * share, stage), cancelled)
    threads = config.threads or sensible_threads(torch.get_num_threads())
    torch.set_num_threads(threads)
    if not config.plain and kept is None:
        progress(0.8, "packing the weights")
        loaded = pack(loaded, config)
    kernels = gpu_kernels(loaded, config, lambda: progress(0.82, "trying kernels"))
    if kernels is not None:
        config = replace(config, block_size=kernels.block_size)
    with few_threads(loaded):
        tiles = kept is not None or (kernels is None and not config.plain and tiles_fit(loaded, config))
        progress(0.84, "planning memory")
        plan = plan or make_plan(loaded, config)
        progress(0.86, "making room for the KV cache")
        runner = make_runner(loaded, config, plan.num_blocks, plan.block_size, checked=tiles, slots=plan.slots)
        last = "preparing the fast lane"
        if kernels is not None:
            ride_gpu(runner, loaded, kernels, config.seats, lambda share: progress(0.88 + 0.12 * share, last), cancelled)
        elif kept is not None:
            runner.ride(kept.lane)
        elif tiles:
            progress(0.88, last)
            ride_tiles(loaded, runner)
        elif not config.plain:
            runner.fast = fast_step(loaded, runner.store, runner.context, lambda share: progress(0.88 + 0.12 * share, last), cancelled)
    if config.tier_tokens >= plan.block_size and runner.rules.resumable:
        if config.tier_folder is None:
            on_cpu = runner.store.geometry.device.type == "cpu"
            check_tier(config.tier_tokens, runner.store.bytes_per_block // plan.block_size, runner.store.kv_bytes if on_cpu else 0)
        runner.open_tier(config.tier_tokens // plan.block_size, config.tier_folder)
    if loaded.device == "cpu" and config.threads is None:
        runner.threads = ThreadChooser(threads, torch.set_num_threads)
    chosen = use_chosen_form(loaded.codec, config.model)
    kv_bytes = runner.store.kv_bytes
    riding = CheckedRunner(runner) if config.debug_audit else runner
    view = ModelView(
        name=loaded.name,
        device=loaded.device,
        dtype=loaded.dtype,
        lane=runner.lane,
        context=loaded.context,
        progress=1.0,
        stage="ready",
        weight_bytes=loaded.weight_bytes,
        kv_bytes=kv_bytes,
        template=loaded.codec.template,
        forms=loaded.codec.forms,
        form_chosen=chosen,
        kv_dtype=runner.store.geometry.kv_class,
    )
    keeping = None
    if place is not None and tiles:
        keeping = place.keep(loaded, runner) if kept is None else place.unpack()

    def close() -> None:
        if keeping is not None:
            keeping.close()
        runner.close()

    forms = GrammarCompiler(loaded.codec.tokenizer_json, loaded.vocab_size, loaded.codec.eos_ids)
    pooling = declared_pooling(loaded.folder)
    return OpenModel(
        codec=loaded.codec,
        runner=riding,
        num_blocks=plan.num_blocks,
        block_size=plan.block_size,
        bytes_per_block=kv_bytes // plan.num_blocks,
        view=view,
        close=close,
        compile_form=forms.compile,
        vocab_size=loaded.vocab_size,
        embedding_size=size_of(loaded.torch_model) if pooling is not None else 0,
        pooling=pooling or Pooling.MEAN,
    )


def _taken(place: Place | None, config: EngineConfig) -> tuple[Kept | None, MemoryPlan | None]:
    """The model as it was kept, with its plan, unless its steps are for another kind of cache than is planned now."""
    kept = place.take() if place is not None else None
    if kept is None:
        return None, None
    plan = make_plan(kept.loaded, config)
    if kept.slotted != (plan.slots > 0):
        log.info(
            "what is kept of %s has %s window slots, which is not what was asked for now", kept.loaded.name, "its" if kept.slotted else "no"
        )
        return None, None
    return kept, plan


def use_chosen_form(codec: Codec, source: str) -> bool:
    """Put chats in the form that was chosen for a model without a template of its own. Returns whether there is one."""
    form = form_named(Registry().form_of(source)) if codec.template != "model" else None
    if form is None or form.key not in codec.forms:
        return False
    codec.use_form(form)
    return True
