"""Small model files, made on the spot: a random Llama as a folder or as GGUF, with a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = len(MARKS) + 256 + 1
HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, CONTEXT = 64, 2, 4, 2, 96, 512


def make_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def make_llama(**changes: Any) -> Any:
    """A random LlamaForCausalLM of some 200 kB."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 2.0**-17,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()


def make_tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*MARKS, *make_alphabet(), "ĠĠ"]
    backend = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[("Ġ", "Ġ")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<|im_start|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_folder(place: Path, shards: bool = False, **changes: Any) -> Path:
    """A folder as `save_pretrained` writes it; with `shards`, in several weight files."""
    model = make_llama(**changes)
    model.save_pretrained(str(place), max_shard_size="40KB" if shards else "4GB")
    make_tokenizer().save_pretrained(str(place))
    return place


def make_gguf(path: Path, quantised: str = "", leave_out: str = "", architecture: str = "llama", extra: bool = False) -> Any:
    """Write `make_llama()` as a GGUF file, as llama.cpp's converter does; returns the model it was made from.

    Args:
        quantised: how matrices are written, as in "Q8_0" or "Q4_1"; F32 if empty.
        leave_out: name of a tensor to leave out, in GGUF's naming.
        extra: add a tensor that no Llama has.
    """
    import gguf
    import numpy as np

    model = make_llama()
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("Tiny Llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(2.0**-17)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*MARKS, *make_alphabet(), "ĠĠ"])
    writer.add_token_types([gguf.TokenType.CONTROL] * len(MARKS) + [gguf.TokenType.NORMAL] * 257)
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, value in model.state_dict().items():
        target = names.get_name(name, try_suffixes=(".weight",))
        if target == leave_out:
            continue
        data = value.numpy()
        if ".q_proj." in name or ".k_proj." in name:
            heads = HEADS if ".q_proj." in name else KV_HEADS
            data = data.reshape(heads, 2, data.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(data.shape)
        if quantised and data.ndim == 2:
            kind = gguf.GGMLQuantizationType[quantised]
            writer.add_tensor(target, gguf.quants.quantize(np.ascontiguousarray(data), kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, np.ascontiguousarray(data))
    if extra:
        writer.add_tensor("blk.0.quantum_gate.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def unpack_here(monkeypatch: Any) -> None:
    """GGUF files are unpacked in this process, which has the libraries already. (In one of its own: test_gguf.py.)"""
    from engine.model import gguf

    def convert(source: Path, folder: Path, name: str, progress: Any, cancelled: Any = None) -> None:
        gguf.unpack(source, folder, name, lambda share, stage, span=0.0: progress(share, stage))

    monkeypatch.setattr(gguf, "convert", convert)
