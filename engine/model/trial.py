"""Would this model load? Everything that a load checks, on a model without weights: seconds and megabytes, whatever the model's size.

Owns the order of the questions and what a good model is said to be. Must never run code that comes with a model, unpack a GGUF file or
write anything. What only the weights' values can show (numbers that are no numbers) is left to the load.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.catalog import starter
from engine.model.checks import inspect_folder, missing_tensors
from engine.model.gguf_header import AGAIN, GgufHeader, read_header
from engine.model.libraries import LIBRARIES
from engine.model.loading import STARTER, codec_of, empty_model, find_files, model_config
from engine.types import ModelError, Sentence

# Transformers' loader and llama.cpp's files call some families by different names.
_SAME = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss", "minimax-m2": "minimax_m2", "falcon": "falcon"}
_NOT_CHATS = frozenset({"t5", "t5encoder", "umt5", "mamba", "bert", "nomic-bert", "clip", "general", "tokenizer"})
_UNEVEN = ("gemma3n", "gemma4")  # families some of whose layers share what others have


@dataclass(frozen=True, slots=True)
class Approval:
    """A model that would load. `template` says how chats are put to it: "model", "chatml" or "plain"; empty where only a load can tell."""

    name: str
    path: Path
    family: str
    template: str
    notes: tuple[str, ...]


def check_model(source: str) -> Approval:
    """Look at `source` ("starter", a folder, a file) as a load would.

    Raises:
        ModelError: what is wrong with it, and what to do.
    """
    if source == STARTER and not starter.ready():
        raise ModelError("model_not_found", "The starter model is not there yet, or was changed.", "Start Omnibus, which fetches it.")
    path, name = (starter.folder(), starter.NAME) if source == STARTER else find_files(source)
    with LIBRARIES:
        return check_gguf(path, name) if path.is_file() else check_folder(path, name)


def check_folder(path: Path, name: str) -> Approval:
    files = inspect_folder(path)
    os.environ["HF_HUB_OFFLINE"] = "1"
    config = model_config(files)
    codec = codec_of(files, config)
    empty_model(files, config)
    notes = []
    if files.custom_code:
        notes.append("It comes with program code of its own, which is not run.")
    if codec.template_error:
        notes.append(f"Its chat template cannot be used: {codec.template_error}.")
    if codec.template == "plain":
        notes.append("It has no chat template; chats are put to it as plain lines of User and Assistant.")
    elif codec.template == "chatml":
        notes.append("It has no chat template of its own; ChatML, which its vocabulary knows, is used.")
    return Approval(name, path, files.model_type, codec.template, tuple(notes))


def check_gguf(path: Path, name: str) -> Approval:
    header = read_header(path)
    family = header.architecture
    if not _runs(family):
        sentence = Sentence("{0} has the architecture {1!r}, which Omnibus cannot run from a GGUF file.", path.name, family)
        raise ModelError("unknown_architecture", sentence, "Get the same model as a folder with safetensors.")
    if int(header.metadata.get("split.count", 1) or 1) > 1:
        raise ModelError(
            "split_gguf", Sentence("{0} is one part of a model in several files.", path.name), "Join them with llama.cpp's gguf-split."
        )
    if not header.metadata.get("tokenizer.ggml.tokens"):
        raise ModelError("no_tokenizer", Sentence("{0} has no vocabulary.", path.name), AGAIN)
    if missing := sorted(_missing(header)):
        raise missing_tensors(path.name, missing)
    has_template = bool(header.metadata.get("tokenizer.chat_template"))
    notes = () if has_template else ("It has no chat template; one that its vocabulary knows, or plain lines, is used.",)
    return Approval(name, path, family, "model" if has_template else "", notes)


def _runs(family: str) -> bool:
    from transformers.integrations.gguf.utils import is_gguf_arch_supported
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    if family in _NOT_CHATS:
        return False
    return is_gguf_arch_supported(family) or _SAME.get(family, family) in GGUF_SUPPORTED_ARCHITECTURES


def _missing(header: GgufHeader) -> set[str]:
    """Names of tensors that should be there: those every such file has, and what a layer lacks beside most others."""
    names = {tensor.name for tensor in header.tensors}
    wanted = {"token_embd.weight"} - names
    count = header.metadata.get(f"{header.architecture}.block_count")
    if not isinstance(count, int) or header.architecture.startswith(_UNEVEN):
        return wanted
    if count > len(names):
        raise ModelError("damaged_model", Sentence("The header counts {0:,} layers, but only {1:,} tensors.", count, len(names)), AGAIN)
    blocks: dict[int, set[str]] = {number: set() for number in range(count)}
    for name in names:
        start, _, rest = name.partition(".")
        number, _, part = rest.partition(".")
        if start == "blk" and number.isdigit() and int(number) in blocks:
            blocks[int(number)].add(part)
    kinds = Counter(frozenset(parts) for parts in blocks.values())
    fullest = max(kinds, key=lambda parts: (kinds[parts] * 4 >= count, len(parts)), default=frozenset())
    return wanted | {f"blk.{number}.{part}" for number, parts in blocks.items() if parts < fullest for part in fullest - parts}
