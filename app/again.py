"""The program starts itself anew in its own place: what a device needs that is lost to a process. Chats are closed before; tabs come back.

Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def command() -> list[str]:
    """The command line that started this process."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *sys.argv[1:]]
    return [sys.executable, *sys.orig_argv[1:]]


def surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    """A bundle's starter hands its child what it unpacked and whose child it is; the new one must begin at the beginning."""
    return {**environ, "PYINSTALLER_RESET_ENVIRONMENT": "1"} if getattr(sys, "frozen", False) else dict(environ)


def start_again() -> int:
    """Become a new process; every thread of this one, and whatever it holds of a device, ends. Returns only on Windows, where that is
    a child that outlives us."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    words = command()
    if sys.platform == "win32":
        subprocess.Popen(words, env=surroundings(os.environ), close_fds=True)
        return 0
    os.execve(words[0], words, surroundings(os.environ))
