"""asyncio on Qt's event loop, in one module so that it can be swapped, and the tasks that run on it.

Rules learned the hard way: no modal `exec()` while a task runs (it loses other tasks), no asyncSlot (a plain slot spawns a task instead),
and nothing per token goes through here: every call_soon is a Qt timer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from PySide6.QtCore import QEvent, QObject, QSocketNotifier, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication
from qasync import QEventLoop

log = logging.getLogger(__name__)


class Loop(QEventLoop):
    """qasync's loop, leaving no timer behind."""

    def close(self) -> None:
        """Close, and stop the timers of calls that are still to come.

        WORKAROUND for qasync 0.28: a closed loop's timers (a time-out that was not needed, say) run on until they are due. Python may
        collect their object meanwhile, on any thread, and Qt then sends the event to freed memory.
        """
        if self.is_closed():
            return
        timer = self._timer
        super().close()
        pending = timer._SimpleTimer__callbacks
        for timer_id in list(pending):
            timer.killTimer(timer_id)
        pending.clear()


def make_loop(app: QApplication) -> QEventLoop:
    """An asyncio loop that is driven by Qt's, with named worker threads of its own. The caller runs and closes it."""
    loop = Loop(app)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnibus-worker"))
    loop.set_exception_handler(_on_loop_error)
    asyncio.set_event_loop(loop)
    return loop


def let_go(app: QApplication) -> None:
    """At the end of a command: delete what is to be deleted, now, while there is an application. Python's own last collection comes after
    the application is gone, and a widget that is taken down then takes the process along.
    """
    for _ in range(2):
        app.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        app.processEvents()
        gc.collect()


def _on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error("event loop: %s", context.get("message", "error"), exc_info=context.get("exception"))


class Tasks:
    """Tasks with an owner: kept alive, their errors logged, all cancelled at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` beside everything else."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def cancel_all(self) -> None:
        """Cancel every task and wait until they are gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)


class QuitSignals(QObject):
    """SIGINT and SIGTERM as a call of `on_quit` from the window's loop; a second one ends the process at once.

    From the loop, never from the handler: that one runs between any two bytecodes, such as those with which a coroutine looks at an event
    and begins to wait for it, and the wake-up would be lost.

    Python runs its handlers only between bytecodes, and inside Qt's loop there are none: the signal's wake-up byte goes through a
    socket that Qt watches (on Windows a slow timer gives Python its turn instead).
    """

    _first = Signal()

    def __init__(self, on_quit: Callable[[], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._on_quit = on_quit
        self._asked = 0
        self._first.connect(self._quit, Qt.ConnectionType.QueuedConnection)
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        if sys.platform == "win32":
            self._timer = QTimer(self)
            self._timer.timeout.connect(lambda: None)
            self._timer.start(250)
            return
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._notifier = QSocketNotifier(self._reader.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_byte)

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if sys.platform == "win32":
            self._timer.stop()
            return
        signal.set_wakeup_fd(self._before_fd)
        self._notifier.setEnabled(False)
        self._reader.close()
        self._writer.close()

    def _on_byte(self) -> None:
        # Reading the byte returned to Python, so the handler has run, or runs now.
        try:
            self._reader.recv(64)
        except BlockingIOError:
            return

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        log.info("signal %s: quitting", signal.Signals(number).name)
        self._first.emit()

    @Slot()
    def _quit(self) -> None:
        self._on_quit()
