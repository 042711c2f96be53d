"""Where models are kept, which file is whose, when one is out of date, and how many there are.

A file's name is a hash of the model's folder and of what was asked of the load; in it stands all else that it depends on: the folder's
files by size, times and number, the versions of all code, the processor's kind. Owns the folder `kept` in the cache folder: models of a
medium size only, of which the least used go. Must never be the reason that a load fails.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from engine.catalog import paths
from engine.model.devices import choose_device
from engine.model.kept import contents, file
from engine.model.lane import PRECISION, SMALL, few_threads
from engine.model.loading import LoadedModel, locate
from engine.model.native import library
from engine.model.runner import TorchRunner
from engine.model.shelf import versions
from engine.opened import Progress
from engine.types import EngineConfig

log = logging.getLogger(__name__)

FORMAT = 1
LEAST, MOST = 16 << 20, SMALL  # bytes of packed weights: smaller models are loaded soon enough, larger ones would fill the disk
ROOM = 2 << 30  # bytes of all files together
SPARE = 4 << 30  # bytes that stay free on the disk
OLD_S = 3600.0  # after which a draft is one that nobody writes any more
DELAY_S = 1.0  # from a load to the keeping, so that whoever waits for the model has it first


class Place:
    """Where one model, asked for in one way, is kept.

    Args:
        folder: with the model's own files.
    """

    def __init__(self, folder: Path, name: str, config: EngineConfig) -> None:
        self._folder, self._name = folder, name
        self._asked = [PRECISION.get(config.dtype), config.kv_class, config.block_size, config.context]
        self.path = kept_dir() / f"{hashlib.sha256(json.dumps([FORMAT, str(folder), *self._asked]).encode()).hexdigest()[:32]}.model"

    def take(self) -> contents.Kept | None:
        """The model, if it is kept and nothing has changed since; takes some tenths of a second."""
        began = time.perf_counter()
        try:
            head = file.read_head(self.path)
            if head.facts["depends"] != self._depends():
                log.info("what is kept of %s is out of date", self._name)
                return None
            with ThreadPoolExecutor(1, "omnibus-tokenizer") as aside:
                tokenizer = aside.submit(self._codec, head)
                tensors, texts = file.read(self.path, head)
                found = contents.heard(
                    contents.Contents(head.facts["model"], tensors, texts), tokenizer.result(), self._name, self._folder, self.forget
                )
            os.utime(self.path)
        except FileNotFoundError:
            return None
        except Exception as fault:  # whatever may be wrong with a file, the model has others
            log.warning("what is kept of %s is not used: %s", self._name, str(fault).strip().split("\n", 1)[0])
            self.forget()
            return None
        log.info("%s was taken as it had been kept in %.2f s", self._name, time.perf_counter() - began)
        return found

    def _codec(self, head: file.Head) -> Any:
        """Beside the weights, which take as long."""
        return contents.codec_of(head.facts["model"], file.read_text(self.path, head, contents.TOKENIZER).decode())

    def forget(self) -> None:
        """The next load goes the long way."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def keep(self, loaded: LoadedModel, runner: TorchRunner) -> Keeping | None:
        """Begin to write down a model that was just opened, where it is worth it and there is room."""
        if not LEAST <= loaded.weight_bytes <= MOST or not _room_for(loaded.weight_bytes):
            return None
        try:
            with few_threads(loaded):
                told = contents.told(loaded, runner)
        except Exception as fault:
            log.warning("%s is not kept: %s", self._name, str(fault).strip().split("\n", 1)[0])
            return None
        return Keeping(self.path, {"depends": self._depends(), "model": told.facts}, told) if told is not None else None

    def _depends(self) -> dict[str, Any]:
        """As it comes out of JSON."""
        files = {}
        for entry in sorted(os.scandir(self._folder), key=lambda entry: entry.name):
            if entry.is_file():
                stat = entry.stat()
                files[entry.name] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
        return {"files": files, "versions": list(versions()), "processor": torch.backends.cpu.get_cpu_capability()}


class Keeping:
    """Writes a model down on a thread of its own; `close` ends it, done or not."""

    def __init__(self, path: Path, facts: dict[str, Any], told: contents.Contents, delay_s: float | None = None) -> None:
        self._path, self._facts, self._told = path, facts, told
        self._over = threading.Event()
        self._delay_s = DELAY_S if delay_s is None else delay_s
        self._thread = threading.Thread(target=self._run, name="omnibus-keep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._delay_s):
            return
        began = time.perf_counter()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file.write(self._path, self._facts, self._told.tensors, self._told.texts, self._over.is_set)
            _clear(self._path)
            log.info("the model was kept in %.2f s", time.perf_counter() - began)
        except file.GivenUp:
            pass
        except (OSError, ValueError) as fault:
            log.info("the model could not be kept: %s", fault)
        finally:
            del self._told  # it holds the weights


def kept_dir() -> Path:
    return paths.cache_dir() / "kept"


def place_of(config: EngineConfig, progress: Progress, cancelled: Callable[[], bool]) -> Place | None:
    """Where the configured model is kept, or would be; None for what is never kept. Raises ModelError, as a load would."""
    if config.plain or PRECISION.get(config.dtype, "f32") == "f32" or choose_device(config.device) != "cpu" or library.fault() is not None:
        return None
    return Place(*locate(config.model, progress, cancelled), config)


def _room_for(size: int) -> bool:
    place = paths.cache_dir()
    with suppress(OSError):
        return shutil.disk_usage(place).free >= size + SPARE
    return False


def _clear(kept: Path) -> None:
    """The least used go until the others fit, and drafts of processes that are no more."""
    with suppress(OSError):
        for draft in kept.parent.glob(".*.tmp"):
            if time.time() - draft.stat().st_mtime > OLD_S:
                draft.unlink(missing_ok=True)
        room = ROOM - kept.stat().st_size
        others = [path for path in kept.parent.glob("*.model") if path != kept]
        for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
            room -= path.stat().st_size
            if room < 0:
                path.unlink(missing_ok=True)
