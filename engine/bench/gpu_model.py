"""What `omnibus bench gpu` measures: a device's limits, kernels, graphs, and models with random weights.

Owns the shapes and the stopwatch's use. Everything takes its device, so that all but CUDA's own calls runs on the CPU in tests.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from engine.model.cache import KVStore
from engine.model.cuda.choice import SINGLES, TIMED_LENGTH, TIMED_ROWS, TOLERANCE, Marks, Stopwatch, Verdict, _time, cuda_stopwatch, fault
from engine.model.cuda.graphs import Capture, sizes_up_to
from engine.model.cuda.lane import CudaCapture, PagedLane, choose_readers, make_lane
from engine.model.cuda.reference import Need
from engine.model.runner import TorchRunner, prepare
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import EngineConfig, Priority, SamplingParams

BATCHES = (1, 8, 32)
CONTEXT = 1024  # positions behind each row of a measured decode step
PROMPT, CHUNK = 4096, 2048
STEPS, WARM_UPS = 24, 4
PEER_TOKENS = 48
ROOM = PROMPT + 64


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama's dimensions."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    wide: int
    vocabulary: int
    tied: bool

    @property
    def products(self) -> int:
        """Weights that each position is multiplied with, the head's apart."""
        size = self.hidden // self.heads
        attention = self.hidden * size * (2 * self.heads + 2 * self.key_heads)
        return self.layers * (attention + 3 * self.hidden * self.wide)

    @property
    def head(self) -> int:
        return self.hidden * self.vocabulary

    def bytes_per_position(self, width: int = 2) -> int:
        return 2 * self.layers * self.key_heads * (self.hidden // self.heads) * width

    def decode_bytes(self, rows: int, context: int, width: int = 2) -> int:
        """That a decode step must read: all weights once, the keys and values of every row."""
        return width * (self.products + self.head) + rows * context * self.bytes_per_position(width)

    def prefill_operations(self, positions: int) -> int:
        """Of the products with weights alone; the head is asked for one position. Attention comes on top."""
        return 2 * self.products * positions


SHAPES = {"1B": Shape(2048, 16, 32, 8, 8192, 128256, True), "8B": Shape(4096, 32, 32, 8, 14336, 128256, False)}


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """One model at one number of rows; the prefill of one prompt counts as rows 0.

    Attributes:
        ms: of a decode step, or of the whole prompt; floor_ms: what the limits allow; share: floor by measured.
        peer_tok_s: of transformers' continuous batching at the same work, or None, and peer_fault why.
        eager_ms: of the same decode step without graphs.
    """

    model: str
    rows: int
    ms: float
    tok_s: float
    floor_ms: float | None
    share: float | None
    graphs: bool
    kernels: str
    eager_ms: float | None = None
    peer_tok_s: float | None = None
    peer_fault: str | None = None

    @property
    def words(self) -> str:
        what = f"{self.model}, decode at {self.rows}" if self.rows else f"{self.model}, a prompt of {PROMPT}"
        said = f"{what}: {self.ms:.2f} ms, {self.tok_s:,.0f} tok/s"
        if self.share is not None:
            said += f", {self.share:.0%} of the limit ({self.floor_ms:.2f} ms)"
        if self.eager_ms is not None:
            said += f", eager {self.eager_ms:.2f} ms"
        if self.peer_tok_s:
            said += f"; transformers' continuous batching {self.peer_tok_s:,.0f} tok/s ({self.tok_s / self.peer_tok_s:.1f} x)"
        elif self.peer_fault:
            said += f"; transformers' continuous batching did not run: {self.peer_fault}"
        return said


# --------------------------------------------------------------------------------------------------------------- limits


def limits(device: torch.device, stopwatch: Stopwatch = cuda_stopwatch, mib: int = 1024, side: int = 8192) -> dict[str, float]:
    """Read bandwidth in GB/s and 16-bit products in TFLOP/s, both as torch reaches them."""
    source, target = torch.ones(mib << 18, device=device), torch.empty(mib << 18, device=device)
    copied = stopwatch(lambda: target.copy_(source))
    left = torch.ones(side, side, device=device, dtype=torch.bfloat16)
    multiplied = stopwatch(lambda: left @ left)
    return {"gb_s": 2 * (mib << 20) / copied / 1e9, "tflop_s": 2 * side**3 / multiplied / 1e12}


# -------------------------------------------------------------------------------------------------------------- kernels


def kernel_needs() -> tuple[Need, ...]:
    """One of each thing that a kernel can get wrong."""

    def need(heads: int = 32, key_heads: int = 8, size: int = 128, dtype: torch.dtype = torch.bfloat16, **more: Any) -> Need:
        usual = {"block_size": 16, "window": 0, "scale": size**-0.5, "softcap": None, "sinks": False}
        return Need(heads, key_heads, size, more.pop("value_size", size), dtype, **{**usual, **more})

    return (
        need(),
        need(size=64),
        need(block_size=256),
        need(heads=28, key_heads=4),  # seven heads a key head
        need(heads=8, key_heads=8, size=96, dtype=torch.float16),
        need(heads=8, key_heads=4, size=256, softcap=50.0),
        need(window=128),
        need(heads=64, size=64, sinks=True, window=128),
        need(heads=16, key_heads=2, size=80, value_size=64, softcap=30.0, sinks=True, window=33),
        need(heads=8, key_heads=2, size=64, dtype=torch.float32),
    )


def try_kernels(
    device: torch.device, stopwatch: Stopwatch = cuda_stopwatch, needs: Sequence[Need] | None = None, kinds: Any = None
) -> list[tuple[Verdict, int]]:
    """Every kernel for every need, with the positions that a timed read covers."""
    from engine.model.cuda.choice import CHUNKS

    found: list[tuple[Verdict, int]] = []
    marks = Marks(None)
    for need in needs or kernel_needs():
        for kind in kinds or (*SINGLES, *CHUNKS):
            wrong = fault(kind, need, device, marks)
            seconds = _time(kind(need, device), device, stopwatch) if wrong is None and kind in SINGLES else None
            seen = [min(TIMED_LENGTH + 7 * row, need.window or TIMED_LENGTH + 7 * row) for row in range(TIMED_ROWS)]
            found.append((Verdict(kind.label, need, wrong, seconds), sum(seen)))
    return found


# --------------------------------------------------------------------------------------------------------------- models


def make_model(shape: Shape, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Llama with random weights, made where it will run."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.wide,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=2 * ROOM,
        tie_word_embeddings=shape.tied,
        bos_token_id=1,
        eos_token_id=None,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval().requires_grad_(False)


def make_runner(
    model: Any, rows: int, stopwatch: Stopwatch, capture: Callable[[torch.device], Capture | None]
) -> tuple[TorchRunner, PagedLane, str]:
    """The engine's own runner over a model, on the kernels that are best here, with room for `rows` requests. Raises RuntimeError."""
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    loaded = SimpleNamespace(codec=SimpleNamespace(eos_ids=frozenset()), context=ROOM, dtype=dtype, torch_model=model)
    geometry = prepare(loaded, EngineConfig(context=ROOM))
    choice = choose_readers(model, geometry, None, Marks(None), stopwatch)
    if choice is None:
        raise RuntimeError("no kernel is right for this model")
    blocks = rows * -(-(CONTEXT + STEPS + WARM_UPS + 1) // choice.block_size) + -(-ROOM // choice.block_size)
    runner = TorchRunner(model, KVStore(geometry, blocks, choice.block_size), frozenset(), ROOM)
    lane = make_lane(model, runner.store, choice, ROOM, rows, capture(geometry.device))
    runner.ride(lane)
    return runner, lane, choice.words


def make_request(name: str, length: int, blocks: Iterator[int], block_size: int, room: int) -> RequestState:
    tokens = [(17 + 31 * place) % 100 for place in range(length)]
    params = SamplingParams(temperature=0.0)
    request = RequestState(name, name, name, params, Priority.FOREGROUND, 0, tokens, 0, length + room, TimeLedger(0.0))
    request.blocks = [next(blocks) for _ in range(-(-(length + room) // block_size))]
    return request


def decode_seconds(runner: TorchRunner, rows: int, steps: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds a decode step takes the whole runner, sampling and the tokens' way to Python included; what the cache holds is no matter."""
    blocks = iter(range(1, runner.store.num_blocks + 1))
    riders = [make_request(str(number), CONTEXT, blocks, runner.store.block_size, steps + WARM_UPS) for number in range(rows)]
    began = 0.0
    for step in range(WARM_UPS + steps):
        if step == WARM_UPS:
            began = clock()
        drawn = runner.forward([Row(rider, len(rider.tokens) - 1, 1, True) for rider in riders])
        for rider, sampled in zip(riders, drawn, strict=True):
            if sampled is None or sampled.token is None or sampled.error is not None:
                raise RuntimeError("a decode step gave no token")
            rider.tokens.append(sampled.token)
    return (clock() - began) / steps


def prefill_seconds(runner: TorchRunner, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds from a prompt's first position to its first token, read in chunks; the second of two runs counts."""
    took = 0.0
    for _ in range(2):
        request = make_request("prompt", PROMPT, iter(range(1, runner.store.num_blocks + 1)), runner.store.block_size, 0)
        began = clock()
        for start in range(0, PROMPT, CHUNK):
            count = min(CHUNK, PROMPT - start)
            runner.forward([Row(request, start, count, start + count == PROMPT)])
        took = clock() - began
    return took


def measure_model(
    name: str,
    device: torch.device,
    found: dict[str, float],
    shape: Shape | None = None,
    batches: Sequence[int] = BATCHES,
    stopwatch: Stopwatch = cuda_stopwatch,
    capture: Callable[[torch.device], Capture | None] = CudaCapture,
    dtype: torch.dtype = torch.bfloat16,
) -> list[ModelFigures]:
    """Decode at each of `batches`, and a prompt; `found` are the limits, if they are known."""
    shape = shape or SHAPES[name]
    model = make_model(shape, device, dtype)
    runner, lane, words = make_runner(model, max(batches), stopwatch, capture)
    measured: list[ModelFigures] = []
    graphs = lane.graphs
    for rows in batches:
        seconds = decode_seconds(runner, rows, STEPS)
        lane.graphs = None
        eager = decode_seconds(runner, rows, max(1, STEPS // 3)) if graphs is not None else None
        lane.graphs = graphs
        floor = shape.decode_bytes(rows, CONTEXT, dtype.itemsize) / found["gb_s"] / 1e9 if found else None
        measured.append(_figures(name, rows, seconds, rows, floor, bool(graphs and graphs.replays), words, eager))
    seconds = prefill_seconds(runner)
    floor = shape.prefill_operations(PROMPT) / found["tflop_s"] / 1e12 if found else None
    measured.append(_figures(name, 0, seconds, PROMPT, floor, False, words, None))
    runner.close()
    del model, runner, lane, graphs
    free(device)
    return with_peer(measured, shape, device, dtype)


def _figures(
    name: str, rows: int, seconds: float, tokens: int, floor: float | None, graphs: bool, words: str, eager: float | None
) -> ModelFigures:
    floor_ms, share = (None, None) if floor is None else (1000 * floor, floor / seconds)
    return ModelFigures(
        name, rows, 1000 * seconds, tokens / seconds, floor_ms, share, graphs, words, None if eager is None else 1000 * eager
    )


def free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


# ----------------------------------------------------------------------------------------------------------------- peer


def with_peer(
    measured: Sequence[ModelFigures], shape: Shape, device: torch.device, dtype: torch.dtype = torch.bfloat16, answer: Any = None
) -> list[ModelFigures]:
    """The same figures with those of transformers' continuous batching beside them; what it cannot do is noted, not raised."""
    from dataclasses import replace

    model = make_model(shape, device, dtype)
    answer = answer or peer_seconds
    told = []
    for figures in measured:
        try:
            if figures.rows:
                few, many = answer(model, figures.rows, CONTEXT, 2), answer(model, figures.rows, CONTEXT, 2 + PEER_TOKENS)
                told.append(replace(figures, peer_tok_s=figures.rows * PEER_TOKENS / max(many - few, 1e-9)))
            else:
                told.append(replace(figures, peer_tok_s=PROMPT / answer(model, 1, PROMPT, 1)))
        except Exception as fault_:  # a peer's fault is a figure, too
            reason = (str(fault_).strip().splitlines() or [type(fault_).__name__])[0][:160]
            told.append(replace(figures, peer_fault=reason))
    del model
    free(device)
    return told


def peer_seconds(model: Any, rows: int, prompt: int, tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds in which transformers' continuous batching answers `rows` prompts with `tokens` each; the second of two runs counts."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    page = 256
    settings = ContinuousBatchingConfig(
        page_size=page,
        num_blocks=rows * -(-(prompt + tokens) // page) + 2,
        max_batch_tokens=max(CHUNK, rows),
        max_requests_per_batch=rows,
        allow_block_sharing=False,
    )
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=tokens)
    took = 0.0
    with model.continuous_batching_context_manager(generation_config=generation, continuous_batching_config=settings, timeout=5) as manager:
        for turn in range(2):
            inputs = [[(17 + 31 * place + 7 * row + turn) % 1000 for place in range(prompt)] for row in range(rows)]
            began = clock()
            manager.add_requests(inputs=inputs, max_new_tokens=tokens)
            given: list[int] = []
            while len(given) < rows:
                answer = manager.get_result(timeout=1)
                if answer is not None and answer.is_finished():
                    given.append(len(answer.generated_tokens))
                elif answer is None and not manager.is_running():
                    raise RuntimeError("it stopped in the middle of its answers")
            took = clock() - began
            if given != [tokens] * rows:
                raise RuntimeError(f"it gave {sum(given)} of {rows * tokens} tokens")
    return took


# --------------------------------------------------------------------------------------------------------------- graphs


def compare_graphs(
    device: torch.device,
    shape: Shape | None = None,
    stopwatch: Stopwatch = cuda_stopwatch,
    capture: Callable[[torch.device], Capture | None] = CudaCapture,
    dtype: torch.dtype = torch.bfloat16,
    most: int = 16,
) -> dict[str, Any]:
    """The largest difference between a decode step as a graph and eagerly, by number of rows, as a share of the largest logit."""
    model = make_model(shape or Shape(2048, 4, 32, 8, 8192, 32000, True), device, dtype)
    runner, lane, words = make_runner(model, most, stopwatch, capture)
    found: dict[str, Any] = {"kernels": words, "allowed": 2 * TOLERANCE[dtype], "worst": {}, "failed": "no graphs", "recorded": []}
    if lane.graphs is not None:
        found["failed"] = lane.graphs.failed
        found["recorded"] = list(lane.graphs.recorded)
        with torch.inference_mode():
            for rows in sorted({*sizes_up_to(most), *(size + 1 for size in sizes_up_to(most // 2))}):
                blocks = iter(range(1, runner.store.num_blocks + 1))
                riders = [
                    make_request(str(number), 3 + 41 * number % min(200, CONTEXT - 8), blocks, runner.store.block_size, 1)
                    for number in range(rows)
                ]
                for rider in riders:
                    if len(rider.tokens) > 1:
                        runner.forward([Row(rider, 0, len(rider.tokens) - 1, False)])
                inputs = lane.builder.build([Row(rider, len(rider.tokens) - 1, 1, True) for rider in riders]).inputs
                replayed = lane.graphs(runner.store, inputs)
                if replayed is None:
                    break
                logits = replayed[0].float().clone()
                wanted = lane.eager(runner.store, lane._moved(inputs))[0].float()
                found["worst"][rows] = float((logits - wanted).abs().max() / wanted.abs().max())
    runner.close()
    free(device)
    return found
