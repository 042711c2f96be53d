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
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from engine.catalog import boxed, paths, starter
from engine.model.devices import choose_device
from engine.model.kept import box, contents, file
from engine.model.lane import PRECISION, SMALL, few_threads
from engine.model.loading import STARTER, LoadedModel, locate
from engine.model.native import library
from engine.model.runner import TorchRunner
from engine.model.shelf import versions
from engine.opened import Progress
from engine.types import EngineConfig, ModelError

log = logging.getLogger(__name__)

FORMAT = 1
LEAST, MOST = 16 << 20, SMALL  # bytes of packed weights: smaller models are loaded soon enough, larger ones would fill the disk
ROOM = 2 << 30  # bytes of all files together
SPARE = 4 << 30  # bytes that stay free on the disk
OLD_S = 3600.0  # after which a draft is one that nobody writes any more
DELAY_S = 1.0  # from a load to the keeping, so that whoever waits for the model has it first
GRACE_S = 1.0  # for the writing, when the model is let go before it was done
NICE = 5  # by which the writing thread steps back: it gets a third of a core that it shares with a step, and is soon done all the same
BOX_DELAY_S = 4.0  # the same to the unpacking of a model that came in a box, which takes a second or two
USUAL = ["auto", "auto", None, None]  # `_asked` of a model in a box


class Place:
    """Where one model, asked for in one way, is kept.

    Args:
        folder: with the model's own files.
        in_box: the box that came with this program, of a model whose folder is not there yet.
    """

    def __init__(self, folder: Path, name: str, config: EngineConfig, in_box: Path | None = None) -> None:
        self._folder, self._name = folder, name
        self._box = in_box
        self._given: contents.Contents | None = None  # what was taken out of the box
        self._asked = _asked(config)
        self.path = kept_dir() / f"{hashlib.sha256(json.dumps([FORMAT, str(folder), *self._asked]).encode()).hexdigest()[:32]}.model"

    def take(self) -> contents.Kept | None:
        """The model, if it is kept and nothing has changed since; takes some tenths of a second, out of the box one more."""
        began = time.perf_counter()
        path = self.path if self._box is None else box.file_of(self._box)
        try:
            head = file.read_head(path)
            if head.facts["depends"] != (self._depends() if self._box is None else _code_and_processor()):
                log.info("what is kept of %s is out of date", self._name)
                return None
            with ThreadPoolExecutor(1, "omnibus-tokenizer") as aside:
                codec = aside.submit(self._codec, path, head)
                tensors, texts = file.read(path, head) if self._box is None else box.complete(self._box, head)
                given = contents.Contents(head.facts["model"], tensors, texts)
                found = contents.heard(given, codec.result(), self._name, self._folder, self.forget)
            if self._box is None:
                os.utime(path)
            else:
                self._given = given
        except FileNotFoundError:
            return None
        except Exception as fault:  # whatever may be wrong with a file, the model has others
            log.warning("what is kept of %s is not used: %s", self._name, str(fault).strip().split("\n", 1)[0])
            self.forget()
            return None
        log.info("%s was taken as it had been kept in %.2f s", self._name, time.perf_counter() - began)
        return found

    def _codec(self, path: Path, head: file.Head) -> Any:
        """Beside the weights, which take as long."""
        return contents.codec_of(head.facts["model"], file.read_text(path, head, contents.TOKENIZER).decode())

    def forget(self) -> None:
        """The next load goes the long way. What lies in a box stays: it is not ours to change."""
        if self._box is not None:
            _FAILED.add(self._box)
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
        if told is None:
            return None
        depends = self._depends()  # now: whatever changes from here on was not what is kept
        return Keeping(lambda called_off: self._write(told, depends, called_off), DELAY_S, GRACE_S)

    def unpack(self) -> Keeping | None:
        """Of a model that was taken out of the box: begin to make its folder, and to keep it as any other; None for others."""
        given, self._given = self._given, None
        if given is None:
            return None

        def make(called_off: Callable[[], bool]) -> None:
            locate(STARTER, lambda share, stage: None, called_off)
            if _room_for(int(given.facts["loaded"]["weight_bytes"])):
                self._write(given, self._depends(), called_off)

        return Keeping(make, BOX_DELAY_S, 0.0)

    def _write(self, told: contents.Contents, depends: dict[str, Any], called_off: Callable[[], bool]) -> None:
        began = time.perf_counter()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"asked": self._asked, "depends": depends, "model": told.facts}
        file.write(self.path, facts, told.tensors, told.texts, called_off)
        _clear(self.path)
        log.info("%s was kept in %.2f s", self._name, time.perf_counter() - began)

    def _depends(self) -> dict[str, Any]:
        """As it comes out of JSON."""
        files = {}
        for entry in sorted(os.scandir(self._folder), key=lambda entry: entry.name):
            if entry.is_file():
                stat = entry.stat()
                files[entry.name] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
        return {"files": files, **_code_and_processor()}


class Keeping:
    """Writes a model down on a thread of its own, `delay_s` from now, with what time the answers leave over.

    `close` has it written at once, if that takes no longer than `grace_s` (a program that answers one question and ends would else never
    keep anything), and ends the thread.
    """

    def __init__(self, write: Callable[[Callable[[], bool]], None], delay_s: float, grace_s: float) -> None:
        self._write: Callable[[Callable[[], bool]], None] | None = write
        self._over = threading.Event()
        self._delay_s, self._grace_s = delay_s, grace_s
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="omnibus-keep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._deadline = time.monotonic() + self._grace_s
        self._over.set()
        self._thread.join()

    def _called_off(self) -> bool:
        return time.monotonic() >= self._deadline

    def _run(self) -> None:
        write, self._write = self._write, None  # it holds the weights
        assert write is not None
        try:
            self._over.wait(self._delay_s)
            _step_back()
            if not self._called_off():
                write(self._called_off)
        except file.GivenUp:
            pass
        except (OSError, ValueError, ModelError) as fault:
            if not self._over.is_set():
                log.info("the model could not be kept: %s", fault)


def _step_back() -> None:
    """The first question comes just when its model is written: a step that shares a core takes twice as long, as its threads wait for
    each other. Linux alone has a priority for a single thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


_FAILED: set[Path] = set()  # boxes whose model failed in this process


def _asked(config: EngineConfig) -> list[Any]:
    """Of all that can be asked, what makes another model of the same files."""
    return [PRECISION.get(config.dtype), config.kv_class, config.block_size, config.context]


def _code_and_processor() -> dict[str, Any]:
    return {"versions": list(versions()), "processor": [torch.backends.cpu.get_cpu_capability(), library.kind()]}


def kept_dir() -> Path:
    return paths.cache_dir() / "kept"


def place_of(config: EngineConfig, progress: Progress, cancelled: Callable[[], bool]) -> Place | None:
    """Where the configured model is kept, or would be; None for what is never kept. Raises ModelError, as a load would."""
    if config.plain or PRECISION.get(config.dtype, "f32") == "f32" or choose_device(config.device) != "cpu" or library.fault() is not None:
        return None
    in_box = boxed.bundled() if config.model == STARTER and _asked(config) == USUAL else None
    if in_box is not None and in_box not in _FAILED and box.file_of(in_box).is_file() and not starter.ready():
        return Place(starter.folder(), starter.NAME, config, in_box)
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
            if kept.stat().st_mtime - draft.stat().st_mtime > OLD_S:  # by the disk's clock: `kept` was written just now
                draft.unlink(missing_ok=True)
        room = ROOM - kept.stat().st_size
        others = [path for path in kept.parent.glob("*.model") if path != kept]
        for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
            room -= path.stat().st_size
            if room < 0:
                path.unlink(missing_ok=True)
