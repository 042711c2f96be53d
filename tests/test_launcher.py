"""The launcher: what it decides, and its set-up from end to end against a Python that only pretends to install."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from app.cli import COMMANDS
from engine.version import __version__

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "omnibus"

posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in Python is a script with a shebang")


def load_launcher() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("omnibus_launcher", str(LAUNCHER))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return load_launcher()


# ---------------------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("arguments", "command", "passed_on"),
    [
        ([], "window", []),
        (["--model", "x"], "window", ["--model", "x"]),
        (["demo", "--riders"], "demo", ["demo", "--riders"]),
        (["test"], "test", []),
        (["test", "-k", "demo"], "test", ["-k", "demo"]),
    ],
)
def test_split_arguments(launcher: ModuleType, arguments: list[str], command: str, passed_on: list[str]) -> None:
    assert launcher.split_arguments(arguments) == (command, passed_on)


def test_missing_steps(launcher: ModuleType, tmp_path: Path) -> None:
    wanted = {"runtime": "r1", "dev": "d1", "system": "s1"}
    window, test = launcher.NEEDS["window"], launcher.NEEDS["test"]
    assert launcher.missing_steps(window, {}, wanted) == ["runtime", "system", "starter"]
    assert launcher.missing_steps(test, {}, wanted) == ["runtime", "dev", "system", "starter"]

    done = {"runtime": "r1", "system": "s1", "starter": str(tmp_path)}
    assert launcher.missing_steps(window, done, wanted) == []
    assert launcher.missing_steps(test, done, wanted) == ["dev"]
    assert launcher.missing_steps(window, {**done, "starter": str(tmp_path / "deleted")}, wanted) == ["starter"]
    assert launcher.missing_steps(window, {**done, "starter": ""}, wanted) == ["starter"]
    assert launcher.missing_steps(window, done, {**wanted, "runtime": "r2"}) == ["runtime"]
    assert launcher.missing_steps(launcher.NEEDS["doctor"], {}, wanted) == []


def make_root(folder: Path, runtime: list[str], dev: list[str]) -> str:
    folder.mkdir(exist_ok=True)
    text = f"[project]\ndependencies = {json.dumps(runtime)}\n[project.optional-dependencies]\ndev = {json.dumps(dev)}\n"
    (folder / "pyproject.toml").write_text(text)
    return str(folder)


def test_digests_follow_the_requirements(launcher: ModuleType, tmp_path: Path) -> None:
    first = launcher.wanted_digests(make_root(tmp_path, ["a>=1"], ["t"]))
    assert first == launcher.wanted_digests(make_root(tmp_path, ["a>=1"], ["t"]))
    more_dev = launcher.wanted_digests(make_root(tmp_path, ["a>=1"], ["t", "u"]))
    assert more_dev["runtime"] == first["runtime"] and more_dev["dev"] != first["dev"]
    more_runtime = launcher.wanted_digests(make_root(tmp_path, ["a>=2"], ["t"]))
    assert more_runtime["runtime"] != first["runtime"] and more_runtime["dev"] != first["dev"]
    assert launcher.digest(["ab", "c"]) != launcher.digest(["a", "bc"])


def test_a_damaged_checkout_is_named(launcher: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(launcher.SetupError, match="pyproject.toml"):
        launcher.read_requirements(str(tmp_path))


def test_the_requirements_are_the_projects(launcher: ModuleType) -> None:
    requirements = launcher.read_requirements(str(ROOT))
    assert any(entry.startswith("transformers>=") for entry in requirements["runtime"])
    assert "pytest" in {entry.partition(">")[0] for entry in requirements["dev"]}


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, True),
        ("linux", {"DISPLAY": ""}, True),
        ("linux", {"DISPLAY": ":1"}, False),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, False),
        ("linux", {"QT_QPA_PLATFORM": "offscreen"}, False),
        ("darwin", {}, False),
        ("win32", {}, False),
    ],
)
def test_no_display(launcher: ModuleType, platform: str, environ: dict[str, str], expected: bool) -> None:
    assert launcher.no_display(platform, environ) is expected


def test_torch_is_small_where_cuda_is_of_no_use(launcher: ModuleType) -> None:
    plain = [f"torch=={launcher.TORCH}"]
    assert launcher.torch_attempts("linux", nvidia=True) == [plain]
    assert launcher.torch_attempts("darwin", nvidia=False) == [plain]
    assert launcher.torch_attempts("win32", nvidia=True) == [plain]
    attempts = launcher.torch_attempts("linux", nvidia=False)
    assert attempts[0] == [f"torch=={launcher.TORCH}+cpu"] and launcher.CPU_INDEX in attempts[1] and attempts[-1] == plain


def test_only_a_missing_build_leads_to_the_next_attempt(launcher: ModuleType) -> None:
    assert [launcher.try_next_attempt(0, why) for why in ("nothing", "network", "disk", "other")] == [True, False, False, False]
    assert [launcher.try_next_attempt(1, why) for why in ("nothing", "network", "disk", "other")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk"),
        ("WARNING: Retrying (Retry(total=4)) … NewConnectionError(…)\nERROR: No matching distribution found for torch", "network"),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='x', port=443): Read timed out.", "network"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "nothing"),
        ("ERROR: Cannot install torch==2.13.0+cpu because these package versions have conflicting dependencies.", "nothing"),
        ("ERROR: Cannot install a and b because these package versions have conflicting dependencies.", "other"),
    ],
)
def test_why_pip_failed(launcher: ModuleType, text: str, why: str) -> None:
    assert launcher.why_pip_failed(text) == why


def test_missing_packages(launcher: ModuleType) -> None:
    line = "\t{} (libc6,x86-64) => /lib/x86_64-linux-gnu/{}"
    everything = [line.format(name, name) for name in launcher.QT_LIBRARIES]
    assert launcher.missing_packages("\n".join(["900 libs found in cache", *everything])) == []
    without = [entry for entry in everything if "libEGL.so.1" not in entry and "libxcb-cursor" not in entry]
    assert launcher.missing_packages("\n".join(without)) == ["libegl1", "libxcb-cursor0"]


def test_the_progress_line_says_what_pip_does(launcher: ModuleType) -> None:
    text = "Collecting torch==2.13.0 (from x)\n  Downloading torch-2.13.0-cp311.whl (197.2 MB)\nsomething else\n"
    assert launcher.latest_line(text) == "Downloading torch-2.13.0-cp311.whl (197.2 MB)"
    assert launcher.latest_line(text + "Installing collected packages: a, b, c\n") == "Installing collected packages"
    assert launcher.latest_line("") == ""
    assert launcher.last_lines("a\n\nb\nc", count=2) == "    b\n    c"


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ("chat", "runtime starter"),
        ("chat chat --prompt hello", "runtime starter"),
        ("chat chat --remote http://127.0.0.1:8000/v1 --key k", "runtime"),
        ("chat chat --remote=http://127.0.0.1:8000/v1", "runtime"),
        ("chat chat --model starter", "runtime starter"),
        ("serve serve --model /models/x --port 1", "runtime"),
        ("window window --model=/models/x", "runtime system"),
        ("bench bench scheduler", "runtime starter"),
        ("bench bench dashboard --json x", "runtime system starter"),
        ("demo demo --model x", "runtime starter"),
    ],
)
def test_a_start_needs_the_starter_model_unless_another_is_named(launcher: ModuleType, words: str, needs: str) -> None:
    command, *arguments = words.split()
    assert launcher.needs_of(command, arguments) == tuple(needs.split())


def test_all_tests_run_on_all_cores_and_chosen_ones_as_they_were_asked_for(launcher: ModuleType) -> None:
    assert launcher.everything(2) == ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    assert launcher.everything(1) == []
    assert launcher.everything(64)[1] == "4"


def test_where_the_environment_lies(launcher: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    assert launcher.choose_places(root, {}).venv == str(tmp_path / ".venv")
    assert launcher.choose_places(root, {"OMNIBUS_VENV": "/x/y"}).venv == os.path.abspath("/x/y")
    monkeypatch.setattr(launcher.os, "access", lambda path, mode: False)
    elsewhere = launcher.choose_places(root, {"HOME": "/h", "XDG_DATA_HOME": "/d", "LOCALAPPDATA": "/d"}).venv
    assert root not in elsewhere and os.path.join("omnibus", "venv-") in elsewhere
    assert elsewhere != launcher.choose_places(root + "2", {"HOME": "/h", "XDG_DATA_HOME": "/d", "LOCALAPPDATA": "/d"}).venv


def test_user_data_dir(launcher: ModuleType) -> None:
    assert launcher.user_data_dir("linux", {"HOME": "/h"}) == os.path.join("/h", ".local", "share")
    assert launcher.user_data_dir("linux", {"HOME": "/h", "XDG_DATA_HOME": "/d"}) == "/d"
    assert launcher.user_data_dir("darwin", {"HOME": "/h"}) == os.path.join("/h", "Library", "Application Support")
    assert launcher.user_data_dir("win32", {"LOCALAPPDATA": "/l"}) == "/l"


def test_other_pythons_packages_stay_out(launcher: ModuleType) -> None:
    assert launcher.clean_environment({"PYTHONPATH": "/x", "PIP_TARGET": "/y", "PIP_INDEX_URL": "u", "HOME": "/h"}) == {
        "PIP_INDEX_URL": "u",
        "HOME": "/h",
    }


def test_bytecode_is_kept_in_our_environment_where_none_is_to_be_kept_elsewhere(launcher: ModuleType) -> None:
    places = launcher.Places(os.path.join("x", ".venv"))
    inside = os.path.join("x", ".venv", "bytecode")
    assert launcher.own_environment({"PYTHONDONTWRITEBYTECODE": "1", "A": "b"}, places) == {"A": "b", "PYTHONPYCACHEPREFIX": inside}
    assert launcher.own_environment({"A": "b", "PYTHONPATH": "/x"}, places) == {"A": "b"}
    chosen = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/mine"}
    assert launcher.own_environment(chosen, places) == {"PYTHONPYCACHEPREFIX": "/mine"}


def test_both_tables_of_commands_agree(launcher: ModuleType) -> None:
    assert set(launcher.NEEDS) - {"test"} == set(COMMANDS)


def test_the_version_has_one_source(launcher: ModuleType) -> None:
    assert launcher.read_version(str(ROOT)) == __version__


# --------------------------------------------------------------------------------------------------------------- stamp and lock


def make_places(launcher: ModuleType, folder: Path) -> object:
    """Places whose Python exists."""
    places = launcher.Places(str(folder / "venv"))
    os.makedirs(os.path.dirname(places.python))
    Path(places.python).write_text("")
    return places


def test_stamp(launcher: ModuleType, tmp_path: Path) -> None:
    places = make_places(launcher, tmp_path)
    assert launcher.read_stamp(places) == {}
    stamp = {"runtime": "r", "python": os.path.realpath(places.python), "root": launcher.ROOT}
    launcher.write_stamp(places, stamp)
    assert launcher.read_stamp(places) == stamp
    assert os.listdir(places.venv).count("omnibus-stamp.json") == 1 and len(os.listdir(places.venv)) == 2

    launcher.write_stamp(places, {**stamp, "python": "/usr/bin/python3.10"})
    assert launcher.read_stamp(places) == {}, "the system's Python was replaced under the environment"
    launcher.write_stamp(places, {**stamp, "root": "/elsewhere"})
    assert launcher.read_stamp(places) == {}, "the checkout was moved"
    for damaged in ("", "{", "[]", '{"runtime": 1}'):
        Path(places.stamp).write_text(damaged)
        assert launcher.read_stamp(places) == {}

    launcher.write_stamp(places, stamp)
    Path(places.unfinished).touch()
    assert launcher.read_stamp(places) == {}, "packages may be half written"
    os.remove(places.unfinished)
    os.remove(places.python)
    assert launcher.read_stamp(places) == {}


def test_lock_admits_one(launcher: ModuleType, tmp_path: Path) -> None:
    places = launcher.Places(str(tmp_path / "deep" / "venv"))
    with launcher.only_one(places, launcher.Progress(sys.stderr)):
        other = os.open(places.lock, os.O_RDWR)
        assert launcher.try_lock(other) is False
    assert launcher.try_lock(other) is True
    os.close(other)


@posix
def test_an_orphan_keeps_the_lock(launcher: ModuleType, tmp_path: Path) -> None:
    """The launcher is killed while pip works: the next start must wait for that pip."""
    places = launcher.Places(str(tmp_path / "venv"))
    with launcher.only_one(places, launcher.Progress(sys.stderr)) as lock:
        orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    other = os.open(places.lock, os.O_RDWR)
    assert launcher.try_lock(other) is False
    orphan.communicate(b"\n")
    assert launcher.try_lock(other) is True
    os.close(other)


# ------------------------------------------------------------------------------------------------------- set-up, end to end

# A Python that answers like one, installs by writing down what it was asked to, and "becomes" the app by printing its arguments.
STAND_IN = """#!{python}
import json, os, subprocess, sys, time
folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
arguments = sys.argv[1:]
def note(text):
    with open(os.path.join(folder, "..", "calls"), "a") as file:
        file.write(text + "\\n")
starter = os.path.join(folder, "..", "starter")
if "-c" in arguments and "sysconfig" in arguments[-1]:
    os.makedirs(os.path.join(folder, "site"), exist_ok=True)
    print(os.path.join(folder, "site"))
elif "-c" in arguments and "starter" in arguments[-1]:
    print(starter)
elif "-c" in arguments:
    sys.exit(subprocess.call([{python!r}, *arguments]))
elif "pip" in arguments:
    note("pip " + " ".join(argument for argument in arguments[4:] if not argument.startswith("-")))
    time.sleep(float(os.environ.get("TEST_PIP_SLEEPS", "0")))
    print(os.environ.get("TEST_PIP_SAYS", ""))
    status = int(os.environ.get("TEST_PIP_STATUS", "0"))
    if status == 0 and any(argument.startswith("torch==") for argument in arguments):
        os.makedirs(os.path.join(folder, "site", "torch-2.13.0.dist-info"), exist_ok=True)
    sys.exit(status)
elif "engine.catalog.starter" in arguments:
    note("starter")
    if "TEST_NO_STARTER" in os.environ:
        sys.exit("the index cannot be reached")
    os.makedirs(starter, exist_ok=True)
    print("fetching the starter model")
else:
    note("became " + " ".join(arguments))
    print(json.dumps({{"arguments": arguments, "PYTHONPATH": os.environ.get("PYTHONPATH")}}))
"""


class Checkout:
    """One environment folder with a stand-in Python in it, and the launcher to start on it by `python`."""

    def __init__(self, folder: Path, launcher: ModuleType) -> None:
        self.folder = folder
        self.python = sys.executable
        self.places = launcher.Places(str(folder / "venv"))
        self.install_stand_in()

    def install_stand_in(self) -> None:
        python = Path(self.places.python)
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(STAND_IN.format(python=sys.executable))
        python.chmod(0o755)
        Path(self.places.ours).touch()

    def begin(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMNIBUS_VENV": self.places.venv, "PYTHONPATH": "/nowhere", **environ}
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
            environment.pop(name, None)
        command = [self.python, str(LAUNCHER), *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def start(self, *arguments: str, **environ: str) -> tuple[int, str, str]:
        process = self.begin(*arguments, **environ)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, launcher: ModuleType) -> Checkout:
    return Checkout(tmp_path, launcher)


@posix
def test_first_start_sets_up_and_second_start_does_nothing(checkout: Checkout) -> None:
    status, out, err = checkout.start("demo", "--riders")
    assert status == 0, err
    assert json.loads(out) == {"arguments": ["-P", "-m", "app", "demo", "--riders"], "PYTHONPATH": None}
    torch, rest, starter, became = checkout.calls
    assert torch.startswith("pip torch==") and "transformers>=5.24" in rest and "pytest" not in rest and starter == "starter"
    assert (Path(checkout.places.venv) / "site" / "omnibus-checkout.pth").read_text() == f"{ROOT}\n"

    os.remove(checkout.places.lock)
    status, out, err = checkout.start("demo")
    assert (status, err) == (0, "")
    assert checkout.calls[4:] == ["became -P -m app demo"]
    assert not os.path.exists(checkout.places.lock), "nothing to do takes no lock"


@posix
def test_tests_get_the_test_tools_on_top(checkout: Checkout) -> None:
    checkout.start("demo", "--help")
    assert [call.split()[0] for call in checkout.calls] == ["pip", "pip", "became"], "help needs no model"
    status, out, _ = checkout.start("test", "-k", "launcher")
    assert status == 0 and json.loads(out)["arguments"] == ["-P", "-m", "pytest", "-k", "launcher"]
    added = checkout.calls[3:]
    assert [call.split()[0] for call in added] == ["pip", "starter", "became"], "torch is there already"
    assert "pytest>=9" in added[0] and "transformers" in added[0]
    checkout.start("demo")
    assert checkout.calls[6:] == ["became -P -m app demo"]


@posix
def test_a_failed_download_says_what_to_do_and_goes_on_next_time(checkout: Checkout) -> None:
    status, out, err = checkout.start("demo", TEST_PIP_STATUS="1", TEST_PIP_SAYS="NewConnectionError: Network is unreachable")
    assert (status, out) == (1, "") and "Network is unreachable" in err and "Check the network" in err
    assert not os.path.exists(checkout.places.unfinished), "nothing was written, so nothing must be remade"
    marker = Path(checkout.places.venv) / "kept"
    marker.touch()
    assert checkout.start("demo")[0] == 0
    assert marker.exists()


@posix
def test_without_the_starter_model_the_app_starts_all_the_same(checkout: Checkout) -> None:
    status, out, err = checkout.start("demo", TEST_NO_STARTER="1")
    assert status == 0 and json.loads(out) and "the index cannot be reached" in err and "next start tries again" in err
    checkout.start("demo")
    assert [call.split()[0] for call in checkout.calls] == ["pip", "pip", "starter", "became", "starter", "became"]


@posix
def test_half_written_packages_are_never_trusted(checkout: Checkout, launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    full = "Installing collected packages: torch\nERROR: [Errno 28] No space left on device"
    status, _, err = checkout.start("demo", TEST_PIP_STATUS="1", TEST_PIP_SAYS=full)
    assert status == 1 and "Free some space" in err
    assert os.path.exists(checkout.places.unfinished)

    monkeypatch.setattr(launcher.Setup, "create_environment", lambda self: checkout.install_stand_in())
    progress = launcher.Progress(sys.stderr)
    with launcher.only_one(checkout.places, progress) as lock:
        launcher.Setup(checkout.places, progress, lock).run(("runtime",))
    assert not os.path.exists(checkout.places.unfinished)
    assert checkout.start("demo")[0] == 0


@posix
def test_two_starts_at_once_install_once(checkout: Checkout) -> None:
    both = [checkout.begin("demo", TEST_PIP_SLEEPS="0.5") for _ in range(2)]
    for process in both:
        assert process.communicate(timeout=60) and process.returncode == 0
    assert [call.split()[0] for call in checkout.calls] == ["pip", "pip", "starter", "became", "became"]


def test_somebody_elses_folder_is_left_alone(launcher: ModuleType, tmp_path: Path) -> None:
    mine = tmp_path / "venv" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    places, progress = launcher.Places(str(mine.parent)), launcher.Progress(sys.stderr)
    with launcher.only_one(places, progress) as lock, pytest.raises(launcher.SetupError, match="is there, but"):
        launcher.Setup(places, progress, lock).run(("runtime",))
    assert mine.read_text() == "precious"


def test_a_broken_environment_of_ours_is_remade(launcher: ModuleType, tmp_path: Path) -> None:
    """What is left of a set-up that was killed while `venv` ran; with the real `venv`."""
    places, progress = launcher.Places(str(tmp_path / "venv")), launcher.Progress(sys.stderr)
    os.makedirs(places.venv)
    Path(places.ours).touch()
    Path(places.venv, "rubbish").touch()
    with launcher.only_one(places, progress) as lock:
        setup = launcher.Setup(places, progress, lock)
        Path(places.log).touch()
        setup.make_environment()
        assert setup.environment_works() and os.listdir(places.venv).count("rubbish") == 0
    done = subprocess.run(
        [places.python, "-P", "-c", "import engine.version as v; print(v.__file__)"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=launcher.clean_environment(dict(os.environ)),
    )
    assert Path(done.stdout.strip()) == ROOT / "engine" / "version.py", done.stderr


def test_without_a_display_nothing_is_set_up(checkout: Checkout) -> None:
    status, out, err = checkout.start()
    assert (status, out) == (2, "") and "no display" in err and "./omnibus demo" in err
    assert checkout.calls == [] and not os.path.exists(checkout.places.lock)


def test_unknown_command(checkout: Checkout) -> None:
    status, _, err = checkout.start("dmeo")
    assert status == 2 and "'dmeo'" in err and "demo" in err and checkout.calls == []


def test_version_and_help_need_no_set_up(checkout: Checkout) -> None:
    assert checkout.start("--version") == (0, f"omnibus {__version__}\n", "")
    status, out, _ = checkout.start("--help")
    assert status == 0 and "omnibus test" in out and checkout.calls == []


def test_doctor_answers_before_any_set_up(checkout: Checkout) -> None:
    """By the Python that a person has, which has none of the packages."""
    checkout.python = getattr(sys, "_base_executable", sys.executable)
    status, out, err = checkout.start("doctor", "--json")
    assert json.loads(out)["omnibus"] == __version__, err
    assert checkout.calls == [] and status in (0, 1)
