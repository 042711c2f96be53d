"""The kernels are compiled where that is possible, for the CPU at hand, and missed without harm where it is not."""

from __future__ import annotations

import functools
import sys
import threading
import time
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

NEWER, OLDER = build.KINDS
ALL = {name: True for kind in build.KINDS for name in kind.features}


def source_copy(folder: Path) -> Path:
    """The sources without a library beside them."""
    folder.mkdir()
    for name in (*build.SOURCES, *build.HEADERS):
        (folder / name).write_bytes((build.HERE / name).read_bytes())
    return folder


@pytest.fixture
def on_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(build, "HERE", source_copy(tmp_path / "sources"))
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path / "cache dir")
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def test_without_a_compiler_the_sentence_says_so(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(on_linux))
    with pytest.raises(NoKernels, match="no C compiler"):
        build.find(OLDER)


def test_a_compiler_that_fails_is_told_with_its_first_error(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = on_linux / "bad cc"
    compiler.write_text("#!/bin/sh\necho 'note: hm' >&2\necho 'x.c:1: error: unknown flag' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "_compiler", lambda: [str(compiler)])
    with pytest.raises(NoKernels, match="unknown flag"):
        build.find(OLDER)
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
    made = build.find(OLDER)
    assert made == build.find(OLDER) and made.read_text() == "library"
    assert (on_linux / "calls").read_text() == "x"
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    other = build.find(NEWER)  # who shares a home between two machines keeps both
    assert {path.name for path in made.parent.iterdir()} == {made.name, other.name} and made != other


def test_a_packaged_library_is_taken_as_it_is(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(on_linux))
    for kind in build.KINDS:
        kind.packaged.write_text("made at build time")
    assert [build.find(kind).name for kind in build.KINDS] == ["omnibus-kernels-avx512.so", "omnibus-kernels-avx2.so"]


@pytest.mark.parametrize(
    ("lacks", "asked", "wanted"),
    [
        ((), "", "avx512"),
        ((), "avx2", "avx2"),
        (("avx512_bf16",), "", "avx2"),  # servers before Sapphire Rapids
        (NEWER.features, "", "avx2"),  # Intel's desktops, AMD before Zen 4
        ((*NEWER.features, "fma3"), "", "neither AVX512-BF16 nor AVX2"),
        (NEWER.features, "avx512", "cannot run those for avx512"),
        ((), "none", "OMNIBUS_KERNELS says so"),
        ((), "sse", "not avx512, avx2, none"),
    ],
)
def test_a_cpu_gets_the_best_it_can_run(lacks: tuple[str, ...], asked: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {**ALL, **dict.fromkeys(lacks, False)})
    monkeypatch.setenv("OMNIBUS_KERNELS", asked)
    try:
        found = library.choose().name
    except NoKernels as reason:
        found = str(reason)
        assert wanted in found
    else:
        assert found == wanted


def test_a_cache_that_cannot_be_written_is_a_sentence(on_linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = on_linux / "a file"
    blocker.write_text("")
    monkeypatch.setattr(paths, "cache_dir", lambda: blocker)
    monkeypatch.setattr(build, "_compiler", lambda: ["cc"])
    with pytest.raises(NoKernels, match="could not be compiled"):
        build.find(OLDER)


@pytest.mark.parametrize(("platform", "machine"), [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "aarch64")])
def test_other_systems_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, platform: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(NoKernels, match="Linux on x86-64"):
        build.find(OLDER)


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


def test_whoever_asks_while_it_is_found_out_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes the name of an operation once: who loads a model and who looks whether another one fits may ask at the same time."""
    asked: list[str] = []

    @functools.cache
    def once() -> None:
        asked.append(threading.current_thread().name)
        time.sleep(0.1)  # long enough for the others to come along, were they let in

    monkeypatch.setattr(library, "_fault", once)
    threads = [threading.Thread(target=library.fault, name=f"asks-{number}") for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
