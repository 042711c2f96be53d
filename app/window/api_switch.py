"""The local API server as a switch of the window: off until somebody turns it on, for programs on this machine with its token only.

Owns the server while it runs. Starting and stopping happen on a thread of their own, since the server's libraries take a moment to load
and open requests one to end; what came of it is told by `changed`. Must never listen on an address that other machines reach.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.numbers import said
from engine import EngineError, Sentence

HOST = "127.0.0.1"
PORT = 8420


class ApiState(StrEnum):
    OFF = "off"
    CHANGING = "changing"
    ON = "on"


class Server(Protocol):
    """What is needed of the server."""

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> bool: ...


def make_server(engine: Any, port: int) -> tuple[Server, str]:
    """A server that does not listen yet, and its token. Raises EngineError."""
    from engine import ApiServer, stored_token

    token = stored_token()
    here = getattr(engine, "here", engine)  # servers elsewhere are not passed on under our token
    return ApiServer(here, token, host=HOST, port=port), token


class ApiSwitch(QObject):
    """Attributes: state, url and token ("" unless on), trouble (why it is not on although it was asked to be, a sentence).

    Signals:
        changed: one of these.
    """

    changed = Signal()
    _done = Signal(object)

    def __init__(self, engine: Any, make: Callable[[Any, int], tuple[Server, str]] = make_server, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._make = make
        self.state = ApiState.OFF
        self.url = self.token = self.trouble = ""
        self._wanted: int | None = None  # the port asked for last; None is off
        self._running: int | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._done.connect(self._on_done, Qt.ConnectionType.QueuedConnection)

    # ------------------------------------------------------------------------------------------------------- methods

    def turn_on(self, port: int = PORT) -> None:
        """Listen on `port`, 0 for any free one; another port than before moves it."""
        self._wanted = port
        self._go_on()

    def follow(self, wanted: bool, port: int) -> None:
        """On or off as a setting has it; nothing where it is so already."""
        if not wanted:
            if self._wanted is not None:
                self.turn_off()
        elif self._wanted != port:
            self.turn_on(port)

    def turn_off(self) -> None:
        """Let nobody in any more; open requests are ended."""
        self._wanted = None
        self.trouble = ""
        self._go_on()

    def shut_down(self) -> None:
        """Off, and its thread over, when this returns."""
        self._wanted = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        self._done.disconnect(self._on_done)

    # ------------------------------------------------------------------------------------------------------- private

    def _go_on(self) -> None:
        """One change at a time: what is wanted meanwhile is done when this one is over."""
        if self._thread is None and self._wanted != self._running:
            self.state = ApiState.CHANGING
            self._thread = threading.Thread(target=self._change, args=(self._wanted,), name="omnibus-api-switch")
            self._thread.start()
        self.changed.emit()

    def _change(self, port: int | None) -> None:
        """On the thread: stop what runs, start what is wanted. The server is handed over through the object, never used by two at once."""
        outcome: tuple[int | None, str, str, str] = (None, "", "", "")
        try:
            if self._server is not None:
                self._server.stop()
                self._server = None
            if port is not None:
                server, token = self._make(self._engine, port)
                server.start()
                self._server = server
                outcome = (port, server.url, token, "")
        except EngineError as error:
            outcome = (None, "", "", said(error.message))
        except Exception as error:  # whatever a library raises: the window stays, and says so
            outcome = (None, "", "", said(Sentence("The API server did not start: {0}: {1}", type(error).__name__, error)))
        self._done.emit(outcome)

    @Slot(object)
    def _on_done(self, outcome: tuple[int | None, str, str, str]) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._running, self.url, self.token, self.trouble = outcome
        self.state = ApiState.OFF if self._running is None else ApiState.ON
        if self.trouble:
            self._wanted = None
        self._go_on()
