"""The general lane: runs planned rows through a transformers model over the block pool.

Owns the KV tensors, the batch builder and the sampler of one loaded model. Knows nothing of queues, seats or policies: it computes the
rows it is given, as often as it is given them, and always writes the same values to the same slots.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch

from engine.kv.copies import Fork, Move
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.cuda.lane import PagedLane
from engine.model.geometry import Geometry, Ride
from engine.model.host import HostStore
from engine.model.inputs import Batch
from engine.model.logprobs import score_prompts
from engine.model.native.company import same_in_company, torch_multiplies
from engine.model.native.lane import TileLane
from engine.model.pooling import heard, pool_rows
from engine.model.probe import probe
from engine.model.rope import freeze_rope
from engine.model.sampler import Sampler, not_a_number
from engine.model.states import SeatStates
from engine.model.step import run_step
from engine.model.threads import ThreadChooser
from engine.model.trace import FastStep
from engine.model.upload import Download
from engine.model.verify import ROUNDED, check_lane, difference
from engine.scheduling.plan import CacheRules, Row, Sampled, verified
from engine.scheduling.request import RequestState
from engine.types import EngineConfig, ModelError, Sentence, TokenLogprob

log = logging.getLogger(__name__)


class _Codec(Protocol):
    eos_ids: frozenset[int]


class Loaded(Protocol):
    """The parts of a loaded model this lane needs."""

    codec: Any
    context: int
    dtype: str
    torch_model: Any


# Padded key positions up to which decode rows are gathered rather than read in place, measured on a CPU with small models. Products of
# 16-bit numbers take a slow path in place, so gathering pays for longer.
JOIN_FLOAT, JOIN_HALF = 1536, 4096
EVERYTHING = 1 << 62

_GEOMETRIES: WeakKeyDictionary[Any, Geometry] = WeakKeyDictionary()


def context_of(loaded: Loaded, config: EngineConfig) -> int:
    """The most positions a request may have: the model's own context, or less if the configuration says so."""
    return min(loaded.context, config.context or loaded.context)


def prepare(loaded: Loaded, config: EngineConfig) -> Geometry:
    """Freeze the model's positions, switch its attention to ours and learn its cache; done once a model.

    Raises ModelError naming the class and the reason when the model cannot ride.
    """
    model = loaded.torch_model
    if model not in _GEOMETRIES:
        freeze_rope(model, context_of(loaded, config))
        geometry = probe(model, context_of(loaded, config))
        _GEOMETRIES[model] = _in_eight_bits(loaded, geometry) if config.kv_class == "8-bit" else geometry
    return _GEOMETRIES[model]


def _in_eight_bits(loaded: Loaded, geometry: Geometry) -> Geometry:
    """The same model with such a cache, and in the log what that changes. Raises ModelError where it changes too much."""
    check_lane(loaded.torch_model, geometry, loaded.dtype)
    eight = geometry.in_eight_bits()
    worst = difference(loaded.torch_model, eight) if eight.layers else 0.0
    log.info("keys and values in 8 bits change the logits by %.2g of the largest", worst)
    if not worst <= ROUNDED:
        raise ModelError(
            "cache_too_coarse",
            Sentence("Keys and values in 8 bits change this model's logits by {0:.2g} of the largest ({1} allowed).", worst, ROUNDED),
            "Load it with kv_class 'auto'.",
        )
    return eight


def reshape_cache(model: Any, geometry: Geometry) -> None:
    """Give a prepared model a cache of another dtype from now on."""
    _GEOMETRIES[model] = geometry


def make_runner(
    loaded: Loaded, config: EngineConfig, num_blocks: int, block_size: int, checked: bool = False, slots: int = 0
) -> TorchRunner:
    """The runner of a loaded model, checked against the model's own attention on a few tokens unless that was done before.

    slots: as `memory.make_plan` has it; then layers with a window keep blocks in so many slots.

    Raises ModelError("model_cannot_ride" | "lane_mismatch", ...).
    """
    geometry = prepare(loaded, config)
    if not checked and not geometry.eight:  # which was checked when it was prepared
        check_lane(loaded.torch_model, geometry, loaded.dtype)
    store = KVStore(replace(geometry, slotted=slots > 0), num_blocks, block_size, slots)
    return TorchRunner(loaded.torch_model, store, loaded.codec.eos_ids, context_of(loaded, config))


class TorchRunner:
    """See `engine.scheduling.plan.Runner` for the contract.

    Attributes:
        context: most positions a request may have.
        bytes_per_block: of keys and values, all layers together.
        lane: a word for the dashboard.
        drafts: a step of several positions of a request is quick and gives each the numbers that it has alone, to the last bit.
        threads: follows the load of other programs; None keeps torch's setting.
        fast: runs steps in place of `run_step`, with the same results; None is the general lane.
        states: what recurrent layers know of each request; None for models without any.
    """

    def __init__(self, model: Any, store: KVStore, eos_ids: frozenset[int], context: int) -> None:
        self.context = context
        self.store = store
        self._model = model
        geometry, device = store.geometry, next(model.parameters()).device
        self.states = SeatStates(geometry.states) if geometry.states else None
        join = _join_limit(geometry)
        self._builder: BatchBuilder = BatchBuilder(
            store.block_size, geometry.windows, device, join, geometry.by_row, self.states, geometry.slotted
        )
        looks_back = max(geometry.windows, default=0) if store.slots else 0
        self.rules = CacheRules(self.states is None, _window_of(geometry), store.slots, looks_back)
        self._sampler = Sampler(eos_ids)
        self.threads: ThreadChooser | None = None
        self.fast: FastStep | PagedLane | TileLane | None = None
        self.drafts = False
        self._tier: HostStore | None = None
        self._join = join
        self._inference = torch.inference_mode()  # made once: making it costs as much as a row's draw

    @property
    def lane(self) -> str:
        if self.fast is not None:
            return "fast"
        return "row by row" if self.store.geometry.ride is Ride.ALONE else "general"

    @property
    def bytes_per_block(self) -> int:
        return self.store.bytes_per_block

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        """One forward pass over the rows.

        A row whose keys or values are not finite gets "nan_logits" at once, even if it does not sample, so that nothing of it is committed;
        its blocks are cleaned, so that whoever gets them next is safe. A row with a draft does so only if it would without.
        """
        if self.threads is not None:
            self.threads.adjust()
        try:
            return self._forward(rows)
        finally:
            if self.threads is not None:
                self.threads.rest()

    def _forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        results = self._once(rows)
        # What is no number at a guessed position may have reached all positions of its row, for 0 times that is none either: what the row
        # says, and whether its request is to end, is told by the row without its guesses.
        again = [place for place, row in enumerate(rows) if row.draft and (found := results[place]) is not None and found.error is not None]
        if again:
            plain = [Row(rows[place].request, rows[place].start, 1, True) for place in again]
            for place, found in zip(again, self._once(plain), strict=True):
                results[place] = found
        return results

    def _once(self, rows: Sequence[Row]) -> list[Sampled | None]:
        with self._inference:
            batch = self._builder.build(rows)
            pooling = [place for place, row in enumerate(rows) if row.request.params.pooling is not None and row.pooled]
            logits, finite, sums = self._run_heard(batch, rows, pooling) if pooling else (*self._run(batch), [])
            flags = Download(finite)
            if batch.one_each and not pooling:  # as in nearly every step: there is nothing to pick apart
                drawn = self._sampler.sample(logits, rows)
                broken = self._contain(rows, batch, flags.get())
                results: list[Sampled | None] = [*drawn]
            else:
                count = len(batch.sampling)
                scores = score_prompts(logits[count:], [rows[place] for place in batch.scoring])
                drawn = self._sampler.sample(logits[:count], [draw for row in rows if row.samples for draw in row.draws])
                broken = self._contain(rows, batch, flags.get())  # last, so that a GPU is waited for once, by whoever reads first
                results = _by_row(rows, batch, drawn, scores)
                for place, pooled in zip(pooling, sums, strict=True):
                    results[place] = replace(results[place] or Sampled(None), pooled=pooled)
        for place in broken:
            results[place] = not_a_number()
        return results

    def ride(self, lane: PagedLane | TileLane) -> None:
        """Run all steps on a lane that has its own way of laying out their inputs."""
        self.fast, self._builder = lane, lane.builder
        self._sampler.native = isinstance(lane, TileLane)
        self.drafts = isinstance(lane, TileLane) and torch_multiplies(lane) is False

    def forget(self, request: RequestState) -> None:
        self._sampler.forget(request.id)
        if self.states is not None:
            self.states.forget(request)

    def reproduce(self, wanted: bool) -> bool:
        if isinstance(self.fast, TileLane):
            return not wanted or same_in_company(self.fast, self._model, self.store)
        if not isinstance(self.fast, PagedLane):  # which reads by table: else where its blocks lie decides how they are read
            self._builder.join = EVERYTHING if wanted else self._join
        if self.threads is not None:
            self.threads.hold(wanted)
        return not wanted

    def resize(self, num_blocks: int) -> None:
        self.store.resize(num_blocks)

    def open_tier(self, slots: int, folder: str | None) -> None:
        """Make room for the second tier. Raises EngineError("tier_failed")."""
        self._tier = HostStore(self.store, slots, folder)

    def copy(self, copies: Sequence[Move]) -> None:
        with torch.inference_mode():
            for kind, group in groupby(copies, key=type):
                run: list[Any] = list(group)
                if kind is Fork:
                    self.store.fork(run)
                else:
                    assert self._tier is not None, "a tier was planned with but never opened"
                    self._tier.copy(run)

    def close(self) -> None:
        """Let go of the KV tensors and the model; the runner is of no use afterwards."""
        if self._tier is not None:
            self._tier.close()
            self._tier = None
        self.store.keys.clear()
        self.store.values.clear()
        if self.states is not None:
            self.states.close()
        self.fast = None
        self._model = None

    def _run_heard(
        self, batch: Batch, rows: Sequence[Row], pooling: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor, list[tuple[float, ...]]]:
        """The same step, and the hidden states that the rows at the places `pooling` ask for."""
        told = self.fast.hear(self.store, batch.inputs) if isinstance(self.fast, TileLane) else None
        if told is not None:
            logits, finite, states = told[0], told[1], [told[2]]
        else:
            with heard(self._model) as states:
                logits, finite = self._run(batch, recorded=False)
        return logits, finite, pool_rows(states, [rows[place] for place in pooling], [batch.spans[place][0] for place in pooling])

    def _run(self, batch: Batch, recorded: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        if self.fast is not None:
            return self.fast(self.store, batch.inputs) if recorded else self.fast.eagerly(self.store, batch.inputs)
        states = None if self.states is None else self.states.tensors
        return run_step(self._model, self.store.geometry, self.store.keys, self.store.values, batch.inputs, states)

    def _contain(self, rows: Sequence[Row], batch: Batch, finite: torch.Tensor) -> list[int]:
        """The places of rows that wrote what is not finite; their blocks are clean again afterwards."""
        flags = finite.tolist()  # a third of the price of torch's own `all`
        if all(flags):
            return []
        broken = [place for place, (first, end) in enumerate(batch.spans) if not all(flags[first:end])]
        for place in broken:
            self.store.clean(rows[place].request.blocks, rows[place].request.slots)
        return broken


def _by_row(
    rows: Sequence[Row], batch: Batch, drawn: Sequence[Sampled], scores: Sequence[tuple[TokenLogprob, ...]]
) -> list[Sampled | None]:
    """What was drawn and scored, by the rows that asked."""
    results: list[Sampled | None] = [None] * len(rows)
    for place, outcome in zip(batch.sampling, drawn, strict=True):
        if not rows[place].draft:
            results[place] = outcome
    for place in {place for place in batch.sampling if rows[place].draft}:
        draws = [outcome for at, outcome in zip(batch.sampling, drawn, strict=True) if at == place]
        results[place] = verified(rows[place], draws)
    for place, scored in zip(batch.scoring, scores, strict=True):
        results[place] = replace(results[place] or Sampled(None), scores=scored)
    return results


def _window_of(geometry: Geometry) -> int:
    """How far back any layer looks; 0 if one of them sees everything, or reads whole histories."""
    return 0 if geometry.by_row or not geometry.windows or 0 in geometry.windows else max(geometry.windows)


def _join_limit(geometry: Geometry) -> int:
    return JOIN_FLOAT if all(shape.dtype == torch.float32 for shape in geometry.layers.values()) else JOIN_HALF
