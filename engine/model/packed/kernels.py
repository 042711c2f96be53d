"""Matrix products against weights packed once: y = x W^T + b, float32 in, float32 out, whatever the weights are kept as.

Owns one class a kernel that stock torch offers on a CPU, and the knowledge of which of them this machine can run (`fault`). Must never
know of models or layers' names. Every kernel takes x [R, ..., K] with any strides and gives [R, ..., N]; no result of a row depends on the
other rows' values. A kernel is a module whose packed weights are buffers or attributes, so that torch.jit.trace keeps them as
attributes of the trace; none can be copied, saved or moved to another dtype. They are built inside `packing()`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.nn.functional import linear

from engine.model.packed.kernel import Kernel

HALF_MAX = 65504.0  # the largest float16
STEPS = 63  # of one int8 activation row to each side: two products then fit 16 bits, where CPUs without VNNI add them (with saturation)
TINY = 1e-30  # stands for the scale of a row of zeros


class Plain(Kernel):
    """torch's own product of float32 weights: runs everywhere. BLAS libraries sum a few rows in another order than many."""

    label = "plain-f32"
    precision = "f32"

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        self.register_buffer("weight", weight.float().contiguous(), persistent=False)
        self.register_buffer("bias", _vector(bias), persistent=False)
        self.weight_bytes = weight.numel() * 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)


# -------------------------------------------------------------------------------------------------------------- oneDNN


@functools.cache
def _onednn_function() -> Any:
    """`mkldnn::_linear_pointwise` without a post-operation, as a script function.

    The operation's empty list of scalars cannot be recorded by torch.jit.trace, a call of a script function can.
    """
    graph = torch._C.parse_ir(
        """
        graph(%x : Tensor, %weight : Tensor, %bias : Tensor?):
          %kind : str = prim::Constant[value="none"]()
          %scalars : Scalar?[] = prim::ListConstruct()
          %algorithm : str? = prim::Constant()
          %y : Tensor = mkldnn::_linear_pointwise(%x, %weight, %bias, %kind, %scalars, %algorithm)
          return (%y)
        """
    )
    return torch._C._create_function_from_graph("omnibus_onednn_linear", graph)


class _OneDnn(Kernel):
    """Weights in oneDNN's own blocked layout; one layout serves every number of rows."""

    dtype: ClassVar[torch.dtype]
    # The layout's row hint. Layouts for 128 rows and more were up to ten times slower at a few.
    ROWS = 16

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous(), self.ROWS)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().to(self.dtype), persistent=False)
        self.weight_bytes = weight.numel() * self.dtype.itemsize

    def product(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            return _onednn_function()(x, self.packed, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], None)


class OneDnnFloat(_OneDnn):
    label = "onednn-f32"
    precision = "f32"
    dtype = torch.float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x)


class OneDnnBFloat16(_OneDnn):
    """bfloat16 weights and activations, float32 sums: for CPUs with bfloat16 instructions (AVX512-BF16, AMX)."""

    label = "onednn-bf16"
    precision = "16-bit"
    dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x.bfloat16()).float()


# -------------------------------------------------------------------------------------------------------------- FBGEMM


class FbgemmHalf(Kernel):
    """float16 weights, float32 activations and sums: half the bytes of float32 and nearer to it than bfloat16; needs AVX2 and F16C.

    The last one or two rows of some row counts are summed in another order and differ in the last bit.
    """

    label = "fbgemm-fp16"
    precision = "16-bit"

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        weight = weight.detach().float().contiguous()
        if beyond_half(weight):
            raise ValueError("a weight is beyond the range of float16")
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight, _vector(bias))
        self.weight_bytes = weight.numel() * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)


class FbgemmInt8(Kernel):
    """int8 weights with a scale an output channel; each activation row as two int8 rows, a coarse and a fine one.

    With a the largest magnitude of a row and h = 63 x / a, the rows are round(h) and 126 (h - round(h)); their products are added as
    y = (coarse + fine / 126) a / 63. That keeps 13 bits of an activation, so that what is lost is the weights' rounding alone, and each
    row has a scale of its own. The weights are read once for both.
    """

    label = "fbgemm-int8"
    precision = "8-bit"

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight)
        weight = weight.detach().float()
        low, high = torch.aminmax(weight, dim=1)
        scale = torch.maximum(-low, high).clamp_min(TINY) / 127
        levels = (weight / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        quantized = torch._make_per_channel_quantized_tensor(levels, scale.double(), zeros, 0)
        self.packed = torch.ops.quantized.linear_prepack(quantized, None)
        self.register_buffer("bias", _vector(bias), persistent=False)
        self.weight_bytes = weight.numel() + 8 * len(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) * (1 / STEPS)
        coarse = x / scale
        fine = (coarse - coarse.round()) * (2 * STEPS)
        rows = torch.cat((coarse, fine), 0)
        both = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, STEPS + 1, self.packed)
        upper, lower = both.chunk(2, 0)
        y = torch.add(upper, lower, alpha=1 / (2 * STEPS)) * scale
        return y if self.bias is None else y + self.bias


def beyond_half(weight: torch.Tensor) -> bool:
    """Whether a value of `weight` is too large for float16."""
    low, high = torch.aminmax(weight)
    return bool(torch.maximum(-low, high) > HALF_MAX)


@contextmanager
def packing() -> Iterator[None]:
    """While open, kernels may be built: quantised weights are packed for FBGEMM, and torch's notice that quantised dtypes will go is
    held back. Changes process-wide settings, so one at a time; threads may build within."""
    engines = torch.backends.quantized
    before = engines.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if "fbgemm" in engines.supported_engines:
            engines.engine = "fbgemm"
        try:
            yield
        finally:
            engines.engine = before


# ------------------------------------------------------------------------------------------------------- 4-bit weights


class Int4(Kernel):
    """4-bit levels with a scale and an offset a group of 32 inputs, both bfloat16; activations bfloat16, sums float32.

    Takes the levels, not a weight: `levels` uint8 [N, K] of 0..15, `step` and `low` float32 [N, K / 32], weight = level * step + low
    (what `grid.find` returns). N must divide by 16, K by 32.
    """

    label = "int4-g32"
    precision = "4-bit"
    GROUP = 32

    def __init__(self, levels: torch.Tensor, step: torch.Tensor, low: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(levels)
        self.register_buffer("packed", torch._convert_weight_to_int4pack_for_cpu(levels.int(), 1), persistent=False)
        pairs = torch.stack((step, low + 8 * step), -1).transpose(0, 1)  # torch counts levels from -8
        self.register_buffer("scales", pairs.to(torch.bfloat16).contiguous(), persistent=False)
        self.register_buffer("bias", _vector(bias), persistent=False)
        self.weight_bytes = self.packed.numel() + 2 * self.scales.numel()

    @classmethod
    def fits(cls, out_features: int, in_features: int) -> bool:
        return out_features % 16 == 0 and in_features % cls.GROUP == 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).to(torch.bfloat16, memory_format=torch.contiguous_format)
        y = torch._weight_int4pack_mm_for_cpu(rows, self.packed, self.GROUP, self.scales).float()
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)


# -------------------------------------------------------------------------------------------------------------- probes


def _vector(bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else bias.detach().float().contiguous()


def native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere oneDNN imitates it, slower than float32."""
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


_TOLERANCE = {"f32": 1e-5, "16-bit": 2e-2, "8-bit": 3e-2, "4-bit": 2e-2}  # of the largest result


_faults: dict[str, str | None] = {}
_row_exact: dict[str, bool] = {}


def fault(kernel: type[Kernel]) -> str | None:
    """Why this machine cannot run `kernel`, or None. Found out once a kernel, by trying it on a small product and comparing the result."""
    if kernel.label not in _faults:
        _faults[kernel.label] = _try(kernel)
    return _faults[kernel.label]


def row_exact(kernel: type[Kernel]) -> bool:
    """Whether, on this machine, a row's result is the same, bit for bit, alone and among others. Found out once a kernel."""
    if kernel.label not in _row_exact:
        weight, built = _build(kernel, 48, 320)
        x = torch.randn(64, 320, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            together = built(x)
            _row_exact[kernel.label] = all(torch.equal(built(x[:rows]), together[:rows]) for rows in (1, 2, 3, 5, 7, 8, 13, 16, 31, 32))
    return _row_exact[kernel.label]


def _try(kernel: type[Kernel]) -> str | None:
    if kernel is OneDnnBFloat16 and not native_bfloat16():
        return "this CPU has no bfloat16 instructions"
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    try:
        weight, built = _build(kernel, 32, 64)
        with torch.no_grad():
            y = built(x)
    except (RuntimeError, AttributeError, NotImplementedError) as reason:
        return str(reason).split("\n", 1)[0]
    want = x @ weight.T
    worst = float((y - want).abs().max() / want.abs().max())
    return None if worst <= _TOLERANCE[kernel.precision] else f"its result is off by {worst:.1e}"


def _build(kernel: type[Kernel], out_features: int, in_features: int) -> tuple[torch.Tensor, Kernel]:
    """A made-up weight, on a 4-bit grid if need be, and the kernel that holds it."""
    generator = torch.Generator().manual_seed(0)
    with packing(), torch.no_grad():
        if kernel.precision == "4-bit":
            make: Any = kernel
            levels = torch.randint(0, 16, (out_features, in_features), generator=generator, dtype=torch.uint8)
            step = torch.full((out_features, in_features // Int4.GROUP), 0.125)
            return levels * 0.125 - 1.0, make(levels, step, torch.full_like(step, -1.0))
        weight = torch.randn(out_features, in_features, generator=generator)
        return weight, kernel(weight)
