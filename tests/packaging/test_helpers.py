"""The helpers of the build: what goes in and why, the lock, the papers, the sizes, the installers' texts."""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import platform
import plistlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from omnibus_build import __main__ as build
from omnibus_build import bundle, closure, linux, papers, sizes, smoke, trim

from engine.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
PARTS = closure.closure(closure.wanted(ROOT / "pyproject.toml"))
BUILD = {"omnibus": __version__, "flavour": "cpu", "python": "3.11.7", "system": "linux-x86_64", "commit": "abc"}


def make_plan(folder: Path) -> bundle.Plan:
    return bundle.Plan(ROOT, folder / "work", folder / "out", "cpu", __version__)


# ------------------------------------------------------------------------------------------------------------------ what goes in


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("torch/lib/libtorch_cpu.so", True),
        ("torch/bin/torch_shm_manager", True),
        ("torch/bin/test_jit", False),
        ("torch/test/anything/at/all", False),
        ("torch\\include\\ATen\\ATen.h", False),
        ("torch/testing/_internal/distributed/fake_pg.py", True),
        ("PySide6/Qt/plugins/platforms/libqxcb.so", True),
        ("PySide6/Qt/plugins/platforms/libqwayland.so", True),
        ("PySide6/Qt/plugins/platforms/libqoffscreen.so", True),
        ("PySide6/Qt/plugins/platforms/libqvnc.so", False),
        ("PySide6/Qt/plugins/imageformats/libqsvg.so", True),
        ("PySide6/Qt/plugins/platformthemes/libqgtk3.so", False),
        ("PySide6/Qt/lib/libQt6Quick.so.6", False),
        ("transformers/models/llama/modeling_llama.py", True),
        ("nvidia/cu13/lib/libcublas.so.13", False),
        ("torch-2.13.0.dist-info/METADATA", True),
        ("torch-2.13.0.dist-info/RECORD", False),
    ],
)
def test_what_is_kept(place: str, kept: bool) -> None:
    assert trim.keep(place, "cpu") is kept
    assert (trim.reason(place, "cpu") is None) is kept


def test_the_cuda_flavour_keeps_its_libraries_and_leaves_triton() -> None:
    assert trim.keep("nvidia/cu13/lib/libcublas.so.13", "cuda")
    assert "triton" in trim.excludes("cuda") and "triton" not in trim.excludes("cpu")
    assert all(why for _, why in trim.LEFT_OUT)


def test_every_module_of_ours_is_named() -> None:
    modules = set(trim.modules(ROOT, "app")) | set(trim.modules(ROOT, "engine"))
    assert {"app", "app.cli", "app.window.start", "app.dashboard", "engine.bench.demo", "engine.catalog.boxed"} <= modules
    from app import cli

    assert {command.module for command in cli.COMMANDS.values()} <= modules


def test_what_a_package_reads_comes_along() -> None:
    found = dict(trim.data_of("ziamath"))
    assert any(path.endswith("STIXTwoMath-Regular.ttf") and folder == "ziamath/fonts" for path, folder in found.items())
    total = 0
    for part in PARTS:
        if part.key not in trim.HOOKED:
            places = trim.data_of(part.name)
            assert not [path for path, _ in places if path.endswith((".py", ".so", ".pyc"))]
            total += sum(Path(path).stat().st_size for path, _ in places)
    assert total < 40_000_000, "some package brings a lot of data: has PyInstaller a hook for it?"


# ------------------------------------------------------------------------------------------------------------------ the closure


def test_the_closure_is_what_runs_and_nothing_else() -> None:
    names = {part.key for part in PARTS}
    assert {"torch", "transformers", "pyside6-essentials", "shiboken6", "markupsafe", "sympy"} <= names
    assert not names & {"pytest", "ruff", "mypy", "pyinstaller", "setuptools", "typer"}
    assert [part.key for part in PARTS] == sorted(names)
    torch = next(part for part in PARTS if part.key == "torch")
    assert "sympy" in torch.requires and torch.purl.startswith("pkg:pypi/torch@")
    assert all(part.licence != "unknown" for part in PARTS), [part.name for part in PARTS if part.licence == "unknown"]


def test_what_is_missing_or_too_old_is_named() -> None:
    with pytest.raises(LookupError, match="no-such-thing is not installed"):
        closure.closure(["no-such-thing"])
    with pytest.raises(LookupError, match="numpy .* is installed, .*>=999"):
        closure.closure(["numpy>=999"])
    assert closure.closure(["numpy>=1; python_version < '3'"]) == []


def test_the_lock_tells_every_difference() -> None:
    lock = "\n".join(closure.lock_lines(PARTS))
    assert closure.differences(PARTS, lock) == []
    other = lock.replace("qasync==", "qasync==9") + "\nextra==1\n"
    other = re.sub(r"(?m)^h11==.*\n", "", other)
    said = closure.differences(PARTS, other)
    assert len(said) == 3 and any(line.startswith("qasync ") for line in said) and "h11 is not in the lock" in said
    assert "extra is locked but not needed" in said


def test_an_environment_of_the_other_flavour_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def torch(version: str) -> list[closure.Part]:
        return [closure.Part("torch", version, "", "", ())]

    build.check_lock(tmp_path / "none.txt", torch("2.13.0+cpu"), "cpu")
    assert "no lock" in capsys.readouterr().out
    for version, flavour in (("2.13.0+cpu", "cuda"), ("2.13.0+cu130", "cpu")):
        with pytest.raises(LookupError, match=f"not of the {flavour} flavour"):
            build.check_lock(tmp_path / "none.txt", torch(version), flavour)
    build.write_lock(tmp_path / "l.txt", torch("2.13.0+cpu"))
    build.check_lock(tmp_path / "l.txt", torch("2.13.0+cpu"), "cpu")
    with pytest.raises(LookupError, match="not what is locked"):
        build.check_lock(tmp_path / "l.txt", torch("2.14.0+cpu"), "cpu")


@pytest.mark.parametrize("lock", sorted((PACKAGING / "lock").glob("*.txt")), ids=lambda path: path.stem)
def test_every_line_of_a_lock_is_exact(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)


# ------------------------------------------------------------------------------------------------------------------ the papers


@pytest.fixture(scope="module")
def paper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("papers") / "papers"
    bare = papers.write_papers(folder, ROOT, PARTS, papers.extras(ROOT, "3.11.7", "ab" * 32), BUILD)
    assert len(bare) <= 3, f"more and more parts ship no licence text: {bare}"
    return folder


def test_everything_has_its_licence_text(paper_folder: Path) -> None:
    listed = json.loads((paper_folder / "licences.json").read_text())
    names = [entry["name"] for entry in listed]
    assert names[0] == "Omnibus" and {"torch", "Qt", "Inter", "SmolLM2-135M-Instruct", "Python"} <= set(names)
    for entry in listed:
        assert entry["texts"], entry["name"]
        assert max((paper_folder / text).stat().st_size for text in entry["texts"]) > 100, entry["name"]
    assert any(
        "LESSER" in (paper_folder / text).read_text(errors="replace")
        for entry in listed
        if entry["name"] == "Qt"
        for text in entry["texts"]
    )


def test_a_part_without_a_text_is_told_with_its_authors() -> None:
    words = papers.statement("qasync", "0.28", "BSD-2-Clause", "https://example.org")
    assert words.startswith("qasync 0.28\nCopyright ") and "BSD-2-Clause" in words
    assert "its authors" in papers.statement("no-such-thing", "1", "MIT", "")


def test_the_bill_of_materials_is_whole_and_the_same_each_time(paper_folder: Path) -> None:
    bill = json.loads((paper_folder / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    references = {component["bom-ref"] for component in bill["components"]}
    assert len(references) == len(bill["components"]) == len(PARTS) + 5
    told = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set().union(*told.values()) <= references and set(told[f"omnibus@{__version__}"]) == references
    for component in bill["components"]:
        (licence,) = component["licenses"]
        assert licence.keys() in ({"expression"}, {"license"})
    assert papers.sbom(PARTS, papers.extras(ROOT, "3.11.7", "ab" * 32), BUILD) == bill
    assert str(Path.home()) not in json.dumps(bill)


# ------------------------------------------------------------------------------------------------------------------ sizes, trees, texts


def make_bundle(folder: Path) -> Path:
    made = folder / "out" / "omnibus"
    for place, size in {"omnibus": 900, "internal/torch/lib/a.so": 5000, "internal/starter/m": 300, "internal/xyz": 7}.items():
        (made / place).parent.mkdir(parents=True, exist_ok=True)
        (made / place).write_bytes(b"x" * size)
    (made / "internal" / "link.so").symlink_to("torch/lib/a.so")
    return made


def test_the_table_counts_each_byte_once(tmp_path: Path) -> None:
    made = make_bundle(tmp_path)
    rows = dict(sizes.table(made))
    assert rows["torch"] == 5000 and rows["starter model"] == 300 and rows["everything else"] == 7
    assert sum(rows.values()) == sizes.bytes_of(made) == 6207
    assert sizes.lines(made)[-1] == "| **all** | **6 kB** |" and sizes.words(868_400_000) == "868 MB"


@pytest.mark.skipif(sys.platform != "linux", reason="Debian packages are made on Linux")
def test_a_deb_of_a_made_up_bundle(tmp_path: Path) -> None:
    made = make_bundle(tmp_path)
    (made / "omnibus").write_text('#!/bin/sh\necho started "$@"\n')
    (made / "omnibus").chmod(0o755)
    plan = make_plan(tmp_path)
    plan.icons.mkdir(parents=True)
    for size in linux.SIZES:
        (plan.icons / f"{size}.png").write_bytes(b"png")
    deb = linux.make_deb(plan)
    fields = subprocess.run(["dpkg-deb", "-f", str(deb)], capture_output=True, text=True, check=True).stdout
    assert f"Version: {__version__}" in fields and "Package: omnibus-chat" in fields and "libc6 (>= 2.34)" in fields
    target = tmp_path / "Ein Ort"
    subprocess.run(["dpkg-deb", "-x", str(deb), str(target)], check=True)
    assert os.readlink(target / "usr/bin/omnibus") == "/opt/omnibus/omnibus"
    said = subprocess.run([target / "opt/omnibus/omnibus", "hello"], capture_output=True, text=True, check=True).stdout
    assert said == "started hello\n"
    entry = (target / "usr/share/applications/omnibus.desktop").read_text()
    assert "Exec=omnibus %f" in entry and "@" not in entry
    assert (target / "usr/share/icons/hicolor/scalable/apps/omnibus.svg").stat().st_size > 100
    ElementTree.parse(target / "usr/share/mime/packages/omnibus.xml")
    assert (
        ElementTree.parse(target / "usr/share/metainfo/io.github.omnibus.Omnibus.metainfo.xml").find("releases/release").get("version")
        == __version__
    )


@pytest.mark.skipif(sys.platform != "linux", reason="AppImages are made on Linux")
def test_an_appimage_is_its_runtime_and_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool is stood in for: what counts is what is handed to it and what becomes of its work."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mksquashfs").write_text('#!/bin/sh\ntest -x "$1/AppRun" && printf squash > "$2"\n')
    (tools / "mksquashfs").chmod(0o755)
    (tmp_path / "runtime").write_bytes(a_runtime())
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("APPIMAGE_RUNTIME", str(tmp_path / "runtime"))
    make_bundle(tmp_path)
    plan = make_plan(tmp_path)
    plan.icons.mkdir(parents=True)
    for size in linux.SIZES:
        (plan.icons / f"{size}.png").write_bytes(b"png")
    tried: list[Path] = []
    monkeypatch.setattr(linux, "check_image", tried.append)
    (image,) = linux.make_portable(plan)
    assert image.read_bytes() == a_runtime(mark=b"AI\x02") + b"squash" and os.access(image, os.X_OK) and tried == [image]
    assert (plan.work / "Omnibus.AppDir" / "omnibus.desktop").exists()


def a_runtime(mark: bytes = bytes(3), machine: int | None = None) -> bytes:
    """The head of a program for Linux, as far as anybody looks."""
    machine = {"x86_64": 62, "aarch64": 183}[platform.machine()] if machine is None else machine
    return b"\x7fELF\x02\x01\x01\x03" + mark + bytes(5) + b"\x02\x00" + machine.to_bytes(2, "little") + b"the rest"


@pytest.mark.skipif(sys.platform != "linux", reason="AppImages are made on Linux")
@pytest.mark.parametrize(
    "content, word", [(None, "no file"), (b"#!/bin/sh", "no program"), (b"other", "no program"), (8, "another processor")]
)
def test_what_is_no_runtime_is_said_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | int | None, word: str
) -> None:
    if content is not None:
        (tmp_path / "runtime").write_bytes(a_runtime(machine=content) if isinstance(content, int) else content)
    monkeypatch.setenv("APPIMAGE_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setattr(linux.subprocess, "run", None)
    with pytest.raises(SystemExit, match=f"APPIMAGE_RUNTIME: .*{word}.*README"):
        linux.squash(tmp_path, tmp_path / "x.AppImage")


@pytest.mark.skipif(sys.platform != "linux", reason="AppImages are made on Linux")
@pytest.mark.parametrize("given", [True, False])
def test_what_an_appimage_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: bool
) -> None:
    (tmp_path / "runtime").write_bytes(a_runtime())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("APPIMAGE_RUNTIME", str(tmp_path / "runtime") if given else "")
    assert not linux.squash(tmp_path, tmp_path / "x.AppImage")
    said = capsys.readouterr().out
    assert "plain archive" in said and "squashfs-tools" in said and ("names no runtime" in said) != given


@pytest.mark.skipif(sys.platform != "linux", reason="AppImages are made on Linux")
def test_an_image_that_does_not_unpack_itself_is_not_given_away(tmp_path: Path) -> None:
    image = tmp_path / "x.AppImage"
    image.write_text('#!/bin/sh\ntest "$1 $2" = "--appimage-extract AppRun" && mkdir squashfs-root && : > squashfs-root/AppRun\n')
    image.chmod(0o755)
    linux.check_image(image)
    image.write_text("#!/bin/sh\necho no squashfs here >&2; exit 1\n")
    with pytest.raises(SystemExit, match="no squashfs here"):
        linux.check_image(image)


def test_the_systems_files_agree_with_the_spec() -> None:
    with (PACKAGING / "macos" / "entitlements.plist").open("rb") as file:
        granted = plistlib.load(file)
    assert granted == {
        f"com.apple.security.cs.{name}": True for name in ("allow-jit", "allow-unsigned-executable-memory", "disable-library-validation")
    }
    spec = (PACKAGING / "omnibus.spec").read_text()
    compile(spec, "omnibus.spec", "exec")
    script = (PACKAGING / "windows" / "omnibus.iss").read_text()
    installers = (PACKAGING / "omnibus_build" / "installers.py").read_text()
    for name in set(re.findall(r"\{#(\w+)\}", script)):
        assert f'"{name}": ' in installers, f"{name} is not handed to Inno Setup"
    assert (
        'name="Omnibus" if WINDOWS' in spec
        and "Omnibus.exe" in script
        and 'contents_directory="internal"' in spec
        and r"{app}\internal" in script
    )


def test_a_bare_environment_is_bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("OMNIBUS_HOME", "/somewhere")
    environment = smoke.bare_environment(tmp_path, DISPLAY=":9")
    assert environment["HOME"] == str(tmp_path) and environment["DISPLAY"] == ":9"
    assert not {"PYTHONPATH", "OMNIBUS_HOME", "VIRTUAL_ENV", "XDG_CACHE_HOME"} & environment.keys()


def test_a_failed_self_test_says_what_the_program_said(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="ended with 3:\n\nno such library"):
        smoke.self_test(program, tmp_path)


def test_symbols_come_out_of_libraries_and_the_program_stays(tmp_path: Path) -> None:
    made = make_bundle(tmp_path)
    for place in ("internal/torch/lib/a.so", "internal/numpy.libs/b.so", "omnibus"):
        (made / place).parent.mkdir(parents=True, exist_ok=True)
        (made / place).write_bytes(b"\x7fELF" + b"x" * 50)
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle.sys, "platform", "linux")
        patch.setattr(bundle.shutil, "which", lambda name: name)
        patch.setattr(bundle.subprocess, "run", lambda command, **how: asked.append(command[-1]))
        assert bundle.strip_symbols(made) == 0
    assert asked == [str(made / "internal/torch/lib/a.so")]


def test_what_the_first_loads_made_travels_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = tmp_path / "bundle" / "internal" / "starter"
    box.mkdir(parents=True)
    (box / "box.json").write_text("{}")
    starts: list[Path] = []

    def self_test(program: Path, home: Path, linger: float) -> None:
        assert linger > 0, "the model is kept a moment after it was loaded"
        starts.append(home)
        later = ("recordings/two.pt",) if len(starts) > 1 else ()
        for name in ("recordings/one.pt", *later, "libraries/transformers-5-x.json", "kept/abc.model"):
            (home / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "cache" / name).write_text(name)

    monkeypatch.setattr(smoke, "self_test", self_test)
    monkeypatch.setattr(smoke, "make_ready", lambda kept, place: (place / "ready.model").write_text(kept.read_text()))
    smoke.record_steps(tmp_path / "bundle", tmp_path / "program", tmp_path / "work")
    assert len(starts) == 3  # until nothing more came
    made = {path.relative_to(box).as_posix() for path in box.rglob("*") if path.is_file()}
    assert made == {"box.json", "recordings/one.pt", "recordings/two.pt", "libraries/transformers-5-x.json", "ready.model"}
    assert (box / "ready.model").read_text() == "kept/abc.model"


def test_the_command_line_of_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    args = build.parser().parse_args(["--flavour", "cuda", "--reuse"])
    assert isinstance(args, argparse.Namespace) and args.flavour == "cuda" and args.output == ROOT / "dist"
    with pytest.raises(SystemExit):
        build.parser().parse_args(["--flavour", "metal"])
    assert "cpu" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------------ the script


@pytest.fixture
def script():
    """packaging/build as a module; it has no ending."""
    loader = importlib.machinery.SourceFileLoader("packaging_build", str(PACKAGING / "build"))
    spec = importlib.util.spec_from_loader("packaging_build", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def test_the_python_to_build_with(script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIBUS_VENV", raising=False)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    arguments = ["--python", "/some/python", "--flavour", "cpu"]
    assert script.choose(arguments) == Path("/some/python") and arguments == ["--flavour", "cpu"]
    assert script.choose([]) == Path(sys.executable)
    inside = script.python_in(tmp_path / ".venv")
    inside.parent.mkdir(parents=True)
    inside.write_text("")
    assert script.choose([]) == inside
    with pytest.raises(SystemExit, match="--python needs a value"):
        script.choose(["--python"])


def test_tools_that_are_there_are_not_fetched_again(script, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command, **how):
        asked.append([str(part) for part in command])
        return subprocess.CompletedProcess(command, 0 if len(asked) < 3 else 1)

    monkeypatch.setattr(script.subprocess, "run", run)
    script.see_to_tools("python")
    assert len(asked) == 1 and any(part.startswith("pyinstaller==") for part in asked[0])
    script.see_to_tools("python")
    asked.append([])
    script.see_to_tools("python")
    assert asked[-1][1:4] == ["-m", "pip", "install"] and asked[-1][-1].endswith("tools.txt")
