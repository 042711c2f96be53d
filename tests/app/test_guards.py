"""The start-up guards, and the sound PySide6 that they exist for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app import guards

SOUND = """
from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal

class Sender(QObject):
    sent = Signal(bool)

app = QCoreApplication([])
sender, timer, seen = Sender(), QTimer(), []
sender.sent.connect(seen.append)
for _ in range(5_000):
    sender.sent.emit(True)
for _ in range(20_000):
    timer.setSingleShot(True)
assert seen == [True] * 5_000
print("sound")
"""


def test_signals_and_void_calls_lose_no_reference() -> None:
    """In a process of its own: an unsound PySide6 aborts the interpreter, after some 600 emits or 5,000 void calls."""
    done = subprocess.run([sys.executable, "-c", SOUND], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "sound"), done.stderr


def test_the_installed_pyside_passes() -> None:
    assert guards.pyside_problem(sys.version_info[:2], guards.installed_pyside()) is None
    assert guards.qt_problem() is None


@pytest.mark.parametrize(
    ("python", "pyside", "code"),
    [
        ((3, 11), "6.12.0", "unsound_pyside"),
        ((3, 11), "6.12.1", "unsound_pyside"),
        ((3, 11), "7.0", "unsound_pyside"),
        ((3, 11), "6.11.3", None),
        ((3, 11), "6.8.3", None),
        ((3, 12), "6.12.0", None),
        ((3, 13), "6.12.0a1", None),
        ((3, 12), None, "no_pyside"),
    ],
)
def test_unsound_combinations_are_refused(python: tuple[int, int], pyside: str | None, code: str | None) -> None:
    problem = guards.pyside_problem(python, pyside)
    assert (problem.code if problem else None) == code
    if problem:
        assert problem.message and problem.hint


def test_old_python_is_refused() -> None:
    assert guards.python_problem((3, 11)) is None
    problem = guards.python_problem((3, 10))
    assert problem and "3.10" in problem.message


@pytest.mark.parametrize(("version", "numbers"), [("6.12.0", (6, 12, 0)), ("6.12.0a1", (6, 12, 0)), ("6.12rc1.5", (6, 12)), ("x", ())])
def test_release(version: str, numbers: tuple[int, ...]) -> None:
    assert guards.release(version) == numbers


@pytest.mark.parametrize(
    ("platform", "environ", "status"),
    [
        ("linux", {}, 2),
        ("linux", {"DISPLAY": ""}, 2),
        ("linux", {"DISPLAY": ":0"}, None),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, None),
        ("linux", {"QT_QPA_PLATFORM": "offscreen"}, None),
        ("darwin", {}, None),
        ("win32", {}, None),
    ],
)
def test_display(platform: str, environ: dict[str, str], status: int | None) -> None:
    problem = guards.display_problem(platform, environ)
    assert (problem.status if problem else None) == status
    if problem:
        assert "omnibus demo" in problem.hint


def test_a_missing_xcb_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(guards.ctypes, "CDLL", missing)
    problem = guards.xcb_problem("linux", {"DISPLAY": ":0"})
    assert problem and "libxcb-cursor0" in problem.hint
    assert guards.xcb_problem("linux", {"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}) is None
    assert guards.xcb_problem("linux", {"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}) is None


def test_the_first_problem_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "installed_pyside", lambda: "6.12.0")
    monkeypatch.setattr(guards.sys, "version_info", (3, 11, 7, "final", 0))
    problem = guards.window_problem({})
    assert problem and problem.code == "unsound_pyside"
