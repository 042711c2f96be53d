"""Keeps recordings in the cache folder, so that a model that was loaded before need not be recorded again.

Owns the names of the files and how many there are. A name is a hash of everything a recording depends on: versions, our own code, the
model's configuration, the shapes and kernels of its weights, the shape of the cache. Weights are not in the files. A file that cannot be
read or written is no error: the step is recorded again. Safe for several processes: a file appears whole or not at all.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from engine.model.geometry import Geometry
from engine.model.graph import Recording
from engine.model.packed.kernel import Kernel
from engine.version import __version__

log = logging.getLogger(__name__)

KEPT = 60  # files; a model has five, of some hundred kilobytes each


class Shelf:
    """The recordings of one loaded model.

    Args:
        folder: made when something is first put there.
        context: positions the model's rotary embedding was frozen for.
    """

    def __init__(self, folder: Path, model: Any, geometry: Geometry, block_size: int, context: int) -> None:
        self._folder = folder
        described = hashlib.sha256()
        for fact in (*versions(), model.config.to_json_string(), type(model).__name__, geometry, block_size, context, *_makeup(model)):
            described.update(f"{fact}\n".encode())
        self._model = described.hexdigest()

    def get(self, form: object, weights: Mapping[str, Any]) -> Recording | None:
        """What was put for this form, or None."""
        path = self._path(form)
        if not path.exists():
            return None
        try:
            recording = Recording.of_bytes(path.read_bytes(), weights)
            os.utime(path)
            return recording
        except (OSError, RuntimeError, KeyError, ValueError) as fault:
            log.warning("%s is not used: %s", path.name, str(fault).strip().split("\n", 1)[0])
            return None

    def put(self, form: object, recording: Recording) -> None:
        """Keep a recording, if that is possible; the oldest make room."""
        if not recording.portable:
            return
        path = self._path(form)
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(recording.to_bytes())
            draft.replace(path)
            self._clear()
        except (OSError, RuntimeError) as fault:
            log.info("%s could not be kept: %s", path.name, str(fault).strip().split("\n", 1)[0])
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _path(self, form: object) -> Path:
        return self._folder / f"{hashlib.sha256(f'{self._model} {form}'.encode()).hexdigest()[:40]}.pt"

    def _clear(self) -> None:
        for path in sorted(self._folder.glob("*.pt"), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            path.unlink(missing_ok=True)


def _makeup(model: Any) -> list[str]:
    """Names, shapes and dtypes of the weights, and the kernels of those that are packed."""
    packed = [
        f"{path} {module.label} {module.in_features} {module.out_features}"
        for path, module in model.named_modules()
        if isinstance(module, Kernel)
    ]
    plain = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in (*model.named_parameters(), *model.named_buffers())]
    return packed + plain


@functools.cache
def versions() -> tuple[str, ...]:
    """Of all code that makes a recording what it is. Our own sources count by content, since they change without a new version."""
    from importlib import metadata  # transformers' own word would take its import, a second

    sources = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.c", "*.h") for path in Path(__file__).parent.rglob(kind)):
        sources.update(path.read_bytes())
    return __version__, sources.hexdigest(), str(torch.__version__), metadata.version("transformers")
