"""Made-up steps, from which the real step is recorded and with which a recording is checked.

Owns how they are made and which are chosen: together they differ in every size that may ever differ, because what is the same in all of
them is fixed in the recording. Each has a cache of its own; the real one is never touched. Always the same for the same arguments.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.model import eight
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore
from engine.model.geometry import Geometry
from engine.model.inputs import StepInputs
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import Priority, SamplingParams

TRIED = 80  # steps to choose from
SHARED = 3  # blocks that the requests of a step may read together


@dataclass(frozen=True, slots=True)
class Form:
    """What is static in a recorded step: whether decode rows are read by pairs of block and row, and the number of buckets of chunks."""

    decode: bool
    buckets: int

    @classmethod
    def of(cls, inputs: StepInputs) -> Form:
        return cls(bool(inputs.decode), len(inputs.buckets))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A made-up step: its inputs, and how large a cache they need, in blocks and in slots."""

    inputs: StepInputs
    blocks: int
    slots: int = 0

    def store(self, geometry: Geometry, block_size: int) -> KVStore:
        """A cache for it, filled with numbers; the same ones each time."""
        store = KVStore(geometry, self.blocks, block_size, self.slots)
        generator = torch.Generator().manual_seed(self.blocks)
        for tensor in store.tensors():
            numbers = eight.plain(tensor, torch.float32)
            tensor.copy_(eight.packed(torch.randn(numbers.shape, generator=generator), tensor))
        return store


def rehearse(
    form: Form, windows: Sequence[int], block_size: int, vocabulary: int, slotted: bool = False
) -> tuple[list[Rehearsal], Rehearsal]:
    """(Steps of `form` to record from, one more to check with). The former differ in every size in which steps of the form may differ."""
    rng = random.Random(1)
    tried: list[Rehearsal] = []
    while len(tried) < TRIED:
        made = _make(form, windows, block_size, vocabulary, rng, spare=len(tried) % 7, slotted=slotted)
        if Form.of(made.inputs) == form:  # chunks that happen to fit one bucket make another form
            tried.append(made)
    *tried, held_back = tried
    sizes = [_sizes(made) for made in tried]
    open_sizes = {place for place, values in enumerate(zip(*sizes, strict=True)) if len(set(values)) > 1}
    chosen = [0]
    while open_sizes:
        best = max(range(len(tried)), key=lambda number: sum(sizes[number][place] != sizes[0][place] for place in open_sizes))
        open_sizes -= {place for place in open_sizes if sizes[best][place] != sizes[0][place]}
        chosen.append(best)
    return [tried[number] for number in chosen], held_back


def _sizes(made: Rehearsal) -> tuple[int, ...]:
    return (made.blocks, made.slots, *(size for tensor in made.inputs.tensors() for size in tensor.shape))


def _make(form: Form, windows: Sequence[int], block_size: int, vocabulary: int, rng: random.Random, spare: int, slotted: bool) -> Rehearsal:
    """Random rows. `spare` blocks are left out before the first, so that steps differ in where the blocks in use begin."""
    spans = [(rng.randrange(4 * block_size), 1) for _ in range(rng.randint(1, 5) if form.decode else 0)]
    for bucket in range(form.buckets):
        length, start = rng.randint(2, 5) * 12**bucket, rng.randrange(4 * block_size)
        spans += [(start + rng.randrange(2), length) for _ in range(rng.randint(1, 3))]
    rows = []
    free = 1 + spare + SHARED  # the next block of a writer's own: blocks that are read only may be shared
    for number, (start, count) in enumerate(spans):
        end = start + count
        tokens = [rng.randrange(vocabulary) for _ in range(end)]
        request = made_up(f"made up {number}", tokens)
        read, written = start // block_size, -(-end // block_size) - start // block_size
        request.blocks = [1 + spare + rng.randrange(SHARED) for _ in range(read)] + list(range(free, free + written))
        free += written
        rows.append(Row(request, start, count, number == 0 or rng.random() < 0.5))
    slots = give_slots(rows, free, rng.randint(1, 6)) if slotted else 0
    inputs = BatchBuilder(block_size, tuple(windows), torch.device("cpu"), slotted=slotted).build(rows).inputs
    return Rehearsal(inputs, free, slots)


def give_slots(rows: Sequence[Row], blocks: int, further: int) -> int:
    """Have each block of a made-up step lie in a slot so much further on. Returns how many slots there must be."""
    for row in rows:
        row.request.slots = [block + further for block in row.request.blocks]
    return blocks + 2 * further


def made_up(name: str, tokens: list[int], blocks: Iterable[int] = ()) -> RequestState:
    """A request that nobody sent: its tokens are its prompt, its blocks its own."""
    request = RequestState(name, name, name, SamplingParams(), Priority.IDLE, 0, tokens, 0, len(tokens), TimeLedger(0.0))
    request.blocks = list(blocks)
    return request


def vocabulary_of(model: Any) -> int:
    config = model.config
    return int((config.get_text_config() if hasattr(config, "get_text_config") else config).vocab_size)
