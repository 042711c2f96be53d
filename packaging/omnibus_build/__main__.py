"""The build, step by step; started by packaging/build, which chooses the Python it runs in.

papers and box → PyInstaller → symbols out → self-test of the moved bundle → installers → bundle tests → paths and sizes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from omnibus_build import bundle, closure, icons, installers, sizes, smoke  # noqa: E402

LOCKS = ROOT / "packaging" / "lock"


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    from engine.version import __version__

    output = args.output.resolve()
    work = (args.work or output / "work").resolve()
    plan = bundle.Plan(ROOT, work, output, args.flavour, __version__)
    for folder in (work, output):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        parts = closure.closure(closure.wanted(ROOT / "pyproject.toml"))
        lock = LOCKS / f"{lock_name(args.flavour)}.txt"
        if args.write_lock:
            write_lock(lock, parts)
            print(lock)
            return 0
        check_lock(lock, parts, args.flavour)
        build(plan, parts, args)
    except (LookupError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"packaging/build: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="packaging/build", description="Build the bundle and the installers of this system.")
    found.add_argument("--flavour", choices=("cpu", "cuda"), default="cpu")
    found.add_argument("--output", type=Path, default=ROOT / "dist", help="where the bundle and the installers go (default: dist)")
    found.add_argument("--work", type=Path, help="for what is in between (default: OUTPUT/work)")
    found.add_argument("--reuse", action="store_true", help="keep the bundle that is there; only try it and make the installers")
    found.add_argument("--no-installers", action="store_true", help="stop at the tried bundle")
    found.add_argument("--no-tests", action="store_true", help="without the tests that install and drive the window")
    found.add_argument("--write-lock", action="store_true", help="write the lock of this environment, and build nothing")
    return found


def lock_name(flavour: str) -> str:
    """One lock a system and flavour."""
    system = {"linux": "linux", "win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    return f"{system}-{flavour}"


def write_lock(path: Path, parts: list[closure.Part]) -> None:
    head = [f"# What goes into the {path.stem} bundle, to the version. Written by: packaging/build --write-lock"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *closure.lock_lines(parts), ""]), encoding="utf-8")


def check_lock(path: Path, parts: list[closure.Part], flavour: str) -> None:
    """Raises LookupError when this environment is not what is locked, or is of the other flavour."""
    versions = {part.key: part.version for part in parts}
    has_cuda = any(name.startswith("nvidia-") for name in versions) or "+cu" in versions.get("torch", "")
    if sys.platform != "darwin" and has_cuda != (flavour == "cuda"):
        raise LookupError(f"this environment's torch {versions.get('torch')} is not of the {flavour} flavour")
    if not path.exists():
        print(f"  there is no lock for {path.stem} yet; write one with --write-lock")
        return
    if wrong := closure.differences(parts, path.read_text(encoding="utf-8")):
        raise LookupError("the environment is not what is locked:\n  " + "\n  ".join(wrong))


def build(plan: bundle.Plan, parts: list[closure.Part], args: argparse.Namespace) -> None:
    if not args.reuse:
        icons.draw(ROOT / "resources" / "icons" / "omnibus.svg", plan.icons)
        with step("the starter model's box"):
            digest = bundle.make_box(plan)
        with step("licences and bill of materials"):
            bare = bundle.make_papers(plan, parts, digest)
            if bare:
                print(f"  without a text of their own: {', '.join(bare)}")
        log = plan.work / "pyinstaller.log"
        with step(f"PyInstaller (log: {log})"):
            bundle.freeze(plan, log)
        with step("symbols out"):
            print(f"  {sizes.words(bundle.strip_symbols(plan.bundle))} less")
        with step("the starter's steps, recorded once for everyone"):
            print(f"  {len(smoke.record_steps(moved_part(plan), plan.program(), plan.work))} recordings")
    with step("self-test of the bundle in an awkward place, offline"):
        result = smoke.try_bundle(moved_part(plan), plan.program(), plan.work / "trial")
        (plan.work / "self-test.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        for name, told in result.items():
            print(
                f"  {name} start: window {told['window_s']:.2f} s, first token {told['first_token_s']:.2f} s, "
                f"two chats {told['two_chats_tok_s']:.1f} tok/s"
            )
    made: list[Path] = []
    if not args.no_installers:
        with step("installers"):
            made = installers.make(plan)
    if not args.no_tests:
        with step("tests that install and drive it"):
            run_tests(plan, made)
    table = sizes.lines(plan.bundle) if plan.bundle.exists() else []
    (plan.work / "sizes.md").write_text("\n".join([*table, ""]), encoding="utf-8")
    print("\n".join(["", *table, ""]))
    for path in [moved_part(plan), *made]:
        print(f"{sizes.words(sizes.bytes_of(path) if path.is_dir() else path.stat().st_size):>10}  {path}")


def moved_part(plan: bundle.Plan) -> Path:
    """What a person moves about: the folder, or the app on a Mac."""
    return plan.output / "Omnibus.app" if sys.platform == "darwin" else plan.bundle


def run_tests(plan: bundle.Plan, made: list[Path]) -> None:
    """tests/packaging, with the bundle. Raises CalledProcessError."""
    environment = {**os.environ, "OMNIBUS_BUNDLE": str(moved_part(plan)), "OMNIBUS_INSTALLERS": os.pathsep.join(map(str, made))}
    environment["OMNIBUS_BUNDLE_PICTURES"] = str(plan.work)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "bundle", "-p", "no:cacheprovider", "tests/packaging"]
    subprocess.run(command, cwd=plan.root, env=environment, check=True)


@contextmanager
def step(words: str) -> Iterator[None]:
    print(f"• {words}", flush=True)
    begun = time.monotonic()
    yield
    print(f"  {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
