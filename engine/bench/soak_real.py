"""The soak on the real engine: people, HTTP clients, changes of model and made-up faults, all at once, for minutes.

Everything is real but the faults and the small random models: the engine's thread, loading and unloading, torch, the cache, the server and
its sockets. Counted are requests that did not end exactly once or whose tokens do not add up, blocks that are held when nobody is left,
threads, processes and files that outlive the engine, and the growth of this process's memory. Where chats are kept (`Keeper`), every word
of them must be on disk in the end.
"""

from __future__ import annotations

import gc
import http.client
import json
import logging
import random
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.bench.keeping import Keeper, NoKeeper
from engine.bench.small_models import write_small_model
from engine.engine import Engine
from engine.handle import RequestHandle
from engine.opened import OpenModel, open_real_model
from engine.scheduling.plan import Row, Sampled
from engine.server.serving import ApiServer
from engine.types import (
    EngineConfig,
    EngineState,
    ErrorInfo,
    FinishedEvent,
    FinishReason,
    Message,
    RequestRefused,
    SamplingParams,
    TokensEvent,
)

log = logging.getLogger(__name__)

PEOPLE, CLIENTS = 5, 2
SEATS = 4
KV_TOKENS = 1536  # little, so that riders lose their seats now and then
PATIENCE_S = 120.0  # a request that says nothing for so long is lost
SWITCH_S = 8.0  # between two changes of the model, on average
SETTLED = 0.3  # of the run, before memory can be flat: every kind of thing has happened once by then
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@dataclass
class Book:
    """What is counted, by all threads."""

    requests: int = 0
    lost: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, lost: bool = False) -> None:
        """One request ended; `name` says how, if not as wished."""
        with self.lock:
            self.requests += 1
            self.lost += lost
            if name:
                self.errors[name] += 1

    def fail(self, words: str) -> None:
        with self.lock:
            self.unexpected.append(words)


class FaultyRunner:
    """A runner that fails now and then: on one request wherever it rides, on a whole step, or for want of memory."""

    def __init__(self, runner: Any, seed: int) -> None:
        self._runner = runner
        self._rnd = random.Random(seed)
        self._sick: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        chance = self._rnd.random()
        if chance < 0.0005:
            self._sick.add(rows[0].request.id)
        elif chance < 0.001:
            raise MemoryError
        elif chance < 0.0015:
            raise RuntimeError("made-up fault of a whole step")
        if any(row.request.id in self._sick for row in rows):
            raise RuntimeError("made-up fault of one request")
        results: list[Sampled | None] = self._runner.forward(rows)
        return results

    def forget(self, request: Any) -> None:
        self._runner.forget(request)


class RealSoak:
    """An engine, a server, and those who use and abuse them."""

    def __init__(self, models: Sequence[Path], seed: int, keeper: Keeper) -> None:
        self.book = Book()
        self.keeper = keeper
        self._seed = seed
        self._models = [str(model) for model in models]
        self._over = threading.Event()
        config = EngineConfig(
            model=self._models[0],
            device="cpu",
            seats=SEATS,
            kv_tokens=KV_TOKENS,
            block_size=16,
            max_waiting=64,
            aging_s=5.0,
            threads=1,
            debug_audit=True,
        )
        self.engine = Engine(config, opener=self._open)
        self.token = secrets.token_urlsafe(32)
        self.server = ApiServer(self.engine, self.token)
        self._threads: list[threading.Thread] = []
        self._opened = 0

    def _open(self, config: EngineConfig, progress: Callable[[float, str], None], cancelled: Callable[[], bool]) -> OpenModel:
        opened = open_real_model(config, progress, cancelled)
        self._opened += 1
        return replace(opened, runner=FaultyRunner(opened.runner, self._seed + self._opened))

    def start(self) -> None:
        self.engine.start()
        self.engine.wait_ready(PATIENCE_S)
        self.server.start()
        work = [(self._person, number) for number in range(PEOPLE)] + [(self._client, number) for number in range(CLIENTS)]
        for number, (what, which) in enumerate([*work, (self._steward, 0)]):
            rnd = random.Random(self._seed * 1000 + number)
            name = f"omnibus-soak-{what.__name__.strip('_')}-{which}"
            thread = threading.Thread(target=self._guarded, args=(what, rnd), name=name)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Everybody finishes what they do; then nobody is left."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            if thread.is_alive():
                self.book.fail(f"{thread.name} does not come to an end")

    def blocks_held(self) -> int:
        """Blocks that are still referenced now that nobody rides or waits."""
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            snapshot = self.engine.snapshot
            if not (snapshot.seated or snapshot.waiting or snapshot.kv.referenced):
                return 0
            time.sleep(0.05)
        return self.engine.snapshot.kv.referenced

    def close(self) -> None:
        if not self.server.stop(10.0):
            self.book.fail("the server's thread did not end")
        if not self.engine.close(30.0):
            self.book.fail("the engine's thread did not end")
        for words in self.keeper.close():
            self.book.fail(words)

    # --------------------------------------------------------------------------------------------------------- people

    def _guarded(self, what: Callable[[random.Random], None], rnd: random.Random) -> None:
        while not self._over.is_set():
            try:
                what(rnd)
            except Exception as error:
                log.exception("%s failed", what.__name__)
                self.book.fail(f"{what.__name__}: {type(error).__name__}: {error}")
                self._over.wait(1.0)

    def _person(self, rnd: random.Random) -> None:
        """One chat of a few turns, with stops, on this model or the other."""
        chat = self.keeper.begin()
        try:
            self._talk(chat, rnd)
        finally:
            self.keeper.leave(chat, " ".join(rnd.choices(WORDS, k=rnd.randint(0, 3))))

    def _talk(self, chat: str, rnd: random.Random) -> None:
        turns: list[Message] = []
        for _ in range(rnd.randint(1, 4)):
            if self._over.is_set():
                return
            words = " ".join(rnd.choices(WORDS, k=rnd.randint(1, 12)))
            turns.append(Message("user", words))
            answer = self.keeper.ask(chat, words)
            params = SamplingParams(max_tokens=rnd.randint(1, 60), temperature=rnd.choice((0.0, 0.8)), stop=rnd.choice(((), ("q",))))
            model = rnd.choice(self._models) if rnd.random() < 0.004 else ""
            try:
                handle = self.engine.submit(turns, params, model=model)
            except RequestRefused as refused:
                self.keeper.finish(chat, answer, ErrorInfo(refused.code, refused.message))
                self.book.note(refused.code)
                self._over.wait(0.1)
                return
            text, end = self._read(handle, rnd, answer)
            self.keeper.finish(chat, answer, end or ErrorInfo("lost", "No end came."))
            turns.append(Message("assistant", text or "."))

    def _read(self, handle: RequestHandle, rnd: random.Random, answer: Any) -> tuple[str, FinishedEvent | None]:
        """The whole answer, or what came before it was stopped. Whatever happens it must end once."""
        stop_after = rnd.randint(0, 20) if rnd.random() < 0.2 else None
        parts: list[str] = []
        tokens = 0
        end: FinishedEvent | None = None
        cancelled = False
        if stop_after == 0:
            handle.cancel()
            cancelled = True
        while end is None:
            events = handle.wait(PATIENCE_S)
            if not events:
                self.book.note("no end", lost=True)
                return "".join(parts), None
            for event in events:
                if end is not None:
                    self.book.fail(f"{handle.id} spoke after its end")
                if isinstance(event, TokensEvent):
                    tokens += event.tokens
                    parts.append(event.text)
                    self.keeper.append(answer, event.text)
                    if cancelled:
                        self.book.fail(f"{handle.id} spoke after it was cancelled")
                elif isinstance(event, FinishedEvent):
                    end = event
            if end is None and stop_after is not None and tokens >= stop_after and not cancelled:
                handle.cancel()
                cancelled = True
        whole = end.reason in (FinishReason.STOP, FinishReason.LENGTH)
        lost = bool(handle.poll()) or (whole and tokens != end.usage.completion_tokens)
        name = end.error.code if end.error else "cancelled" if end.reason is FinishReason.CANCELLED else ""
        self.book.note(name, lost)
        return "".join(parts), end

    def _client(self, rnd: random.Random) -> None:
        """One HTTP request, streamed or whole; some hang up in the middle."""
        streams, leaves = rnd.random() < 0.7, rnd.random() < 0.2
        body = {
            "messages": [{"role": "user", "content": " ".join(rnd.choices(WORDS, k=rnd.randint(1, 12)))}],
            "max_tokens": rnd.randint(1, 40),
            "stream": streams,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            if leaves and not streams:
                self.book.note("client left")
                return
            response = connection.getresponse()
            if response.status != 200:
                response.read()
                self.book.note(f"HTTP {response.status}")
                self._over.wait(0.2)
            elif streams:
                self._read_stream(response, leaves)
            else:
                usage = json.loads(response.read())["usage"]
                self.book.note("", lost=usage["completion_tokens"] > body["max_tokens"])
        except TimeoutError:
            self.book.note("no end", lost=True)
        finally:
            connection.close()
        self._over.wait(rnd.random() * 0.1)

    def _read_stream(self, response: http.client.HTTPResponse, leaves: bool) -> None:
        last, seen = "", 0
        while line := response.readline():
            if line.startswith(b"data: "):
                last = line[6:].decode().strip()
                seen += 1
                if leaves and seen > 2:
                    self.book.note("client left")
                    return
        told = json.loads(last).get("error") if last and last != "[DONE]" else None
        self.book.note(str(told.get("code")) if told else "", lost=last != "[DONE]" and told is None)

    # -------------------------------------------------------------------------------------------------------- steward

    def _steward(self, rnd: random.Random) -> None:
        """Changes the model and the rules, and brings the engine back when made-up faults have stopped it."""
        if self.engine.snapshot.state is EngineState.FAILED:
            self.engine.restart()
            self._over.wait(1.0)
            return
        chance = rnd.random() * SWITCH_S
        if chance < 0.7:
            self.engine.load(rnd.choice(self._models))
        elif chance < 0.9:
            self.engine.unload()
        elif chance < 1.0:
            self.engine.load(rnd.choice(self._models))
            self._over.wait(rnd.random() * 0.5)
            self.engine.cancel_load()
        elif chance < 1.5:
            self.engine.configure(seats=rnd.randint(1, SEATS))
        elif chance < 1.7:
            self.engine.clear_cache()
        elif chance < 1.9:
            self.engine.pause()
            self._over.wait(0.2)
            self.engine.resume()
        self._over.wait(1.0)


def soak(
    minutes: float, seed: int = 1, on_minute: Callable[[str], None] | None = None, keeper: Callable[[Path], Keeper] | None = None
) -> dict[str, Any]:
    """Run for so long, let everyone finish, close everything, and count what stayed. `keeper` is given the folder to keep chats in."""
    import psutil

    from engine.bench.soak import slope

    process = psutil.Process()
    before = set(threading.enumerate())
    samples: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="omnibus-soak-") as place:
        models = [write_small_model(Path(place) / name, number) for number, name in enumerate(("first", "second"))]
        files, children = set(open_files(process)), process.children(recursive=True)
        run = RealSoak(models, seed, (keeper or NoKeeper)(Path(place)))
        started = time.monotonic()
        leaked = 0
        try:
            run.start()
            while (spent := time.monotonic() - started) < 60.0 * minutes:
                samples.append((spent / 3600.0, process.memory_info().rss / 2**20))
                if on_minute and len(samples) % 60 == 0:
                    on_minute(f"{spent / 60:.0f} min: {run.book.requests:,} requests, {samples[-1][1]:.0f} MiB")
                time.sleep(1.0)
        finally:
            run.stop()
            leaked = run.blocks_held()
            run.close()
        kept = run.keeper.figures()
        gc.collect()
        files_left = sorted(set(open_files(process)) - files)
        children_left = [child for child in process.children(recursive=True) if child not in children]
    left = [thread.name for thread in threading.enumerate() if thread not in before and thread.name.startswith("omnibus")]
    settled = [sample for sample in samples if sample[0] * 3600 >= SETTLED * 60 * minutes]
    book = run.book
    return {
        "requests": book.requests,
        "lost_events": book.lost,
        "leaked_blocks": leaked,
        "rss_slope_mib_per_h": round(slope(settled), 2),
        "threads_left": len(left),
        "errors": dict(sorted(book.errors.items())),
        "unexpected": book.unexpected[:20],
        "files_left": files_left,
        "processes_left": len(children_left),
        "models_loaded": run._opened,
        "rss_mib": round(samples[-1][1], 1) if samples else 0.0,
        "minutes": minutes,
        **kept,
    }


def open_files(process: Any) -> list[str]:
    """The files and connections that are open, by their names, those of libraries and devices left out."""
    files = [file.path for file in process.open_files()]
    return files + [f"{one.laddr}->{one.raddr}" for one in process.net_connections(kind="inet")]


def clean(figures: dict[str, Any]) -> bool:
    """Whether nothing was lost and nothing stayed. Memory's slope is told, not judged: over minutes it is mostly chance."""
    names = ("lost_events", "leaked_blocks", "threads_left", "unexpected", "files_left", "processes_left")
    return not any(figures[name] for name in names)
