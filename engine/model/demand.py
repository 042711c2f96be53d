"""What a model will take in memory before it is loaded: weights as they will be packed, cache, and the work of the largest step.

Owns the arithmetic, in bytes, over a `ModelShape`. It must never load anything: where a figure hangs on what this machine can run, the
caller says which class that is. `memory.py` plans with the same figures once the model is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.shape import ModelShape
from engine.scheduling.plan import MOST_SCORED
from engine.scheduling.window import slots_beside, slots_for

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
WORD_BYTES = 430  # a vocabulary's entry in the tokenizer, measured with 49,000 and 262,000 of them
BROUGHT_IN = 56 << 20  # what the libraries take with a first model: pages read, heaps, recorded steps, what is kept; measured on Linux
PACKED = {"f32": 4.0, "16-bit": 2.0, "8-bit": 1.0, "4-bit": 0.625}  # bytes a weight of a linear layer, scales included


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes. `work` is the largest step, the tokenizer and the libraries; `scoring` comes on top while somebody asks how likely a prompt
    is; `loading` is the most that is held at one moment of the load, when weights are there both before and after packing."""

    weights: int
    kv: int
    work: int
    scoring: int
    loading: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work

    @property
    def most(self) -> int:
        """At any moment."""
        return max(self.total + self.scoring, self.loading)


def demand(
    shape: ModelShape,
    *,
    device: str,
    precision: str,
    seats: int,
    context: int,
    block_size: int,
    token_budget: int,
    tiles: bool = False,
    eight: bool = False,
    slots: bool = True,
) -> Demand:
    """What serving `seats` requests of `context` positions each takes.

    Args:
        device: "cpu", or an accelerator's name.
        precision: on the CPU one of `PACKED`, elsewhere one of `WIDTHS`.
        tiles: steps run on our own CPU kernels, with a cache in 16 bits, where they can run such a model.
        eight: keys and values are kept in 8 bits.
        slots: windowed layers beside others keep blocks in slots, where that is fewer (see `slots.py`).
    """
    on_cpu = device == "cpu"
    tiles = tiles and on_cpu and precision != "f32" and shape.tiled
    width = 4 if on_cpu else WIDTHS[precision]  # of activations and cache
    blocks = seats * -(-context // block_size)
    position = shape.eight_bytes(0 if tiles else width) if eight else shape.kv_elements * (2 if tiles else width)
    kv = blocks * block_size * position
    if slots and on_cpu and (windowed := shape.windowed):
        beside = slots_beside(max(layer.window for layer in windowed), block_size, seats, max(token_budget, seats))
        places = slots_for(blocks, beside) or blocks
        part = sum(layer.elements + 2 * layer.kv_heads if eight else layer.elements * (2 if tiles else width) for layer in windowed)
        kv -= (blocks - places) * block_size * part
    return Demand(
        weights=packed_bytes(shape, precision) if on_cpu else plain_bytes(shape, width),
        kv=kv,
        work=_step_bytes(shape, width, seats, context, token_budget, tiles) + WORD_BYTES * shape.vocabulary + (BROUGHT_IN if on_cpu else 0),
        scoring=scoring_bytes(shape.vocabulary),
        loading=_loading_bytes(shape, precision) if on_cpu else plain_bytes(shape, width),
    )


def packed_bytes(shape: ModelShape, precision: str) -> int:
    """Weights on the CPU. A tied head is packed apart from the embedding; what is not a linear layer stays float32."""
    table = 4 if precision == "f32" else 2
    head = max(PACKED[precision], 2.0) if precision == "4-bit" else PACKED[precision]
    tied = int(shape.embedding * head) if shape.tied else 0
    return int(shape.linear * PACKED[precision]) + shape.embedding * table + tied + shape.rest * 4


def plain_bytes(shape: ModelShape, width: int) -> int:
    """Weights as they are loaded on an accelerator."""
    return shape.file_bytes if shape.quantised else shape.elements * width


def _loading_bytes(shape: ModelShape, precision: str) -> int:
    """Layers are read as float32 and let go one by one as they are packed, the largest, usually the head, first."""
    read = 4 * shape.elements
    largest = max(shape.embedding, shape.linear // max(1, len(shape.layers)))
    return max(read + int(largest * (PACKED[precision] + 4)), packed_bytes(shape, precision))


def _step_bytes(shape: ModelShape, width: int, seats: int, context: int, token_budget: int, tiles: bool) -> int:
    return step_bytes(
        hidden=shape.hidden,
        wide=shape.wide * shape.experts_used,
        vocabulary=shape.vocabulary,
        scored=0 if tiles else shape.heads if shape.unfused else min(shape.group, 4) + 1,
        layer_bytes=0 if tiles else max((layer.elements for layer in shape.layers), default=0) * width,
        kernels=tiles and shape.experts_used == 1,
        width=width,
        seats=seats,
        context=context,
        token_budget=token_budget,
    )


def step_bytes(
    *,
    hidden: int,
    wide: int,
    vocabulary: int,
    scored: int,
    layer_bytes: int,
    kernels: bool,
    width: int,
    seats: int,
    context: int,
    token_budget: int,
) -> int:
    """An upper estimate of what the largest step allocates besides weights and cache.

    Hidden states and the feed-forward block for every position, logits in float32 of every seat with the sampler's copies, and the
    attention of one step: gathered keys and values, the mask and, where scores are not fused, the scores themselves. The positions that
    score a prompt are apart (`scoring_bytes`).

    Args:
        wide: of the feed-forward block, all experts that one position takes together.
        scored: matrices of scores that are there at once; none in our own kernels.
        layer_bytes: a position's keys and values in the widest layer, where they are gathered; 0 where they are read in place.
        kernels: the whole step runs on our own, which make few tensors between input and result.
        width: bytes of an activation.
    """
    held = 6 * hidden + 3 * wide if kernels else 12 * hidden + 4 * wide
    activations = (token_budget + seats) * held * max(width, 4)
    logits = seats * 6 * vocabulary * 4
    gathered = 2 * context * layer_bytes
    scores = token_budget * context * 4 * scored
    return activations + logits + gathered + scores


def scoring_bytes(vocabulary: int) -> int:
    """Logits in float32, with two copies, of the positions of a step that score a prompt."""
    return MOST_SCORED * 3 * vocabulary * 4
