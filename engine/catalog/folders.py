"""Making a folder in one stroke: one process at a time, in a temporary place, then renamed.

Owns the lock file and the temporary folders beside a target. A kill at any moment leaves either the old state or the new one, and rubbish
that the next run clears. Also turns the operating system's refusals (disk full, no right to write) into sentences for a person.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from engine.types import ModelError, Sentence

Progress = Callable[[float, str], None]
Cancelled = Callable[[], bool]


def never() -> bool:
    """The `cancelled` of a caller that cannot be cancelled."""
    return False


def stop_if(cancelled: Cancelled) -> None:
    """Raise ModelError("cancelled") if the person changed their mind."""
    if cancelled():
        raise ModelError("cancelled", "Loading was cancelled.")


@contextmanager
def locked(target: Path, progress: Progress, cancelled: Cancelled = never) -> Iterator[None]:
    """Hold the lock on `target`, waiting for another process that makes it. A killed process gives its lock up."""
    with told("write to", target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(target.with_name(f".{target.name}.lock")))
        while True:
            try:
                lock.acquire(timeout=0.3)
                break
            except Timeout:
                progress(0.0, "waiting for another Omnibus that is preparing this model")
                stop_if(cancelled)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` when the block ends well, in place of an older one; else it is removed.

    The caller holds the lock on `target`.
    """
    clear_rubbish(target)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with told("write to", target.parent):
        draft.mkdir()
    try:
        yield draft
        with told("write to", target.parent):
            for path in draft.iterdir():
                _to_disk(path)
            if target.exists():
                target.rename(target.with_name(f".{target.name}.{os.getpid()}.old.tmp"))
            draft.rename(target)
    finally:
        clear_rubbish(target)


def clear_rubbish(target: Path) -> None:
    """Remove what earlier runs left beside `target`. The caller holds the lock."""
    for path in target.parent.glob(f".{glob_escape(target.name)}.*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def glob_escape(name: str) -> str:
    """`name` as a pattern that matches itself alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def need_space(folder: Path, needed: int, what: str) -> None:
    """Raise ModelError("disk_full") with both numbers if `folder`'s disk has less than `needed` bytes free."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise ModelError(
            "disk_full",
            Sentence("{0} needs {1}, but the disk with {2} has only {3} free.", what, megabytes(needed), folder, megabytes(free)),
            "Make room on this disk, or set OMNIBUS_HOME to a folder on another one.",
        )


@contextmanager
def told(action: str, place: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a ModelError that says what could not be done where."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                "disk_full",
                Sentence("The disk with {0} is full.", place),
                "Make room on this disk, or set OMNIBUS_HOME to a folder on another one.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ModelError(
                "no_permission",
                Sentence("Omnibus has no right to {0} {1}.", action, place),
                "Change the rights of this folder, or set OMNIBUS_HOME to a folder of your own.",
            ) from error
        raise ModelError(
            "disk_error", Sentence("Omnibus could not {0} {1}: {2}.", action, place, error.strerror or error), "Check the disk."
        ) from error


def megabytes(size: int) -> str:
    """A size as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _to_disk(path: Path) -> None:
    """Wait until a file is on the disk, so that a power cut cannot leave a renamed folder of empty files."""
    with suppress(OSError), path.open("rb+") as file:
        os.fsync(file.fileno())
