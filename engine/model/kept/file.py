"""One file of tensors, texts and facts, which appears whole or not at all and is believed only where every hash agrees.

Layout: a mark, the length and SHA-256 of the head, the head (JSON: the facts; of each part its kind, place and SHA-256), then the parts,
each at a multiple of 64 bytes. Knows nothing of models. Reading and hashing go on in several threads, for both let go of Python's lock.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

MARK = b"OMNIKEPT"
ALIGNED = 64
MAX_HEAD = 16 << 20
PIECE = 4 << 20  # bytes written at once, between two looks at whether to go on
READERS = 2
_START = len(MARK) + 8 + 32
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
}
BYTES = "bytes"  # the kind of a part that is no tensor


class Damaged(Exception):
    """The file is not what was written."""


class GivenUp(Exception):
    """Writing was called off."""


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    shape: tuple[int, ...]
    at: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Head:
    """What the file says of itself. `facts`: whatever was given, as JSON has it."""

    facts: dict[str, Any]
    parts: dict[str, Part]
    body: int
    size: int


def write(
    path: Path, facts: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], texts: Mapping[str, bytes], called_off: Callable[[], bool]
) -> None:
    """Write all of it. Raises OSError; ValueError for a tensor of a dtype that is not kept; GivenUp."""
    views: dict[str, memoryview] = {name: memoryview(text) for name, text in texts.items()}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {name: (BYTES, (len(text),)) for name, text in texts.items()}
    for name, tensor in tensors.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _DTYPES:
            raise ValueError(f"{name} is a tensor of {kind}")
        views[name] = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
        kinds[name] = kind, tuple(tensor.shape)
    parts, place = {}, 0
    for name, view in views.items():
        if called_off():
            raise GivenUp
        kind, shape = kinds[name]
        parts[name] = {"kind": kind, "shape": shape, "at": place, "size": len(view), "sha256": hashlib.sha256(view).hexdigest()}
        place += -(-len(view) // ALIGNED) * ALIGNED
    head = json.dumps({"facts": dict(facts), "parts": parts, "size": place}).encode()
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(MARK + len(head).to_bytes(8, "little") + hashlib.sha256(head).digest() + head)
            file.write(bytes(-(_START + len(head)) % ALIGNED))
            for view in views.values():
                for start in range(0, len(view), PIECE):
                    if called_off():
                        raise GivenUp
                    file.write(view[start : start + PIECE])
                file.write(bytes(-len(view) % ALIGNED))
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def read_head(path: Path) -> Head:
    """Raises OSError; Damaged, also for a file that is longer or shorter than it says."""
    with path.open("rb") as file:
        start = file.read(_START)
        length = int.from_bytes(start[8:16], "little")
        if len(start) < _START or start[:8] != MARK or length > MAX_HEAD:
            raise Damaged("it is no such file")
        raw = file.read(length)
        size = os.fstat(file.fileno()).st_size
    if hashlib.sha256(raw).digest() != start[16:]:
        raise Damaged("its head is damaged")
    try:
        content = json.loads(raw)
        parts = {
            name: Part(part["kind"], tuple(part["shape"]), part["at"], part["size"], part["sha256"])
            for name, part in content["parts"].items()
        }
        head = Head(content["facts"], parts, _START + length + -(_START + length) % ALIGNED, content["size"])
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise Damaged("its head is of another kind") from fault
    if size != head.body + head.size:
        raise Damaged(f"{size:,} of {head.body + head.size:,} bytes are there")
    return head


def read_text(path: Path, head: Head, name: str) -> bytes:
    """One text by itself. Raises OSError; Damaged."""
    part = head.parts.get(name)
    if part is None or part.kind != BYTES:
        raise Damaged(f"it has no {name}")
    with path.open("rb") as file:
        file.seek(head.body + part.at)
        text = file.read(part.size)
    if hashlib.sha256(text).hexdigest() != part.sha256:
        raise Damaged(f"its {name} is not what was written")
    return text


def read(path: Path, head: Head) -> tuple[dict[str, torch.Tensor], dict[str, bytes]]:
    """(tensors, texts), every byte checked. The tensors lie side by side in one array, in large pages where the system has them
    (see `native/pages.py`). Raises OSError; Damaged."""
    raw = np.empty(head.size + ALIGNED, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNED
    array = raw[start : start + head.size]

    def fetch(part: Part) -> None:
        if not 0 <= part.at <= part.at + part.size <= head.size:
            raise Damaged("a part lies outside of it")
        view = array[part.at : part.at + part.size].data
        with path.open("rb", buffering=0) as file:
            file.seek(head.body + part.at)
            done = 0
            while done < part.size and (count := file.readinto(view[done:])):
                done += count
        if done < part.size or hashlib.sha256(view).hexdigest() != part.sha256:
            raise Damaged("a part is not what was written")

    largest_first = sorted(head.parts.values(), key=lambda part: -part.size)
    with ThreadPoolExecutor(READERS, "omnibus-read") as pool:
        list(pool.map(fetch, largest_first))
    tensors: dict[str, torch.Tensor] = {}
    texts: dict[str, bytes] = {}
    for name, part in head.parts.items():
        data = array[part.at : part.at + part.size]
        if part.kind == BYTES:
            texts[name] = data.tobytes()
        elif part.kind not in _DTYPES or math.prod(part.shape) * _DTYPES[part.kind].itemsize != part.size:
            raise Damaged(f"{name} has another size than its shape says")
        elif part.size:
            tensors[name] = torch.from_numpy(data).view(_DTYPES[part.kind]).view(part.shape)
        else:
            tensors[name] = torch.empty(part.shape, dtype=_DTYPES[part.kind])
    return tensors, texts
