"""Packed linear layers against torch's own, alone and inside small models, eager and traced."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from engine.model import linear as packing_module
from engine.model.linear import PackReport, keeps_grids, pack_linears
from engine.model.native.modules import NativeInt4
from engine.model.packed import grid
from engine.model.packed.kernels import FbgemmHalf, FbgemmInt8, Int4, Kernel, OneDnnBFloat16, OneDnnFloat, Plain, fault, packing, row_exact
from engine.model.packed.modules import HalfEmbedding, SharedProduct, Sibling
from engine.types import ModelError

# How far a product may be from the exact one, as a share of its size (norm of the difference over the norm).
CLOSE = {Plain: 1e-6, OneDnnFloat: 1e-6, OneDnnBFloat16: 6e-3, FbgemmHalf: 4e-4, FbgemmInt8: 1.5e-2, Int4: 6e-3, NativeInt4: 3e-3}
CLASS_CLOSE = {"f32": 1e-5, "16-bit": 2e-2, "8-bit": 5e-2, "4-bit": 2e-2}


def available(*kernels: type[Kernel]) -> list[type[Kernel]]:
    return [kernel for kernel in kernels if fault(kernel) is None]


def make_numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_grid_weight(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """A weight as GGUF's Q4_1 leaves it."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, 16, (rows, columns // 32, 32), generator=generator)
    step = (torch.rand(rows, columns // 32, 1, generator=generator) * 0.02 + 0.001).half().float()
    low = (torch.randn(rows, columns // 32, 1, generator=generator) * 0.1).half().float()
    return (levels * step + low).reshape(rows, columns)


def make_kernel(kind: type[Kernel], weight: torch.Tensor, bias: torch.Tensor | None = None) -> Kernel:
    with packing():
        if kind in (Int4, NativeInt4):
            found = grid.find(weight)
            assert found is not None
            return kind(*found, bias)
        return kind(weight, bias)


def make_llama(tied: bool = True, on_grid: bool = False, dtype: torch.dtype = torch.float32) -> Any:
    """Two layers, the sizes of a toy."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=160,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    if on_grid:
        for layer in model.model.layers:
            for module in layer.modules():
                if isinstance(module, nn.Linear):
                    module.weight.copy_(make_grid_weight(*module.weight.shape))
    return model.to(dtype)


def make_packed(precision: str, **options: Any) -> tuple[Any, PackReport]:
    model = make_llama(on_grid=precision == "4-bit", **options)
    report = pack_linears(model, precision)
    return model, report


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(ids, use_cache=False).logits


def off(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


KERNELS = available(Plain, OneDnnFloat, OneDnnBFloat16, FbgemmHalf, FbgemmInt8, Int4, NativeInt4)
PRECISIONS = ("f32", "16-bit", "8-bit", *(["4-bit"] if fault(Int4) is None else []))


# -------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_gives_the_product(kind: type[Kernel], with_bias: bool) -> None:
    weight = make_grid_weight(48, 96) if kind in (Int4, NativeInt4) else make_numbers(48, 96) * 0.05
    bias = make_numbers(48, seed=2) if with_bias else None
    kernel = make_kernel(kind, weight, bias)
    for shape in ((1, 96), (7, 96), (2, 5, 96)):
        x = make_numbers(*shape, seed=3)
        y = kernel(x)
        assert y.shape == (*shape[:-1], 48)
        assert y.dtype == torch.float32
        assert off(y, linear(x.double(), weight.double(), None if bias is None else bias.double())) < CLOSE[kind]


@pytest.mark.parametrize("kind", KERNELS)
def test_strides_do_not_matter(kind: type[Kernel]) -> None:
    kernel = make_kernel(kind, make_grid_weight(32, 64))
    wide = make_numbers(5, 128)
    assert torch.equal(kernel(wide[:, 32:96]), kernel(wide[:, 32:96].contiguous()))
    turned, straight = kernel(wide[:, :64].t().contiguous().t()), kernel(wide[:, :64])
    if kind is Plain:  # some BLAS libraries sum a turned matrix in another order
        torch.testing.assert_close(turned, straight, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(turned, straight)


def test_8_bits_are_the_same_in_any_company() -> None:
    if fault(FbgemmInt8) is None:
        assert row_exact(FbgemmInt8)
        assert make_packed("8-bit")[1].row_exact


@pytest.mark.parametrize("kind", [kernel for kernel in KERNELS if row_exact(kernel)])
def test_a_row_alone_equals_the_row_in_a_batch(kind: type[Kernel]) -> None:
    kernel = make_kernel(kind, make_grid_weight(192, 576))
    x = make_numbers(70, 576)
    x[11] *= 1e4  # a neighbour with large values must not matter
    together = kernel(x)
    for start, rows in ((0, 1), (10, 1), (12, 2), (3, 3), (20, 7), (0, 16), (5, 32), (0, 64)):
        assert torch.equal(kernel(x[start : start + rows]), together[start : start + rows]), rows


@pytest.mark.parametrize("kind", [kernel for kernel in KERNELS if not row_exact(kernel)])
def test_a_row_alone_is_close_to_the_row_in_a_batch(kind: type[Kernel]) -> None:
    kernel = make_kernel(kind, make_grid_weight(192, 576))
    x = make_numbers(32, 576)
    together = kernel(x)
    for rows in (1, 2, 7, 31):
        assert off(kernel(x[:rows]), together[:rows]) < 1e-6


@pytest.mark.parametrize("kind", KERNELS)
def test_a_row_that_is_not_a_number_spoils_no_other(kind: type[Kernel]) -> None:
    kernel = make_kernel(kind, make_grid_weight(32, 64))
    x = make_numbers(4, 64)
    clean = kernel(x)
    x[2, 5] = float("nan")
    x[3] = 0.0
    y = kernel(x)
    assert torch.equal(y[:2], clean[:2])
    assert y[2].isnan().all()
    assert torch.equal(y[3], torch.zeros(32))


@pytest.mark.skipif(fault(FbgemmHalf) is not None, reason="no FBGEMM on this machine")
def test_float16_weights_beyond_its_range_are_refused() -> None:
    weight = make_numbers(16, 32)
    weight[3, 3] = -7e4
    with packing(), pytest.raises(ValueError, match="float16"):
        FbgemmHalf(weight)


def test_packing_leaves_torchs_settings_as_they_were() -> None:
    before = torch.backends.quantized.engine
    make_packed("8-bit")
    assert torch.backends.quantized.engine == before


# ----------------------------------------------------------------------------------------------------------------- grid


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_the_grid_of_a_gguf_block_is_found(kind: str) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    original = (make_numbers(24, 128) * 0.1).numpy()
    original[5, 32:64] = 0.25  # a block of equal values
    original[6, :32] = np.where(np.arange(32) % 2, 0.1, -0.1)  # two levels only
    quantization = GGMLQuantizationType[kind]
    weight = torch.from_numpy(dequantize(quantize(original, quantization), quantization))
    found = grid.find(weight)
    assert found is not None
    levels, step, low = found
    assert levels.dtype == torch.uint8
    assert int(levels.max()) <= 15
    rebuilt = levels.view(24, 4, 32) * step[..., None] + low[..., None]
    assert (rebuilt.view(24, 128) - weight).abs().max() <= 2e-6


def test_other_weights_are_on_no_grid() -> None:
    assert grid.find(make_numbers(8, 64)) is None
    assert grid.find(make_grid_weight(8, 64).bfloat16().float()) is None
    assert grid.find(make_grid_weight(8, 64)[:, :48]) is None
    late = make_grid_weight(8, 64)
    late[7, 63] += 1e-3
    assert grid.find(late) is None


# ----------------------------------------------------------------------------------------------------------- the model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_packed_model_gives_nearly_the_same(precision: str, tied: bool) -> None:
    ids = torch.arange(12).view(1, 12) * 7
    want = logits_of(make_llama(tied, on_grid=precision == "4-bit"), ids)
    model, report = make_packed(precision, tied=tied)
    assert off(logits_of(model, ids), want) < CLASS_CLOSE[precision]
    assert report.asked == precision
    assert report.layers == 15
    assert sum(report.kernels.values()) == 9  # a layer's query, key and value are one product, and so are gate and up
    assert not any(type(module) is nn.Linear for module in model.modules())
    assert model.dtype == torch.float32


@pytest.mark.parametrize("precision", ["f32", "16-bit", "8-bit"])
def test_a_model_read_in_16_bits_becomes_float32_between_its_layers(precision: str) -> None:
    model, _ = make_packed(precision, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert logits_of(model, torch.zeros(1, 3, dtype=torch.int64)).dtype == torch.float32


def test_a_tied_head_costs_nothing_more_below_float32() -> None:
    _, report = make_packed("16-bit", tied=True)
    if report.precision == "16-bit":
        assert report.weight_bytes < 0.7 * report.weight_bytes_before
    model, report = make_packed("f32", tied=True)
    assert report.weight_bytes == report.weight_bytes_before + 160 * 64 * 4
    assert any("tied" in note for note in report.notes)
    assert type(model.get_input_embeddings()) is nn.Embedding


def test_half_an_embedding_reads_as_float32() -> None:
    table = make_numbers(10, 6)
    half = HalfEmbedding(table)
    assert torch.equal(half(torch.tensor([[3, 9]])), table.half().float()[None, [3, 9]])
    table[0, 0] = 1e6
    assert HalfEmbedding(table).weight.dtype == torch.bfloat16


def test_an_embedding_that_scales_does_so_in_16_bits_too() -> None:
    from tests.engine.model.tiny import make_model

    model, ids = make_model("gemma3"), torch.tensor([[3, 9, 200]])
    before = model.get_input_embeddings()(ids)
    pack_linears(model, "16-bit")
    half = model.get_input_embeddings()
    assert isinstance(half, HalfEmbedding) and half.scale == 8.0
    torch.testing.assert_close(half(ids), before, rtol=1e-3, atol=1e-3)


def test_4_bit_is_refused_where_it_would_round_again() -> None:
    if fault(Int4) is not None:
        pytest.skip("no 4-bit kernel on this machine")
    model = make_llama()
    with pytest.raises(ModelError) as refused:
        pack_linears(model, "4-bit")
    assert refused.value.code == "not_on_grid"
    assert type(model.lm_head) is nn.Linear  # nothing was touched


def test_4_bit_keeps_16_bits_for_the_head_and_for_what_is_off_the_grid() -> None:
    if fault(Int4) is not None:
        pytest.skip("no 4-bit kernel on this machine")
    model = make_llama(on_grid=True)
    model.model.layers[1].self_attn.o_proj.weight.copy_(make_numbers(64, 64))
    report = pack_linears(model, "4-bit")
    assert report.precision == "4-bit"
    on_grid = [count for label, count in report.kernels.items() if "int4" in label]
    assert sum(on_grid) == 7 and sum(report.kernels.values()) == 9
    assert type(model.lm_head) not in (Int4, NativeInt4)
    assert any("not on a 4-bit grid" in note for note in report.notes)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ModelError, match="3-bit"):
        pack_linears(make_llama(), "3-bit")


def test_transposed_layers_are_packed_too() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_head=2, n_layer=2, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.copy_(make_numbers(*parameter.shape) * 0.1)
    ids = torch.arange(6).view(1, 6)
    want = logits_of(model, ids)
    report = pack_linears(model, "f32")
    assert report.layers == 9
    assert off(logits_of(model, ids), want) < 1e-5


def test_a_machine_without_the_kernels_runs_plain_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_module, "fault", lambda kernel: None if kernel is Plain else "the operation is missing")
    ids = torch.arange(5).view(1, 5)
    want = logits_of(make_llama(), ids)
    for precision in ("auto", "f32", "16-bit", "8-bit"):
        model, report = make_packed(precision)
        assert report.precision == "f32"
        assert set(report.kernels) == {Plain.label}
        assert off(logits_of(model, ids), want) < 1e-6
        if precision in ("16-bit", "8-bit", "auto"):
            assert any("the operation is missing" in note for note in report.notes)
    with pytest.raises(ModelError) as refused:
        make_packed("4-bit")
    assert refused.value.code == "no_kernel"


def test_auto_is_16_bit_where_a_kernel_is_made_for_it() -> None:
    _, report = make_packed("auto")
    expected = "16-bit" if available(OneDnnBFloat16, FbgemmHalf) else "f32"
    assert report.precision == expected
    assert expected in report.summary


@pytest.mark.skipif(not keeps_grids(), reason="no kernel of ours for levels")
def test_auto_keeps_weights_on_a_grid_where_they_are() -> None:
    ids = torch.arange(5).view(1, 5)
    want = logits_of(make_llama(on_grid=True), ids)
    model = make_llama(on_grid=True)
    report = pack_linears(model, "auto")
    assert report.precision == "4-bit" and report.row_exact and report.notes == ()
    assert off(logits_of(model, ids), want) < CLASS_CLOSE["4-bit"]
    mixed = make_llama(on_grid=True)
    mixed.model.layers[0].mlp.up_proj.weight.copy_(make_numbers(96, 64))
    assert pack_linears(mixed, "auto").precision == "16-bit"  # less than nine tenths lie on it


# ------------------------------------------------------------------------------------------------------------- siblings


class Counting(Plain):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


def make_siblings() -> tuple[Counting, list[Sibling], torch.Tensor]:
    weight = make_numbers(12, 8)
    kernel = Counting(weight)
    shared = SharedProduct(kernel, 3)
    return kernel, [Sibling(shared, 8, start, 4) for start in (0, 4, 8)], weight


def test_siblings_asked_with_one_tensor_compute_once() -> None:
    kernel, siblings, weight = make_siblings()
    for seed in (0, 1):
        x = make_numbers(3, 8, seed=seed)
        for place, sibling in enumerate(siblings):
            assert torch.allclose(sibling(x), linear(x, weight[4 * place : 4 * place + 4]), atol=1e-6)
    assert kernel.calls == 2
    assert siblings[0].shared._output is None  # nothing is kept between steps


def test_siblings_asked_with_different_tensors_are_right_in_any_order() -> None:
    _, siblings, weight = make_siblings()
    inputs = [make_numbers(3, 8, seed=seed) for seed in range(3)]
    for place, source in ((0, 0), (1, 1), (2, 1), (2, 0), (0, 2), (0, 0), (1, 0)):
        assert torch.allclose(siblings[place](inputs[source]), linear(inputs[source], weight[4 * place : 4 * place + 4]), atol=1e-6)


# --------------------------------------------------------------------------------------------------------------- traced


class Hidden(nn.Module):
    """A model as a function of tensors: ids and positions to logits, so that it can be traced."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_trace_of_a_packed_model_serves_every_row_count(precision: str) -> None:
    model, _ = make_packed(precision)
    function = Hidden(model)

    def make_inputs(batch: int, length: int) -> tuple[torch.Tensor, ...]:
        ids = torch.randint(0, 160, (batch, length), generator=torch.Generator().manual_seed(batch))
        mask = torch.full((length, length), float("-inf")).triu(1).expand(batch, 1, length, length)
        return ids, torch.arange(length).expand(batch, length), mask

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(function, make_inputs(2, 3), check_trace=False)
        for batch, length in ((2, 3), (1, 1), (5, 1), (1, 17), (16, 2)):
            inputs = make_inputs(batch, length)
            for _ in range(3):  # the second and later runs are optimised by the interpreter
                assert torch.equal(traced(*inputs), function(*inputs)), (batch, length)
