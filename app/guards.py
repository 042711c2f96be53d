"""Start-up guards: what would crash or confuse the program later is found before the window is made, and said in words.

Owns the knowledge of unsound combinations of Python and PySide6. Importing this module imports neither Qt nor anything outside the standard
library; only `qt_problem` tries Qt.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Problem:
    """What is wrong (one sentence), what to do about it, and the exit status it means."""

    code: str
    message: str
    hint: str
    status: int = 1


def window_problem(environ: Mapping[str, str]) -> Problem | None:
    """The first reason why no window can be opened here, cheapest check first; None when nothing speaks against it."""
    return (
        python_problem(sys.version_info[:2])
        or pyside_problem(sys.version_info[:2], installed_pyside())
        or display_problem(sys.platform, environ)
        or xcb_problem(sys.platform, environ)
        or qt_problem()
    )


def python_problem(python: tuple[int, int]) -> Problem | None:
    if python >= OLDEST_PYTHON:
        return None
    return Problem("old_python", f"Omnibus needs Python 3.11 or newer; this is {python[0]}.{python[1]}.", "Start it with a newer Python.")


def installed_pyside() -> str | None:
    """The version of PySide6-Essentials, from its metadata alone; None when it is not installed."""
    try:
        return metadata.version("PySide6-Essentials")
    except metadata.PackageNotFoundError:
        return None


def pyside_problem(python: tuple[int, int], pyside: str | None) -> Problem | None:
    """PySide6 6.12 was built as if True and None were immortal, which they are from Python 3.12 on only.

    Below that it gives back one reference too many at every `Signal.emit()` and every void call, and the interpreter aborts after some
    600 emits or 5,000 calls, without a message. Measured on 3.10 and 3.11 with 6.12.0; 6.11.3 and older are sound. A later release counts
    as unsound too until somebody has measured it.
    """
    if pyside is None:
        return Problem(
            "no_pyside", "PySide6-Essentials is not installed.", "Start Omnibus through ./omnibus, which installs what is missing."
        )
    if python >= (3, 12) or release(pyside) < (6, 12):
        return None
    return Problem(
        "unsound_pyside",
        f"PySide6 {pyside} crashes on Python {python[0]}.{python[1]}: it loses references to True and None.",
        "Install a sound one with: pip install 'PySide6-Essentials<6.12', or use Python 3.12 or newer.",
    )


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version string: (6, 12, 0) for "6.12.0a1"."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def display_problem(platform: str, environ: Mapping[str, str]) -> Problem | None:
    if not platform.startswith("linux") or any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        return None
    return Problem(
        "no_display",
        "there is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set), so the window cannot open.",
        "Without a screen, `./omnibus demo` runs the same engine on a scripted load and shows it in this terminal.",
        status=2,
    )


def xcb_problem(platform: str, environ: Mapping[str, str]) -> Problem | None:
    """Without libxcb-cursor Qt's X11 plugin does not load, and Qt then aborts the process."""
    on_x11 = platform.startswith("linux") and bool(environ.get("DISPLAY")) and not environ.get("WAYLAND_DISPLAY")
    if not on_x11 or environ.get("QT_QPA_PLATFORM", "xcb") != "xcb":
        return None
    try:
        ctypes.CDLL("libxcb-cursor.so.0")
    except OSError:
        return Problem(
            "no_xcb_cursor",
            "the system library libxcb-cursor is missing, without which Qt cannot use this display.",
            "On Debian and Ubuntu run: sudo apt-get install libxcb-cursor0",
        )
    return None


def qt_problem() -> Problem | None:
    """Try Qt itself: a missing shared library shows as an ImportError that names it."""
    try:
        import PySide6.QtWidgets  # noqa: F401
    except ImportError as error:
        return Problem(
            "qt_import",
            f"Qt cannot be loaded: {error}.",
            "On Debian and Ubuntu run: sudo apt-get install libegl1 libgl1 libxkbcommon0 libfontconfig1 libdbus-1-3 libglib2.0-0",
        )
    return None
