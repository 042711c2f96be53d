"""How this program starts a part of itself as another process: with the same Python from a checkout, by its own file when it is a bundle.

Owns the one switch that a bundle's entry understands for that. Standard library only.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SWITCH = "--run-module"
# Nothing else may be started this way.
MODULES = ("engine.model.gguf", "engine.probe")


def frozen() -> bool:
    """Whether this is a bundle made by PyInstaller: no Python that could be asked to run a module, nothing writable beside us."""
    return bool(getattr(sys, "frozen", False))


def command(module: str) -> list[str]:
    """The start of a command line that runs one of `MODULES` as a program; its arguments follow."""
    if module not in MODULES:
        raise ValueError(f"{module} is not made to be run by itself")
    return [str(program()), SWITCH, module] if frozen() else [sys.executable, "-P", "-m", module]


def program() -> Path:
    """The bundle's program for pipes and terminals: on Windows a windowed one has no standard streams, and another stands beside it."""
    windowed = Path(sys.executable)
    console = windowed.with_name("omnibus-cli.exe")
    return console if sys.platform == "win32" and console.exists() else windowed


def no_console() -> int:
    """`creationflags` for a process that works behind the window: without it, Windows flashes a console up."""
    return int(getattr(subprocess, "CREATE_NO_WINDOW", 0))


def run_if_asked(arguments: Sequence[str]) -> bool:
    """In a bundle's entry, before anything else: run the module that `command` asked for. False if this is an ordinary start."""
    if len(arguments) < 3 or arguments[1] != SWITCH or arguments[2] not in MODULES:
        return False
    sys.argv = [arguments[2], *arguments[3:]]
    runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
    return True
