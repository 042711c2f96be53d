"""Files and folders that are the person's alone: chats, settings, logs. On POSIX nobody else on the machine may read them.

A folder that was there before keeps its rights (somebody may have chosen them); files in it are made private all the same.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Make a folder, and what is missing above it, for this person alone. Raises OSError."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)
    return folder


def private_file(path: Path) -> None:
    """Have a file of this person alone at `path`: made empty if there is none, taken from others' eyes if there is one.

    Never raises: where rights cannot be set (a foreign file system), the file is as good as its folder.
    """
    with suppress(OSError):
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0), 0o600))
        if os.name == "posix" and path.stat().st_mode & 0o077:
            path.chmod(0o600)
