"""Trying the bundle where programs break: in a path with spaces and Unicode, with an empty home, no network, `/` as working folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

AWKWARD = "Öffne mich (neu) 試す"
PATIENCE_S = 420
UNPACK_S = 12.0  # in which the starter model is unpacked behind a first start, so that the next is a later one
LINGER_S = 4.0  # in which a model that was loaded is kept


def no_network() -> list[str]:
    """The start of a command line whose program has no network, where this system can do that; empty where it cannot."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return []
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


def bare_environment(home: Path, **more: str) -> dict[str, str]:
    """What a program started from a desktop may count on, and not more. `more` is added."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP", "TMP", "LANG", "OMP_NUM_THREADS") if name in os.environ}
    places = {"HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home / "local"), "APPDATA": str(home / "roaming")}
    return {"LANG": "C.UTF-8", **kept, **places, **more}


def self_test(program: Path, home: Path, screenshot: Path | None = None, linger: float = 0.0, **environ: str) -> dict[str, Any]:
    """Run the bundle's own test, and wait so many seconds before its end. Raises RuntimeError with what it said when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "self-test.json"
        command = [*no_network(), str(program), "--self-test", "--json", str(target)]
        if screenshot is not None:
            command += ["--screenshot", str(screenshot)]
        if linger:
            command += ["--linger", str(linger)]
        done = subprocess.run(
            command,
            env=bare_environment(home, **environ),
            cwd=Path(program.anchor),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode or not target.exists():
            raise RuntimeError(f"the self-test of {program} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return dict(json.loads(target.read_text(encoding="utf-8")))


def try_bundle(bundle: Path, program: Path, work: Path) -> dict[str, Any]:
    """Both starts of a bundle that lies in an awkward place: the first of all, and a later one. Returns {"first": …, "later": …}."""
    place = work / AWKWARD
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    home = place / "home"
    home.mkdir()
    moved = place / bundle.name
    shutil.copytree(bundle, moved, symlinks=True, copy_function=_link)
    inside = moved / program.relative_to(bundle)
    first = self_test(inside, home, work.parent / "self-test.png", linger=UNPACK_S)
    later = self_test(inside, home)
    return {"first": first, "later": later}


def record_steps(bundle: Path, program: Path, work: Path, most: int = 6) -> list[Path]:
    """Start the bundle until a load has nothing left to record, and put what was recorded into it, with the table of transformers' modules
    and, where this processor runs our own kernels, the model as it is ready to run: the first start of everyone else then reads it.
    Returns the recordings.
    """
    home = work / "recording"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    found: list[Path] = []
    for _ in range(most):
        self_test(program, home, linger=LINGER_S)
        before, found = found, sorted(path for path in home.rglob("recordings/*.pt"))
        if found and len(before) == len(found):
            break
    box = next(bundle.rglob("box.json")).parent
    for name, made in (("recordings", found), ("libraries", sorted(home.rglob("libraries/*.json")))):
        place = box / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for path in made:
            shutil.copyfile(path, place / path.name)
    for kept in home.rglob("kept/*.model"):
        make_ready(kept, box)
    shutil.rmtree(home)
    return found


def make_ready(kept: Path, box: Path) -> None:
    """Put a model that the bundle kept into its box. Raises RuntimeError."""
    from engine.model.kept import place
    from engine.model.kept.box import pack

    try:
        pack(kept, box, place.USUAL)
    except ValueError as fault:
        raise RuntimeError(f"the starter model cannot travel as it is ready to run: {fault}") from fault


def _link(source: str, target: str) -> str:
    """A second name for a file instead of a second copy, where the file system can."""
    try:
        os.link(source, target)
        return target
    except OSError:
        return str(shutil.copy2(source, target))
