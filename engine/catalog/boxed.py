"""The starter model as it travels inside a bundle: small, and unpacked into the user's cache at the first start, without a network.

A box is a folder with the GGUF file, the small files of the prepared model as they are, and `box.json`, which says where in the GGUF file
each tensor of `model.safetensors` lies and how its rows are ordered. `pack` writes it when a bundle is built, from the prepared model, and
checks that unpacking gives that model back to the bit; `unpack` needs numpy alone and takes about two seconds, where reading the GGUF file
for what it is takes fifteen. Block formats: ggml's Q8_0 and Q4_1.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.catalog import manifest
from engine.catalog.folders import Cancelled, Progress, never, stop_if, told
from engine.types import ModelError, Sentence

RECIPE = "box.json"
WEIGHTS = "model.safetensors"
PLACE = "starter"  # inside a bundle
RECORDINGS = "recordings"  # inside a box
BLOCK = 32  # weights a block, in both formats
BYTES = {"F32": 4 * BLOCK, "Q8_0": 2 + BLOCK, "Q4_1": 4 + BLOCK // 2}  # a block


def bundled() -> Path | None:
    """The box that came with this program; None in a checkout."""
    inside = getattr(sys, "_MEIPASS", None)
    box = Path(inside) / PLACE if inside else None
    return box if box is not None and (box / RECIPE).is_file() else None


def unpack(box: Path, folder: Path, progress: Progress, cancelled: Cancelled = never) -> None:
    """Make the prepared model in the empty `folder`, manifest included.

    Raises:
        ModelError: "damaged_bundle", "disk_full", "no_permission", "cancelled".
    """
    try:
        recipe = json.loads((box / RECIPE).read_text(encoding="utf-8"))
        with told("write to", folder):
            for name in recipe["files"]:
                shutil.copyfile(box / name, folder / name)
            digest = _write_weights(box / recipe["weights"], recipe, folder / WEIGHTS, progress, cancelled)
        if digest != recipe["sha256"]:
            raise ValueError(f"the weights have the SHA-256 {digest[:16]}…, not {recipe['sha256'][:16]}…")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "damaged_bundle", Sentence("The starter model that came with Omnibus is damaged: {0}.", error), "Install Omnibus again."
        ) from error
    manifest.write(folder, {"name": recipe["name"], "source": {"name": recipe["weights"]}}, known={WEIGHTS: digest})


@contextmanager
def open_weights(box: Path) -> Iterator[Callable[[str], Any]]:
    """While open, gives a tensor's numbers by its name, [rows, width] or [width] float32; on any thread.

    Raises OSError, ValueError, KeyError, TypeError.
    """
    recipe = json.loads((box / RECIPE).read_text(encoding="utf-8"))
    shapes = {name: about for name, about in json.loads(recipe["header"]).items() if name != "__metadata__"}
    names = sorted(shapes, key=lambda name: shapes[name]["data_offsets"])
    places = dict(zip(names, recipe["tensors"], strict=True))
    with (box / recipe["weights"]).open("rb") as packed, mmap.mmap(packed.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def numbers(name: str) -> Any:
            offset, size, kind, heads, width = places[name]
            if offset + size > len(data):
                raise ValueError("the file is too short")
            return values(data[offset : offset + size], kind, heads, width).reshape(shapes[name]["shape"])

        yield numbers


def give_recordings(box: Path, folder: Path) -> int:
    """Put the recorded steps that came along where a load looks for them; returns how many. They are named by all that they depend on, so
    those of another version or processor are only passed over; and a load without them is slower and nothing else.
    """
    given = 0
    with suppress(OSError):
        for source in sorted((box / RECORDINGS).glob("*.pt")):
            target = folder / source.name
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, draft := target.with_suffix(f".{os.getpid()}"))
                draft.replace(target)
                given += 1
    return given


def _write_weights(source: Path, recipe: Mapping[str, Any], target: Path, progress: Progress, cancelled: Cancelled) -> str:
    """Write the safetensors file; returns its SHA-256."""
    header = recipe["header"].encode("utf-8")
    digest = hashlib.sha256()
    with source.open("rb") as packed, mmap.mmap(packed.fileno(), 0, access=mmap.ACCESS_READ) as data, target.open("wb") as file:

        def write(piece: Any) -> None:
            file.write(piece)
            digest.update(piece)

        write(struct.pack("<Q", len(header)) + header)
        tensors = recipe["tensors"]
        for number, (offset, size, kind, heads, width) in enumerate(tensors):
            stop_if(cancelled)
            if offset + size > len(data):
                raise ValueError("the file is too short")
            write(values(data[offset : offset + size], kind, heads, width).data.cast("B"))
            if number % 16 == 0:
                progress(number / len(tensors), "unpacking the starter model")
    return digest.hexdigest()


def values(raw: bytes, kind: str, heads: int, width: int) -> Any:
    """A tensor's numbers as float32, in the order in which the model has them.

    Args:
        kind: a key of `BYTES`.
        heads: of a query or key projection, whose rows GGUF keeps in pairs for its rotary embedding; 0 for all other tensors.
        width: of a row.
    """
    import numpy as np

    if kind == "F32":
        return np.frombuffer(raw, "<f4")
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, BYTES[kind])
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    if kind == "Q8_0":
        found = scale * blocks[:, 2:].view(np.int8)
    else:
        least = np.ascontiguousarray(blocks[:, 2:4]).view("<f2").astype(np.float32)
        pairs = blocks[:, 4:]
        found = np.empty((len(blocks), BLOCK), np.float32)
        np.multiply(scale, pairs & 15, out=found[:, : BLOCK // 2])
        np.multiply(scale, pairs >> 4, out=found[:, BLOCK // 2 :])
        found += least
    if heads:
        rows = found.size // width
        found = found.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2)
    return np.ascontiguousarray(found)


# ------------------------------------------------------------------------------------------------- when a bundle is built

_LLAMA = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def pack(prepared: Path, source: Path, box: Path) -> None:
    """Write the box of a prepared Llama-like model and the GGUF file that it was made of into the empty folder `box`, and try it.

    Raises:
        ValueError: unpacking would not give `prepared` back to the bit.
    """
    import gguf

    with (prepared / WEIGHTS).open("rb") as file:
        header = file.read(struct.unpack("<Q", file.read(8))[0]).decode("utf-8")
    config = json.loads((prepared / "config.json").read_text(encoding="utf-8"))
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    there = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    described = {name: about for name, about in json.loads(header).items() if name != "__metadata__"}
    tensors = []
    for name, about in sorted(described.items(), key=lambda item: item[1]["data_offsets"]):
        tensor = there[_gguf_name(name)]
        paired = heads.get(name.split(".")[-2], 0)
        tensors.append((int(tensor.data_offset), int(tensor.n_bytes), tensor.tensor_type.name, paired, about["shape"][-1]))
    small = sorted(path.name for path in prepared.iterdir() if path.is_file() and path.name not in (WEIGHTS, manifest.NAME))
    recipe = {
        "name": prepared.name,
        "weights": source.name,
        "files": small,
        "sha256": manifest.sha256(prepared / WEIGHTS),
        "header": header,
        "tensors": tensors,
    }
    box.mkdir(parents=True, exist_ok=True)
    for path in (source, *(prepared / name for name in small)):
        shutil.copyfile(path, box / path.name)
    (box / RECIPE).write_text(json.dumps(recipe), encoding="utf-8")
    trial = box.with_name(box.name + ".trial")
    trial.mkdir()
    try:
        unpack(box, trial, lambda share, stage: None)
    except ModelError as error:
        raise ValueError(error.message) from error
    finally:
        shutil.rmtree(trial)


def _gguf_name(name: str) -> str:
    """llama.cpp's name of a tensor of transformers' Llama."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_LLAMA[part]}.{kind}"
