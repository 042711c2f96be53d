"""An engine behind an address: the interface of `engine.Engine`, carried out by any server with an OpenAI-compatible API.

Owns one named thread with an event loop, the connections, the requests under way and the reading of the server's metrics. Requests beyond
`seats` wait here, by class and arrival. A server that is lost is looked for with growing pauses while requests wait; a key that is wrong,
or an address that is none, stops the engine until `restart`. Commands that only an engine in this process can carry out are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from engine.handle import RequestHandle
from engine.remote import wire
from engine.remote.metrics import MOST, Told, read_metrics
from engine.remote.presets import clean_url, origin
from engine.remote.ride import Ride, carry
from engine.remote.view import build_snapshot
from engine.types import (
    Chat,
    Counters,
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    FinishReason,
    Message,
    ModelView,
    Policy,
    Priority,
    RequestRefused,
    SamplingParams,
    Snapshot,
    StepRecord,
)

log = logging.getLogger(__name__)

SEATS = 32
TIMEOUT = httpx2.Timeout(10.0, read=60.0)  # servers that queue send comments meanwhile
METRICS_TIMEOUT_S = 2.0
RECONNECT_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
STOPPING = ("remote_key", "remote_forbidden", "remote_tls", "remote_model", "remote_nonsense", "remote_refused")
RATE_WINDOW_S = 5.0

_ENGINES = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Where the server is. `model` "" takes the first it offers; `metrics_url` "" is /metrics at the same place."""

    url: str
    key: str = field(default="", repr=False)
    model: str = ""
    metrics_url: str = ""
    seats: int = SEATS
    poll_s: float = 1.0
    max_waiting: int = 4096


class RemoteEngine:
    """See the module. Safe to use from any thread.

    Raises (constructor): EngineError("bad_url" | "bad_config").
    """

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
        self._listeners: list[Callable[[], None]] = []
        self._rides: dict[str, Ride] = {}
        self._waiting: list[Ride] = []
        self._riding: list[Ride] = []
        self._paused = self._closing = False
        self._told = Told()
        self._model = config.model
        self._counters = Counters()
        self._pieces: deque[tuple[float, int]] = deque()
        self._state = EngineState.STARTING
        self._error: ErrorInfo | None = None
        self._view = ModelView(name=config.model or self._host, device=self._host)
        self._lock = threading.Lock()  # guards _rides and _waiting against a closing engine
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again: asyncio.Event | None = None
        self._snapshot = self._build()

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def config(self) -> EngineConfig:
        return self._config

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        """A server does not tell its steps."""
        return ()

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners = [*self._listeners, listener]

        def remove() -> None:
            self._listeners = [kept for kept in self._listeners if kept is not listener]

        return remove

    def wait_ready(self, timeout: float | None = None) -> Snapshot:
        """Block until the server has answered. Raises the EngineError that stopped it, or TimeoutError."""
        settled = (EngineState.READY, EngineState.PAUSED, EngineState.FAILED, EngineState.CLOSED)
        with self._ready:
            if not self._ready.wait_for(lambda: self._snapshot.state in settled, timeout):
                raise TimeoutError(f"{self._host} was not ready after {timeout} s")
        snapshot = self._snapshot
        if snapshot.state is EngineState.FAILED and snapshot.error is not None:
            raise EngineError(snapshot.error.code, snapshot.error.message, snapshot.error.hint)
        return snapshot

    def tokenize(self, prompt: Any) -> list[int] | None:
        """The tokenizer is the server's own."""
        return None

    def count_tokens(self, prompt: Any) -> int | None:
        return None

    # ------------------------------------------------------------------------------------------------------ requests

    def submit(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        chat_id: str = "",
        title: str = "",
        priority: Priority | None = None,
        continue_final: bool = False,
        model: str = "",
        on_ready: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """As `Engine.submit`; a prompt must be the messages of a chat, or one text."""
        params = params or SamplingParams()
        params.check()
        if not prompt:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something first.")
        if isinstance(prompt, str):
            prompt = [Message("user", prompt)]
        if not isinstance(prompt, Chat) and not all(isinstance(item, Message) for item in prompt):
            raise RequestRefused("no_tokens", "A remote engine takes messages, not token ids.", "Send the chat as messages.")
        if self._stopped:
            reason = self._error.message if self._error else "The engine is closed."
            raise RequestRefused("engine_stopped", f"The engine is not running. {reason}", "Try again, or choose another engine.")
        if params.grammar is not None or params.logprobs is not None:
            raise RequestRefused("not_remote", "Forms and log-probabilities are not asked of remote engines.", "Leave them out.")
        number = next(self._ids)
        name = f"{self._prefix}{number}"
        handle = RequestHandle(name, chat_id or name, self.cancel, on_ready)
        if priority is None:
            priority = self._chat_priority.get(handle.chat_id, Priority.FOREGROUND)
        ride = Ride(handle, wire.body_of(self._model, prompt, params, continue_final), title, priority, number, self._clock())
        with self._lock:
            if self._stopped:
                raise RequestRefused("engine_stopped", "The engine has just stopped.", "Try again, or choose another engine.")
            if len(self._waiting) >= self._config.max_waiting:
                raise RequestRefused("queue_full", f"{len(self._waiting):,} requests are waiting already.", "Try again later.")
            self._rides[handle.id] = ride
            self._waiting.append(ride)
            self._counters = replace(self._counters, submitted=self._counters.submitted + 1)
        self._post(self._board)
        return handle

    def cancel(self, request_id: str) -> None:
        self._post(lambda: self._cancel_now(request_id))

    def set_priority(self, request_id: str, priority: Priority) -> None:
        ride = self._rides.get(request_id)
        if ride is not None:
            ride.priority = priority

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        self._chat_priority[chat_id] = priority
        for ride in list(self._rides.values()):
            if ride.handle.chat_id == chat_id:
                ride.priority = priority

    # ------------------------------------------------------------------------------------------------------ steering

    def configure(
        self, *, seats: int | None = None, token_budget: int | None = None, policy: Policy | None = None, chunk: int | None = None
    ) -> None:
        """How many requests may be with the server at once; all else is the server's own. Raises EngineError("not_remote")."""
        if policy is Policy.STATIC or token_budget is not None or chunk is not None:
            raise EngineError("not_remote", "The server keeps its own policy and budgets.", "Change them where it was started.")
        if seats is not None:
            config = replace(self._config, seats=seats)
            config.check()
            self._config = config
            self._post(self._board)

    def pause(self) -> None:
        """Send nothing more; what is with the server goes on."""
        self._post(lambda: self._set_paused(True))

    def resume(self) -> None:
        self._post(lambda: self._set_paused(False))

    def clear_cache(self) -> None:
        self._not_here("The cache is the server's.")

    def resize_pool(self, num_blocks: int) -> None:
        self._not_here("The KV pool is the server's.")

    def start_recording(self) -> Future[None]:
        return _refused("A server's scheduling cannot be recorded from here.")

    def stop_recording(self) -> Future[Any]:
        return _refused("Nothing is being recorded.")

    def load(self, model: str) -> None:
        """Another model of the same server, for requests from now on."""
        self._model = model

    def unload(self) -> None:
        self._not_here("The model is loaded on the server.")

    def cancel_load(self) -> None:
        """There is no load to give up."""

    def let_go_after(self, seconds: float | None) -> None:
        """The model takes no memory here."""

    def restart(self) -> None:
        """Look for the server again."""
        self._post(lambda: self._again.set() if self._again is not None else None)

    # ---------------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Start the thread; it looks for the server. Twice is once."""
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="omnibus-remote", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 2.0) -> bool:
        """End every request, join the thread. Returns whether it ended in time."""
        with self._lock:
            self._closing = True
        ended = True
        if self._thread is not None:
            self._post(self._stop_all)
            self._thread.join(timeout)
            ended = not self._thread.is_alive()
        for ride in list(self._rides.values()):
            self._end(ride, FinishReason.CANCELLED)
        self._state = EngineState.CLOSED
        self._publish()
        return ended

    def __enter__(self) -> RemoteEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            self._fail(EngineError("engine_died", f"The remote engine stopped unexpectedly: {error}.", "Restart it."))
        finally:
            with contextlib.suppress(RuntimeError):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _main(self) -> None:
        self._again = asyncio.Event()
        headers = {"Authorization": f"Bearer {self._remote.key}"} if self._remote.key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=SEATS)
        self._main_task = asyncio.current_task()
        async with (
            httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, limits=limits) as self._client,
            httpx2.AsyncClient(timeout=METRICS_TIMEOUT_S) as self._watcher,
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
        """Until the server has told its models. What no waiting mends stops the engine until `restart`."""
        assert self._again is not None
        for pause in itertools.chain(RECONNECT_S, itertools.repeat(RECONNECT_S[-1])):
            self._tell(EngineState.LOADING, f"looking for {self._host}", self._error)
            try:
                await self._ask_models()
            except EngineError as error:
                if error.code in STOPPING:
                    self._fail(error)
                    await self._again.wait()
                else:
                    self._tell(EngineState.LOADING, error.message.rstrip("."), error.info())
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._again.wait(), await self._pause_of(pause))
                self._again.clear()
                continue
            self._error = None
            self._tell(EngineState.PAUSED if self._paused else EngineState.READY, "ready")
            return

    async def _pause_of(self, seconds: float) -> float:
        """With a clock of a test's own the pause passes at once."""
        if self._sleep is asyncio.sleep:
            return seconds
        await self._sleep(seconds)
        return 0.001

    async def _ask_models(self) -> None:
        try:
            answer = await self._client.get(f"{self._url}/models")
        except httpx2.HTTPError as error:
            raise wire.lost(error, self._host) from error
        try:
            if answer.status_code != 200:
                raise await wire.refusal(answer)
            content = answer.json()
            models = [item for item in content["data"] if isinstance(item, dict) and isinstance(item.get("id"), str)]
        except wire.Later as later:
            raise EngineError("remote_busy", f"{self._host}: {later.words}.", "It is asked again.") from later
        except (ValueError, KeyError, TypeError) as error:
            raise wire.nonsense(answer.text[:80]) from error
        names = [item["id"] for item in models]
        if self._model and self._model not in names and names:
            known = ", ".join(names[:5])
            raise EngineError("remote_model", f"The server has no model {self._model!r}.", f"It has {known}.")
        if not names and not self._model:
            raise EngineError("remote_model", "The server offers no model.", "Load one there, or name one.")
        self._model = self._model or names[0]
        chosen = next((item for item in models if item["id"] == self._model), {})
        meta = chosen.get("meta") if isinstance(chosen.get("meta"), dict) else {}
        context = chosen.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train") or 0  # type: ignore[union-attr]
        self._view = ModelView(
            name=self._model, device=self._host, lane="remote", context=context if isinstance(context, int) else 0, progress=1.0
        )

    async def _watch(self) -> None:
        """Read the metrics until the server is lost, or somebody asks to look for it again."""
        assert self._again is not None
        address = self._remote.metrics_url or f"{origin(self._url)}/metrics"
        same = origin(address) == origin(self._url)  # a key is for its own server alone
        headers = {"Authorization": f"Bearer {self._remote.key}"} if self._remote.key and same else {}
        silent = 0
        while not self._again.is_set():
            told = await self._read_metrics(address, headers)
            silent = 0 if told is not None else silent + 1
            if told is not None:
                self._told = told
            elif silent == 3:
                self._told = Told()  # stale figures are no figures
            self._publish()
            with contextlib.suppress(asyncio.TimeoutError):
                pause = self._remote.poll_s if silent < 3 or self._riding else 15 * self._remote.poll_s
                await asyncio.wait_for(self._again.wait(), pause)
        self._again.clear()

    async def _read_metrics(self, address: str, headers: dict[str, str]) -> Told | None:
        try:
            async with self._watcher.stream("GET", address, headers=headers) as answer:
                if answer.status_code != 200:
                    return None
                page = b""
                async for piece in answer.aiter_bytes():
                    page += piece
                    if len(page) > MOST:
                        break
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return None
        told = read_metrics(page[:MOST].decode("utf-8", "replace"))
        return told if told.kind else None

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
            ride.task = asyncio.get_running_loop().create_task(self._carry(ride), name=f"remote-{ride.handle.id}")
        self._publish()

    async def _carry(self, ride: Ride) -> None:
        error: EngineError | None = None
        try:
            error = await carry(ride, self._client, self._url, self._host, self._clock, lambda: self._moved(ride), self._sleep)
        except asyncio.CancelledError:
            ride.end(FinishReason.CANCELLED, self._clock())
        except Exception as trouble:
            log.exception("request %s failed", ride.handle.id)
            ride.end(FinishReason.ERROR, self._clock(), ErrorInfo("remote_failed", f"The request failed: {trouble}.", "Try again."))
        self._leave(ride, error)

    def _leave(self, ride: Ride, error: EngineError | None) -> None:
        with self._lock:
            self._rides.pop(ride.handle.id, None)
            if ride in self._riding:
                self._riding.remove(ride)
        self._count(ride, error)
        if error is not None and error.code in ("remote_unreachable", "remote_silent") and self._again is not None:
            self._again.set()  # the server is lost: look for it before anyone else is sent there
            self._state = EngineState.LOADING
        if not self._closing:
            self._board()

    def _count(self, ride: Ride, error: EngineError | None) -> None:
        usage, before = ride.usage, self._counters
        self._counters = replace(
            before,
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

    def _not_here(self, why: str) -> None:
        raise EngineError("not_remote", why, "Change it where the server was started.")

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
        snapshot = self._build()
        with self._ready:
            self._snapshot = snapshot
            self._ready.notify_all()
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                log.exception("a listener failed")


def _refused(why: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(EngineError("not_recording", why, "Record on an engine of this machine."))
    return future
