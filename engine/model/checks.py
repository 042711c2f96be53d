"""Looks at a model folder before any library opens it: is everything there, whole and harmless?

Pure Python, milliseconds, no torch. Model files are foreign data: only safetensors are read (a pickle can run code), a shard's name must be
a plain file name, headers are checked against the file's size, and the configuration loses every key that could pull in code. What is wrong
comes out as one sentence that names the file, and one that says what to do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.catalog.folders import told
from engine.model.sniff import what_it_is_instead
from engine.text.sound_json import MOST_DEPTH, levels
from engine.types import ModelError, Sentence

AGAIN = "Download the model again."
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")

MAX_JSON = 32 << 20  # bytes of a configuration or index; parsed, they take ten times that
MAX_TOKENIZER = 256 << 20
MAX_HEADER = 32 << 20  # a third of the safetensors library's own limit; models with 50,000 tensors have 8 MB

# Bits an element of each safetensors type takes.
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8}
_BITS |= {"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64}
_BITS |= {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}

# Keys of a configuration that name code to load, or choose code by name; the engine makes these choices itself.
_CODE_KEYS = frozenset({"auto_map", "custom_pipelines", "trust_remote_code", "transformers_weights", "_name_or_path"})
_CODE_PREFIXES = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation")

# How configurations call the number of their layers, those of a picture's or a sound's part among them.
_LAYER_COUNTS = frozenset({"num_hidden_layers", "num_layers", "n_layers", "n_layer"})


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a safetensors file: type as the file names it ("BF16"), shape, size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model folder that passed.

    Attributes:
        config: config.json without the keys that could pull in code.
        custom_code: the model comes with Python code of its own, which is never run.
    """

    folder: Path
    config: dict[str, Any]
    shards: tuple[Path, ...]
    tensors: dict[str, TensorSpec]
    custom_code: bool

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))


def inspect_folder(folder: Path) -> ModelFiles:
    """Everything that can be known of a model folder without loading it.

    Raises:
        ModelError: "model_not_found", "empty_folder", "no_config", "no_weights", "pickle_only", "missing_shard", "bad_shard_name",
            "missing_tensors", "truncated", "not_safetensors", "damaged_model", "no_tokenizer", …
    """
    with told("read", folder):
        if not folder.is_dir():
            raise ModelError("model_not_found", Sentence("There is no model folder {0}.", folder), "Choose another one.")
        names = {path.name for path in folder.iterdir()}
        if not names:
            raise ModelError("empty_folder", Sentence("The folder {0} is empty.", folder), "Choose a folder with a model's files.")
        config = _config(folder, names)
        shards = _shards(folder, names)
        tensors: dict[str, TensorSpec] = {}
        for shard in shards:
            tensors.update(read_safetensors_header(shard))
        if INDEX in names and WEIGHTS not in names:
            _check_index(folder, tensors)
        _check_layers(config, len(tensors))
        tokenizers = [name for name in TOKENIZER_FILES if name in names]
        if not tokenizers:
            raise ModelError(
                "no_tokenizer", Sentence("The folder {0} has no tokenizer.", folder.name), "Add the model's tokenizer.json to it."
            )
        for name in tokenizers:
            if (folder / name).stat().st_size > MAX_TOKENIZER:
                raise ModelError("damaged_model", Sentence("{0} is far too large for a tokenizer.", name), AGAIN)
        return ModelFiles(folder, sanitised(config), shards, tensors, "auto_map" in config)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size.

    Raises:
        ModelError: "damaged_model", naming the file, what it is instead where that can be told.
    """
    if path.stat().st_size > MAX_JSON:
        raise ModelError("damaged_model", Sentence("{0} is {1:,} bytes long, far too large.", path.name, path.stat().st_size), AGAIN)
    data = path.read_bytes()
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError("damaged_model", Sentence("{0} is not JSON{1}.", path.name, what_it_is_instead(data[:512])), AGAIN) from error
    if not isinstance(content, dict):
        raise ModelError("damaged_model", Sentence("{0} holds no JSON object.", path.name), AGAIN)
    if sum(1 for _ in levels(content)) > MOST_DEPTH:  # a configuration has a handful; what reads it next would not follow many hundred
        raise ModelError("damaged_model", Sentence("{0} is nested too deeply.", path.name), AGAIN)
    return content


def sanitised(config: dict[str, Any]) -> dict[str, Any]:
    """`config`, at every depth, without the keys that name code to load or choose an implementation."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if k not in _CODE_KEYS and not str(k).startswith(_CODE_PREFIXES)}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return {key: value for key, value in clean(config).items()}


def read_safetensors_header(path: Path) -> dict[str, TensorSpec]:
    """The tensors of one safetensors file whose header and size agree.

    Raises:
        ModelError: "truncated" with the bytes there are and should be, "not_safetensors", "damaged_model".
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(512)
        if len(start) < 8:
            raise ModelError("truncated", Sentence("{0} is {1}.", path.name, "empty" if not start else "cut off after a few bytes"), AGAIN)
        length = int.from_bytes(start[:8], "little")
        if length > MAX_HEADER or start[8:9] != b"{":
            raise ModelError("not_safetensors", Sentence("{0} is not a safetensors file{1}.", path.name, what_it_is_instead(start)), AGAIN)
        if 8 + length > size:
            raise ModelError("truncated", Sentence("{0} is incomplete: its {1:,} bytes end inside its header.", path.name, size), AGAIN)
        file.seek(8)
        raw = file.read(length)
    try:
        header = json.loads(raw)
        specs = {name: _spec(entry) for name, entry in header.items() if name != "__metadata__"}
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelError("damaged_model", Sentence("The header of {0} is damaged.", path.name), AGAIN) from error
    needed = 8 + length + max(ends, default=0)
    if size < needed:
        raise ModelError("truncated", Sentence("{0} is incomplete: {1:,} of {2:,} bytes are there.", path.name, size, needed), AGAIN)
    if size > needed:
        raise ModelError(
            "damaged_model", Sentence("{0} is {1:,} bytes long, but its tensors end at {2:,}.", path.name, size, needed), AGAIN
        )
    return specs


def _spec(entry: dict[str, Any]) -> TensorSpec:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not isinstance(begin, int) or not isinstance(end, int) or len(shape) > 16:
        raise ValueError
    bits = _BITS[entry["dtype"]]
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise ValueError
        bits *= length
    if not 0 <= begin <= end or 8 * (end - begin) != bits:
        raise ValueError
    return TensorSpec(entry["dtype"], shape, end - begin)


def _config(folder: Path, names: set[str]) -> dict[str, Any]:
    if "config.json" in names:
        return read_json(folder / "config.json")
    if "adapter_config.json" in names:
        sentence = Sentence("The folder {0} holds an adapter, not a whole model.", folder.name)
        raise ModelError("no_config", sentence, "Choose the model it was made for, or one with the adapter merged in.")
    raise ModelError(
        "no_config", Sentence("The folder {0} has no config.json.", folder.name), "Choose the folder that holds the model's files."
    )


def _shards(folder: Path, names: set[str]) -> tuple[Path, ...]:
    if WEIGHTS in names:
        return (folder / WEIGHTS,)
    if INDEX in names:
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelError("damaged_model", Sentence("{0} does not list the weights.", INDEX), AGAIN)
        shards = sorted(set(weight_map.values()))
        for shard in shards:
            if not is_plain_name(shard):
                raise ModelError(
                    "bad_shard_name", Sentence("{0} names the file {1!r}, outside the folder.", INDEX, shard), "Do not use this model."
                )
            if shard not in names:
                raise ModelError(
                    "missing_shard", Sentence("The weights file {0} is missing ({1} belong to the model).", shard, len(shards)), AGAIN
                )
        return tuple(folder / shard for shard in shards)
    if any(name.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")) for name in names):
        sentence = Sentence("The folder {0} has its weights only as PyTorch files, which can run code when opened.", folder.name)
        raise ModelError("pickle_only", sentence, "Get the model as safetensors or GGUF.")
    raise ModelError(
        "no_weights", Sentence("The folder {0} has no {1}.", folder.name, WEIGHTS), "Choose a folder with safetensors, or a GGUF file."
    )


def is_plain_name(name: str) -> bool:
    """Whether `name` is a safetensors file right in the folder it stands in, on every operating system."""
    return name.endswith(".safetensors") and not name.startswith(".") and not any(sign in name for sign in '/\\:\0*?"<>|')


def _check_index(folder: Path, tensors: dict[str, TensorSpec]) -> None:
    missing = sorted(set(read_json(folder / INDEX)["weight_map"]) - set(tensors))
    if missing:
        raise missing_tensors(folder.name, missing)


def _check_layers(config: dict[str, Any], tensors: int) -> None:
    """Every layer has a tensor at least. (transformers makes lists of as many layers as it is told of, and their modules.)"""
    parts = [item for level in levels(config) for item in level if isinstance(item, dict)]
    counts = [part[name] for part in parts for name in _LAYER_COUNTS & part.keys()]
    most = max((count for count in counts if isinstance(count, int)), default=0)
    if most > tensors:
        sentence = Sentence("config.json counts {0:,} layers, but there are only {1:,} tensors.", most, tensors)
        raise ModelError("damaged_model", sentence, AGAIN)


def missing_tensors(what: str, names: list[str]) -> ModelError:
    """The error for weights that are not there; loading would fill them with random numbers."""
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    count = "one tensor" if len(names) == 1 else f"{len(names)} tensors"
    return ModelError("missing_tensors", Sentence("{0} lacks {1} of the model: {2}.", what, count, shown), AGAIN)
