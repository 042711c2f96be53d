"""The thread that reads files: one that a library stumbles over is told of, and those behind it are read all the same."""

from __future__ import annotations

import zlib

from app.chats.attach import read_attachment
from app.composer import reader as module
from app.composer.reader import FileReader


def test_a_file_that_a_library_stumbles_over_stops_no_other(qtbot, no_leftovers, tmp_path, monkeypatch):
    for name in ("strange.pdf", "good.txt"):
        (tmp_path / name).write_text("words")

    def read(path):
        if path.name == "strange.pdf":
            raise zlib.error("invalid block type")
        return read_attachment(path)

    monkeypatch.setattr(module, "read_attachment", read)
    told: list[str] = []
    found: list[str] = []
    reader = FileReader()
    reader.failed.connect(told.append)
    reader.read.connect(lambda attachment: found.append(attachment.name))
    for round_ in (1, 2):
        reader.start([tmp_path / "strange.pdf", tmp_path / "good.txt"])
        qtbot.waitUntil(lambda count=round_: len(found) == count, timeout=30_000)
    assert told == ["strange.pdf cannot be read: error: invalid block type."] * 2
    qtbot.waitUntil(lambda: not reader.busy, timeout=30_000)
    reader.close()
