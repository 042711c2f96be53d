"""`omnibus bench streaming`: what a streamed token costs this process between the end of a step and the socket, in processor time.

The engine and its server are the real ones, the model says words at once, and clients in another process read what is streamed. Between
two steps the model waits as long as a real one computes, and reads as much memory as one has weights, which leaves the caches as cold.
The engine's thread is measured from a forward pass to the next, once with handles that nobody is woken for and once served, and the
server's thread by its own clock over the same steps. Figures are medians of steps, so that what else runs on the machine hardly shows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, write_document
from engine.engine import Engine
from engine.measures import percentile
from engine.opened import OpenModel
from engine.scheduling.plan import CacheRules, Row, Sampled
from engine.scheduling.request import RequestState
from engine.server.serving import ApiServer
from engine.text.forms import ChatForm
from engine.text.stream import TextStream
from engine.text.tools import ToolForm
from engine.types import Chat, EngineConfig, Message, ModelView, SamplingParams

PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions", "response": "/v1/responses"}
WORDS = (" the", " answer", "ing", " is", ",", " 42", '"x"', "\n")
BLOCK, BLOCKS = 16, 1 << 14
WARM_UP = 40  # steps
PATIENCE_S = 120.0
LOOK_S = 0.02


class _Talker:
    """A model that says any word at once, and a tokenizer to go with it.

    Attributes:
        steps: of those in which all decode, microseconds of the engine's thread outside of the model, and its time of `other` at their end.
        other: the clock of another thread.
    """

    context = 1 << 20
    rules = CacheRules()
    eos_ids: frozenset[int] = frozenset()
    tool_form = ToolForm.NONE
    drafts = False

    def __init__(self, chats: int, pause_s: float, weights_mib: int) -> None:
        self.steps: list[tuple[float, float]] = []
        self.other: Callable[[], float] = lambda: 0.0
        self._chats = chats
        self._pause_s = pause_s
        self._weights = np.ones(weights_mib << 17)
        self._left = 0.0

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        spent = time.thread_time() - self._left
        if len(rows) == self._chats and all(row.count == 1 for row in rows):
            self.steps.append((1e6 * spent, 1e6 * self.other()))
        time.sleep(self._pause_s)
        self._weights.sum()
        said = [Sampled((row.start + place) % len(WORDS)) if row.samples else None for place, row in enumerate(rows)]
        self._left = time.thread_time()
        return said

    def forget(self, request: RequestState) -> None: ...

    def reproduce(self, wanted: bool) -> bool:
        return True

    def resize(self, num_blocks: int) -> None: ...

    def copy(self, copies: Sequence[Any]) -> None: ...

    def encode(self, text: str) -> list[int]:
        return [0] * len(text)

    def encode_chat(self, chat: Chat | Sequence[Message], *rest: Any) -> list[int]:
        return [0] * 20

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(WORDS[token] for token in token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return WORDS[token_id].encode()

    def stream(self, stop: tuple[str, ...]) -> TextStream:
        return TextStream(_Words(), frozenset(), stop)

    def use_form(self, form: ChatForm) -> None: ...


class _Words:
    def push(self, token_id: int) -> str:
        return WORDS[token_id]

    def flush(self) -> str:
        return ""


@dataclass(frozen=True)
class Setting:
    """What is streamed."""

    chats: int = 8
    tokens: int = 400
    path: str = "chat"
    pause_s: float = 0.004
    weights_mib: int = 32


@dataclass
class _House:
    """An engine over a talker, up to its end."""

    setting: Setting
    talker: _Talker = field(init=False)
    engine: Engine = field(init=False)

    def __enter__(self) -> _House:
        setting = self.setting
        self.talker = talker = _Talker(setting.chats, setting.pause_s, setting.weights_mib)
        view = ModelView("talker", "cpu", "none", "made-up", talker.context, 1.0, "ready")
        opened = OpenModel(talker, talker, BLOCKS, BLOCK, 64, view, lambda: None)
        self.engine = Engine(EngineConfig(model="talker", seats=setting.chats), opener=lambda *arguments: opened)
        self.engine.start()
        self.engine.wait_ready(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close(PATIENCE_S)


def measure(setting: Setting) -> dict[str, Any]:
    """Microseconds a token. Raises RuntimeError where a client did not get its answer, or a thread's clock cannot be read."""
    alone, _ = _per_step(_in_process(setting))
    served, server = _per_step(_served(setting))
    figures: dict[str, Any] = {"chats": setting.chats, "tokens": setting.tokens, "path": setting.path}
    for name, step in {"engine_alone": alone, "engine_served": served, "server": server}.items():
        figures[f"{name}_us_token"] = round(step / setting.chats, 2)
    return figures


def _per_step(steps: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Medians: of the engine's thread, and of the other's."""
    counted = steps[WARM_UP:]
    other = [after - before for (_, before), (_, after) in zip(counted[:-1], counted[1:], strict=True)]
    return percentile(sorted(spent for spent, _ in counted), 0.5), percentile(sorted(other), 0.5)


def _in_process(setting: Setting) -> list[tuple[float, float]]:
    with _House(setting) as house:
        params = SamplingParams(max_tokens=setting.tokens)
        for number in range(setting.chats):
            house.engine.submit("hello", params, chat_id=f"chat {number}")
        until = time.monotonic() + PATIENCE_S
        while house.engine.busy and time.monotonic() < until:
            time.sleep(LOOK_S)  # nobody waits for what they say
        return house.talker.steps


def _served(setting: Setting) -> list[tuple[float, float]]:
    with _House(setting) as house:
        server = ApiServer(house.engine, None)
        server.start()
        try:
            house.talker.other = _clock_of("omnibus-api")
            command = [sys.executable, "-m", "engine.bench.streaming", str(server.port), json.dumps([_body(setting)] * setting.chats)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            done = subprocess.run([*command, PATHS[setting.path]], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
            if done.returncode:
                raise RuntimeError(f"The clients failed: {done.stderr.strip().rpartition(chr(10))[2]}")
            return house.talker.steps
        finally:
            server.stop()


def _clock_of(name: str) -> Callable[[], float]:
    """The processor time of a thread of ours, in seconds. Raises RuntimeError where the system does not tell it to another thread."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        raise RuntimeError("This system does not tell the processor time of another thread; Linux does.")
    clock = time.pthread_getcpuclockid(thread.ident)
    return lambda: time.clock_gettime(clock)


def _body(setting: Setting) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "chat": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": setting.tokens},
        "completion": {"prompt": "hello", "max_tokens": setting.tokens},
        "response": {"input": "hello", "max_output_tokens": setting.tokens},
    }[setting.path]
    return {**asked, "stream": True}


def listen(port: int, bodies: Sequence[dict[str, Any]], path: str) -> None:
    """The clients: they do no more than read. Raises RuntimeError for an answer that does not come to its end."""
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        for body in bodies:
            raw = json.dumps(body).encode()
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
            client.sendall(head.encode() + raw)
            waiting.register(client, selectors.EVENT_READ, bytearray())
        while waiting.get_map():
            for key, _ in waiting.select():
                reader, end = key.fileobj, key.data
                assert isinstance(reader, socket.socket)
                piece = reader.recv(1 << 16)
                end += piece
                del end[:-4096]
                if not piece:
                    raise RuntimeError(f"an answer was cut off: {bytes(end)!r}")
                if end.endswith(b"0\r\n\r\n"):
                    if b'"finish_reason":"length"' not in end and b"max_output_tokens" not in end:
                        raise RuntimeError(f"an answer ended otherwise: {bytes(end)!r}")
                    waiting.unregister(reader)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("streaming", help="what a streamed token costs between the step and the socket")
    parser.add_argument("--chats", type=int, default=Setting.chats)
    parser.add_argument("--tokens", type=int, default=Setting.tokens, help="of each answer")
    parser.add_argument("--path", choices=PATHS, default=Setting.path, help="how they are asked for")
    parser.add_argument("--pause", type=float, default=1e3 * Setting.pause_s, metavar="MS", help="of a forward pass")
    parser.add_argument(
        "--weights", type=int, default=Setting.weights_mib, metavar="MIB", help="read in each of them; 0 leaves caches warm"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 it could not be measured or the document not be written, 2 asked for in a wrong way."""
    fits = args.chats > 0 and args.tokens >= 2 * WARM_UP and args.tokens * args.chats <= BLOCK * BLOCKS // 2
    if not fits or not 0 <= args.pause < math.inf or args.weights < 0:
        most = BLOCK * BLOCKS // 2
        print(
            f"It takes a chat or more of {2 * WARM_UP} tokens or more, {most:,} in all at most, and no negative numbers.", file=sys.stderr
        )
        return 2
    try:
        check_writable(args.json)
        figures = measure(Setting(args.chats, args.tokens, args.path, args.pause / 1e3, args.weights))
        write_document(args.json, figures)
    except (NotWritable, RuntimeError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    out = human_stream(args.json)
    print(f"{args.chats} chats of {args.tokens} tokens, asked for as {PATHS[args.path]}; microseconds of processor time a token", file=out)
    lines = {"engine_alone": "engine's thread, unserved", "engine_served": "engine's thread, served", "server": "server's thread"}
    for name, words in lines.items():
        print(f"{words:<28}{figures[f'{name}_us_token']:8.1f}", file=out)
    return 0


if __name__ == "__main__":
    listen(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
