"""One contestant in a process of its own, so that its memory, threads and libraries are its own.

The parent runs `python -m engine.bench.contest`, writes one JSON job to its standard input and reads JSON lines: {"progress": words},
then {"ready_s": x}, one {"figures": {...}} a repeat, or {"error": sentence}. Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import IO, Any

from engine.bench.figures import Figures, figures
from engine.bench.peers import PEERS, Setting, warm
from engine.bench.player import Told, play
from engine.bench.workloads import Work
from engine.types import EngineError


class ContestFailed(Exception):
    """A contestant could not take part, or its process ended; the message is a sentence."""


def measure(
    name: str,
    setting: Setting,
    work: Work,
    repeats: int,
    salt: str,
    tell: Callable[[str], None],
    errors: IO[str] | int = subprocess.DEVNULL,
) -> list[Figures]:
    """Run `work` on one engine `repeats` times in a fresh process; fewer when a run is not over in time. Raises ContestFailed.

    Args:
        tell: called with words of progress.
        errors: where its standard error goes.
    """
    job = json.dumps({"engine": name, "setting": asdict(setting), "work": work, "repeats": repeats, "salt": salt})
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.bench.contest"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    done: list[Figures] = []
    try:
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died before it read its job: its status tells
            child.stdin.write(job)
            child.stdin.close()
        for message in _messages(child.stdout):
            if "error" in message:
                raise ContestFailed(message["error"])
            if "progress" in message:
                tell(message["progress"])
            elif "figures" in message:
                done.append({"start_s": message["start_s"], **message["figures"]})
        if not done or child.wait(10) != 0:
            raise ContestFailed(f"its process ended (status {child.wait(10)}) after {len(done)} of {repeats} runs")
        return done
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _messages(stream: IO[str]) -> Iterator[dict[str, Any]]:
    for line in stream:
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ContestFailed(f"its process said something else than figures: {line[:100]!r}") from error


# ----------------------------------------------------------------------------------------------------------------- child


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # stray prints of libraries must not mix with the figures

    def send(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    job = json.load(sys.stdin)
    try:
        _compete(job, send)
    except Exception as error:
        words = error.message if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
        send(error=words)
    out.flush()
    os._exit(0)  # a library's threads must not keep the process


def _compete(job: dict[str, Any], send: Callable[..., None]) -> None:
    begun, told = time.monotonic(), Told()
    send(progress="loads the model")
    contestant = PEERS[job["engine"]].make(Setting(**job["setting"]), told)
    start_s = time.monotonic() - begun
    send(progress="warms up")
    warm(contestant, told)
    for repeat in range(job["repeats"]):

        def progress(ended: int, of: int, repeat: int = repeat) -> None:
            send(progress=f"run {repeat + 1} of {job['repeats']}: {ended} of {of} answered")

        outcomes = play(job["work"], contestant, told, f"{job['salt']}{repeat}", progress)
        send(figures={**figures(job["work"], outcomes), "rss_mib": peak_rss_mib()}, start_s=start_s)
        if not all(outcome.ended for outcome in outcomes):
            break  # what is still being answered would disturb the next run
    contestant.close()


def peak_rss_mib() -> float:
    """The most memory this process has held, in MiB; shared pages count."""
    if os.name == "nt":
        import psutil

        return float(psutil.Process().memory_info().peak_wset) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sys.exit(main())
