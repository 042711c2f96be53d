"""Making folders in one stroke, and the sentences for what the system refuses."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from engine.catalog import paths
from engine.catalog.folders import fresh_folder, glob_escape, locked, megabytes, need_space, told
from engine.types import ModelError


def quiet(share: float, stage: str) -> None:
    pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "model [1]"
    with fresh_folder(target) as draft:
        (draft / "a").write_text("a")
        assert not target.exists()
    assert names(tmp_path) == ["model [1]"]
    assert (target / "a").read_text() == "a"


def test_an_older_folder_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    with fresh_folder(target) as draft:
        (draft / "new").touch()
    assert names(target) == ["new"]
    assert names(tmp_path) == ["model"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(ZeroDivisionError), fresh_folder(target) as draft:
        (draft / "new").touch()
        raise ZeroDivisionError
    assert names(target) == ["old"]
    assert names(tmp_path) == ["model"]


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    target = tmp_path / "m"
    (tmp_path / ".m.123.tmp").mkdir()
    (tmp_path / ".m.123.tmp" / "half").touch()
    (tmp_path / ".m.9.old.tmp").mkdir()
    (tmp_path / ".mx.9.tmp").mkdir()
    with fresh_folder(target):
        pass
    assert names(tmp_path) == [".mx.9.tmp", "m"]


@pytest.mark.parametrize("name", ["a", "*", "[1]", "a?b", "x[!y]*"])
def test_glob_escape_matches_the_name_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "other").touch()
    assert [path.name for path in tmp_path.glob(glob_escape(name))] == [name]


def _append(target: Path, mark: str) -> None:
    with locked(target, quiet):
        for _ in range(20):
            with target.with_suffix(".log").open("a") as log:
                log.write(mark)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(tmp_path / "m", mark)) for mark in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (tmp_path / "m.log").read_text() in ("a" * 20 + "b" * 20, "b" * 20 + "a" * 20)


def test_waiting_says_so_and_can_be_cancelled(tmp_path: Path) -> None:
    said: list[str] = []
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path / "m", quiet):
            held.set()
            release.wait(30)

    holder = threading.Thread(target=hold, name="lock-holder")
    holder.start()
    assert held.wait(30)
    try:
        with (
            pytest.raises(ModelError) as caught,
            locked(tmp_path / "m", lambda share, stage: said.append(stage), lambda: len(said) >= 2),
        ):
            pytest.fail("the lock was free")
    finally:
        release.set()
        holder.join()
    assert caught.value.code == "cancelled"
    assert "another Omnibus" in said[0]


def test_space_is_asked_for_with_both_numbers(tmp_path: Path) -> None:
    need_space(tmp_path / "not" / "yet", 1, "x")
    with pytest.raises(ModelError) as caught:
        need_space(tmp_path / "not" / "yet", 10**18, "The starter model")
    assert caught.value.code == "disk_full"
    assert "1000000000.0 GB" in caught.value.message
    assert "free" in caught.value.message


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EACCES, "no_permission"),
        (errno.EROFS, "no_permission"),
        (errno.EIO, "disk_error"),
    ],
)
def test_refusals_of_the_system(tmp_path: Path, number: int, code: str) -> None:
    with pytest.raises(ModelError) as caught, told("write to", tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == code
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_sizes() -> None:
    assert (megabytes(98_362_432), megabytes(2_500_000_000)) == ("98 MB", "2.5 GB")


def test_paths_follow_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "p o r t"))
    assert paths.data_dir() == tmp_path / "p o r t" / "data"
    assert paths.models_dir().parent == paths.converted_dir().parent == paths.downloads_dir().parent == tmp_path / "p o r t" / "cache"
    monkeypatch.setenv(paths.HOME_VARIABLE, " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert (paths.cache_dir(), paths.data_dir()) == (tmp_path / "c" / "omnibus", tmp_path / "d" / "omnibus")
    assert not (tmp_path / "c").exists()
