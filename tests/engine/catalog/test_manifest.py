"""A folder is whole or its changed files are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.catalog import manifest


def make_folder(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    (place / "weights").write_bytes(bytes(range(256)) * 40)
    (place / "config").write_text("{}")
    manifest.write(place, {"name": "x"})
    return place


def test_a_fresh_folder_is_whole(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    assert manifest.changed(folder) == manifest.changed(folder, thorough=True) == []
    content = manifest.read(folder)
    assert content is not None
    assert content["name"] == "x"
    assert content["files"]["config"]["sha256"] == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("thorough", [False, True])
def test_changes_are_named(tmp_path: Path, thorough: bool) -> None:
    folder = make_folder(tmp_path / "m")
    data = bytearray((folder / "weights").read_bytes())
    data[100] ^= 1
    (folder / "weights").write_bytes(data)
    (folder / "config").unlink()
    assert sorted(manifest.changed(folder, thorough) or []) == ["config", "weights"]


def test_a_flipped_bit_under_the_old_time_is_found_by_a_thorough_look(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    before = (folder / "weights").stat()
    data = bytearray((folder / "weights").read_bytes())
    data[7] ^= 128
    (folder / "weights").write_bytes(data)
    os.utime(folder / "weights", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert manifest.changed(folder) == []
    assert manifest.changed(folder, thorough=True) == ["weights"]


def test_a_copied_folder_is_whole_though_its_times_differ(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    for path in folder.iterdir():
        os.utime(path, ns=(1, 1))
    assert manifest.changed(folder) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 99, "files": {}}', '{"format": 1}'])
def test_without_a_readable_manifest_nothing_is_known(tmp_path: Path, text: str) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / manifest.NAME).write_text(text)
    assert manifest.changed(folder) is None
    assert manifest.changed(tmp_path / "missing") is None


def test_damaged_entries_count_as_changed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / manifest.NAME).write_text('{"format": 1, "files": {"weights": 3, "config": {"size": 2}}}')
    assert sorted(manifest.changed(folder) or []) == ["config", "weights"]
