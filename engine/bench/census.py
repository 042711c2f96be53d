"""`omnibus bench census`: which of transformers' families ride the paged cache, shown by running one tiny random model of each.

For every family: a few mixed prompts are answered greedily, each alone and all together through the engine's own core, and both are
held against the model's own forward pass without any cache. "exact" means every token is the same in all three. A family that cannot ride
is named with the reason that a person would get when loading it.
"""

from __future__ import annotations

import argparse
import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.types import EngineConfig, EngineError, Event, Priority, SamplingParams, TokensEvent
from engine.version import __version__

VOCABULARY = 160
CONTEXT = 128
ANSWER = 8

# What families call the same sizes; a configuration takes what it knows. `...` in a family leaves a name out.
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "ffn_hidden_size": 48,
    "num_hidden_layers": 3,
    "n_layer": 3,
    "n_layers": 3,
    "num_layers": 3,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "n_positions": CONTEXT,
    "max_seq_len": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_routed_experts": 4}
_WINDOW = {"sliding_window": 9}
_ALTERNATING = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_MLA = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
_DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}

FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {},
    "arcee": {},
    "bamba": {**_MAMBA2, "attn_layer_indices": [1]},
    "bitnet": {},
    "bloom": {},
    "codegen": {"rotary_dim": 8},
    "cohere": {},
    "cohere2": _ALTERNATING,
    "deepseek_v2": {**_EXPERTS, **_MLA, "topk_group": 1, "n_group": 1, "num_key_value_heads": 4},
    "deepseek_v3": {**_EXPERTS, **_MLA, "topk_group": 1, "n_group": 1, "num_key_value_heads": 4},
    "dots1": {**_EXPERTS, "topk_group": 1, "n_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "ernie4_5": {},
    "exaone4": _ALTERNATING,
    "falcon": {"head_dim": ..., "new_decoder_architecture": False, "multi_query": True},
    "falcon_h1": {**_MAMBA2, "mamba_d_ssm": 64},
    "gemma": {},
    "gemma2": {**_WINDOW, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 3.0},
    "gemma3_text": {**_ALTERNATING, "query_pre_attn_scalar": 8},
    "glm": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "glm4_moe": {**_EXPERTS, "topk_group": 1, "n_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "gpt2": {},
    "gpt_bigcode": {},
    "gpt_neox": {},
    "gpt_oss": {**_EXPERTS, **_ALTERNATING},
    "gptj": {"rotary_dim": 8},
    "granite": {},
    "granitemoe": _EXPERTS,
    "helium": {},
    "hunyuan_v1_dense": {},
    "jamba": {**_EXPERTS, "mamba_d_state": 8, "attn_layer_offset": 1, "attn_layer_period": 2, "use_mamba_kernels": False},
    "lfm2": {"full_attn_idxs": [1], "conv_L_cache": 3, "block_auto_adjust_ff_dim": False},
    "llama": {},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1},
    "mistral": _WINDOW,
    "mixtral": _EXPERTS,
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": _ALTERNATING,
    "olmoe": _EXPERTS,
    "opt": {"word_embed_proj_dim": 32},
    "persimmon": {},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"partial_rotary_factor": 1.0},
    "phimoe": _EXPERTS,
    "qwen2": {},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen3": {},
    "qwen3_moe": _EXPERTS,
    "qwen3_next": {
        **_EXPERTS,
        **_DELTA,
        "shared_expert_intermediate_size": 24,
    },
    "seed_oss": {},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": {},
    "biogpt": {},
    "ctrl": {},
    "diffllama": {},
    "doge": {},
    "ernie4_5_moe": _EXPERTS,
    "exaone_moe": _EXPERTS,
    "falcon_mamba": {"state_size": 8},
    "gemma4_text": {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "global_head_dim": 16},
    "glm4_moe_lite": {**_EXPERTS, **_MLA, "num_key_value_heads": 4},
    "granitemoehybrid": {**_EXPERTS, **_MAMBA2, "shared_intermediate_size": 24, "layer_types": ["mamba", "attention", "mamba"]},
    "hunyuan_v1_moe": _EXPERTS,
    "jetmoe": _EXPERTS,
    "kimi_linear": {**_EXPERTS, **_MLA, "linear_head_dim": 8, "linear_num_heads": 4},
    "llama4_text": {**_EXPERTS, "attention_chunk_size": 16},
    "longcat_flash": {**_EXPERTS, **_MLA, "num_key_value_heads": 4},
    "minicpm3": {**_MLA, "num_key_value_heads": 4},
    "minimax": _EXPERTS,
    "mpt": {},
    "nemotron_h": {**_EXPERTS, "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1},
    "olmo_hybrid": {},
    "openai-gpt": {},
    "qwen3_5_moe_text": {**_EXPERTS, **_DELTA, "shared_expert_intermediate_size": 24},
    "qwen3_5_text": _DELTA,
    "recurrent_gemma": {},
    "rwkv": {},
    "vaultgemma": {},
    "xglm": {},
    "zamba": {},
}


def make_tiny(family: str, seed: int = 0) -> Any:
    """A tiny model of a family with random weights wide enough that its greedy answers wander."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    settings = {name: value for name, value in {**_SIZES, **FAMILIES[family]}.items() if value is not ...}
    config = CONFIG_MAPPING[family](**settings)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "conv" not in name and "A_log" not in name:
                weight.normal_(0.0, 0.2, generator=generator)
    return model


def make_prompts(count: int = 6, seed: int = 1) -> list[list[int]]:
    rnd = random.Random(seed)
    return [[rnd.randrange(3, VOCABULARY) for _ in range(rnd.randint(1, 30))] for _ in range(count)]


def own_answer(model: Any, prompt: Sequence[int]) -> list[int]:
    """Greedy, by the model's own forward pass over the whole text each time."""
    import torch

    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(ANSWER):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def engine_answers(runner: Any, prompts: Sequence[Sequence[int]], together: bool) -> list[list[int]]:
    """Greedy, by the engine's core over a runner, one after another or all at once in chunks."""
    answers: dict[str, list[int]] = {}

    def note(event: Event) -> None:
        if isinstance(event, TokensEvent):
            answers.setdefault(event.request_id, []).extend(event.token_ids)
        elif event.error is not None:
            raise EngineError(event.error.code, event.error.message)

    ticks = iter(range(1 << 30))
    config = EngineConfig(seats=4, token_budget=24 if together else 256, chunk=16, adapt_chunk=False)
    core = Core(runner, BlockPool(160, 4), config, clock=lambda: float(next(ticks)), emit=note)
    params = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        core.submit(str(number), prompt, params, chat_id=str(number), title="", priority=Priority.FOREGROUND, seed=0)
        while core.busy and not together:
            core.step()
    while core.busy:
        core.step()
    return [answers[str(number)] for number in range(len(prompts))]


def census_of(family: str) -> str:
    """ "exact", or what stands in the way in one sentence."""
    from engine.model.runner import make_runner

    prompts = make_prompts()
    try:
        model = make_tiny(family)
        expected = [own_answer(model, prompt) for prompt in prompts]
    except Exception as error:
        return f"not built here: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
    try:
        codec = SimpleNamespace(eos_ids=frozenset())
        loaded = SimpleNamespace(codec=codec, context=CONTEXT, dtype="float32", torch_model=make_tiny(family))
        runner = make_runner(loaded, EngineConfig(), 160, 4)
        alone = engine_answers(runner, prompts, together=False)
        together = engine_answers(runner, prompts, together=True)
    except EngineError as error:
        return f"refused: {error.message}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
    if alone != expected:
        return "differs alone"
    return "exact" if together == expected else "differs in company"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("census", help="which model families ride the paged cache, alone and in company")
    parser.add_argument("families", nargs="*", help="only these; all when none is named")
    parser.add_argument("--json", metavar="FILE", help="write the table to FILE")


def run(args: argparse.Namespace) -> int:
    unknown = [name for name in args.families if name not in FAMILIES]
    if unknown:
        raise EngineError("unknown_family", f"There is no tiny model of {', '.join(unknown)}.", f"Choose among {', '.join(FAMILIES)}.")
    table = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in args.families or FAMILIES:
            table[family] = census_of(family)
            print(f"{family:18} {table[family]}", flush=True)
    exact = sum(word == "exact" for word in table.values())
    print(f"{exact} of {len(table)} families exact")
    if args.json:
        Path(args.json).write_text(json.dumps({"omnibus": __version__, "families": table}, indent=1) + "\n", encoding="utf-8")
    return 0
