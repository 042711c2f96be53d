"""Where faults go: one log file, whatever raised them: a slot, a thread, a coroutine, Qt itself, or the interpreter as it dies.

Must never show a chat's text: what is logged are errors and versions.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs
from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from app.private import private_file, private_folder

log = logging.getLogger("omnibus")
_FORMAT = "%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class FaultLog:
    """The log file and every hook that leads to it. `close` puts the hooks back."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = writable(folder or Path(platformdirs.user_log_dir("omnibus")))
        self.file = self.folder / "omnibus.log"
        private_file(self.file)
        self._handler = RotatingFileHandler(self.file, maxBytes=1_000_000, backupCount=3, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        root = logging.getLogger()
        root.addHandler(self._handler)
        if root.level > logging.INFO or root.level == logging.NOTSET:
            root.setLevel(logging.INFO)
        keep_last_crash(self.folder)
        private_file(self.folder / "crash.log")
        self._crash = (self.folder / "crash.log").open("w", encoding="utf-8")
        faulthandler.enable(self._crash)
        self._before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        sys.unraisablehook = self._on_unraisable
        qInstallMessageHandler(self._on_qt)

    def close(self) -> None:
        qInstallMessageHandler(None)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._before
        faulthandler.disable()
        self._crash.close()
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("unhandled exception", exc_info=(kind, error, trace))
        if sys.stderr is not None:
            sys.__excepthook__(kind, error, trace)
        # Python keeps the last traceback, and with it the locals of its frames. A painter among them would still be painting on a widget
        # when Qt takes that away, which ends the process.
        traceback.clear_frames(trace)
        sys.last_traceback = sys.last_value = None

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        log.critical("unhandled exception in thread %s", name, exc_info=args.exc_value)

    def _on_unraisable(self, args: Any) -> None:
        log.error("%s: %r", args.err_msg or "exception ignored in", args.object, exc_info=args.exc_value)

    def _on_qt(self, kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
        logging.getLogger("qt." + (context.category or "default")).log(_QT_LEVELS.get(kind, logging.WARNING), "%s", message)


def writable(folder: Path) -> Path:
    """The folder, made if need be; where nothing can be written there, a temporary one: a log must not be why a program does not start."""
    try:
        private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="omnibus-log-"))


def keep_last_crash(folder: Path) -> None:
    """What the interpreter wrote as it died would be gone with the next start, which is when somebody asks for it."""
    crash = folder / "crash.log"
    with suppress(OSError):
        if crash.stat().st_size:
            crash.replace(folder / "crash-before.log")
