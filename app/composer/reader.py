"""Reads files that are to be attached, beside the window: one named thread at a time, files in the order they were given.

Owns its thread and joins it. What is read, or why it could not be, comes back as a signal on the window's thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.chats.attach import AttachError, read_attachment
from app.numbers import said
from engine import Sentence

log = logging.getLogger(__name__)

JOIN_S = 2.0


class FileReader(QObject):
    """Signals:
    read(Attachment): one file, as text. failed(words): why one could not be read.
    """

    read = Signal(object)
    failed = Signal(str)
    _came = Signal(object, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Lock()
        self._waiting: list[Path] = []
        self._thread: threading.Thread | None = None
        self._came.connect(self._on_came, Qt.ConnectionType.QueuedConnection)

    @property
    def busy(self) -> bool:
        with self._lock:
            return self._thread is not None

    def start(self, paths: Sequence[Path]) -> None:
        """Read these files."""
        with self._lock:
            self._waiting.extend(paths)
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._main, name="omnibus-attach", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Read no more, and wait for the file in hand."""
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(JOIN_S)

    def _main(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                path = self._waiting.pop(0)
            try:
                self._tell(read_attachment(path), "")
            except AttachError as error:
                self._tell(None, said(error.args[0]))
            except Exception as error:  # whatever a library makes of a strange file: those behind it are read all the same
                log.exception("%s could not be attached", path.name)
                self._tell(None, said(Sentence("{0} cannot be read: {1}.", path.name, f"{type(error).__name__}: {error}")))

    def _tell(self, attachment: object, words: str) -> None:
        try:
            self._came.emit(attachment, words)
        except RuntimeError:
            return  # the window went while the file was being read

    @Slot(object, str)
    def _on_came(self, attachment: object, words: str) -> None:
        if attachment is not None:
            self.read.emit(attachment)
        else:
            self.failed.emit(words)
