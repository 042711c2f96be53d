"""Paged attention against a dense reference in float64: every read path, grouped heads, windows, soft capping, sinks, 16-bit types."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from engine.model.attention import window_of
from engine.model.batch import BatchBuilder
from engine.model.cache import KVStore, StepCache
from engine.model.geometry import Geometry, LayerShape
from engine.scheduling.plan import Row
from tests.engine.model.tiny import make_request

CPU = torch.device("cpu")


def make_store(
    heads: int, kv_heads: int, size: int, value_size: int, windows: tuple[int, ...], dtype: torch.dtype, blocks: int, block_size: int
) -> KVStore:
    shape = LayerShape(kv_heads, size, value_size, dtype, CPU)
    return KVStore(Geometry({0: shape}, {0: 0}, windows, heads, heads // kv_heads), blocks, block_size)


def dense(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    first: int,
    scale: float,
    window: int,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Queries [n, heads, d] at positions first.. over all keys [L, kv heads, d]: the textbook, in float64."""
    count, heads, _ = query.shape
    group = heads // keys.shape[1]
    q, k, v = query.double(), keys.double().repeat_interleave(group, 1), values.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    at, seen = torch.arange(first, first + count)[:, None], torch.arange(keys.shape[0])[None]
    hidden = (seen > at) | ((seen <= at - window) if window else torch.zeros_like(seen > at))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, count, 1)], -1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :-1], v)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def run_mixed_step(
    heads: int = 6,
    kv_heads: int = 2,
    size: int = 16,
    value_size: int = 16,
    window: int = 0,
    softcap: float | None = None,
    with_sinks: bool = False,
    dtype: torch.dtype = torch.float32,
    block_size: int = 4,
    layout: str = "scattered",
    join: int = 0,
    seed: int = 0,
) -> float:
    """One step of five decode rows, two of which share blocks, and three chunks; the largest error against the reference."""
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    windows = (0, window) if window else (0,)
    store = make_store(heads, kv_heads, size, value_size, windows, dtype, 150, block_size)
    free = list(range(1, 151))
    if layout == "scattered":
        rng.shuffle(free)
    elif layout == "sparse":
        free = free[::3]
    # Filled with large numbers: reading anything that is not one's own shows.
    for tensor in (store.keys[0], store.values[0]):
        tensor.fill_(50.0)
    sinks = torch.randn(heads, generator=generator) if with_sinks else None
    rows, histories = [], []
    for number, (start, count) in enumerate([(0, 1), (30, 1), (7, 1), (15, 1), (16, 1), (0, 9), (13, 5), (26, 2)]):
        end = start + count
        keys = torch.randn(end, kv_heads, size, generator=generator).to(dtype)
        values = torch.randn(end, kv_heads, value_size, generator=generator).to(dtype)
        request = make_request([3] * end, name=str(number))
        request.blocks = [free.pop(0) for _ in range(-(-end // block_size))]
        if number == 4:  # shares its first three blocks with the row before
            request.blocks[:3] = rows[3].request.blocks[:3]
            keys[: 3 * block_size], values[: 3 * block_size] = histories[3][0][: 3 * block_size], histories[3][1][: 3 * block_size]
        for position in range(start):
            block, offset = request.blocks[position // block_size], position % block_size
            store.keys[0][block, :, offset] = keys[position]
            store.values[0][block, :, offset] = values[position]
        rows.append(Row(request, start, count, True))
        histories.append((keys, values))
    batch = BatchBuilder(block_size, windows, CPU, join).build(rows)
    assert bool(batch.inputs.decode) == (join == 0)
    step = StepCache(store.geometry, store.keys, store.values, batch.inputs)
    total = batch.inputs.ids.shape[1]
    query = torch.randn(total, heads, size, generator=generator).to(dtype)
    new_keys, new_values = torch.empty(total, kv_heads, size, dtype=dtype), torch.empty(total, kv_heads, value_size, dtype=dtype)
    for row, (first, end), (keys, values) in zip(rows, batch.spans, histories, strict=True):
        new_keys[first:end], new_values[first:end] = keys[row.start :], values[row.start :]
    key, value = step.update(new_keys.transpose(0, 1)[None], new_values.transpose(0, 1)[None], 0)
    module = SimpleNamespace(layer_idx=0)
    out = step.attend(
        module, query.transpose(0, 1)[None], key, value, None, scaling=0.3, sliding_window=window or None, softcap=softcap, s_aux=sinks
    )
    assert out.shape == (1, total, heads, value_size) and out.dtype == dtype
    worst = 0.0
    for row, (first, end), (keys, values) in zip(rows, batch.spans, histories, strict=True):
        expected = dense(query[first:end], keys, values, row.start, 0.3, window, softcap, sinks)
        worst = max(worst, float((out[0, first:end].double() - expected).abs().max()))
    return worst


@pytest.mark.parametrize(("layout", "join"), [("dense", 0), ("scattered", 0), ("sparse", 0), ("scattered", 10**6)])
@pytest.mark.parametrize("window", [0, 1, 6, 40])
@pytest.mark.parametrize("extra", ["plain", "softcap", "sinks", "both"])
def test_matches_the_textbook(layout: str, join: int, window: int, extra: str) -> None:
    softcap = 2.0 if extra in ("softcap", "both") else None
    assert run_mixed_step(window=window, softcap=softcap, with_sinks=extra in ("sinks", "both"), layout=layout, join=join) < 2e-6


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 1), (12, 2), (9, 3)])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_grouped_heads(heads: int, kv_heads: int, with_sinks: bool) -> None:
    """Many heads a key head take the broadcast path, few the stacked one."""
    assert run_mixed_step(heads=heads, kv_heads=kv_heads, with_sinks=with_sinks, window=5) < 2e-6


@pytest.mark.parametrize("with_sinks", [False, True])
def test_values_of_another_size(with_sinks: bool) -> None:
    assert run_mixed_step(size=16, value_size=24, with_sinks=with_sinks) < 2e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("extra", ["plain", "softcap", "sinks"])
@pytest.mark.parametrize("size", [16, 64])
def test_sixteen_bit_types(dtype: torch.dtype, extra: str, size: int) -> None:
    """The inputs are exact in the type, so the error is that of rounding weights and results once each."""
    error = run_mixed_step(
        dtype=dtype, size=size, value_size=size, softcap=2.0 if extra == "softcap" else None, with_sinks=extra == "sinks", window=6
    )
    assert error < (0.04 if dtype == torch.bfloat16 else 0.005)


@pytest.mark.parametrize("block_size", [1, 2, 5])
def test_block_sizes(block_size: int) -> None:
    assert run_mixed_step(block_size=block_size, window=6) < 2e-6


def test_not_a_number_in_one_row_stays_there() -> None:
    store = make_store(4, 2, 16, 16, (0,), torch.float32, 20, 4)
    rows = []
    for number, (start, count) in enumerate([(6, 1), (9, 1), (0, 6), (3, 4)]):
        request = make_request([3] * (start + count), name=str(number))
        request.blocks = list(range(1 + 4 * number, 5 + 4 * number))
        rows.append(Row(request, start, count, True))
    for poisoned in (0, 2):
        batch = BatchBuilder(4, (0,), CPU).build(rows)
        total = batch.inputs.ids.shape[1]
        key, value, query = torch.randn(1, 2, total, 16), torch.randn(1, 2, total, 16), torch.randn(1, 4, total, 16)
        first, end = batch.spans[poisoned]
        key[:, :, first:end] = float("nan")
        step = StepCache(store.geometry, store.keys, store.values, batch.inputs)
        step.update(key, value, 0)
        out = step.attend(SimpleNamespace(layer_idx=0), query, key, value, None, scaling=0.25)
        own = torch.zeros(total, dtype=torch.bool)
        own[first:end] = True
        assert step.finite is not None and torch.equal(step.finite, ~own)
        assert out[0, ~own].isfinite().all() and not out[0, own].isfinite().any()
        store.clean(rows[poisoned].request.blocks)
        assert all(tensor.isfinite().all() for tensor in store.tensors())


MIXED = SimpleNamespace(layer_types=["full_attention", "sliding_attention"], sliding_window=5)


@pytest.mark.parametrize(
    ("module", "kwargs", "expected"),
    [
        (SimpleNamespace(), {"sliding_window": 8}, 8),
        (SimpleNamespace(sliding_window=8), {"sliding_window": None}, 0),
        (SimpleNamespace(sliding_window=8), {}, 8),
        (SimpleNamespace(), {}, 0),
        (SimpleNamespace(layer_idx=1, config=MIXED), {}, 5),
        (SimpleNamespace(layer_idx=0, config=MIXED), {}, 0),
    ],
)
def test_window_of_a_layer(module: object, kwargs: dict[str, object], expected: int) -> None:
    assert window_of(module, kwargs) == expected
