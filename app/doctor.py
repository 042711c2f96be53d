"""`omnibus doctor`: what this machine and this installation have, what they lack, and what to do about it.

Owns the report. Must work when packages are missing or broken, so it imports nothing but the standard library at the top, reads versions
from metadata, and lets a process of its own ask torch for devices. It imports no Qt and shows no chat text.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from app import bundle, guards
from engine.itself import command, frozen, no_console
from engine.version import __version__

# The direct dependencies of pyproject.toml, by the name their metadata has.
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "safetensors",
    "huggingface_hub",
    "httpx2",
    "gguf",
    "numpy",
    "jinja2",
    "llguidance",
    "PySide6-Essentials",
    "qasync",
    "markdown-it-py",
    "ziamath",
    "pypdf",
    "pygments",
    "starlette",
    "uvicorn",
    "h11",
    "keyring",
    "apsw",
    "filelock",
    "platformdirs",
    "psutil",
)
PROBE_TIMEOUT_S = 120.0
# What programs that we start or open are given of the surroundings, and where trust in a server comes from.
HANDED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
LOW_MEMORY = 1.0e9  # bytes; the starter model with its cache takes less than this
LOW_DISK = 1.0e9


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="say what this machine and this installation have, and what they lack")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--bundle", type=Path, metavar="FILE.zip", help="write what a helper needs into one file, without chats")


def run(args: argparse.Namespace) -> int:
    """0 when nothing stands in the way of the engine, else 1."""
    report = examine()
    if args.bundle is not None:
        return write(args.bundle, report)
    print(json.dumps(report, indent=2) if args.json else as_text(report))
    return 1 if any(problem["blocks"] for problem in report["problems"]) else 0


def write(target: Path, report: dict[str, Any]) -> int:
    """The report and the logs into one file. 0, or 1 with a sentence."""
    logs = bundle.log_folder()
    try:
        names = bundle.write_bundle(target, report, as_text(report), logs or Path("/nowhere"))
    except OSError as error:
        print(f"omnibus doctor: {target} could not be written: {error.strerror or error}.", file=sys.stderr)
        return 1
    print(bundle.describe(names, target))
    return 0


# -------------------------------------------------------------------------------------------------------------------- the parts


def examine() -> dict[str, Any]:
    """The whole report. Sizes in bytes; None stands for "could not be found out"."""
    packages = package_versions()
    places = ask_engine("places")
    report: dict[str, Any] = {
        "omnibus": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable, "environment": sys.prefix != sys.base_prefix},
        "platform": {"system": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "packages": packages,
        "torch": ask_engine("torch") if packages["torch"] else None,
        "display": display(),
        "environment": {name: os.environ[name] for name in HANDED_ON if name in os.environ},
        "folders": {name: places.get(name) for name in ("data", "cache")},
        "starter": places.get("starter"),
        "models": ask_engine("models").get("models") if packages["torch"] and packages["transformers"] else None,
        "memory": memory(),
    }
    report["disk"] = disk(report["folders"])
    report["problems"] = problems(report)
    return report


def package_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def ask_engine(what: str) -> dict[str, Any]:
    """The answer of `engine.probe` about "torch" or "places", or {"error": why there is none}."""
    root = str(Path(__file__).resolve().parent.parent)
    try:
        child = subprocess.run(
            [*command("engine.probe"), what],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))},
            timeout=PROBE_TIMEOUT_S,
            creationflags=no_console(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PROBE_TIMEOUT_S:.0f} s; a driver may be stuck"}
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"the process ended with status {child.returncode}"]
        return {"error": lines[-1]}
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def display() -> dict[str, Any]:
    names = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM", "XDG_SESSION_TYPE")
    return {
        "screen": guards.display_problem(sys.platform, os.environ) is None,
        "environment": {name: os.environ[name] for name in names if name in os.environ},
    }


def memory() -> dict[str, int | None]:
    try:
        import psutil
    except ImportError:
        return {"total": None, "available": None}
    now = psutil.virtual_memory()
    return {"total": int(now.total), "available": int(now.available)}


def disk(places: dict[str, str | None]) -> dict[str, int | None]:
    """Free bytes where the data and the cache lie, or would lie once their folders are made."""
    free: dict[str, int | None] = {}
    for name in ("data", "cache"):
        path = Path(places[name] or Path.home())
        while not path.exists() and path != path.parent:
            path = path.parent
        free[name] = shutil.disk_usage(path).free
    return free


def problems(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What to mend, worst first. `blocks` says whether the engine cannot run because of it."""
    found = []

    def add(blocks: bool, message: str, hint: str) -> None:
        found.append({"blocks": blocks, "message": message, "hint": hint})

    again = "Install Omnibus again." if frozen() else ""  # a bundle cannot mend itself
    missing = [name for name, version in report["packages"].items() if version is None]
    if missing:
        add(True, f"Packages are missing: {', '.join(missing)}.", again or "Run ./omnibus, which installs them.")
    for problem in (
        guards.python_problem(sys.version_info[:2]),
        guards.pyside_problem(sys.version_info[:2], report["packages"]["PySide6-Essentials"]),
    ):
        if problem and problem.code != "no_pyside":
            add(True, problem.message, problem.hint)
    torch = report["torch"] or {}
    if "error" in torch:
        add(True, f"torch does not work: {torch['error']}.", again or "Remove the environment (.venv) and run ./omnibus again.")
    if not any(device["kind"] != "cpu" for device in torch.get("devices", [])) and shutil.which("nvidia-smi"):
        why = "; ".join(torch.get("warnings", [])) or "this build of torch has no CUDA, or the driver is too old for it"
        add(False, f"There is an NVIDIA driver, but torch cannot use it: {why}.", "Update the driver, or install another build of torch.")
    if not report["display"]["screen"]:
        add(False, "There is no display, so the window cannot open.", "`omnibus demo` and `omnibus chat` need none.")
    if report["starter"] and not report["starter"]["ready"]:
        add(
            False,
            "The starter model is not there yet, or was changed.",
            "It is unpacked at the next start." if frozen() else "./omnibus fetches it at the next start.",
        )
    available = report["memory"]["available"]
    if available is not None and available < LOW_MEMORY:
        add(False, f"Only {available / 1e9:.1f} GB of memory are free.", "Close something large, or choose a smaller model.")
    if min(free for free in report["disk"].values() if free is not None) < LOW_DISK:
        add(False, "Less than 1 GB of disk is free where Omnibus keeps its data.", "Free some space.")
    return found


# ------------------------------------------------------------------------------------------------------------------------ text


def as_text(report: dict[str, Any]) -> str:
    def gb(size: int | None) -> str:
        return "unknown" if size is None else f"{size / 1e9:.1f} GB"

    python, system, torch, starter = report["python"], report["platform"], report["torch"] or {}, report["starter"]
    rows = [
        ("omnibus", report["omnibus"]),
        ("python", f"{python['version']}  {python['executable']}"),
        ("system", f"{system['system']}, {system['machine']}, {system['cpus']} CPUs"),
        ("memory", f"{gb(report['memory']['available'])} free of {gb(report['memory']['total'])}"),
        ("disk", ", ".join(f"{name} {gb(free)} free" for name, free in report["disk"].items())),
        *((name, value) for name, value in report["environment"].items()),
        ("display", "yes" if report["display"]["screen"] else "none"),
        *((f"{name} in", path or "unknown") for name, path in report["folders"].items()),
        ("starter model", "unknown" if not starter else f"{starter['path']}{'' if starter['ready'] else ' (not there yet)'}"),
        *((name, version or "not installed") for name, version in report["packages"].items()),
    ]
    for model in report["models"] or ():
        rows.append(("model", f"{model['name']}: {model['says']}"))
    for device in torch.get("devices", []):
        memory_text = f", {gb(device['free'])} free of {gb(device['memory'])}" if device["memory"] else ""
        rows.append(("device", f"{device['kind']}: {device['name']}{memory_text}"))
    if "threads" in torch:
        rows.append(("cpu kernels", f"{torch['cpu_capability']}, {torch['threads']} threads"))
    if "own_kernels" in torch:
        rows.append(("own kernels", torch["own_kernels"]))
    lines = [f"{name:<20} {value}" for name, value in rows]
    if not report["problems"]:
        return "\n".join([*lines, "", "Nothing stands in the way."])
    for problem in report["problems"]:
        lines += ["", f"{'PROBLEM' if problem['blocks'] else 'note'}: {problem['message']}", f"  {problem['hint']}"]
    return "\n".join(lines)
