"""A whole bundle, as a person gets it: installed into an awkward path, started with an empty home and no network, driven, and ended in
every state. Run by packaging/build, which names the bundle (OMNIBUS_BUNDLE) and the installers (OMNIBUS_INSTALLERS).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from omnibus_build import smoke
from PySide6.QtGui import QImage

from app.cli import COMMANDS
from app.self_test import is_blank
from tests.engine.catalog.made_up_hub import MadeUpHub, serving

pytestmark = [pytest.mark.bundle, pytest.mark.timeout(600)]

BUNDLE = Path(os.environ["OMNIBUS_BUNDLE"])
INSTALLERS = [Path(path) for path in os.environ.get("OMNIBUS_INSTALLERS", "").split(os.pathsep) if path]
PICTURES = Path(os.environ.get("OMNIBUS_BUNDLE_PICTURES", ".")).resolve()
LINUX = sys.platform == "linux"
PROGRAM = {"win32": "omnibus-cli.exe", "darwin": "Contents/MacOS/Omnibus"}.get(sys.platform, "omnibus")


def installed_from(installer: Path, place: Path) -> Path:
    """Unpack an installer; the folder of its bundle."""
    if installer.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(installer), str(place)], check=True)
        return place / "opt" / "omnibus"
    if installer.suffix == ".AppImage":
        subprocess.run([str(installer), "--appimage-extract"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        return place / "squashfs-root" / "opt" / "omnibus"
    shutil.unpack_archive(str(installer), str(place))
    return place / BUNDLE.name


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed as a person would have it: from the .deb or the AppImage where there is one."""
    place = tmp_path_factory.mktemp("place") / smoke.AWKWARD
    place.mkdir()
    chosen = next((path for path in INSTALLERS if path.suffix in (".deb", ".AppImage")), None)
    if chosen is not None:
        return installed_from(chosen, place)
    moved = place / BUNDLE.name
    shutil.copytree(BUNDLE, moved, symlinks=True, copy_function=smoke._link)
    return moved


@pytest.fixture(scope="session")
def program(bundle: Path) -> Path:
    return bundle / PROGRAM


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty at first; the model that the first start unpacks serves the later ones."""
    return tmp_path_factory.mktemp("höme")


@pytest.fixture(scope="session")
def screen() -> Iterator[dict[str, str]]:
    """A display, as environment: Xvfb on Linux, so that Qt's real plugin is tried; elsewhere the system's own."""
    if not LINUX:
        yield {}
        return
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x900x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as told:
        number = told.readline().strip()
    assert number, "Xvfb did not start"
    yield {"DISPLAY": f":{number}"}
    server.terminate()
    server.wait(20)


@pytest.fixture(autouse=True)
def nothing_left(program: Path) -> Iterator[None]:
    """Fails a test that leaves a process of the bundle behind."""
    yield
    deadline = time.monotonic() + 5
    while (left := processes_of(program)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        process.kill()
    assert not left, f"left behind: {left}"


def processes_of(program: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["exe"]):
        if process.info["exe"] and Path(process.info["exe"]) == program:
            found.append(process)
    return found


def start(program: Path, home: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    command = [*smoke.no_network(), str(program), *arguments]
    return subprocess.Popen(
        command,
        env=smoke.bare_environment(home, **environ),
        cwd=program.anchor,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(program: Path, home: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    process = start(program, home, *arguments, **environ)
    out, err = process.communicate(timeout=400)
    return process.returncode, out, err


def test_two_tabs_chat_in_the_real_window(bundle: Path, program: Path, home: Path, screen: dict[str, str]) -> None:
    """The very first start: nothing unpacked yet, no network. Nothing is written beside the program."""
    before = {path: path.stat().st_mtime_ns for path in bundle.rglob("*")}
    picture = PICTURES / "window.png"
    picture.unlink(missing_ok=True)
    asks = ("--ask", "Name three things one can see from a bus.", "--ask", "Write two sentences about rain.")
    status, out, err = run(program, home, "window", *asks, "--screenshot", str(picture), "--after", "10", "--size", "1180x760", **screen)
    assert (status, out, err) == (0, "", "")
    assert not is_blank(QImage(str(picture)))
    assert {path: path.stat().st_mtime_ns for path in bundle.rglob("*")} == before
    status, out, err = run(program, home, "--self-test", "--json", "-")
    assert status == 0 and json.loads(out)["ok"], err


def test_the_answers_were_kept(home: Path) -> None:
    """What the two tabs of the first start said is in the database that they left."""
    import apsw

    (database,) = home.rglob("chats.db")
    rows = (
        apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        .execute("select count(*) from messages where role = 'assistant' and text <> ''")
        .fetchall()
    )
    assert rows[0][0] >= 2


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_inside(program: Path, home: Path, command: str) -> None:
    status, out, err = run(program, home, command, "--help")
    assert status == 0 and f"omnibus {command}" in out, err


def test_version_and_doctor(program: Path, home: Path) -> None:
    status, out, _ = run(program, home, "--version")
    assert status == 0 and out.startswith("omnibus ")
    status, out, err = run(program, home, "doctor", "--json")
    report = json.loads(out)
    blocking = [problem for problem in report["problems"] if problem["blocks"]]
    assert not blocking, (blocking, err)
    assert report["torch"]["version"] and report["starter"]["ready"]


@pytest.mark.skipif(not LINUX, reason="the loader's variable is Linux's")
def test_programs_that_we_open_get_the_persons_library_path(bundle: Path, program: Path, home: Path) -> None:
    """PyInstaller's starter puts our folder there, for itself; a browser that is opened from the window must not load our libraries."""
    for given in ({}, {"LD_LIBRARY_PATH": "/opt/of the person"}):
        status, out, err = run(program, home, "doctor", "--json", **given)
        assert status == 0, err
        told = {name: value for name, value in json.loads(out)["environment"].items() if name == "LD_LIBRARY_PATH"}
        assert told == given


@pytest.mark.skipif(not LINUX or shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_it_trusts_whom_the_person_trusts(program: Path, home: Path, tmp_path: Path) -> None:
    """A company's own authority, named by SSL_CERT_FILE: a hub that it vouches for is reached, and without it one sentence says why not."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=hub"]
    subprocess.run(["openssl", "req", "-x509", *made, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub = MadeUpHub()
    hub.repositories["acme/Tiny-GGUF"] = {"Tiny.Q4_K_M.gguf": b"GGUF"}

    def search(**trusted: str) -> subprocess.CompletedProcess[str]:
        surroundings = smoke.bare_environment(home, HF_ENDPOINT=hub.url, **trusted)
        return subprocess.run([str(program), "models", "search", "tiny"], env=surroundings, capture_output=True, text=True, timeout=200)

    with serving(hub, context):
        found, refused = search(SSL_CERT_FILE=str(certificate)), search()
    assert found.returncode == 0 and "acme/Tiny-GGUF" in found.stdout, found.stderr
    assert refused.returncode != 0 and "certificate" in refused.stderr and "Traceback" not in refused.stderr, refused.stderr


@pytest.mark.skipif(not LINUX, reason="elsewhere signals end a program in other ways")
@pytest.mark.parametrize("after_s", [0.6, 3.0, 12.0], ids=["starting", "loading", "answering"])
def test_it_quits_in_every_state(program: Path, home: Path, screen: dict[str, str], after_s: float) -> None:
    process = start(program, home, "window", "--ask", "Tell a very long story about a bus.", **screen)
    time.sleep(after_s)
    children = [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == PROGRAM]
    for target in children or [psutil.Process(process.pid)]:  # unshare stands before the program, or was replaced by it
        target.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM if after_s < 1 else 0), err  # in its first moments nothing catches signals yet


@pytest.mark.skipif(not LINUX, reason="signals, and the places of logs")
def test_a_second_start_shows_the_first_and_a_crash_leaves_its_trace(program: Path, home: Path, screen: dict[str, str]) -> None:
    began = time.time()
    first = start(program, home, "window", **screen)
    wait_until(lambda: any(path.stat().st_mtime >= began for path in home.rglob("crash.log")))  # emptied once the folder is its own
    wait_until(lambda: run(program, home, "window", **screen)[1].startswith("Omnibus is open already"))
    (process,) = processes_of(program)
    process.send_signal(signal.SIGABRT)
    first.communicate(timeout=60)
    (crash,) = home.rglob("crash.log")
    assert "Fatal Python error: Aborted" in crash.read_text()
    again = start(program, home, "window", **screen)
    wait_until(lambda: any("Aborted" in path.read_text() for path in home.rglob("crash-before.log")))
    for process in processes_of(program):
        process.send_signal(signal.SIGTERM)
    again.communicate(timeout=60)


def wait_until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.3)


@pytest.mark.skipif(not LINUX, reason="how it starts helpers elsewhere")
def test_a_helper_of_multiprocessing_is_no_second_window(program: Path, home: Path) -> None:
    """It starts the program again with Python's own options; the program must be that helper then, and end with its pipe."""
    reading, writing = os.pipe()
    os.close(writing)
    helper = f"from multiprocessing.resource_tracker import main;main({reading})"
    done = subprocess.run(
        [str(program), "-B", "-S", "-I", "-c", helper],
        env=smoke.bare_environment(home),
        pass_fds=[reading],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(reading)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not any(path.suffix == ".AppImage" for path in INSTALLERS), reason="no AppImage was made")
def test_the_appimage_from_a_place_with_blanks_and_letters(home: Path, tmp_path: Path) -> None:
    place = tmp_path / smoke.AWKWARD
    place.mkdir()
    image = place / "Omnibus größer.AppImage"
    shutil.copy2(next(path for path in INSTALLERS if path.suffix == ".AppImage"), image)
    program = installed_from(image, place) / PROGRAM
    started = program.parents[2] / "AppRun"
    done = subprocess.run([str(started), "--version"], env=smoke.bare_environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("omnibus "), done.stderr
    assert smoke.self_test(program, home)["ok"]


@pytest.mark.skipif(not any(path.suffix == ".deb" for path in INSTALLERS) or os.geteuid() != 0, reason="needs a .deb, and root's rights")
def test_the_package_goes_as_it_came(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var" / "lib" / "dpkg" / "info").mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var" / "lib" / "dpkg" / name).touch()
    dpkg = ["dpkg", f"--root={root}", "--force-depends", "--log=/dev/null"]
    package = next(path for path in INSTALLERS if path.suffix == ".deb")
    subprocess.run([*dpkg, "-i", str(package)], check=True, capture_output=True)
    there = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    assert {
        "opt/omnibus/omnibus",
        "usr/bin/omnibus",
        "usr/share/applications/omnibus.desktop",
        "usr/share/mime/packages/omnibus.xml",
    } <= there
    subprocess.run([*dpkg, "--purge", "omnibus-chat"], check=True, capture_output=True)
    left = [path for path in root.rglob("*") if not path.is_dir() and "var/lib/dpkg" not in path.as_posix()]
    assert left == []


@pytest.mark.skipif(not LINUX, reason="a shell's way to close streams")
def test_without_standard_streams(program: Path, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    line = 'exec "$0" --self-test --json "$1" <&- >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", line, str(program), str(target)], env=smoke.bare_environment(home), cwd="/", timeout=300, check=False
    )
    assert done.returncode == 0 and json.loads(target.read_text())["ok"]


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="needs the right to mount")
def test_from_a_read_only_place(bundle: Path, program: Path, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    line = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null && exec "$0" --self-test --json "$2"'
    command = ["unshare", "-m", "sh", "-c", line, str(program), str(bundle), str(target)]
    done = subprocess.run(command, env=smoke.bare_environment(home), cwd="/", timeout=300, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(target.read_text())["ok"], done.stderr


def test_safe_mode(program: Path, home: Path, screen: dict[str, str], tmp_path: Path) -> None:
    picture = tmp_path / "safe.png"
    status, _, err = run(program, home, "--safe-mode", "--ask", "Say hello.", "--screenshot", str(picture), "--after", "4", **screen)
    assert status == 0 and not is_blank(QImage(str(picture))), err


def test_a_gguf_file_is_unpacked_by_the_bundle_itself(bundle: Path, program: Path, home: Path, tmp_path: Path) -> None:
    """The way that any other GGUF file goes: transformers' reader, in a process that the program starts of itself."""
    inside = next(bundle.rglob("box.json")).parent
    recipe = json.loads((inside / "box.json").read_text())
    (tmp_path / "out").mkdir()
    with subprocess.Popen(
        [str(program), "--run-module", "engine.model.gguf", str(inside / recipe["weights"]), str(tmp_path / "out"), "starter"],
        env=smoke.bare_environment(home),
        stdin=subprocess.PIPE,  # the process ends when this closes
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode("utf-8", "replace")
    assert process.returncode == 0, said
    assert hashlib.sha256((tmp_path / "out" / "model.safetensors").read_bytes()).hexdigest() == recipe["sha256"]


def able() -> bool:
    """Whether this processor runs our own kernels, so that the build could keep a model for them."""
    flags = Path("/proc/cpuinfo")
    return flags.exists() and {"avx2", "fma", "f16c"} <= set(flags.read_text().split())


def test_what_must_be_inside(bundle: Path) -> None:
    names = {path.name for path in bundle.rglob("*")}
    if LINUX:
        assert {"libqxcb.so", "libqoffscreen.so", "libqsvg.so"} <= names
        assert any(name.startswith("libqwayland") for name in names)
    assert {"Inter-Regular.otf", "JetBrainsMono-Regular.ttf", "omnibus.svg"} <= names
    assert not {"libtriton.so", "libQt6Quick.so.6", "_tkinter.so"} & names
    assert list(bundle.rglob("starter/libraries/transformers-*.json"))  # without it each start reads thousands of files
    if list(bundle.rglob("omnibus-kernels*")) and able():
        assert list(bundle.rglob("starter/ready.model"))  # without it the first start reads and packs the whole model
    papers = next(path for path in bundle.rglob("papers") if path.is_dir())
    for entry in json.loads((papers / "licences.json").read_text(encoding="utf-8")):
        assert all((papers / text).is_file() for text in entry["texts"]), entry["name"]
    assert any(component["name"] == "torch" for component in json.loads((papers / "sbom.cdx.json").read_text())["components"])


def test_every_model_family_of_transformers_is_inside(bundle: Path) -> None:
    """They are imported by name when a model is opened; one that is missing would be a model that cannot be opened."""
    import transformers

    there = {path.name for path in Path(transformers.__file__).parent.joinpath("models").iterdir() if any(path.glob("[a-z]*.py"))}
    inside = next(path for path in bundle.rglob("models") if path.parent.name == "transformers")
    assert there - {path.name for path in inside.iterdir()} == set()
