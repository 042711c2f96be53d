"""Loads a model: from "starter", a folder with safetensors or a GGUF file to a ready transformers model and its codec.

Owns the choice of device and dtype and every check before and after. It must never run code that comes with a model, open a pickle, use the
network (but for fetching the starter model), or let a missing tensor be filled with random numbers. Which attention runs is the runner's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine.catalog import starter
from engine.catalog.folders import Cancelled, Progress, stop_if, told
from engine.catalog.registry import known_path
from engine.model import late, quantised
from engine.model.checks import AGAIN, ModelFiles, inspect_folder, missing_tensors, read_json
from engine.model.devices import choose_device, choose_dtype, place
from engine.model.lean import bring_in, lean
from engine.model.libraries import LIBRARIES
from engine.model.sniff import first_line, what_it_is_instead
from engine.text.codec import Codec
from engine.text.panics import panics_caught
from engine.types import EngineConfig, ModelError, Sentence

log = logging.getLogger(__name__)

STARTER = "starter"
DEFAULT_CONTEXT = 2_048  # of a model that does not say


@dataclass
class LoadedModel:
    """A model ready to run.

    Attributes:
        name: as people call it.
        context: most positions a request may have: the model's own, or the configured one if that is less.
        vocab_size: width of the logits; ids beyond the tokenizer's are padding.
        device, dtype: "cpu", "cuda", "mps", or several with commas; "float32", "bfloat16", "float16".
        weight_bytes: of all parameters and buffers, shared ones once.
        torch_model: a transformers PreTrainedModel in eval mode, without gradients, on `device`.
        family: transformers' model type ("llama").
        architecture: the model's class ("LlamaForCausalLM").
        folder: where its files lie.
    """

    name: str
    codec: Codec
    context: int
    vocab_size: int
    device: str
    dtype: str
    weight_bytes: int
    torch_model: Any
    family: str
    architecture: str
    folder: Path


def load_model(source: str, config: EngineConfig, progress: Progress, cancelled: Cancelled) -> LoadedModel:
    """Load `source`. Takes about a second for a small model whose files are ready; blocks meanwhile.

    Args:
        source: "starter", a folder with safetensors, or a GGUF file.
        config: device, dtype and context are used.
        progress: hears the share done, 0 to 1, and a person's word for the stage.
        cancelled: asked between stages and about ten times a second during the long ones.

    Raises:
        ModelError: with a code, what is wrong and what to do. Nothing stays loaded.
    """
    folder, name = locate(source, lambda share, stage: progress(0.7 * share, stage), cancelled)
    files = inspect_folder(folder)
    stop_if(cancelled)
    progress(0.7, "starting the model library")
    with LIBRARIES:
        loaded = _load_files(files, name, config, progress, cancelled)
    progress(1.0, "ready")
    return loaded


def _load_files(files: ModelFiles, name: str, config: EngineConfig, progress: Progress, cancelled: Cancelled) -> LoadedModel:
    """The part of a load that needs the model libraries."""
    _go_offline()
    import torch

    device = choose_device(config.device)
    if device != "cpu" or quantised.method_of(files.config):  # their kernels and packages may look for more of torch
        late.bring_in()
    dtype = choose_dtype(config.dtype, device)
    stop_if(cancelled)
    progress(0.75, "reading the configuration")
    configured = model_config(files)
    progress(0.8, "reading the vocabulary")
    codec = codec_of(files, configured)
    stop_if(cancelled)
    progress(0.85, "reading the weights")
    try:
        model = _weights(files, configured, device, dtype)
        stop_if(cancelled)
        progress(0.95, "checking")
        return LoadedModel(
            name=name,
            codec=codec,
            context=_context(configured, config.context),
            vocab_size=_vocab_size(model),
            device=device,
            dtype=str(dtype).removeprefix("torch."),
            weight_bytes=_weight_bytes(model),
            torch_model=model,
            family=files.model_type,
            architecture=type(model).__name__,
            folder=files.folder,
        )
    except (MemoryError, torch.OutOfMemoryError) as error:
        sentence = Sentence("{0} needs about {1:.1f} GB of memory on {2}, more than is free.", name, files.weight_bytes / 1e9, device)
        raise ModelError("out_of_memory", sentence, "Close other programs, or choose a smaller model.") from error


def locate(source: str, progress: Progress, cancelled: Cancelled) -> tuple[Path, str]:
    """The folder to load for `source`, made first if need be, and the model's name.

    Raises:
        ModelError: "model_not_found", "not_a_model", "several_models", or what making the folder raises.
    """
    if source == STARTER:
        return starter.ensure_starter(progress, cancelled), starter.NAME
    path, name = find_files(source)
    if path.is_dir():
        return path, name
    from engine.model.gguf import ensure_converted

    return ensure_converted(path, progress, cancelled), name


def find_files(source: str) -> tuple[Path, str]:
    """Where the files of `source` lie, a model folder or a GGUF file, and the model's name. `source` is a path, or a name in the catalog.

    Raises:
        ModelError: "model_not_found", "not_a_model", "several_models".
    """
    path = known_path(source) or Path(source).expanduser().absolute()
    with told("read", path):
        if path.is_dir():
            ggufs = [] if (path / "config.json").exists() else sorted(path.glob("*.gguf"))
            if len(ggufs) > 1:
                sentence = Sentence("The folder {0} holds {1} GGUF files.", path.name, len(ggufs))
                raise ModelError("several_models", sentence, Sentence("Choose one of them, such as {0}.", ggufs[0].name))
            if not ggufs:
                return path, path.name
            path = ggufs[0]
        if not path.is_file():
            raise ModelError("model_not_found", Sentence("There is no model at {0}.", path), "Choose a model folder or a GGUF file.")
        if path.suffix.lower() == ".safetensors":
            return path.parent, path.parent.name
        with path.open("rb") as file:
            start = file.read(512)
    if path.suffix.lower() != ".gguf" and not start.startswith(b"GGUF"):
        sentence = Sentence("{0} is not a model file{1}.", path.name, what_it_is_instead(start))
        raise ModelError("not_a_model", sentence, "Choose a folder with safetensors, or a GGUF file.")
    return path, path.stem


def _go_offline() -> None:
    """Keep transformers and huggingface_hub from asking the network or printing; read when they are first imported, hence here."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    bring_in()
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def model_config(files: ModelFiles) -> Any:
    """The folder's configuration as transformers' class for it, defaults filled in.

    Raises:
        ModelError: "unknown_architecture", "unknown_quantisation", "bad_config".
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    known = files.model_type in CONFIG_MAPPING
    if not known or CONFIG_MAPPING[files.model_type] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        if files.custom_code and not known:
            sentence = Sentence("{0} needs program code of its own, which Omnibus never runs.", files.folder.name)
        else:
            what = files.model_type or "(none)"
            sentence = Sentence("{0} has the architecture {1!r}, which Omnibus cannot run as a chat model.", files.folder.name, what)
        raise ModelError("unknown_architecture", sentence, "Choose a model of a common family, such as Llama, Qwen, Gemma or Mistral.")
    if method := quantised.method_of(files.config):
        quantised.check_package(files.folder.name, method)
    try:
        return CONFIG_MAPPING[files.model_type].from_dict(quantised.as_read(files.config))
    except Exception as error:  # each family's configuration checks its values in its own way
        sentence = Sentence("config.json of {0} cannot be used: {1}", files.folder.name, first_line(error))
        raise ModelError("bad_config", sentence, AGAIN) from error


def codec_of(files: ModelFiles, model_config: Any) -> Codec:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    place = str(files.folder)
    try:
        with panics_caught():
            if (files.folder / "tokenizer.json").exists():
                # tokenizer.json is the tokenizer; the class a folder names would rebuild it, or need code of its own
                tokenizer = PreTrainedTokenizerFast.from_pretrained(place, local_files_only=True)
            else:
                tokenizer = AutoTokenizer.from_pretrained(place, config=model_config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare Exception
        sentence = Sentence("The tokenizer of {0} cannot be read: {1}", files.folder.name, first_line(error))
        raise ModelError("bad_tokenizer", sentence, AGAIN) from error
    ends = _ids(model_config.get_text_config().eos_token_id)
    generation = files.folder / "generation_config.json"
    if generation.exists():
        ends += _ids(read_json(generation).get("eos_token_id"))
    return Codec(tokenizer, ends)


def _ids(value: Any) -> list[int]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)]


def _weights(files: ModelFiles, model_config: Any, device: str, dtype: Any) -> Any:
    model = _from_folder(files, model_config, dtype, None if device == "cpu" else _device_map(files, model_config, device, dtype))
    model.eval()
    model.requires_grad_(False)
    if device == "cpu" and quantised.method_of(files.config) == "torchao":
        quantised.make_plain(model)
    return model


def _device_map(files: ModelFiles, model_config: Any, device: str, dtype: Any) -> dict[str, str]:
    if "," not in device:
        return {"": device}
    import torch

    from engine.model.memory import free_bytes

    devices = device.split(",")
    return place(empty_model(files, model_config), devices, [free_bytes(torch.device(name)) for name in devices], dtype.itemsize)


def empty_model(files: ModelFiles, model_config: Any) -> Any:
    """The model without its weights, which costs no memory, after its tensors' names and shapes were compared with the files'.

    Raises:
        ModelError: "missing_tensors", "damaged_model".
    """
    import torch

    _go_offline()
    return _from_folder(files, model_config, torch.float32, {"": "meta"})


def _from_folder(files: ModelFiles, model_config: Any, dtype: Any, device_map: dict[str, str] | None) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        with nullcontext() if quantised.method_of(files.config) else lean():  # the packages of others may need what is left out
            read = partial(
                AutoModelForCausalLM.from_pretrained,
                str(files.folder),
                config=model_config,
                dtype=dtype,
                device_map=device_map,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
            try:
                model, info = read()
            except NotImplementedError:  # a tensor that is only a shape, and a formula for it that was put off
                if not late.bring_in():
                    raise
                model, info = read()
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError, ImportError) as error:
        if "out of memory" in str(error).lower():
            raise MemoryError from error
        if method := quantised.method_of(files.config):
            # Its package is there, but not a kernel of it for this machine, or another package that it needs.
            sentence = Sentence(
                "{0} is quantised with {1!r}, which does not run on this machine: {2}", files.folder.name, method, first_line(error)
            )
            raise ModelError("unknown_quantisation", sentence, "Choose the unquantised model, or a GGUF file.") from error
        sentence = Sentence("The weights of {0} do not fit its config.json: {1}", files.folder.name, first_line(error))
        raise ModelError("damaged_model", sentence, AGAIN) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise missing_tensors(files.folder.name, missing)
    if info["mismatched_keys"]:
        names = ", ".join(sorted(str(item[0] if isinstance(item, tuple) else item) for item in info["mismatched_keys"])[:3])
        raise ModelError(
            "damaged_model", Sentence("Tensors of {0} have other shapes than config.json says: {1}.", files.folder.name, names), AGAIN
        )
    return model


def _context(model_config: Any, asked: int | None) -> int:
    own = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    known = [value for value in (own, asked) if isinstance(value, int) and value > 0]
    return min(known, default=DEFAULT_CONTEXT)


def _vocab_size(model: Any) -> int:
    head = model.get_output_embeddings()
    return int(head.weight.shape[0]) if head is not None else int(model.config.get_text_config().vocab_size)


def _weight_bytes(model: Any) -> int:
    def sizes(values: Iterable[Any]) -> dict[int, int]:
        return {value.data_ptr(): value.numel() * value.element_size() for value in values}

    return sum((sizes(model.parameters()) | sizes(model.buffers())).values())
