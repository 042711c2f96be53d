"""One writer a folder: whoever may change the chats of a folder holds its lock, for as long as the process lives.

The lock is the operating system's: it goes with the process however that ends, so nothing is ever left locked.
"""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from app.private import private_folder
from engine import Sentence

NAME = "omnibus.lock"


class FolderInUse(Exception):
    """Another Omnibus is open on the folder."""


class FolderLock:
    """The lock of a folder, taken when it is made. Raises FolderInUse; OSError where the folder cannot be written at all."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        self._lock = FileLock(folder / NAME, is_singleton=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise FolderInUse(Sentence("Omnibus is open on the chats in {0}.", folder)) from error

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
