"""Finds the compiled kernels, or compiles them: a few seconds, once, where there is a C compiler.

A package brings them compiled beside this file. From a checkout they are compiled into the cache folder, under a name made of the sources
and the command, so that a change is never met by an old library. Must never fail loudly: without kernels the general lane runs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from engine.catalog import paths

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
SOURCES = ("products.c", "sums.c", "attention.c", "draw.c")
HEADERS = ("common.h", "sums.h")
PACKAGED = HERE / "omnibus-kernels.so"
FEATURES = ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "avx512_vbmi", "avx512_bf16")  # of the CPU, as torch names them
_OPTIONS = [f"-m{name.replace('_', '')}" for name in FEATURES] + ["-mfma"]  # no CPU has the former without the latter
FLAGS = ["-std=c11", "-O3", "-fexceptions", "-fPIC", "-pthread", "-shared", "-fvisibility=hidden", *_OPTIONS]
PATIENCE = 120.0  # seconds for the compiler


class NoKernels(Exception):
    """Why there are no kernels here; its text is a sentence for the log and for `omnibus doctor`."""


def find() -> Path:
    """The compiled library. Raises NoKernels."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoKernels("they are written for Linux on x86-64")
    if PACKAGED.exists():
        return PACKAGED
    compiler = _compiler()
    command = [*compiler, *FLAGS]
    path = paths.cache_dir() / "kernels" / f"{_name(command)}.so"
    if not path.exists():
        compile_to(path, command)
    return path


def compile_to(path: Path, command: list[str] | None = None) -> None:
    """Compile the sources to `path`, which appears whole or not at all. Raises NoKernels."""
    command = command or [*_compiler(), *FLAGS]
    began = time.perf_counter()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="kernels-", dir=path.parent) as folder:
            made = Path(folder) / "made.so"
            done = subprocess.run(
                [*command, "-o", str(made), *(str(HERE / name) for name in SOURCES), "-lm"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
            if done.returncode:
                said = next((line for line in done.stderr.splitlines() if "error" in line), f"exit status {done.returncode}")
                raise NoKernels(f"{command[0]} could not compile them: {said.strip()[:200]}")
            os.replace(made, path)
    except (OSError, subprocess.SubprocessError) as fault:
        raise NoKernels(f"they could not be compiled: {fault}") from fault
    log.info("kernels compiled in %.1f s", time.perf_counter() - began)
    _clear(path)


def _compiler() -> list[str]:
    asked = os.environ.get("CC", "").split()
    for command in (asked, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    raise NoKernels("there is no C compiler (cc, gcc or clang) to make them with")


def _name(command: list[str]) -> str:
    facts = hashlib.sha256(" ".join(command).encode())
    for name in (*HEADERS, *SOURCES):
        facts.update((HERE / name).read_bytes())
    return facts.hexdigest()[:32]


def _clear(kept: Path) -> None:
    """Libraries of other sources go; a process that has one open keeps it."""
    for path in kept.parent.glob("*.so"):
        if path != kept:
            with suppress(OSError):
                path.unlink()
