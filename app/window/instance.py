"""One window a folder: a second start shows the window that is open already, and ends.

The folder's lock says who is first, and goes with its process; the local socket only carries "show yourself", with a model where one was
double-clicked, and back that it was heard: the system takes the words also for a process that is stuck. It is named after the folder and
reachable by this user alone.
"""

from __future__ import annotations

import hashlib
import logging
from enum import Enum
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app.chats.lock import FolderInUse, FolderLock

log = logging.getLogger(__name__)

KNOCK_MS = 2000
ANSWER_MS = 5000  # a window that is only busy comes forward sooner
HEAR_MS = 200
MOST = 8192  # bytes of a model's place
HEARD = b"heard\n"


class Knock(Enum):
    """What came of a knock."""

    HEARD = "its window comes forward"
    STUCK = "it takes no notice"
    NOBODY = "its window is not open yet, or it has none"


class Instance(QObject):
    """Holds a folder for this process.

    Attributes:
        first: whether this is the first start. Without a lock (a folder that cannot be written) every start is.

    Signals:
        knocked: another start wants to see the window.
        brought: ... and brought the place of a model.
    """

    knocked = Signal()
    brought = Signal(str)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = "omnibus-" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
        self._lock: FolderLock | None = None
        self._server: QLocalServer | None = None
        self.first = True
        try:
            self._lock = FolderLock(folder)
        except FolderInUse:
            self.first = False
        except OSError:
            log.warning("the folder of chats cannot be locked", exc_info=True)
        if self._lock is not None:
            self._listen()

    def knock(self, model: str = "", wait_ms: int = ANSWER_MS) -> Knock:
        """Ask the first start to show its window, and to load `model`, the place of one."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(KNOCK_MS):
            return Knock.NOBODY
        socket.write(b"show\n" + model.encode("utf-8", "surrogateescape"))
        told = socket.waitForBytesWritten(KNOCK_MS)
        if told and (socket.bytesAvailable() or socket.waitForReadyRead(wait_ms)):
            return Knock.HEARD
        gone = socket.state() is not QLocalSocket.LocalSocketState.ConnectedState  # its process has just ended
        socket.disconnectFromServer()
        return Knock.NOBODY if gone else Knock.STUCK

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _listen(self) -> None:
        server = QLocalServer(self)
        server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        QLocalServer.removeServer(self._name)  # of a process that died; the lock says that nobody else is there
        if not server.listen(self._name):
            log.warning("a second start cannot reach this one: %s", server.errorString())
            return
        server.newConnection.connect(self._on_knock)
        self._server = server

    @Slot()
    def _on_knock(self) -> None:
        while self._server is not None and (socket := self._server.nextPendingConnection()) is not None:
            if not socket.bytesAvailable():
                socket.waitForReadyRead(HEAR_MS)  # it was written before the connection was seen
            said, _, model = bytes(socket.read(MOST).data()).partition(b"\n")
            socket.disconnected.connect(socket.deleteLater)
            socket.write(HEARD)
            socket.disconnectFromServer()
            self.knocked.emit()
            if said == b"show" and model:
                self.brought.emit(model.decode("utf-8", "surrogateescape"))
