"""How long a start takes, as a person counts it: from the process's first instant to the painted window, and to a model that is ready.

A process of its own each time, on an empty folder for chats; the program says when it is so far (`--until`).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from engine.itself import frozen, program

STARTS = 3
START_S = 120.0


def start_ms(until: str, model: str = "starter") -> float:
    """Milliseconds until "window" or "model", the median. Raises RuntimeError where the program does not get so far."""
    start_seconds(until, model)  # what is read from the disk at first is in memory then
    return 1000 * statistics.median(start_seconds(until, model) for _ in range(STARTS))


def start_seconds(until: str, model: str) -> float:
    """Of one start."""
    with tempfile.TemporaryDirectory(prefix="omnibus-start-") as folder:
        words = [str(program())] if frozen() else [sys.executable, "-m", "app"]
        words += ["window", "--data", folder, "--until", until, "--model", model]
        begun = time.perf_counter()
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_surroundings()) as process:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            took = time.perf_counter() - begun
            try:
                _, errors = process.communicate(timeout=START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise RuntimeError("the program was started, but did not end") from None
    if said == "no model":
        raise RuntimeError(f"{model} could not be loaded; `omnibus doctor` may say why")
    if said != until:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"the program could not be started: {last}")
    return took


def _surroundings() -> dict[str, str]:
    return {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
