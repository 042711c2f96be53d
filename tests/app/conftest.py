"""Fixtures for tests that need Qt: a whole window over a scripted engine, and a check that nothing is left running behind it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.chats.book import ChatBook
from app.theme import Theme, apply_theme
from app.window.main_window import MainWindow
from tests.app.fakes import FakeEngine


def settle() -> None:
    """Run everything that is due now, deferred deletions and what waits for its frame included."""
    for _ in range(3):
        QApplication.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    windows = [widget for widget in QApplication.topLevelWidgets() if isinstance(widget, MainWindow)]
    while any(window.bridge.waiting for window in windows):  # a frame at most: the bridge's timer runs once
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)


def running_timers() -> list[str]:
    return [f"{type(timer.parent()).__name__}.{timer.objectName()}" for timer in _alive(QTimer) if timer.isActive()]


def _alive(kind: type) -> list:
    found = []
    for thing in gc.get_objects():
        if issubclass(type(thing), kind):  # isinstance would ask the object, and a dead proxy of some library raises
            try:
                thing.objectName()
            except RuntimeError:
                continue  # its C++ half is gone
            found.append(thing)
    return found


@pytest.fixture
def no_leftovers(qapp: QApplication) -> Iterator[None]:
    """Fails a test that leaves a thread, a running timer or a visible window behind."""
    threads = set(threading.enumerate())
    timers = set(map(id, _alive(QTimer)))
    yield
    settle()
    gc.collect()
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    assert not left, f"threads left: {left}"
    ticking = [timer for timer in _alive(QTimer) if timer.isActive() and id(timer) not in timers]
    assert not ticking, f"timers left: {[(type(timer.parent()).__name__, timer.interval()) for timer in ticking]}"
    windows = [type(widget).__name__ for widget in QApplication.topLevelWidgets() if widget.isVisible()]
    assert not windows, f"windows left: {windows}"


@pytest.fixture
def make_window(qapp: QApplication, no_leftovers: None) -> Iterator[Callable[..., tuple[MainWindow, FakeEngine]]]:
    """A factory of shown windows over scripted engines; all are shut down at the end."""
    made: list[tuple[MainWindow, FakeEngine]] = []

    def make(theme: Theme | None = None, book: ChatBook | None = None, **engine_values: object) -> tuple[MainWindow, FakeEngine]:
        engine = FakeEngine(**engine_values)  # type: ignore[arg-type]
        theme = theme or Theme.dark()
        apply_theme(qapp, theme)
        window = MainWindow(engine, book or ChatBook(), theme)
        window.show()
        settle()
        made.append((window, engine))
        return window, engine

    yield make
    for window, engine in made:
        engine.close()
        window.shut_down()
        window.deleteLater()
    settle()
