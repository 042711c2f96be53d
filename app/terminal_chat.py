"""`omnibus chat`: one chat in the terminal, streamed.

Owns the conversation's turns and the reading and writing of a terminal. /new starts over, /quit leaves, Ctrl-C stops an answer. What
the model says is untrusted: control characters, and with them escape sequences, never reach the terminal. Where the input is not a
terminal each line is a turn, and only answers are printed. With --prompt there is one turn, and standard output is its answer alone.
Imports no Qt.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol, TextIO

from engine import (
    KV_CLASSES,
    Engine,
    EngineConfig,
    EngineError,
    EngineState,
    Event,
    FinishedEvent,
    FinishReason,
    Message,
    RequestHandle,
    RequestRefused,
    SamplingParams,
    Snapshot,
    TokensEvent,
)

MOST_TOKENS = 1024
POLL_S = 0.1  # how long Ctrl-C may go unnoticed while nothing arrives
HELP = "/new starts over, /quit (or Ctrl-D) leaves, Ctrl-C stops an answer."
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Answering(Protocol):
    """What a chat needs of an engine."""

    @property
    def snapshot(self) -> Snapshot: ...

    def submit(self, prompt: list[Message], params: SamplingParams, *, chat_id: str, title: str) -> RequestHandle: ...


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("chat", help="chat in the terminal", epilog=HELP)
    parser.add_argument("--model", default="starter", help="a model folder or file, or a name out of `omnibus models list`")
    parser.add_argument("--remote", metavar="URL", help="a server with an OpenAI-compatible API, in place of a model of this machine")
    parser.add_argument("--key", help="the server's key (default: $OMNIBUS_REMOTE_KEY, or what the keyring has; see --keep-key)")
    parser.add_argument("--keep-key", action="store_true", help="keep --key in the system's keyring")
    parser.add_argument("--metrics", default="", metavar="URL", help="where the server's metrics are, if not beside its API")
    parser.add_argument("--whole", action="store_true", help="the server sends whole answers: their rhythm then tells who watches nothing")
    parser.add_argument("--prompt", metavar="TEXT", help="ask this alone, print the answer and leave; - reads it from standard input")
    parser.add_argument("--greedy", action="store_true", help="always take the likeliest token, as --temperature 0 does")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv-class", choices=KV_CLASSES, default="auto", help="what keys and values are kept in (default: auto)")
    same = "the same prompt and seed always give the same answer; without our own CPU kernels, nothing is then kept from turn to turn"
    parser.add_argument("--reproducible", action="store_true", help=same)
    parser.add_argument("--threads", type=int, help="torch threads (default: what the machine has to spare)")
    parser.add_argument("--system", default="", help="what the model is told before the chat")
    parser.add_argument("--max-tokens", type=int, default=MOST_TOKENS, help=f"longest answer (default: {MOST_TOKENS})")
    parser.add_argument("--temperature", type=float, default=0.7, help="0 always takes the likeliest token (default: 0.7)")
    parser.add_argument("--seed", type=int, help="makes the same chat give the same answers")


def run(args: argparse.Namespace) -> int:
    """0 when the person left, 1 when the engine stopped. Raises EngineError when there is no model."""
    params = SamplingParams(max_tokens=args.max_tokens, temperature=0.0 if args.greedy else args.temperature, seed=args.seed)
    params.check()
    logging.getLogger("engine").addHandler(logging.NullHandler())  # what the engine has to say is said below, once
    with open_engine(args) as engine:
        if args.prompt is not None:
            chat = TerminalChat(engine, params, args.system, interactive=False)
            chat.wait_for_model()
            return chat.ask(sys.stdin.read() if args.prompt == "-" else args.prompt)
        chat = TerminalChat(engine, params, args.system)
        chat.wait_for_model()
        return chat.converse()


def open_engine(args: argparse.Namespace) -> Any:
    """The engine that was asked for, not started yet. Raises EngineError."""
    if args.remote is not None:
        from engine import RemoteConfig, RemoteEngine, clean_metrics, clean_url, find_key, keep_key

        url = clean_url(args.remote)
        model = "" if args.model == "starter" else args.model
        config = RemoteConfig(url, args.key or find_key(url) or "", model, clean_metrics(args.metrics), seats=1, whole=args.whole)
        if args.key and args.keep_key:
            print(keep_key(url, args.key), file=sys.stderr)
        return RemoteEngine(config)
    return Engine(
        EngineConfig(
            model=args.model,
            device=args.device,
            dtype=args.dtype,
            kv_class=args.kv_class,
            threads=args.threads,
            reproducible=args.reproducible,
            seats=1,
        )
    )


class TerminalChat:
    """The conversation.

    Attributes:
        turns: what the model is shown at the next answer.
        interactive: a person types and reads; else both are pipes.
    """

    def __init__(
        self,
        engine: Answering,
        params: SamplingParams,
        system: str = "",
        *,
        read: Callable[[str], str] = input,
        out: TextIO | None = None,
        interactive: bool | None = None,
    ) -> None:
        self.engine = engine
        self.params = params
        self.out = out or sys.stdout
        self.interactive = (sys.stdin.isatty() and self.out.isatty()) if interactive is None else interactive
        self._read = read
        self._first = [Message("system", system)] if system else []
        self._chats = 0
        self._stop = False
        self.turns: list[Message] = []
        self._start_over()

    def wait_for_model(self) -> None:
        """Show the loading until the model is there. Raises the EngineError that stopped it."""
        while (snapshot := self.engine.snapshot).state in (EngineState.STARTING, EngineState.LOADING) and snapshot.error is None:
            if self.interactive:
                words = f"loading {snapshot.model.name}: {snapshot.model.progress:4.0%} {snapshot.model.stage}"
                self._write(f"\r{words:<70.70}")
            _pause(POLL_S)
        if self.interactive:
            self._write("\r" + " " * 70 + "\r")
        if snapshot.error is not None:
            raise EngineError(snapshot.error.code, snapshot.error.message, snapshot.error.hint)
        model = snapshot.model
        self._note(f"{model.name} on {', '.join(part for part in (model.device, model.dtype) if part)}\n{HELP}")

    def converse(self) -> int:
        """Until the person leaves."""
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  input() then has a history and can be edited
        while True:
            try:
                line = self._read("\n> " if self.interactive else "").strip()
            except EOFError:
                self._note("")
                return 0
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                self._note(f"\n{HELP}")
                continue
            if line in ("/quit", "/exit", "/q"):
                return 0
            if line == "/new":
                self._start_over()
                self._note("A new chat.")
            elif line in ("/help", "/?"):
                self._note(HELP)
            elif line.startswith("/") and " " not in line and "/" not in line[1:]:
                self._note(f"There is no command {line}. {HELP}")
            elif line and not self.answer(line):
                return 1

    def ask(self, text: str) -> int:
        """One question and no more. 0 when it was answered, else 1."""
        before = len(self.turns)
        self.answer(text)
        return 0 if len(self.turns) > before else 1

    def answer(self, text: str) -> bool:
        """One turn. False when the engine has stopped for good."""
        self.turns.append(Message("user", text))
        try:
            handle = self.engine.submit(self.turns, self.params, chat_id=f"terminal-{self._chats}", title="terminal")
        except RequestRefused as error:
            self._take_back(error)
            return error.code != "engine_stopped"
        said, end = self._stream(handle)
        if end.error is not None:
            self._take_back(EngineError(end.error.code, end.error.message, end.error.hint))
            return self.engine.snapshot.state is not EngineState.FAILED
        self.turns.append(Message("assistant", said))
        self._write("\n")
        self._note(self._about(end))
        return self.engine.snapshot.state is not EngineState.CLOSED

    def _stream(self, handle: RequestHandle) -> tuple[str, FinishedEvent]:
        """Print an answer as it comes; returns what was printed of it, and its end."""
        said: list[str] = []
        with self._interrupts():
            while True:
                events: list[Event] = handle.wait(POLL_S)
                for event in events:
                    if isinstance(event, TokensEvent):
                        said.append(event.text)
                        self._write(event.text.translate(_CONTROL))
                    else:
                        return "".join(said), event
                if self._stop:
                    handle.cancel()  # from here on only the end arrives

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """While an answer runs, Ctrl-C stops the answer and not the program; raising in the middle of printing would lose text."""
        self._stop = False
        if not self.interactive:
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self._stop = True

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _start_over(self) -> None:
        self._chats += 1
        self.turns = list(self._first)

    def _take_back(self, error: EngineError) -> None:
        """The question stays unasked, so that the chat can go on without it."""
        del self.turns[-1]
        stream = self.out if self.interactive else sys.stderr
        print(f"{error.message} {error.hint}".strip(), file=stream, flush=True)

    def _about(self, end: FinishedEvent) -> str:
        time, count = end.time, end.usage.completion_tokens
        words = f"[{count} tokens"
        if count > 1 and time.decode:
            words += f", {(count - 1) / time.decode:.0f} a second"
        if time.ttft is not None:
            words += f", the first after {time.ttft:.1f} s"
        ends = {FinishReason.LENGTH: "; at its limit", FinishReason.CANCELLED: "; stopped"}
        return words + ends.get(end.reason, "") + "]"

    def _note(self, text: str) -> None:
        """Words of ours: only for a person."""
        if self.interactive:
            dim, plain = ("\x1b[2m", "\x1b[0m") if text and self.out.isatty() else ("", "")
            self._write(f"{dim}{text}{plain}\n")

    def _write(self, text: str) -> None:
        try:
            self.out.write(text)
        except UnicodeEncodeError:  # a terminal that is not UTF-8
            encoding = self.out.encoding or "ascii"
            self.out.write(text.encode(encoding, "replace").decode(encoding))
        self.out.flush()


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)
