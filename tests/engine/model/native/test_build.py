"""The kernels are compiled where that is possible, and missed without harm where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.catalog import paths
from engine.model.linear import pack_linears
from engine.model.native import build, library
from engine.model.native.build import NoKernels
from engine.model.native.lane import tile_geometry
from engine.model.norms import quicken_norms
from engine.model.probe import probe
from engine.model.verify import check_lane
from tests.engine.model.tiny import make_model


@pytest.fixture
def on_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(build, "PACKAGED", tmp_path / "none.so")
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path / "cache dir")
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def test_without_a_compiler_the_sentence_says_so(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(on_linux))
    with pytest.raises(NoKernels, match="no C compiler"):
        build.find()


def test_a_compiler_that_fails_is_told_with_its_first_error(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = on_linux / "bad cc"
    compiler.write_text("#!/bin/sh\necho 'note: hm' >&2\necho 'x.c:1: error: unknown flag' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "_compiler", lambda: [str(compiler)])
    with pytest.raises(NoKernels, match="unknown flag"):
        build.find()
    assert not list((on_linux / "cache dir").rglob("*.so")), "half a library was left"


def test_a_library_is_made_once_and_an_old_one_goes(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = on_linux / "cc"
    compiler.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\npathlib.Path(sys.argv[sys.argv.index('-o') + 1]).write_text('library')\n"
        f"with open({str(on_linux / 'calls')!r}, 'a') as file: file.write('x')\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "_compiler", lambda: [str(compiler)])
    old = on_linux / "cache dir" / "kernels" / "old.so"
    old.parent.mkdir(parents=True)
    old.write_text("of other sources")
    made = build.find()
    assert made == build.find() and made.read_text() == "library"
    assert (on_linux / "calls").read_text() == "x"
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_a_packaged_library_is_taken_as_it_is(on_linux: Path) -> None:
    build.PACKAGED.write_text("made at build time")
    assert build.find() == build.PACKAGED


def test_a_cache_that_cannot_be_written_is_a_sentence(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = on_linux / "a file"
    blocker.write_text("")
    monkeypatch.setattr(paths, "cache_dir", lambda: blocker)
    monkeypatch.setattr(build, "_compiler", lambda: ["cc"])
    with pytest.raises(NoKernels, match="could not be compiled"):
        build.find()


@pytest.mark.parametrize(("platform", "machine"), [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "aarch64")])
def test_other_systems_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, platform: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(NoKernels, match="Linux on x86-64"):
        build.find()


def test_without_kernels_a_model_is_packed_and_rides_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "fault", lambda: "there is no C compiler")
    monkeypatch.setattr("engine.model.packed.kernels._faults", {})
    model = make_model("llama")
    geometry = probe(model, 64)
    report = pack_linears(model, "16-bit")
    assert not any("native" in label for label in report.kernels)
    assert quicken_norms(model, native=True) > 0
    assert tile_geometry(model, geometry, None) is None
    assert check_lane(model, geometry, report.precision) < 0.1
