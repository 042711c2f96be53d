"""Making the bundle: the starter's box, the papers, PyInstaller, and taking the symbol tables out of what it collected.

Every path comes in; nothing outside the work and output folders is written.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnibus_build import papers
from omnibus_build.closure import Part

NAME = "omnibus"
# Patched after linking (auditwheel), in a way that strip does not survive: the loader then finds their segments misaligned.
UNSTRIPPABLE = ("numpy.libs/", "/numpy.libs/")


@dataclass(frozen=True, slots=True)
class Plan:
    """Where things are and what is wanted. `root`: the checkout; `work`: for what is in between; `output`: for what is made."""

    root: Path
    work: Path
    output: Path
    flavour: str
    version: str

    @property
    def box(self) -> Path:
        return self.work / "starter"

    @property
    def papers(self) -> Path:
        return self.work / "papers"

    @property
    def icons(self) -> Path:
        return self.work / "icons"

    @property
    def bundle(self) -> Path:
        return self.output / NAME

    @property
    def stem(self) -> str:
        """Of what is given to people: name, version, flavour, system, machine."""
        system = {"linux": "linux", "win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
        return f"{NAME}-{self.version}-{self.flavour}-{system}-{platform.machine().lower()}"

    def program(self) -> Path:
        """The program inside the bundle that can be run from a terminal."""
        if sys.platform == "darwin":
            return self.output / "Omnibus.app" / "Contents" / "MacOS" / "Omnibus"
        return self.bundle / ("omnibus-cli.exe" if sys.platform == "win32" else NAME)


def make_box(plan: Plan) -> str:
    """Pack the starter model, fetching and preparing it first if this machine has not. Returns the SHA-256 of its GGUF file."""
    from engine.catalog import boxed, paths, starter

    def tell(share: float, stage: str) -> None:
        print(f"\r  {share:4.0%} {stage:<40}", end="", flush=True)

    prepared = starter.ensure_starter(tell)
    print()
    source = paths.downloads_dir() / starter.GGUF
    if not source.is_file():
        starter._fetch(source, tell, lambda: False)
    shutil.rmtree(plan.box, ignore_errors=True)
    boxed.pack(prepared, source, plan.box)
    return starter.GGUF_SHA256


def make_papers(plan: Plan, parts: list[Part], starter_sha256: str) -> list[str]:
    """Licences, SBOM and build.json. Returns the parts without a text of their own."""
    build: dict[str, Any] = {
        "omnibus": plan.version,
        "flavour": plan.flavour,
        "python": platform.python_version(),
        "system": f"{sys.platform}-{platform.machine()}",
        "commit": commit_of(plan.root),
    }
    others = papers.extras(plan.root, platform.python_version(), starter_sha256)
    return papers.write_papers(plan.papers, plan.root, parts, others, build)


def commit_of(root: Path) -> str:
    """The commit that is built, with a mark if the tree has changes; "unknown" outside git."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def freeze(plan: Plan, log: Path) -> None:
    """Run PyInstaller on the spec. Raises CalledProcessError; what it said is in `log`."""
    environment = {
        **os.environ,
        "OMNIBUS_FLAVOUR": plan.flavour,
        "OMNIBUS_STARTER": str(plan.box),
        "OMNIBUS_PAPERS": str(plan.papers),
        "OMNIBUS_ICONS": str(plan.icons),
        "PYTHONHASHSEED": "1",
    }
    environment.pop("LD_LIBRARY_PATH", None)  # CUDA's libraries of this machine would be taken for torch's
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN"]
    command += ["--distpath", str(plan.output), "--workpath", str(plan.work / "pyinstaller"), str(plan.root / "packaging" / "omnibus.spec")]
    with log.open("wb") as file:
        subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=plan.root, check=True)


def strip_symbols(bundle: Path) -> int:
    """Take symbol tables out of ELF files (Linux only); nobody debugs with them, and torch's alone are 90 MB. Returns the bytes saved."""
    if sys.platform != "linux" or shutil.which("strip") is None:
        return 0
    before = after = 0
    for path in sorted(bundle.rglob("*")):
        place = path.relative_to(bundle).as_posix()
        if path.is_symlink() or not path.is_file() or not is_elf(path) or path.parent == bundle:
            continue  # the program itself carries the archive behind its ELF part
        if any(part in f"/{place}" for part in UNSTRIPPABLE):
            continue
        before += path.stat().st_size
        subprocess.run(["strip", "--strip-unneeded", str(path)], check=False, capture_output=True)
        after += path.stat().st_size
    return before - after


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
