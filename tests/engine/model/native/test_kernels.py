"""Our own kernels against torch: products, gates, norms, and attention over a block pool."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, rms_norm, silu

from engine.heap import give_back
from engine.model import eight
from engine.model.native import library
from engine.model.native.modules import (
    GatedBFloat16,
    GatedInt4,
    GatedInt8,
    Grid,
    NativeBFloat16,
    NativeInt4,
    NativeInt8,
    byte_panels,
    panels,
)
from engine.model.packed.kernel import Kernel

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))


def halved(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().float()


def levels(weight: Tensor) -> Tensor:
    """`weight` rounded to 127 levels to each side, a scale a row."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    return (weight / scale).round() * scale


@pytest.mark.parametrize("shape", [(64, 34), (33, 7), (1, 1), (40, 12)])
@pytest.mark.parametrize("lies", ["whole", "turned", "at an odd place"])
def test_panels_are_the_rows_pair_by_pair(shape: tuple[int, int], lies: str) -> None:
    rows, inputs = shape
    weight = torch.arange(rows * inputs, dtype=torch.float32).reshape(shape).bfloat16()
    if lies == "turned":
        weight = weight.T.contiguous().T
    elif lies == "at an odd place":
        weight = torch.cat((torch.zeros(1, dtype=torch.bfloat16), weight.flatten()))[1:].view(shape)
    packed = panels(weight)
    whole = torch.zeros(packed.shape[0] * 32, packed.shape[1] * 2, dtype=torch.bfloat16)
    whole[:rows, :inputs] = weight
    assert torch.equal(packed, whole.view(-1, 32, packed.shape[1], 2).transpose(1, 2))


def test_every_level_of_a_byte_is_its_own_number() -> None:
    """A weight that holds all 255 levels, read back through a product with one at a time."""
    row = torch.cat((torch.arange(-127, 128), torch.zeros(1)))
    layer = NativeInt8(row.repeat(32, 1))
    assert torch.equal(layer(torch.eye(256)), row[:, None].expand(-1, 32))
    packed, scale = byte_panels(torch.zeros(3, 4))
    assert not packed.any() and bool(scale.isfinite().all())


def make_grid(columns: int, inputs: int, generator: torch.Generator) -> tuple[Grid, Tensor]:
    """(levels, steps and lowest values that float16 holds, the weight they stand for)"""
    levels = torch.randint(0, 16, (columns, inputs), generator=generator, dtype=torch.uint8)
    step = (torch.rand(columns, inputs // 32, generator=generator) * 0.02 + 0.001).half().float()
    low = (-torch.rand(columns, inputs // 32, generator=generator) * 0.2).half().float()
    weight = levels.view(columns, -1, 32).double() * step.double()[..., None] + low.double()[..., None]
    return (levels, step, low), weight.reshape(columns, inputs)


@pytest.mark.parametrize(("columns", "inputs"), [(64, 64), (100, 96), (33, 4992), (1, 32), (960, 576)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_with_levels_loses_nothing_and_a_row_does_not_know_its_company(columns: int, inputs: int, biased: bool) -> None:
    generator = torch.Generator().manual_seed(columns)
    grid, weight = make_grid(columns, inputs, generator)
    bias = torch.randn(columns, generator=generator) if biased else None
    layer = NativeInt4(*grid, bias)
    x = torch.randn(131, inputs, generator=generator)
    got = layer(x)
    wanted = halved(x).double() @ weight.T + (0 if bias is None else bias)
    assert float((got - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    for rows in (1, 2, 5, 7, 8, 9, 11, 12, 13, 16, 17, 24, 25, 97):
        assert torch.equal(layer(x[:rows]), got[:rows])
    assert torch.equal(layer(x[7:8]), got[7:8])
    assert layer(x[:0]).shape == (0, columns)


@pytest.mark.parametrize("columns", [48, 37])
def test_gated_levels_are_both_products_and_their_gate(columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    (gate, wide_gate), (up, wide_up) = (make_grid(columns, 96, generator) for _ in range(2))
    layer = GatedInt4(gate, up, 0)
    x = torch.randn(40, 96, generator=generator)
    wanted = silu(halved(x).double() @ wide_gate.T) * (halved(x).double() @ wide_up.T)
    got = layer(x)
    assert float((got - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    assert all(torch.equal(layer(x[:rows]), got[:rows]) for rows in (1, 8, 9, 16, 17))


@pytest.mark.parametrize("scale", [1e7, 1e-9])
def test_steps_that_half_precision_cannot_hold_are_refused(scale: float) -> None:
    (levels, step, low), _ = make_grid(32, 32, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="too large or too small"):
        NativeInt4(levels, step * scale, low * scale)


@pytest.mark.parametrize(("columns", "inputs"), [(64, 64), (100, 70), (33, 5001), (1, 2), (960, 576)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", [NativeBFloat16, NativeInt8])
def test_a_product_is_right_and_a_row_does_not_know_its_company(kind: type[Kernel], columns: int, inputs: int, biased: bool) -> None:
    generator = torch.Generator().manual_seed(columns)
    weight, bias = torch.randn(columns, inputs, generator=generator), torch.randn(columns, generator=generator) if biased else None
    layer = kind(weight, bias)
    kept = halved(weight) if kind is NativeBFloat16 else levels(weight)
    x = torch.randn(131, inputs, generator=generator)
    got = layer(x)
    wanted = halved(x).double() @ kept.double().T + (0 if bias is None else bias)
    assert float((got - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    for rows in (1, 2, 5, 8, 9, 11, 12, 13, 16, 17, 24, 25, 97):
        assert torch.equal(layer(x[:rows]), got[:rows])
    assert torch.equal(layer(x[7:8]), got[7:8])
    assert layer(x[:0]).shape == (0, columns)
    assert torch.equal(layer(x[:6].view(2, 3, inputs)), got[:6].view(2, 3, columns))


@pytest.mark.parametrize(("act", "function"), [(0, silu), (1, lambda x: gelu(x, approximate="tanh"))])
@pytest.mark.parametrize("columns", [16, 40, 1536])
@pytest.mark.parametrize("kind", [GatedBFloat16, GatedInt8])
def test_a_gated_product_is_both_products_and_their_gate(kind: type[Kernel], act: int, function: object, columns: int) -> None:
    generator = torch.Generator().manual_seed(act)
    gate, up = (torch.randn(columns, 96, generator=generator) for _ in range(2))
    x = torch.randn(29, 96, generator=generator)
    kept = halved if kind is GatedBFloat16 else levels
    wanted = function(halved(x) @ kept(gate).T) * (halved(x) @ kept(up).T)  # type: ignore[operator]
    layer = kind(gate, up, act)  # type: ignore[call-arg,arg-type]
    got = layer(x)
    assert float((got - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
    assert torch.equal(layer(x[:3]), got[:3])


def test_a_thread_that_ends_leaves_no_room_behind() -> None:
    """Each has 8 MiB for its packed rows, 16 where they are packed as float32; two dozen would leave 192 MiB.

    The allocator keeps what as many had at the same moment, for later: Python holds a thread for ended before it has let go of its room,
    so that may be some of them.
    """
    layer, x = NativeBFloat16(torch.zeros(32, 2048)), torch.zeros(2048, 2048)

    def resident_after(threads: int) -> int:
        for _ in range(threads):
            thread = threading.Thread(target=layer, args=(x,))
            thread.start()
            thread.join()
        give_back()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_after(8)
    assert resident_after(24) - before < 96 << 20


def test_a_gate_far_from_zero_stays_a_number() -> None:
    x, one = torch.tensor([[1e4, -1e4]]), torch.eye(2)
    assert torch.equal(GatedBFloat16(one, torch.ones(2, 2), 0)(x), torch.zeros(1, 2))
    assert GatedBFloat16(one, one, 0)(x)[0, 1] == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (2, 7, 576), (300, 257)])
def test_a_norm_is_torchs(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(*shape, generator=generator), torch.randn(shape[-1], generator=generator)
    assert torch.allclose(torch.ops.omnibus.rms_norm(x, weight, 1e-5), rms_norm(x, shape[-1:], weight, 1e-5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("heads", "dim", "value_dim"), [(1, 16, 16), (3, 64, 48), (2, 24, 80)])
def test_a_token_with_a_number_that_is_none_is_found(heads: int, dim: int, value_dim: int, wrong: float) -> None:
    generator = torch.Generator().manual_seed(dim)
    key = torch.randn(1, 9, heads, dim, generator=generator).mul_(3e38).clamp_(-3e38, 3e38).transpose(1, 2)  # large ones are sound, too
    value = torch.randn(1, heads, 9, value_dim, generator=generator)
    assert torch.ops.omnibus.finite(key, value).tolist() == [True] * 9
    key[0, -1, 2, dim - 1] = value[0, 0, 5, value_dim - 1] = value[0, heads - 1, 7, 0] = wrong
    assert torch.ops.omnibus.finite(key, value).tolist() == [token not in (2, 5, 7) for token in range(9)]


# ----------------------------------------------------------------------------------------------------------- attention


class Pool:
    """Rows (start, count) with random histories, stored block by block in a shuffled pool."""

    def __init__(
        self, rows: list[tuple[int, int]], heads: int, group: int, dim: int, value_dim: int, size: int, in_eight: bool = False
    ) -> None:
        self.rows, self.group, self.size = rows, group, size
        self.steps = eight.STEPS if in_eight else torch.empty(0)
        dtype = torch.int8 if in_eight else torch.bfloat16
        generator = torch.Generator().manual_seed(dim + group)
        counts = [-(-(start + count) // size) for start, count in rows]
        numbers = list(range(1, sum(counts) + 1))
        random.Random(dim).shuffle(numbers)
        self.keys = torch.zeros(len(numbers) + 1, heads, size, dim + in_eight, dtype=dtype)
        self.values = torch.zeros(len(numbers) + 1, heads, size, value_dim + in_eight, dtype=dtype)
        self.table = torch.zeros(len(rows), max(counts), dtype=torch.int32)
        self.key, self.value = [], []
        for place, ((start, count), blocks) in enumerate(zip(rows, counts, strict=True)):
            self.table[place, :blocks] = torch.tensor([numbers.pop() for _ in range(blocks)])
            key = torch.randn(1, heads, start + count, dim, generator=generator)
            value = torch.randn(1, start + count, heads, value_dim, generator=generator).transpose(1, 2)  # as a model gives it
            at = torch.arange(start + count)
            torch.ops.omnibus.store_(self.keys, self.values, key, value, self.table[place].long()[at // size], at % size, self.steps)
            self.key.append(self.kept(key[0]))
            self.value.append(self.kept(value[0]))
        self.query = torch.randn(1, heads * group, sum(count for _, count in rows), dim, generator=generator)

    def kept(self, rows: Tensor) -> Tensor:
        """What a cache makes of rows [heads, positions, size]."""
        return eight.plain(eight.packed(rows, self.keys), torch.float32) if self.steps.numel() else halved(rows)

    def attend(self, tiles: list[tuple[int, int, int, int]], query: Tensor, cap: float, window: int, sinks: Tensor) -> Tensor:
        scale = self.query.shape[3] ** -0.5
        numbers = torch.tensor(tiles, dtype=torch.int32)
        out: Tensor = torch.ops.omnibus.attend(query, self.keys, self.values, numbers, self.table, scale, cap, window, sinks, self.steps)
        return out[0]

    def tiles(self) -> list[tuple[int, int, int, int]]:
        tokens, made, first = max(1, 12 // self.group), [], 0
        for place, (start, count) in enumerate(self.rows):
            made += [(place, first + at, min(tokens, count - at), start + at) for at in range(0, count, tokens)]
            first += count
        return made

    def wanted(self, place: int, first: int, cap: float, window: int, sinks: Tensor) -> Tensor:
        """[count, heads, value dim] of one row, in double precision."""
        start, count = self.rows[place]
        query = self.query[0, :, first : first + count].double()
        key, value = (part[place].double().repeat_interleave(self.group, 0) for part in (self.key, self.value))
        scores = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5
        if cap:
            scores = cap * torch.tanh(scores / cap)
        own, seen = torch.arange(start, start + count)[:, None], torch.arange(start + count)[None]
        scores = scores.masked_fill((seen > own) | ((seen <= own - window) if window else False), float("-inf"))
        if sinks.numel():
            scores = torch.cat((scores, sinks.double()[:, None, None].expand(-1, count, 1)), -1)
        return (scores.softmax(-1)[..., : start + count] @ value).transpose(0, 1)


@pytest.mark.parametrize("in_eight", [False, True])
@pytest.mark.parametrize(
    ("heads", "group", "dim", "value_dim", "size", "window", "cap", "sinks"),
    [
        (3, 3, 64, 64, 32, 0, 0.0, False),
        (1, 20, 80, 48, 64, 0, 0.0, False),
        (2, 8, 128, 128, 32, 100, 0.0, False),
        (2, 2, 256, 256, 32, 0, 20.0, False),
        (2, 4, 32, 32, 96, 33, 0.0, True),
        (1, 1, 6, 16, 32, 1, 0.0, False),
        (5, 4, 64, 48, 64, 0, 0.0, True),  # heads of a position that are taken together, and some that are left over
    ],
)
def test_attention_is_right_and_a_position_does_not_know_its_company(
    heads: int, group: int, dim: int, value_dim: int, size: int, window: int, cap: float, sinks: bool, in_eight: bool
) -> None:
    pool = Pool([(0, 1), (131, 1), (700, 1), (0, 50), (300, 17), (127, 130)], heads, group, dim, value_dim, size, in_eight)
    sink = torch.linspace(-1, 2, heads * group) if sinks else torch.empty(0)
    out = pool.attend(pool.tiles(), pool.query, cap, window, sink)
    assert out.shape == (pool.query.shape[2], heads * group, value_dim)
    first = 0
    for place, (start, count) in enumerate(pool.rows):
        wanted = pool.wanted(place, first, cap, window, sink)
        assert float((out[first : first + count] - wanted).abs().max()) <= 0.01 * float(wanted.abs().max())  # 16-bit queries and weights
        for at in {0, count // 2, count - 1}:
            query = pool.query[:, :, first + at : first + at + 1]
            assert torch.equal(pool.attend([(place, 0, 1, start + at)], query, cap, window, sink)[0], out[first + at])
        first += count


def test_eight_bits_are_those_of_the_general_lane() -> None:
    """Other places in the block, the same whole numbers and steps, also of what is not finite."""
    rows = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(3)) * torch.logspace(-7, 7, 40)[:, None]
    rows[0, 1, 5, 3], rows[0, 0, 7, 2] = float("inf"), 0.0
    keys, values = (torch.zeros(3, 2, 32, 17, dtype=torch.int8) for _ in range(2))
    at = torch.arange(40)
    torch.ops.omnibus.store_(keys, values, rows, rows, 1 + at // 32, at % 32, eight.STEPS)
    wanted = eight.packed(rows[0], keys)  # [heads, positions, 17]
    for head in range(2):
        flat = keys[1:, head].reshape(2, -1)
        whole = flat[:, : 32 * 16].view(2, 8, 32, 2).permute(0, 2, 1, 3).reshape(64, 16)[:40]
        assert torch.equal(torch.cat((whole, flat[:, 32 * 16 :].reshape(64, 1)[:40]), 1), wanted[head])
        flat = values[1:, head].reshape(2, -1)
        whole = flat[:, : 32 * 16].view(2, 16, 16, 2).permute(0, 1, 3, 2).reshape(64, 16)[:40]
        assert torch.equal(torch.cat((whole, flat[:, 32 * 16 :].reshape(64, 1)[:40]), 1), wanted[head])


def test_a_stranger_in_the_pool_changes_nothing() -> None:
    """What another request left beyond a row's end, in its last block or elsewhere, weighs exactly nothing."""
    pool = Pool([(40, 3)], 2, 2, 64, 64, 32)
    before = pool.attend(pool.tiles(), pool.query, 0.0, 0, torch.empty(0))
    at = torch.tensor([43 % 32])
    torch.ops.omnibus.store_(
        pool.keys,
        pool.values,
        torch.full((1, 2, 1, 64), 900.0),
        torch.full((1, 2, 1, 64), 900.0),
        pool.table[0, 1:2].long(),
        at,
        pool.steps,
    )
    assert torch.equal(pool.attend(pool.tiles(), pool.query, 0.0, 0, torch.empty(0)), before)


@pytest.mark.parametrize(("heads", "tokens", "size"), [(9, 1, 64), (3, 200, 64), (2, 5, 6)])
def test_a_rotation_is_the_one_models_write_out(heads: int, tokens: int, size: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    x = torch.randn(1, tokens, heads, size, generator=generator).transpose(1, 2)
    cos, sin = torch.randn(2, 1, 1, tokens, size, generator=generator)
    half = size // 2
    wanted = x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
    assert torch.allclose(torch.ops.omnibus.rotate(x, cos, sin), wanted, rtol=1e-6, atol=1e-6)


_OUT_OF_MEMORY = """
import resource, sys
import torch
from engine.model.native import library
from engine.relief import ran_out_of_memory
assert library.fault() is None, library.fault()
wide = torch.zeros(1, 40, 32, 2, dtype=torch.bfloat16)
x, none = torch.zeros(400_000, 80), torch.empty(0)
torch.ops.omnibus.linear(x[:4], wide, none, none, 32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    for call in (
        lambda: torch.ops.omnibus.linear(x, wide, none, none, 32),
        lambda: torch.ops.omnibus.rms_norm(x, torch.zeros(80), 1e-5),
        lambda: torch.ops.omnibus.rotate(x.view(1, 1, -1, 80), x.view(1, 1, -1, 80), x.view(1, 1, -1, 80)),
    ):
        try:
            call()
        except RuntimeError as fault:
            assert ran_out_of_memory(fault), fault
        else:
            sys.exit("it found memory")
torch.ops.omnibus.linear(x[:4], wide, none, none, 32)
assert sys.getrefcount(x) < 10
print("refused, and went on")
"""


def test_memory_that_runs_out_is_an_error_the_engine_knows() -> None:
    done = subprocess.run([sys.executable, "-c", _OUT_OF_MEMORY], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "refused, and went on", done.stderr
