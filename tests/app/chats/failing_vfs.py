"""An SQLite file system that fails on command: the n-th write or sync of the real store, once or for good."""

from __future__ import annotations

import apsw


class FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingVFS, filename, flags) -> None:
        super().__init__("", filename, flags)
        self._vfs = vfs

    def xWrite(self, data, offset):
        self._vfs.count("write")
        return super().xWrite(data, offset)

    def xSync(self, flags):
        self._vfs.count("sync")
        return super().xSync(flags)

    def xTruncate(self, size):
        self._vfs.count("truncate")
        return super().xTruncate(size)


class FailingVFS(apsw.VFS):
    """Counts writes, syncs and truncations; from `fail_at` on they fail, `times` of them (None: for good), with `error`."""

    def __init__(self, name: str) -> None:
        self.fail_at: int | None = None
        self.times: int | None = 1
        self.error: type[apsw.Error] = apsw.FullError
        self.calls = 0
        self.name_used = name
        super().__init__(name, "")

    def xOpen(self, name, flags):
        return FailingFile(self, name, flags)

    def count(self, what: str) -> None:
        self.calls += 1
        if self.fail_at is None or self.calls < self.fail_at:
            return
        if self.times is None or self.calls < self.fail_at + self.times:
            raise self.error(f"{what} {self.calls} fails")
