"""Unpacks a GGUF file, once, into a folder of safetensors, tokenizer and configuration that loads in a moment.

Owns the cache of unpacked models. transformers reads the GGUF file (its architecture tables, tokenizer builders and de-quantisation); we
add the checks before and after, what its tokenizer builder leaves out, and the manifest. The work runs in a process of its own: it is
minutes of pure Python for a large model, which would stop the window, and it can be ended at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from engine import itself
from engine.catalog import manifest, paths
from engine.catalog.folders import Cancelled, Progress, fresh_folder, locked, need_space, never, stop_if, told
from engine.model.gguf_header import AGAIN, ARRAY, MAX_KEPT, SCALARS, STRING, read_header
from engine.model.lean import bring_in, lean
from engine.model.libraries import LIBRARIES
from engine.model.sniff import first_line
from engine.text.panics import panics_caught
from engine.types import ModelError, Sentence

EXACT_LIMIT = 8_000_000_000  # bytes of f32 weights up to which they are kept exactly; larger models are kept as bf16
_SAMPLE = 1 << 20

# llama.cpp's names of splitting rules that take digits one by one before GPT-2's rule; transformers' builder has only the latter.
DIGIT_SPLITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})


def ensure_converted(source: Path, progress: Progress, cancelled: Cancelled = never) -> Path:
    """The unpacked folder of a GGUF file, made if it is not in the cache.

    The cache knows the file by its size, time of change and both its ends, not by its place: a moved file is found again, a changed one
    is unpacked anew.

    Raises:
        ModelError: the file is no whole GGUF file, its architecture is unknown, a tensor is missing, the disk is full, …
    """
    header = read_header(source)
    target = converted_folder(source)
    if manifest.changed(target) == []:
        return target
    with locked(target, progress, cancelled):
        if manifest.changed(target) != []:
            need_space(target, 4 * header.elements + 100_000_000, f"Unpacking {source.name}")
            with fresh_folder(target) as draft:
                convert(source, draft, source.stem, progress, cancelled)
    return target


def converted_folder(source: Path) -> Path:
    """Where the unpacked model of a GGUF file lies, or will."""
    return paths.converted_dir() / f"{_safe(source.stem)}-{fingerprint(source)}"


def fingerprint(path: Path) -> str:
    """Sixteen digits that change when the file does."""
    stat = path.stat()
    digest = hashlib.sha256(f"{stat.st_size} {stat.st_mtime_ns} ".encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE))
        file.seek(max(0, stat.st_size - _SAMPLE))
        digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:16]


def _safe(stem: str) -> str:
    """A short folder name that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem).strip("._")[:60] or "model"


def convert(source: Path, folder: Path, name: str, progress: Progress, cancelled: Cancelled = never) -> None:
    """Unpack `source` into the empty `folder`, in a process of its own, and write its manifest.

    Raises:
        ModelError: as `unpack`; "conversion_failed" if the process dies.
    """
    read_header(source)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}
    process = subprocess.Popen(
        [*itself.command("engine.model.gguf"), str(source), str(folder), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        creationflags=itself.no_console(),
    )
    assert process.stdin and process.stdout and process.stderr
    said: queue.Queue[dict[str, Any] | None] = queue.Queue()
    noise: list[str] = []
    readers = [
        threading.Thread(target=_read_lines, args=(process.stdout, said), name="gguf-progress", daemon=True),
        threading.Thread(target=_read_noise, args=(process.stderr, said, noise), name="gguf-noise", daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        failure = _follow(said, progress, cancelled)
    except BaseException:
        process.kill()
        raise
    finally:
        with suppress(OSError):
            process.stdin.close()
        process.wait()
        for reader in readers:
            reader.join()
        process.stdout.close()
        process.stderr.close()
    if failure is not None:
        raise ModelError(*failure)
    if process.returncode:
        last = next((line for line in reversed(noise) if line.strip()), f"exit code {process.returncode}")
        memory = Sentence(" (the machine may have too little memory)") if process.returncode in (-9, 137) else ""
        sentence = Sentence("{0} could not be unpacked{1}: {2}.", source.name, memory, last[:300].rstrip("."))
        raise ModelError("conversion_failed", sentence, "Try another GGUF file.")


def _follow(said: queue.Queue[dict[str, Any] | None], progress: Progress, cancelled: Cancelled) -> tuple[str, str, str] | None:
    """Pass the process's progress on until it ends; what it failed with, if it said so."""
    failure = None
    stage, base, span = "", 0.0, 0.0
    while True:
        stop_if(cancelled)
        try:
            line = said.get(timeout=0.1)
        except queue.Empty:
            continue
        if line is None:
            return failure
        if "error" in line:
            failure = (str(line["error"]), str(line.get("message", "")), str(line.get("hint", "")))
        elif "share" in line:
            stage, base, span = str(line["stage"]), float(line["share"]), float(line.get("span", 0.0))
            progress(base, stage)
        elif "part" in line:
            progress(base + span * float(line["part"]), stage)


def _read_lines(stream: IO[bytes], said: queue.Queue[dict[str, Any] | None]) -> None:
    for line in stream:
        with suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict):
                said.put(content)
    said.put(None)


def _read_noise(stream: IO[bytes], said: queue.Queue[dict[str, Any] | None], noise: list[str]) -> None:
    """What libraries print; the percentages of their progress bars are progress."""
    rest = ""
    while piece := stream.read1(4096):  # type: ignore[attr-defined]
        *lines, rest = re.split(r"[\r\n]", rest + piece.decode("utf-8", "replace"))
        for line in lines:
            bar = re.match(r"Converting.*?(\d+)%\|", line)
            if bar:
                said.put({"part": int(bar.group(1)) / 100})
            elif line.strip():
                noise.append(line)
                del noise[:-50]
    if rest.strip():
        noise.append(rest)


# ------------------------------------------------------------------------------------------------- inside the other process


def unpack(source: Path, folder: Path, name: str, progress: Callable[..., None]) -> None:
    """Unpack `source` into `folder` here and now. Values are kept exactly: as bf16 or f16 if all weights fit, else as f32.

    Args:
        progress: hears (share, stage) and, by keyword `span`, how much of the whole the stage is.

    Raises:
        ModelError: "unknown_architecture", "missing_tensors", "damaged_model", …
    """
    header = read_header(source)
    os.environ["HF_HUB_OFFLINE"] = "1"
    progress(0.0, "reading the model file")
    with LIBRARIES:
        bring_in()
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, PreTrainedTokenizerFast

    place: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    exact = 4 * header.elements <= EXACT_LIMIT
    try:
        with LIBRARIES, _remembering(), lean(), panics_caught():
            config = AutoConfig.from_pretrained(str(source.parent), **place)
            progress(0.35, "reading the vocabulary")
            tokenizer = PreTrainedTokenizerFast.from_pretrained(str(source.parent), **place)
            progress(0.45, "unpacking the weights", span=0.35)
            model, info = AutoModelForCausalLM.from_pretrained(
                str(source.parent),
                config=config,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32 if exact else torch.bfloat16,
                output_loading_info=True,
                **place,
            )
        _mend_tokenizer(tokenizer, str(header.metadata.get("tokenizer.ggml.pre", "")))
        tokenizer.model_max_length = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    except MemoryError:
        raise
    except Exception as error:  # a damaged file fails anywhere in foreign code, and the tokenizers library raises bare Exception
        raise _explained(error, source, header.architecture) from error
    missing = sorted(info["missing_keys"])
    if missing:
        names = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise ModelError("missing_tensors", Sentence("{0} lacks {1} of the model's tensors: {2}.", source.name, len(missing), names), AGAIN)
    if exact:
        model.to(_narrowest(model))
    progress(0.8, "writing the weights")
    with told("write to", folder), _unwrapped():
        model.save_pretrained(str(folder), max_shard_size="4GB")
        tokenizer.save_pretrained(str(folder))
        progress(0.95, "checking")
        stat = source.stat()
        about = {"name": name, "source": {"name": source.name, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}}
        _tidy_json(folder / "config.json", ("_name_or_path", "_model_name_or_path", "quantization_config"))
        _tidy_json(folder / "tokenizer_config.json", ("is_local", "local_files_only", "name_or_path", "gguf_file"))
        manifest.write(folder, about)


@contextmanager
def _remembering() -> Iterator[None]:
    """WORKAROUND for transformers 5.24, whose general GGUF loader takes minutes for a large vocabulary: it parses the file anew for each
    question, has gguf cut an array out of the file for each word, and builds the table of tensor names once per module (400 times for a
    small model). Within the block gguf answers the same question from memory and steps over the vocabulary, of which that loader wants the
    length alone. transformers looks both names up late; should it stop doing so, unpacking is slow again and nothing else.
    """
    import gguf

    before = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        gguf.GGUFReader = cache(_quick_reader(gguf.GGUFReader))
        gguf.get_tensor_name_map = cache(gguf.get_tensor_name_map)
        yield
    finally:
        for name, value in before.items():
            setattr(gguf, name, value)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """WORKAROUND for transformers 5.24: before it writes a model it asks whether torch has compiled it, for which torch brings its whole
    compiler in, almost four seconds. Ours has just been made and is in no wrapping. Should transformers ask elsewhere, it is slow again
    and nothing else."""
    from transformers import modeling_utils

    before = modeling_utils.unwrap_model
    modeling_utils.unwrap_model = lambda model, **_: model
    try:
        yield
    finally:
        modeling_utils.unwrap_model = before


def _quick_reader(plain: Any) -> Any:
    """`plain` (gguf.GGUFReader) with every long array as so many copies of its first element."""

    class QuickReader(plain):
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            element, count = (int(value) for value in struct.unpack_from("<IQ", self.data, orig_offs))
            if count <= MAX_KEPT or not (element in SCALARS or element == STRING):
                return super()._get_field_parts(orig_offs, raw_type)
            at = orig_offs + 12
            _, parts, picked, types = super()._get_field_parts(at, element)
            if element in SCALARS:
                at += count * struct.calcsize(SCALARS[element])
            else:
                view = memoryview(self.data)
                for _ in range(count):
                    at += 8 + struct.unpack_from("<Q", view, at)[0]
            return at - orig_offs, parts, picked * count, [type(types[0])(ARRAY), *types]

    return QuickReader


def _explained(error: Exception, source: Path, architecture: str) -> ModelError:
    text = str(error)
    if not source.exists():  # it was deleted meanwhile, or the stick it lies on was drawn out
        return ModelError("model_not_found", Sentence("There is no model at {0}.", source), "Choose a model folder or a GGUF file.")
    if "not supported" in text or "Unknown gguf model_type" in text or "Unrecognized" in text:
        sentence = Sentence("{0} has the architecture {1!r}, which Omnibus cannot run from a GGUF file.", source.name, architecture)
        return ModelError("unknown_architecture", sentence, "Get the same model as a folder with safetensors.")
    return ModelError(
        "damaged_model", Sentence("{0} cannot be read as a {1!r} model: {2}", source.name, architecture, first_line(error)), AGAIN
    )


def _mend_tokenizer(tokenizer: Any, splitting: str) -> None:
    if splitting in DIGIT_SPLITS:
        from tokenizers import pre_tokenizers as pre

        byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), byte_level])


def _narrowest(model: Any) -> Any:
    """The smallest dtype that holds every weight exactly."""
    import torch

    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(value, value.to(dtype).to(value.dtype)) for value in model.state_dict().values() if value.is_floating_point()):
            return dtype
    return torch.float32


def _tidy_json(path: Path, unwanted: tuple[str, ...]) -> None:
    """Drop keys that only tell where the file came from on this machine."""
    content = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in content.items() if key not in unwanted}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False), encoding="utf-8")


def _main(arguments: list[str]) -> int:
    """The process of `convert`: one JSON object a line on standard output, an end when standard input closes."""
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    source, folder, name = Path(arguments[0]), Path(arguments[1]), arguments[2]

    def say(content: dict[str, Any]) -> None:
        print(json.dumps(content), flush=True)

    try:
        unpack(source, folder, name, lambda share, stage, span=0.0: say({"share": share, "stage": stage, "span": span}))
    except ModelError as error:
        say({"error": error.code, "message": error.message, "hint": error.hint})
    except MemoryError:
        sentence = Sentence("There is too little memory to unpack {0}.", source.name)
        say({"error": "out_of_memory", "message": sentence, "hint": "Choose a smaller model."})
    return 0


def _end_with_parent() -> None:
    while os.read(0, 4096):  # the bare descriptor: a buffered read would hold a lock that Python's own end trips over
        pass
    os._exit(3)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
