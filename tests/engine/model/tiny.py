"""Tiny random models of several families, requests, and a hand-driven scheduler over a runner: what the tests of the lane are made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import transformers

from engine.model.runner import TorchRunner, make_runner
from engine.scheduling.plan import Row, Sampled
from engine.scheduling.request import RequestState, TimeLedger
from engine.types import EngineConfig, Priority, SamplingParams

VOCABULARY = 320
CONTEXT = 256
GREEDY = SamplingParams(temperature=0.0, top_p=1.0)

_BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_WINDOW = {"sliding_window": 9}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.05 * i for i in range(4)],
    "long_factor": [2.0 + i for i in range(4)],
    "original_max_position_embeddings": 16,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _BASE),
    "qwen3": ("Qwen3", {**_BASE, "num_key_value_heads": 8}),
    "mistral": ("Mistral", {**_BASE, **_WINDOW}),
    "gemma2": ("Gemma2", {**_BASE, **_WINDOW, "num_hidden_layers": 4, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 3.0}),
    "gemma3": (
        "Gemma3Text",
        {**_BASE, **_WINDOW, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "gemma4": (
        "Gemma4Text",
        {
            **_BASE,
            **_WINDOW,
            "num_hidden_layers": 6,
            "global_head_dim": 32,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCABULARY,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
        },
    ),
    "phi3": ("Phi3", {**_BASE, "head_dim": None, "original_max_position_embeddings": 16, "rope_parameters": _LONGROPE}),
    "gpt_oss": (
        "GptOss",
        {**_BASE, **_EXPERTS, **_WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "mixtral": ("Mixtral", {**_BASE, **_EXPERTS}),
    "gpt2": ("GPT2", {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT, "eos_token_id": None}),
}


def make_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A tiny model with random weights large enough that its greedy answers wander."""
    name, settings = FAMILIES[family]
    settings = {key: item for key, item in {**settings, **changes}.items() if item is not None or key == "eos_token_id"}
    config = getattr(transformers, f"{name}Config")(**settings)
    for suffix in ("ForCausalLM", "LMHeadModel"):
        for stem in (name, name.removesuffix("Text")):
            cls = getattr(transformers, stem + suffix, None)
            if cls is not None:
                return _randomise(cls(config).eval(), seed)
    raise LookupError(name)


def _randomise(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or "sinks" in name or "bias" in name:
                weight.normal_(0.0, 1.0 if "sinks" in name else 0.15, generator=generator)
    return model.requires_grad_(False)


def make_loaded(model: Any, context: int = CONTEXT, eos: Sequence[int] = ()) -> Any:
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return SimpleNamespace(codec=SimpleNamespace(eos_ids=frozenset(eos)), context=context, dtype=dtype, torch_model=model)


def make_lane(
    model: Any, blocks: int = 200, block_size: int = 4, context: int = CONTEXT, eos: Sequence[int] = (), kv_class: str = "auto"
) -> TorchRunner:
    return make_runner(make_loaded(model, context, eos), EngineConfig(kv_class=kv_class), blocks, block_size)


def make_request(tokens: Sequence[int], params: SamplingParams = GREEDY, seed: int = 0, name: str = "r") -> RequestState:
    return RequestState(name, name, name, params, Priority.FOREGROUND, 0, list(tokens), seed, 1 << 30, TimeLedger(0.0))


def make_prompts(count: int, seed: int, shortest: int = 1, longest: int = 40) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCABULARY) for _ in range(rng.randint(shortest, longest))] for _ in range(count)]


def reference_answer(model: Any, prompt: list[int], length: int) -> list[int]:
    """What transformers' own generate answers, alone, with its own attention and cache."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, do_sample=False, pad_token_id=0)
        return out[0, len(prompt) :].tolist()
    finally:
        model.set_attn_implementation(before)


def is_greedy_answer(model: Any, prompt: list[int], answer: list[int]) -> bool:
    """Whether each token of an answer is the first choice of transformers' own model after those before it: one pass of the whole text."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            ids = torch.tensor([[*prompt, *answer]])
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=len(answer) + 1).logits[0, :-1]
        return logits.argmax(-1).tolist() == list(answer)
    finally:
        model.set_attn_implementation(before)


class Driver:
    """Runs requests over a runner with a random scheduler: random company, chunks, block numbers and preemptions, all from one seed.

    Attributes:
        dropped: how often a rider's blocks were taken away.
    """

    def __init__(self, runner: TorchRunner, seed: int = 0) -> None:
        self.runner = runner
        self.dropped = 0
        self.rng = random.Random(seed)
        self.free = list(range(1, runner.store.num_blocks + 1))
        self.rng.shuffle(self.free)

    def cover(self, request: RequestState, end: int) -> None:
        while len(request.blocks) * self.runner.store.block_size < end:
            request.blocks.append(self.free.pop())

    def drop(self, request: RequestState) -> None:
        """Take a request's blocks away: it starts again from nothing."""
        self.free += request.blocks
        self.rng.shuffle(self.free)
        request.blocks, request.computed = [], 0
        self.runner.forget(request)

    def step(self, planned: Sequence[tuple[RequestState, int]]) -> list[Sampled | None]:
        """Compute `count` more positions of each request and take the tokens that come out."""
        rows = []
        for request, count in planned:
            end = request.computed + count
            self.cover(request, end)
            rows.append(Row(request, request.computed, count, end == request.known))
        self.runner._builder.join = self.rng.choice([0, 10**6])  # decode rows are read in place, or gathered
        results = self.runner.forward(rows)
        for row, result in zip(rows, results, strict=True):
            row.request.computed += row.count
            if result is not None and result.error is None:
                row.request.tokens.append(result.token)
        return results

    def answer(
        self, requests: Sequence[RequestState], length: int, seats: int = 1, chunk: int | None = None, preempt: float = 0.0
    ) -> list[list[int]]:
        """Answers of `length` tokens. `chunk` cuts prompts into random pieces of at most so many positions; with chance `preempt`
        a step begins by taking one request's blocks away."""
        waiting = list(requests)
        riding: list[RequestState] = []
        while waiting or riding:
            while waiting and len(riding) < seats:
                riding.append(waiting.pop(self.rng.randrange(len(waiting)) if seats > 1 else 0))
            if riding and self.rng.random() < preempt:
                self.drop(self.rng.choice(riding))
                self.dropped += 1
            riders = [request for request in riding if seats == 1 or self.rng.random() < 0.8] or riding[:1]
            self.step([(request, self._count(request, chunk)) for request in riders])
            for request in [rider for rider in riding if rider.output_len == length]:
                riding.remove(request)
                self.drop(request)
        return [request.output for request in requests]

    def _count(self, request: RequestState, chunk: int | None) -> int:
        return request.remaining if chunk is None else self.rng.randint(1, min(chunk, request.remaining))
