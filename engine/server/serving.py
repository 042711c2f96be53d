"""Opens and closes the server: the socket, its thread, and who may listen on which address.

Nothing listens before `start` and after `stop`. Owns uvicorn, a thread for its loop and a few for encoding prompts; the engine is not
its own. Must never bind an address that others can reach without a strong token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from engine.server.access import is_strong, is_token
from engine.server.errors import ApiError
from engine.server.guard import MOST_HEADER_BYTES, Guard, Rules
from engine.server.replies import WRITE, to_json
from engine.server.rides import Rides, ServedModels
from engine.server.routes import make_app
from engine.types import EngineError

log = logging.getLogger(__name__)

HEAD_PATIENCE_S = 15.0  # for a request's headers to be complete
KEEP_ALIVE_S = 30
GRACE_S = 2  # for open responses to end when the server stops
CLOSING_LOOK_S = 0.01  # between two looks whether they have
MOST_WAITING = 256
MOST_CONNECTIONS = 1024  # open at one time; beyond, a stranger could use up the process's files
ENCODERS = 4


class ApiServer:
    """The HTTP API over an engine.

    Attributes:
        port: the bound port, from `start` on.

    Raises (constructor): EngineError for an address or token that is not safe or sound.
    """

    def __init__(
        self,
        engine: ServedModels,
        token: str | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        most_waiting: int = MOST_WAITING,
        names: Sequence[str] = (),
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self._family, self._address, loopback = resolve(host)
        check_policy(host, loopback, token)
        if most_waiting < 1:
            raise EngineError("bad_config", f"The queue's bound is {most_waiting}, but it must be at least 1.")
        if not all(names):
            raise EngineError("bad_config", "A name of the model is empty.", "Leave it out to have the model's own.")
        named = frozenset(name.lower() for name in hosts) | (frozenset() if loopback else {host.lower(), socket.gethostname().lower()})
        rules = Rules(token, loopback, named, frozenset(origins))
        self.port = port
        self._executor = ThreadPoolExecutor(ENCODERS, thread_name_prefix="omnibus-api-encode")
        self._rides = Rides(engine, self._executor, most_waiting)
        self.app: Guard = make_app(engine, self._rides, self._executor, rules, names=names)
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where clients find it: the base URL of OpenAI's clients."""
        address = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{address}:{self.port}/v1"

    def start(self) -> None:
        """Listen. Raises EngineError("no_port") when the address cannot be had."""
        sock = self._bind()
        config = uvicorn.Config(
            self.app,
            http=_Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([sock],), name="omnibus-api", daemon=True)
        self._thread.start()
        self._server.up.wait()

    def stop(self, timeout: float = 5.0) -> bool:
        """End every open request and close the socket. Returns whether the thread ended within `timeout` seconds. Twice is once."""
        if self._server is None or self._thread is None:
            self._executor.shutdown(wait=False)
            return True
        self._server.close(self._rides)
        self._thread.join(timeout)
        self._executor.shutdown(wait=False, cancel_futures=True)
        return not self._thread.is_alive()

    def _bind(self) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere it would let two programs share the port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._address, self.port))
        except (OSError, OverflowError) as error:
            sock.close()
            why = error.strerror if isinstance(error, OSError) else "there is no such port"
            hint = "Choose another with --port; 0 takes any that is free."
            raise EngineError("no_port", f"{self._address}:{self.port} cannot be listened on: {why}.", hint) from error
        self.port = sock.getsockname()[1]
        return sock


def resolve(host: str) -> tuple[socket.AddressFamily, str, bool]:
    """(family, address, whether it is this machine's own). Raises EngineError("no_host")."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EngineError("no_host", f"There is no address for {host!r}.", "Name an address of this machine with --host.") from error
    family, *_, address = sorted(found, key=lambda item: item[0] != socket.AF_INET)[0]
    text = str(address[0])
    return family, text, ipaddress.ip_address(text.partition("%")[0]).is_loopback


def check_policy(host: str, loopback: bool, token: str | None) -> None:
    """Raises EngineError for a server that strangers could use."""
    if token is not None and not is_token(token):
        raise EngineError("bad_token", "The token must be 1 to 256 visible ASCII characters.", "Leave it out; a good one is then made.")
    if loopback:
        return
    if token is None:
        sentence = f"{host} can be reached from other machines, so a token is needed."
        raise EngineError("needs_token", sentence, "Leave --no-token out, or listen on 127.0.0.1.")
    if not is_strong(token):
        sentence = f"{host} can be reached from other machines, and the token is too easy to guess."
        raise EngineError("weak_token", sentence, "Leave --token out; a good one is then made.")


class _Server(uvicorn.Server):
    """uvicorn in a thread: says when it is up, and is closed from outside. It sleeps until then, where uvicorn looks ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        finally:
            self.up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        if not self.should_exit:
            await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(GRACE_S):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(CLOSING_LOOK_S)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel("the server is closed")

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        except Exception:
            log.exception("the server stopped")
        finally:
            self.up.set()

    def close(self, rides: Rides) -> None:
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(rides.close)
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:  # it was closed between the two lines
                return


class _Connection(H11Protocol):
    """uvicorn's connection, less patient with headers that never end, and with an error object for what is no HTTP."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._end(ApiError(503, "Too many connections are open.", "too_many_connections"), b"Service Unavailable")
        else:
            self._await_head()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not None and self.cycle is not before:  # a request has begun; its task has not
            self.cycle.scope["extensions"] = {WRITE: {"body": _Body(self, self.cycle)}}

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            self._head_is_here()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """h11 found no HTTP request in it."""
        self._end(ApiError(400, "This is not a well-formed HTTP request.", "bad_http"), b"Bad Request")

    def _end(self, error: ApiError, reason: bytes) -> None:
        """Say why, and close. In the middle of a response there is nobody to tell."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = to_json(error.body())
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
            self.transport.write(self.conn.send(h11.Response(status_code=error.status, headers=headers, reason=reason)))
            self.transport.write(self.conn.send(h11.Data(data=body)))
            self.transport.write(self.conn.send(h11.EndOfMessage()))
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_PATIENCE_S, self._give_up)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class _Body:
    """The body of a response that was begun without a length, written in chunks of HTTP/1.1, past the layers between. h11 keeps the state
    of a body from its head to its end alone, so that it misses nothing."""

    def __init__(self, connection: _Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._flow = connection.flow
        self._begun = False

    @property
    def open(self) -> bool:
        """Whether a piece can be written now. Not where it would have to wait, and HTTP/1.0 knows no chunks."""
        cycle, connection = self._cycle, self._connection
        if self._flow.write_paused or cycle.response_complete or cycle.disconnected or cycle is not connection.cycle:
            return False
        if not self._begun and cycle.response_started:
            self._begun = connection.conn.our_state is h11.SEND_BODY and connection.conn.their_http_version == b"1.1"
        return self._begun

    def write(self, piece: bytes) -> None:
        """While it is `open`. A piece of nothing would be the end of the body: it is left out."""
        if piece:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
