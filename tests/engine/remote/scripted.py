"""Servers that follow a script: what an OpenAI-compatible API answers, said word by word, faults included."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.types import FinishedEvent, Message, TokensEvent

MODEL = "made-up"
CHAT = [Message("system", "be brief"), Message("user", "hello")]
Script = Callable[["Request"], None]


class Listener(ThreadingHTTPServer):
    """Says nothing when a client hangs up in the middle of an answer, which is what many of these tests are about."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Request:
    """One chat completion that the server was asked for; the script answers it."""

    def __init__(self, handler: Any, body: dict[str, Any]) -> None:
        self._handler = handler
        self.body = body
        self.key = handler.headers.get("Authorization", "")
        self.name = handler.headers.get("X-Conversation-Id", "")

    def refuse(self, status: int, content: Any, **headers: str) -> None:
        raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self._handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.send_header("Content-Length", str(len(raw)))
        self._handler.end_headers()
        self._handler.wfile.write(raw)

    def begin(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def raw(self, text: str) -> None:
        self._handler.wfile.write(text.encode())
        self._handler.wfile.flush()

    def event(self, content: Any) -> None:
        self.raw(f"data: {json.dumps(content)}\n\n")

    def piece(self, text: str = "", finish: str | None = None, **delta: Any) -> None:
        content = {"content": text} if text else {}
        self.event({"choices": [{"index": 0, "delta": {**content, **delta}, "finish_reason": finish}]})

    def answer(self, *pieces: str, finish: str = "stop") -> None:
        self.begin()
        self.piece(role="assistant")
        for piece in pieces:
            self.piece(piece)
        self.piece(finish=finish)
        self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(pieces)}})
        self.raw("data: [DONE]\n\n")

    def answer_whole(self, text: str, finish: str = "stop", **message: Any) -> None:
        """Not streamed."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        self.refuse(200, {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


class ScriptedServer:
    """Attributes: scripts (of the next requests, then `usual`), requests, models, metrics and slots (pages or None), keys_at_metrics,
    asked (paths)."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.usual: Script = lambda request: request.answer("Hel", "lo")
        self.requests: list[Request] = []
        self.models: Any = {"data": [{"id": MODEL, "max_model_len": 4096}]}
        self.models_status = 200
        self.metrics: str | None = None
        self.metrics_path = "/metrics"
        self.slots: Any = None
        self.keys_at_metrics: list[str] = []
        self.asked: list[str] = []
        self.url = ""
        self.port = 0


@contextmanager
def serving(script: ScriptedServer, port: int = 0) -> Iterator[ScriptedServer]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            request = Request(self, {})
            script.asked.append(self.path)
            if self.path == "/v1/models":
                request.refuse(script.models_status, script.models)
            elif self.path == script.metrics_path and script.metrics is not None:
                script.keys_at_metrics.append(request.key)
                request.refuse(200, script.metrics, Content_Type="text/plain")
            elif self.path == "/slots" and script.slots is not None:
                request.refuse(200, script.slots)
            else:
                request.refuse(404, {"error": {"message": "no such page"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(self, body)
            script.requests.append(request)
            with suppress(OSError):  # the client left
                (script.scripts.pop(0) if script.scripts else script.usual)(request)

    server = Listener(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    script.port = server.server_address[1]
    script.url = f"http://127.0.0.1:{script.port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="scripted", daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Pauses:
    """Takes the place of sleeping; remembers for how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokensEvent))


def end_of(events: list[Any]) -> FinishedEvent:
    assert isinstance(events[-1], FinishedEvent)
    return events[-1]
