"""An SQLite file system that remembers what was written and what was synced, so that any power cut can be played afterwards.

After a cut, of what was written since a file's last sync any part may be on the disk, in any order, and single writes may be torn. That is
the idea of SQLite's own crash tests (sqlite.org/testing.html). Deletions that were not synced may have happened or not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import apsw

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing done to a file: write (offset, data), truncate (offset is the new size), sync, delete (`data`: b"synced" or b"")."""

    what: str
    name: str
    offset: int = 0
    data: bytes = b""


class PowerFile(apsw.VFSFile):
    def __init__(self, vfs: PowerVFS, filename, flags) -> None:
        super().__init__("", filename, flags)
        path = filename.filename() if isinstance(filename, apsw.URIFilename) else filename
        self._vfs, self._name = vfs, Path(path).name if path else ""

    def xWrite(self, data, offset):
        super().xWrite(data, offset)
        self._vfs.note(Happened("write", self._name, offset, bytes(data)))

    def xTruncate(self, size):
        super().xTruncate(size)
        self._vfs.note(Happened("truncate", self._name, size))

    def xSync(self, flags):
        super().xSync(flags)
        self._vfs.note(Happened("sync", self._name))


class PowerVFS(apsw.VFS):
    """`happened` is everything in its order; whoever knows of something acknowledged notes `len(happened)` with it."""

    def __init__(self, name: str) -> None:
        self.happened: list[Happened] = []
        self.name_used = name
        super().__init__(name, "")

    def note(self, happened: Happened) -> None:
        if happened.name:  # nameless files are SQLite's own scratch
            self.happened.append(happened)

    def xOpen(self, name, flags):
        return PowerFile(self, name, flags)

    def xDelete(self, filename, syncdir):
        super().xDelete(filename, syncdir)
        self.note(Happened("delete", Path(filename).name, data=b"synced" if syncdir else b""))


def after_cut(happened: list[Happened], rnd: random.Random) -> dict[str, bytes]:
    """What may be found on the disk if the power goes right after all that."""
    disk: dict[str, bytearray] = {}
    pending: dict[str, list[Happened]] = {}
    for one in happened:
        if one.what == "sync":
            for old in pending.pop(one.name, ()):
                apply(disk, old)
        elif one.what == "delete" and one.data:
            pending.pop(one.name, None)
            apply(disk, one)
        else:
            pending.setdefault(one.name, []).append(one)
    for waiting in pending.values():
        share = rnd.choice((0.0, 0.3, 0.7, 1.0))
        survivors = [one for one in waiting if rnd.random() < share]
        if rnd.random() < 0.7:
            rnd.shuffle(survivors)
        for one in survivors:
            apply(disk, torn(one, rnd))
    return {name: bytes(data) for name, data in disk.items()}


def torn(one: Happened, rnd: random.Random) -> Happened:
    """Now and then only the first sectors of a write reached the disk."""
    if one.what != "write" or len(one.data) <= SECTOR or rnd.random() < 0.7:
        return one
    return Happened("write", one.name, one.offset, one.data[: SECTOR * rnd.randrange(1, len(one.data) // SECTOR + 1)])


def apply(disk: dict[str, bytearray], one: Happened) -> None:
    if one.what == "delete":
        disk.pop(one.name, None)
        return
    data = disk.setdefault(one.name, bytearray())
    end = one.offset + len(one.data)
    if one.what == "truncate":
        del data[one.offset :]
        data.extend(bytes(max(0, one.offset - len(data))))
    else:
        data.extend(bytes(max(0, end - len(data))))
        data[one.offset : end] = one.data
