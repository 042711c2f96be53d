"""Finds the compiled kernels, or compiles them: a few seconds, once, where there is a C compiler.

One source is compiled for either of two kinds of CPU (`KINDS`); which of them runs is for `library.py` to say. A package brings both beside
this file. From a checkout the one that is needed is compiled into the cache folder, under a name made of the sources and the command, so
that a change is never met by an old library. Must never fail loudly: without kernels the general lane runs.
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
from dataclasses import dataclass
from pathlib import Path

from engine.catalog import paths

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
SOURCES = ("products.c", "sums.c", "attention.c", "draw.c", "program.c")
HEADERS = ("common.h", "sums.h", "stages.h", "avx512.h", "avx2.h")
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-fexceptions", "-fPIC", "-pthread", "-shared", "-fvisibility=hidden"]
PATIENCE = 120.0  # seconds for the compiler


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of CPU that the kernels are compiled for.

    Attributes:
        name: in file names, and in the setting that asks for it.
        features: what the CPU must have, as torch names it.
        options: of the compiler, the same.
    """

    name: str
    features: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def packaged(self) -> Path:
        """Where a package has the library."""
        return HERE / f"omnibus-kernels-{self.name}.so"


# The fastest first. No CPU has AVX512-BF16 without FMA.
KINDS = (
    Kind(
        "avx512",
        ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "avx512_vbmi", "avx512_bf16"),
        ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vbmi", "-mavx512bf16", "-mfma"),
    ),
    Kind("avx2", ("avx2", "fma3", "f16c"), ("-mavx2", "-mfma", "-mf16c")),
)


class NoKernels(Exception):
    """Why there are no kernels here; its text is a sentence for the log and for `omnibus doctor`."""


def find(kind: Kind) -> Path:
    """The library for CPUs of this kind. Raises NoKernels."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoKernels("they are written for Linux on x86-64")
    if kind.packaged.exists():
        return kind.packaged
    compiler = _compiler()
    path = paths.cache_dir() / "kernels" / _name(compiler, kind)
    if not path.exists():
        compile_to(path, kind, compiler)
        _clear(path.parent, {_name(compiler, each) for each in KINDS})
    return path


def compile_to(path: Path, kind: Kind, compiler: list[str] | None = None) -> None:
    """Compile the sources to `path`, which appears whole or not at all. Raises NoKernels."""
    command = [*(compiler or _compiler()), *FLAGS, *kind.options]
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
    log.info("kernels for %s compiled in %.1f s", kind.name, time.perf_counter() - began)


def _compiler() -> list[str]:
    asked = os.environ.get("CC", "").split()
    for command in (asked, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    raise NoKernels("there is no C compiler (cc, gcc or clang) to make them with")


def _name(compiler: list[str], kind: Kind) -> str:
    facts = hashlib.sha256(" ".join([*compiler, *FLAGS, *kind.options]).encode())
    for name in (*HEADERS, *SOURCES):
        facts.update((HERE / name).read_bytes())
    return f"{facts.hexdigest()[:32]}.so"


def _clear(folder: Path, current: set[str]) -> None:
    """Libraries of other sources go; a process that has one open keeps it."""
    for path in folder.glob("*.so"):
        if path.name not in current:
            with suppress(OSError):
                path.unlink()
