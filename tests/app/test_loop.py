"""asyncio on Qt's loop, and the tasks on it: kept, logged, cancelled; signals that end the program."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time

import pytest
from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication

from app.loop import QuitSignals, Tasks, make_loop


@pytest.fixture
def loop(qapp, no_leftovers):
    loop = make_loop(qapp)
    yield loop
    loop.close()
    asyncio.set_event_loop(None)


def test_coroutines_threads_and_qt_share_the_loop(loop):
    ticks = []
    timer = QTimer()
    timer.timeout.connect(lambda: ticks.append(1))
    timer.start(1)

    async def main():
        named = await loop.run_in_executor(None, lambda: __import__("threading").current_thread().name)
        async with asyncio.timeout(5):
            while len(ticks) < 3:
                await asyncio.sleep(0.001)
        return named

    assert loop.run_until_complete(main()).startswith("omnibus-worker")
    timer.stop()


def test_a_failing_task_is_logged_and_let_go(loop, caplog):
    async def fail():
        raise ValueError("broken")

    async def main():
        tasks = Tasks(loop)
        tasks.spawn(fail(), "failing")
        while len(tasks):
            await asyncio.sleep(0)
        return tasks

    with caplog.at_level(logging.ERROR):
        loop.run_until_complete(main())
    assert "task failing failed" in caplog.text and "broken" in caplog.text


def test_all_tasks_are_cancelled_and_awaited(loop):
    ended = []

    async def wait(name):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    async def main():
        tasks = Tasks(loop)
        for name in ("a", "b"):
            tasks.spawn(wait(name), name)
        await asyncio.sleep(0.01)
        await tasks.cancel_all()
        return len(tasks)

    assert loop.run_until_complete(main()) == 0 and sorted(ended) == ["a", "b"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_window_while_qt_idles(loop, number):
    async def main():
        over = asyncio.Event()
        signals = QuitSignals(over.set)
        loop.call_later(0.05, os.kill, os.getpid(), number)
        async with asyncio.timeout(5):
            await over.wait()
        signals.close()
        signals.deleteLater()

    before = signal.getsignal(number)
    loop.run_until_complete(main())
    assert signal.getsignal(number) is before


def test_five_thousand_signals_and_twenty_thousand_void_calls_are_survived(qapp):
    """PySide6 6.12.0 on Python 3.11 drops a reference to True or None at each of these, and the process aborts."""

    class Sender(QObject):
        sent = Signal(bool)

    sender = Sender()
    heard = []
    sender.sent.connect(heard.append)
    for _ in range(5000):
        sender.sent.emit(True)
    timer = QTimer()
    for _ in range(20_000):
        timer.setSingleShot(True)
    assert len(heard) == 5000 and sys.getrefcount(None) > 1000


def test_a_signal_between_two_bytecodes_quits_from_the_loop(qapp: QApplication) -> None:
    """The handler may interrupt a coroutine that looks at an event and is about to wait for it: setting it there would be lost."""
    asked: list[str] = []
    signals = QuitSignals(lambda: asked.append("quit"))
    try:
        signal.raise_signal(signal.SIGTERM)
        assert asked == []
        deadline = time.monotonic() + 20
        while not asked and time.monotonic() < deadline:
            QApplication.processEvents()
        assert asked == ["quit"]
    finally:
        signals.close()
