"""Servers that others wrote, behind our remote engine: what a person would do with them, check by check, against a running server.

Not part of the test suite, as those servers are not installed with it. From an environment of ours, with a server running:

    python -m llama_cpp.server --model MODEL.gguf --port 8001          (pip install "llama-cpp-python[server]")
    llama-server -m MODEL.gguf --port 8001 --metrics --api-key K
    guidellm mock-server --port 8001 --model made-up --output-tokens 200 --itl-ms 5
    python tests/clients/try_servers.py --url http://127.0.0.1:8001/v1 [--key K] [--pid PID]

Prints one line a check. With --pid the server is killed at the end, in the middle of an answer. Ends with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.remote.remote import RemoteConfig, RemoteEngine
from engine.types import Chat, EngineError, FinishedEvent, FinishReason, Message, SamplingParams, TokensEvent, Tool

PATIENCE = 120.0
ASK = [Message("user", "Count from one to twenty in words.")]
LONG = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
WEATHER = Tool("weather", "Tells the weather of a city", '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')


class NotOffered(Exception):
    """The server does not do this; that is no fault of the engine's."""


@dataclass(frozen=True)
class Server:
    url: str
    key: str = ""
    pid: int = 0

    @contextmanager
    def engine(self, **changes: Any) -> Iterator[RemoteEngine]:
        with RemoteEngine(RemoteConfig(**{"url": self.url, "key": self.key, "poll_s": 0.2, **changes})) as engine:
            engine.wait_ready(PATIENCE)
            yield engine


def read(handle: Any) -> tuple[str, FinishedEvent, int]:
    """(text, end, pieces) of an answer."""
    text, pieces = "", 0
    while True:
        events = handle.wait(PATIENCE)
        assert events, "nothing came for two minutes"
        for event in events:
            if isinstance(event, FinishedEvent):
                return text, event, pieces
            text += event.text
            pieces += 1


def ready(server: Server) -> str:
    with server.engine() as engine:
        snapshot = engine.snapshot
        return f"model {snapshot.model.name}, context {snapshot.model.context or 'not told'}"


def stream(server: Server) -> str:
    with server.engine() as engine:
        text, end, pieces = read(engine.submit(ASK, SamplingParams(max_tokens=24, temperature=0.0)))
    assert end.error is None and text.strip() and pieces > 1, (end, text)
    assert end.time.ttft is not None and end.usage.completion_tokens <= 24
    return f"{pieces} pieces, {end.usage.prompt_tokens or 'no'} + {end.usage.completion_tokens} tokens told, ends with {end.reason}"


def the_limit(server: Server) -> str:
    with server.engine() as engine:
        _, end, _ = read(engine.submit(ASK, SamplingParams(max_tokens=5, temperature=0.0)))
    if end.reason is not FinishReason.LENGTH:
        raise NotOffered(f"an answer of 5 tokens ends with {end.reason}")
    return "an answer of 5 tokens ends with length"


def the_same_again(server: Server) -> str:
    params = SamplingParams(max_tokens=16, temperature=0.0)
    with server.engine() as engine:
        first, second = (read(engine.submit(ASK, params))[0] for _ in range(2))
    if first != second:
        raise NotOffered("greedy answers differ")
    return "greedy answers are equal"


def many_at_once(server: Server) -> str:
    params = SamplingParams(max_tokens=12, temperature=0.0)
    with server.engine() as engine:
        handles = [engine.submit([Message("user", f"Say {number}.")], params) for number in range(12)]
        ends = [read(handle)[1] for handle in handles]
    assert all(end.error is None for end in ends), [end.error for end in ends if end.error]
    return "12 answers"


def stop_is_stop(server: Server) -> str:
    with server.engine() as engine:
        handle = engine.submit(ASK, LONG)
        assert any(isinstance(event, TokensEvent) for event in handle.wait(PATIENCE))
        began = time.monotonic()
        handle.cancel()
        _, end, _ = read(handle)
        took = time.monotonic() - began
        assert end.reason is FinishReason.CANCELLED, end
        text, end, _ = read(engine.submit(ASK, SamplingParams(max_tokens=4)))
        assert end.error is None and text, "the next one is answered"
    return f"after {1000 * took:.0f} ms"


def dashboard(server: Server) -> str:
    with server.engine() as engine:
        handle = engine.submit(ASK, LONG, title="mine")
        told, until = None, time.monotonic() + 20
        while not handle.ended and time.monotonic() < until:
            snapshot = engine.snapshot
            if any(seat is not None and seat.title == "mine" for seat in snapshot.seats):
                told = snapshot
                if snapshot.kv.referenced:
                    break
            time.sleep(0.05)
        handle.cancel()
        read(handle)
    assert told is not None, "our own request was never seen"
    mine = next(seat for seat in told.seats if seat is not None and seat.title == "mine")
    kv = f"{told.kv.referenced} of {told.kv.total} positions or blocks" if told.kv.total else "not told"
    return f"{len(told.seats)} seats, {told.seated} taken, prompt {mine.prompt_tokens or 'not told'}, KV {kv}"


def tools(server: Server) -> str:
    with server.engine() as engine:
        text, end, _ = read(
            engine.submit(Chat((Message("user", "What is the weather in Bern? Use the tool."),), (WEATHER,)), SamplingParams(max_tokens=80))
        )
    if end.error is not None:
        raise NotOffered(end.error.message)
    return "a call" if "<tool_call>" in text else "an answer without a call"


def another_model(server: Server) -> str:
    try:
        with server.engine(model="no-such-model"):
            raise NotOffered("any model's name is taken")
    except EngineError as error:
        assert error.code == "remote_model", error.code
        return error.message


def a_wrong_key(server: Server) -> str:
    if not server.key:
        raise NotOffered("it runs without a key")
    wrong = "wrong-" + server.key
    try:
        with server.engine(key=wrong) as engine:
            _, end, _ = read(engine.submit(ASK, SamplingParams(max_tokens=4)))
            assert end.error is not None and end.error.code == "remote_key", end
            return f"{end.error.message} (at the first question)"
    except EngineError as error:
        assert error.code == "remote_key" and wrong not in error.message, error.code
        return error.message


def too_long(server: Server) -> str:
    with server.engine() as engine:
        context = engine.snapshot.model.context or 2048
        _, end, _ = read(engine.submit([Message("user", "one two three four " * context)], SamplingParams(max_tokens=4)))
    if end.error is None:
        raise NotOffered("it takes a chat of four times its context")
    if end.error.code != "prompt_too_long":
        raise NotOffered(f"it says no more than: {end.error.message}")
    return end.error.message


@contextmanager
def relay(url: str) -> Iterator[tuple[str, list[int]]]:
    """Something between us and the server that breaks connections: (its address, after so many bytes of an answer each)."""
    cuts: list[int] = []
    parts = urlsplit(url)
    listening = socket.create_server(("127.0.0.1", 0))

    def carry(near: socket.socket) -> None:
        with near, socket.create_connection((parts.hostname or "", parts.port or 80)) as far:
            selector = selectors.DefaultSelector()
            for each in (near, far):
                selector.register(each, selectors.EVENT_READ)
            left: int | None = None
            while True:
                for key, _ in selector.select():
                    told = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not told:
                        return
                    if key.fileobj is near:
                        if told.startswith(b"POST") and cuts:
                            left = cuts.pop(0)
                        far.sendall(told)
                    else:
                        near.sendall(told if left is None else told[:left])
                        left = None if left is None else left - len(told)
                        if left is not None and left <= 0:
                            return

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=carry, args=(listening.accept()[0],), name="relay", daemon=True).start()

    threading.Thread(target=serve, name="relays", daemon=True).start()
    try:
        yield f"{parts.scheme}://127.0.0.1:{listening.getsockname()[1]}{parts.path}", cuts
    finally:
        listening.close()


def cut_in_the_middle(server: Server) -> str:
    """The connection breaks, the server lives. Of what came nothing is lost; from one that keeps its streams the rest comes, too."""
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    with server.engine() as engine:
        whole, _, _ = read(engine.submit(ASK, params))
    with relay(server.url) as (url, cuts), Server(url, server.key).engine() as engine:
        time.sleep(1.0)  # its metrics tell which server it is
        mended = 0
        for cut in (2000, 3333, 5001):
            cuts.append(cut)
            text, end, _ = read(engine.submit(ASK, params))
            assert text and whole.startswith(text), (cut, text, whole)
            mended += end.error is None and text == whole
            assert end.error is None or end.error.code == "stream_cut", end
    if mended < 3:
        raise NotOffered("the rest of an answer cannot be had; what came is kept")
    return "three answers came whole over connections that broke"


def killed_in_the_middle(server: Server) -> str:
    """Last: afterwards there is no server."""
    if not server.pid:
        raise NotOffered("no --pid was given")
    with server.engine() as engine:
        handle = engine.submit(ASK, LONG)
        assert any(isinstance(event, TokensEvent) for event in handle.wait(PATIENCE))
        os.kill(server.pid, signal.SIGKILL)
        _, end, _ = read(handle)
        assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "stream_cut", end
    return end.error.message


CHECKS: tuple[Callable[[Server], str], ...] = (
    ready,
    stream,
    the_limit,
    the_same_again,
    many_at_once,
    stop_is_stop,
    dashboard,
    tools,
    another_model,
    a_wrong_key,
    too_long,
    cut_in_the_middle,
    killed_in_the_middle,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="base URL, with /v1")
    parser.add_argument("--key", default="")
    parser.add_argument("--pid", type=int, default=0, help="of the server, to be killed at the end")
    args = parser.parse_args()
    server = Server(args.url, args.key, args.pid)
    failed = 0
    for check in CHECKS:
        try:
            outcome = check(server)
        except NotOffered as error:
            print(f"{check.__name__:22} --      {error}", flush=True)
        except Exception:
            failed += 1
            print(f"{check.__name__:22} FAILED\n{traceback.format_exc(limit=-4)}", flush=True)
        else:
            print(f"{check.__name__:22} ok      {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
