"""Reads a GGUF file's header: what model it is, which tensors it has, and whether the file is whole.

Pure Python with bounded reads, run before any library sees the file: a file is foreign data, and nothing in it may make us crash, hang or
use much memory. It never reads tensor data. Layout: the GGUF specification, versions 2 and 3, of the ggml project.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.catalog.folders import told
from engine.model.sniff import what_it_is_instead
from engine.types import ModelError, Sentence

MAX_ENTRIES = 1_000_000  # metadata keys, and tensors; real files have hundreds
MAX_KEPT = 4_096  # longer arrays (vocabularies) are stepped over; their length stands for them
AGAIN = "Download it again."

# Types of metadata values by number: how `struct` reads those of fixed size; strings and arrays carry their length.
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor's place. `shape` is in the file's order, fastest-moving first; `size` and `offset` in bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: str  # ggml's name: "Q4_1"
    offset: int
    size: int

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says about itself. Arrays longer than `MAX_KEPT` are their length in `metadata`."""

    version: int
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    file_size: int

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file that is whole.

    Raises:
        ModelError: "not_gguf", "gguf_version", "truncated" with the bytes there are and the bytes there should be, "damaged_model".
    """
    with told("read", path), path.open("rb") as file:
        size = path.stat().st_size
        if size == 0:
            raise ModelError("truncated", Sentence("{0} is empty.", path.name), AGAIN)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Reader(data, path.name).header()
            except _End as end:
                raise ModelError(
                    "truncated", Sentence("{0} is incomplete: its {1:,} bytes end inside its header.", path.name, size), AGAIN
                ) from end
            except (UnicodeDecodeError, OverflowError) as error:
                raise _damaged(path.name, "a name in its header is not text") from error


class _End(Exception):
    """The file ends where more should come."""


def _damaged(name: str, reason: str) -> ModelError:
    return ModelError("damaged_model", Sentence("{0} is damaged: {1}.", name, reason), AGAIN)


class _Reader:
    def __init__(self, data: mmap.mmap, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def header(self) -> GgufHeader:
        version, tensor_count, metadata_count = self._start()
        metadata: dict[str, Any] = {}
        for _ in range(metadata_count):
            key = self._string()
            metadata[key] = self._value(self._number("<I"))
        if not isinstance(metadata.get("general.architecture"), str):
            raise _damaged(self._name, "it does not say which architecture it has")
        entries = [self._tensor() for _ in range(tensor_count)]
        tensors = self._placed(entries, metadata.get("general.alignment", 32))
        return GgufHeader(version, metadata, tensors, len(self._data))

    def _start(self) -> tuple[int, int, int]:
        magic = self._take(4) if len(self._data) >= 4 else b""
        if magic != b"GGUF":
            instead = what_it_is_instead(self._data[:512])
            raise ModelError("not_gguf", Sentence("{0} is not a GGUF file{1}.", self._name, instead), AGAIN)
        version = self._number("<I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = "for big-endian machines" if swapped in (2, 3) else f"of version {version}; Omnibus reads 2 and 3"
            raise ModelError("gguf_version", Sentence("{0} is a GGUF file {1}.", self._name, kind), "Get the model in a current GGUF file.")
        tensor_count, metadata_count = self._number("<Q"), self._number("<Q")
        if max(tensor_count, metadata_count) > MAX_ENTRIES:
            raise _damaged(self._name, f"its header counts {tensor_count} tensors and {metadata_count} entries")
        return version, tensor_count, metadata_count

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _End
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _string(self) -> str:
        return self._take(self._number("<Q")).decode("utf-8")

    def _skip_string(self) -> None:
        length = self._number("<Q")
        self._at += length
        if self._at > len(self._data):
            raise _End

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self._number(SCALARS[kind])
        if kind == STRING:
            return self._string()
        if kind != ARRAY or depth > 2:
            raise _damaged(self._name, f"its header has a value of the unknown type {kind}")
        element, count = self._number("<I"), self._number("<Q")
        if element in SCALARS:
            raw = self._take(count * struct.calcsize(SCALARS[element])) if count <= len(self._data) else self._end()
            return list(struct.unpack(f"<{count}{SCALARS[element][1]}", raw)) if count <= MAX_KEPT else count
        if count > len(self._data):
            raise _End
        if count <= MAX_KEPT:
            return [self._value(element, depth + 1) for _ in range(count)]
        for _ in range(count):
            if element == STRING:
                self._skip_string()
            else:
                self._value(element, depth + 1)
        return count

    def _end(self) -> bytes:
        raise _End

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._number("<I")
        if not 0 <= dimensions <= 8:
            raise _damaged(self._name, f"the tensor {name[:80]!r} has {dimensions} dimensions")
        shape = tuple(self._number("<Q") for _ in range(dimensions))
        return name, shape, self._number("<I"), self._number("<Q")

    def _placed(self, entries: list[tuple[str, tuple[int, ...], int, int]], alignment: Any) -> tuple[GgufTensor, ...]:
        """The tensors with their sizes and absolute offsets, checked against the end of the file."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise _damaged(self._name, f"its alignment is {alignment!r}")
        base = -(-self._at // alignment) * alignment
        tensors, needed = [], base
        for name, shape, number, offset in entries:
            try:
                kind = GGMLQuantizationType(number)
                block, block_bytes = GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError) as error:
                hint = "Get the model in another quantisation, such as Q4_K_M or Q8_0."
                raise ModelError(
                    "gguf_type", Sentence("{0} uses the tensor type {1}, which Omnibus does not know.", self._name, number), hint
                ) from error
            tensor = GgufTensor(name, shape, kind.name, base + offset, 0)
            if shape and shape[0] % block:
                raise _damaged(self._name, f"the tensor {name[:80]!r} has rows of {shape[0]}, no multiple of {block}")
            size = tensor.elements // block * block_bytes
            needed = max(needed, base + offset + size)
            tensors.append(GgufTensor(name, shape, kind.name, base + offset, size))
        if needed > len(self._data):
            raise ModelError(
                "truncated", Sentence("{0} is incomplete: {1:,} of {2:,} bytes are there.", self._name, len(self._data), needed), AGAIN
            )
        return tuple(tensors)
