"""What every test shares: no screen, no network, few threads, and none of the person's own folders."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

# Before anything imports Qt, torch or huggingface_hub, all of which read these once.
os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["HF_HUB_OFFLINE"] = "1"
# Numbers and messages of the programs that tests start, whatever this machine's are; in any other kind of locale Qt complains of it.
if sys.platform == "linux":
    os.environ["LC_ALL"] = "C.UTF-8"
# Beside another worker of the same run two threads would wait for each other's cores at every barrier.
# (A worker inherits what the process that starts it has set here.)
os.environ["OMP_NUM_THREADS"] = "1" if "PYTEST_XDIST_WORKER" in os.environ else os.environ.get("OMP_NUM_THREADS", "2")

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, so that a change is judged by what it changed. OMNIBUS_TEST_PROFILE=long draws others each time.
# In neither is anything judged by how long an example took, which says how busy the machine is.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("random"), derandomize=True)
settings.load_profile("random" if os.environ.get("OMNIBUS_TEST_PROFILE") == "long" else "repeatable")

THREADS = int(os.environ["OMP_NUM_THREADS"])

# platformdirs reads these at every call. The cache folder is left alone: it holds the starter model, which is only ever read.
USER_FOLDERS = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh folder that stands for the person's data, settings and logs during one test."""
    home = tmp_path_factory.mktemp("home")
    for name in USER_FOLDERS:
        monkeypatch.setenv(name, str(home / name.lower()))
    yield home


MEMORY = Path("/dev/shm")  # a file system in memory, on Linux


@pytest.fixture
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where there is one with room: stores wait for the disk at every commit, and tests of them did little else.

    Nothing is shown less by it: a killed process leaves to the system what it had written, on any file system; what a power cut leaves is
    played by file systems of our own (tests/app/chats/power_vfs.py), which note every sync.
    """
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 1 << 30
    place = MEMORY if roomy else tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(prefix="omnibus-test-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


# What takes longest goes first, so that no worker is left alone with it at the end. (Workers take files in the order in which they come.)
LONG = (
    "engine/scheduling/test_properties.py",
    "engine/model/test_window_slots.py",
    "e2e/test_engine.py",
    "engine/bench/test_census.py",
    "engine/model/test_equality.py",
    "cases/",
    "engine/catalog/test_starter.py",
    "e2e/",
    "engine/model/",
    "engine/test_answers.py",
    "engine/test_engine_thread.py",
    "test_launcher.py",
    "promises/",
    "security/",
    "app/window/",
    "test_layers.py",
    "test_static.py",
    "app/test_doctor.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        return next((number for number, start in enumerate(LONG) if name.startswith(start)), len(LONG))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def no_threads_of_other_tests() -> None:
    """An engine that an earlier test gave two threads leaves torch at two, and small models wait for the other worker's cores."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(THREADS)


_modules = 0  # that were imported when the heap was last put aside
_MORE = 20  # modules whose objects are worth a look at all of them


@pytest.fixture(scope="session", autouse=True)
def engines_leave_the_heap_alone() -> Iterator[None]:
    """Engines put their models out of the collector's sight, and bring everything back into it when they let one go: that would undo
    `young_objects`. A test of memory asks for the real thing with `real_heap`."""
    from engine import thread

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread, "gc", SimpleNamespace(freeze=lambda: None, unfreeze=lambda: None))
        yield


@pytest.fixture(autouse=True)
def young_objects(engines_leave_the_heap_alone: None) -> None:
    """Puts what is there by now out of the collector's sight.

    A full collection takes half a second among the million objects of torch, transformers and the tests themselves, and there are
    several a test: engines give memory back, and tests look for leftovers. So they look at their own alone. It is done again only when
    much was imported since, because what is put aside is never collected.
    """
    global _modules
    if len(sys.modules) >= _modules + _MORE:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


@pytest.fixture
def real_heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See `engines_leave_the_heap_alone`."""
    global _modules
    from engine import thread

    monkeypatch.setattr(thread, "gc", gc)
    yield
    _modules = 0


@pytest.fixture(scope="session")
def known_cache() -> Path:
    """This machine's own cache folder. Asked before any test moves it."""
    from engine.catalog import paths

    return paths.cache_dir()


@pytest.fixture
def furnish(known_cache: Path) -> Callable[[Path], None]:
    """Puts into a cache folder of the test's own what a new process would otherwise make first: what is known of transformers' three
    thousand files, which takes it five seconds to read, and our kernels, which take another five to compile."""

    from engine.model.structure import FOLDER

    def furnish(cache: Path) -> None:
        for place in (FOLDER, "kernels"):
            (cache / place).mkdir(parents=True, exist_ok=True)
            for file in (*(known_cache / place).glob("*.json"), *(known_cache / place).glob("*.so")):
                with suppress(FileNotFoundError):  # another worker has put a newer one in its place
                    shutil.copy2(file, cache / place)

    return furnish


@pytest.fixture
def furnished_home(furnish: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own for models and caches, in which a new process finds what it would otherwise make first."""
    from engine.catalog import paths

    home = tmp_path / "home"
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
    furnish(paths.cache_dir())
    return home
