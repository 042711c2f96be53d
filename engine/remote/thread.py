"""What runs on a remote engine's own thread: looking for the server, sending who waits, watching the metrics, and what is published.

Owns the event loop, the connections and the requests under way. Everything here but `_post` and `_end` is called on that thread only.
Requests beyond `seats` wait here, by class and arrival. A server that is lost is looked for with growing pauses while requests wait; a key
that is wrong, or an address that is none, stops the engine until `restart`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from engine.remote.metrics import PAGES, Told, fetch_metrics
from engine.remote.offered import ask_models
from engine.remote.presets import clean_url, origin
from engine.remote.resume import stop_by_name
from engine.remote.ride import Ride, carry
from engine.remote.slots import fetch_slots
from engine.remote.view import build_snapshot
from engine.types import Counters, EngineConfig, EngineError, EngineState, ErrorInfo, FinishReason, ModelView, Priority, Sentence, Snapshot
from engine.watched import Watched

log = logging.getLogger(__name__)

SEATS = 32
TIMEOUT = httpx2.Timeout(10.0, read=60.0)  # servers that queue send comments meanwhile
METRICS_TIMEOUT_S = 2.0
RECONNECT_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
STOPPING = ("remote_key", "remote_forbidden", "remote_tls", "remote_model", "remote_nonsense", "remote_refused", "remote_moved")
RATE_WINDOW_S = 5.0
FAILURES, REST_S = 5, 15.0  # so many requests in a row that fail at the server's side, and it is left alone for a while

_ENGINES = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Where the server is. `model` "" takes the first it offers; `metrics_url` "" is beside its API.

    With `whole`, answers are not streamed: the sizes and the rhythm of encrypted pieces tell who watches the network what an answer may be
    about ("Whisper Leak", Microsoft 2025), and a client cannot pad what a server sends.
    """

    url: str
    key: str = field(default="", repr=False)
    model: str = ""
    metrics_url: str = ""
    seats: int = SEATS
    poll_s: float = 1.0
    max_waiting: int = 4096
    whole: bool = False


class RemoteThread(Watched):
    """A remote engine as its thread sees it; `engine.remote.remote.RemoteEngine` is what everybody else sees."""

    def __init__(
        self,
        config: RemoteConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._url = clean_url(config.url)
        self._remote = config
        self._host = urlsplit(self._url).netloc
        self._config = EngineConfig(model=self._url, seats=config.seats, max_waiting=config.max_waiting)
        self._config.check()
        self._clock, self._sleep = clock, sleep
        self._ids = itertools.count(1)
        self._prefix = f"s{next(_ENGINES)}-"  # requests of several engines meet in one window
        self._chat_priority: dict[str, Priority] = {}
        self._rides: dict[str, Ride] = {}
        self._waiting: list[Ride] = []
        self._riding: list[Ride] = []
        self._paused = self._closing = False
        self._failed = 0  # requests in a row, by no fault of theirs
        self._told = Told()
        self._model = config.model
        self._counters = Counters()
        self._pieces: deque[tuple[float, int]] = deque()
        self._state = EngineState.STARTING
        self._error: ErrorInfo | None = None
        self._view = ModelView(name=config.model or self._host, device=self._host)
        self._lock = threading.Lock()  # guards _rides and _waiting against a closing engine
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again: asyncio.Event | None = None
        super().__init__(self._build())

    @property
    def _stopped(self) -> bool:
        return self._closing or self._state is EngineState.FAILED

    # --------------------------------------------------------------------------------------------------------- thread

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            log.exception("the remote engine died")
            self._fail(EngineError("engine_died", Sentence("The remote engine stopped unexpectedly: {0}.", error), "Restart it."))
        finally:
            with contextlib.suppress(RuntimeError):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _main(self) -> None:
        self._again = asyncio.Event()
        headers = {"Accept-Encoding": "identity"}  # a few compressed bytes may unfold to any number
        headers |= {"Authorization": f"Bearer {self._remote.key}"} if self._remote.key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=SEATS)
        self._main_task = asyncio.current_task()
        async with (
            httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, limits=limits) as self._client,
            httpx2.AsyncClient(headers={"Accept-Encoding": "identity"}, timeout=METRICS_TIMEOUT_S) as self._watcher,
        ):
            try:
                while not self._closing:
                    await self._connect()
                    self._board()
                    await self._watch()
            finally:
                tasks = [ride.task for ride in self._riding if ride.task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self) -> None:
        """Until the server has told its models, or the engine closes: Python 3.11's `wait_for` loses a cancellation that comes with what it
        waits for. What no waiting mends stops the engine until `restart`."""
        assert self._again is not None
        if self._failed >= FAILURES:
            self._failed = 0
            self._tell(EngineState.LOADING, f"{self._host} failed {FAILURES} times in a row and is asked again in a while", self._error)
            await self._wait(REST_S)
        for pause in itertools.chain(RECONNECT_S, itertools.repeat(RECONNECT_S[-1])):
            if self._closing:
                return
            self._tell(EngineState.LOADING, f"looking for {self._host}", self._error)
            try:
                await self._look()
            except EngineError as error:
                if error.code in STOPPING:
                    self._fail(error)
                    await self._again.wait()
                else:
                    self._tell(EngineState.LOADING, error.message.rstrip("."), error.info())
                    await self._wait(pause)
                self._again.clear()
                continue
            self._error = None
            self._tell(EngineState.PAUSED if self._paused else EngineState.READY, "ready")
            return

    async def _wait(self, seconds: float) -> None:
        """Or until somebody asks to look again. With a clock of a test's own the pause passes at once."""
        assert self._again is not None
        if self._sleep is not asyncio.sleep:
            await self._sleep(seconds)
            seconds = 0.001
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._again.wait(), seconds)
        self._again.clear()

    async def _look(self) -> None:
        """Ask the server for its models. Raises EngineError."""
        found = await ask_models(self._client, self._url, self._host, self._model)
        self._model = found.name
        self._view = ModelView(name=found.name, device=self._host, lane="remote", context=found.context, progress=1.0)

    async def _watch(self) -> None:
        """Read the metrics until the server is lost, or somebody asks to look for it again."""
        assert self._again is not None
        own_pages = tuple(origin(self._url) + page for page in PAGES)
        pages = itertools.cycle([self._remote.metrics_url] if self._remote.metrics_url else own_pages)
        address = next(pages)
        same = origin(address) == origin(self._url)  # a key is for its own server alone
        headers = {"Authorization": f"Bearer {self._remote.key}"} if self._remote.key and same else {}
        own = {"Authorization": f"Bearer {self._remote.key}"} if self._remote.key else {}
        silent, slotted, found = 0, True, False
        while not (self._closing or self._again.is_set()):
            told = await fetch_metrics(self._watcher, address, headers)
            if slotted and (told is None or told.kind == "llama.cpp"):
                slots = await fetch_slots(self._watcher, f"{origin(self._url)}/slots", own)
                slotted = slots is not None
                told = (told or Told()).with_slots(slots) if slots is not None else told
            silent, found = (0, True) if told is not None else (silent + 1, found)
            if not found:
                address = next(pages)
            if told is not None:
                self._told = told
            elif silent == 3:
                self._told = Told()  # stale figures are no figures
            self._publish()
            with contextlib.suppress(asyncio.TimeoutError):
                pause = self._remote.poll_s if silent < 3 or self._riding else 15 * self._remote.poll_s
                await asyncio.wait_for(self._again.wait(), pause)
        self._again.clear()

    # -------------------------------------------------------------------------------------------- requests, in the thread

    def _post(self, command: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(command)

    def _board(self) -> None:
        """Send those who wait while there is room, by class and arrival."""
        with self._lock:
            room = self._config.seats - len(self._riding) if self._state is EngineState.READY else 0
            self._waiting.sort(key=lambda ride: (ride.priority, ride.number))
            boarding, self._waiting = self._waiting[: max(0, room)], self._waiting[max(0, room) :]
            self._riding += boarding
        for ride in boarding:
            ride.body["model"] = self._model
            ride.name = f"omnibus-{secrets.token_hex(16)}" if self._told.kind == "llama.cpp" and ride.body["stream"] else ""
            ride.task = asyncio.get_running_loop().create_task(self._carry(ride), name=f"remote-{ride.handle.id}")
        self._publish()

    async def _carry(self, ride: Ride) -> None:
        error: EngineError | None = None
        try:
            error = await carry(ride, self._client, self._url, self._host, self._clock, lambda: self._moved(ride), self._sleep)
        except asyncio.CancelledError:
            ride.end(FinishReason.CANCELLED, self._clock())
            await self._let_go(ride)
        except Exception as trouble:
            log.exception("request %s failed", ride.handle.id)
            ride.end(
                FinishReason.ERROR, self._clock(), ErrorInfo("remote_failed", Sentence("The request failed: {0}.", trouble), "Try again.")
            )
        if error is not None:
            await self._let_go(ride)
        self._leave(ride, error)

    async def _let_go(self, ride: Ride) -> None:
        """A server that keeps its streams goes on with them until it is told not to."""
        if ride.name:
            await stop_by_name(self._client, self._url, ride.name)

    def _leave(self, ride: Ride, error: EngineError | None) -> None:
        with self._lock:
            self._rides.pop(ride.handle.id, None)
            if ride in self._riding:
                self._riding.remove(ride)
        self._count(ride, error)
        lost = error is not None and error.code in ("remote_unreachable", "remote_silent")
        self._failed = self._failed + 1 if error is not None and error.code in ("remote_failed", "remote_busy") else 0
        if (lost or self._failed >= FAILURES) and self._again is not None:
            self._again.set()  # the server is lost, or no good: look for it before anyone else is sent there
            self._state = EngineState.LOADING
            self._error = error.info() if error is not None else None
        if not self._closing:
            self._board()

    def _count(self, ride: Ride, error: EngineError | None) -> None:
        usage, before = ride.usage, self._counters
        self._counters = before._replace(
            finished=before.finished + (error is None),
            failed=before.failed + (error is not None),
            output_tokens=before.output_tokens + (usage.completion_tokens if usage else ride.tokens),
            prompt_tokens=before.prompt_tokens + (usage.prompt_tokens if usage else 0),
            cached_tokens=before.cached_tokens + (usage.cached_tokens if usage else 0),
        )

    def _moved(self, ride: Ride) -> None:
        now = self._clock()
        if ride.last == now or ride.last is not None:
            self._pieces.append((now, 1))
        if now - self._snapshot.time > 0.05:
            self._publish()

    def _cancel_now(self, request_id: str) -> None:
        ride = self._rides.get(request_id)
        if ride is None:
            return
        if ride.task is not None:
            ride.task.cancel()
            return
        with self._lock:
            if ride in self._waiting:
                self._waiting.remove(ride)
        self._end(ride, FinishReason.CANCELLED)
        self._publish()

    def _end(self, ride: Ride, reason: FinishReason, error: ErrorInfo | None = None) -> None:
        with self._lock:
            self._rides.pop(ride.handle.id, None)
        ride.end(reason, self._clock(), error)

    def _stop_all(self) -> None:
        if self._again is not None:
            self._again.set()
        task = getattr(self, "_main_task", None)
        if task is not None:
            task.cancel()

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._state in (EngineState.READY, EngineState.PAUSED):
            self._state = EngineState.PAUSED if paused else EngineState.READY
        self._board()

    def _fail(self, error: EngineError) -> None:
        """Nothing more is sent until `restart`; those who wait are told why."""
        self._tell(EngineState.FAILED, "", error.info())
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for ride in waiting:
            self._end(ride, FinishReason.ERROR, error.info())
        self._publish()

    # ---------------------------------------------------------------------------------------------------- publishing

    def _tell(self, state: EngineState, stage: str, error: ErrorInfo | None = None) -> None:
        self._state, self._error = state, error
        self._view = replace(self._view, stage=stage)
        self._publish()

    def _build(self) -> Snapshot:
        now = self._clock()
        while self._pieces and now - self._pieces[0][0] > RATE_WINDOW_S:
            self._pieces.popleft()
        rate = len(self._pieces) / RATE_WINDOW_S
        with self._lock:
            riding, waiting = list(self._riding), list(self._waiting)
        return build_snapshot(self._config, self._state, self._view, self._told, riding, waiting, self._counters, rate, now, self._error)

    def _publish(self) -> None:
        self._show(self._build())
