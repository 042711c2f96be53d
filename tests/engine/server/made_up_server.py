"""A served engine over the made-up model, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine import Engine, Grammar, OpenModel, RequestRefused
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE, LetterCodec, Workshop

TOKEN = "a-token-that-only-the-tests-know-0123456789"


class ServedWorkshop(Workshop):
    """Made-up models that can be held to a form: they take note of it, and answer as always.

    Attributes:
        forms: what was asked for, in order.
        embedding_size: of the vectors of the models that are opened from now on.
        script: said in place of letters, a few characters a token, and then the answer stops; "" for letters.
    """

    def __init__(self, blocks: int = 4096, block_size: int = 4, context: int = 8000) -> None:
        super().__init__(blocks, block_size, context)
        self.forms: list[Grammar] = []
        self.script = ""
        self.embedding_size = 3

    def open(self, *arguments: Any) -> OpenModel:
        opened = super().open(*arguments)
        return replace(
            opened,
            codec=ScriptedCodec(self),
            compile_form=self._compile,
            vocab_size=0x110000,
            embedding_size=self.embedding_size,
        )

    def _compile(self, grammar: Grammar) -> Any:
        if "unusable" in grammar.source:
            raise RequestRefused("bad_grammar", "The form asked of the answer cannot be used.", "Correct it.")
        self.forms.append(grammar)
        return None


class ScriptedCodec(LetterCodec):
    """Letters, unless the workshop has a script."""

    def __init__(self, workshop: ServedWorkshop) -> None:
        super().__init__()
        self._workshop = workshop
        self.salts = workshop.salts

    def stream(self, stop: tuple[str, ...]) -> Any:
        return ScriptedStream(self._workshop.script) if self._workshop.script else super().stream(stop)


class ScriptedStream:
    def __init__(self, script: str) -> None:
        self.stopped = False
        self._rest = script

    def push(self, token_id: int) -> str:
        text, self._rest = self._rest[:5], self._rest[5:]
        self.stopped = not self._rest
        return text

    def flush(self) -> str:
        return ""


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        choice = self.json["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])


class Client:
    """One connection a request."""

    def __init__(self, server: ApiServer, token: str | None = TOKEN) -> None:
        self.server = server
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = self.connect()
        try:
            self.send(connection, method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> None:
        given = {**self.headers, **(headers or {})}
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, raw, given)

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, path: str, **body: Any) -> Answer:
        return self.call("POST", path, body)

    def chat(self, text: str = "hi", **more: Any) -> Answer:
        return self.post("/v1/chat/completions", **chat_body(text, **more))

    def open_stream(self, path: str = "/v1/chat/completions", **body: Any) -> Stream:
        connection = self.connect()
        self.send(connection, "POST", path, body)
        return Stream(connection)


class Stream:
    """Server-sent events, as they come. A context manager that closes it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self._response: http.client.HTTPResponse | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def response(self) -> http.client.HTTPResponse:
        if self._response is None:
            self._response = self.connection.getresponse()
        return self._response

    def lines(self) -> Iterator[str]:
        """Lines that are not empty: events and comments."""
        while line := self.response.readline():
            if line.strip():
                yield line.decode().rstrip("\n")

    def events(self) -> Iterator[Any]:
        """JSON of the events; "[DONE]" as it is."""
        for line in self.lines():
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                yield data if data == "[DONE]" else json.loads(data)

    def close(self) -> None:
        """Leave, as a client does that is killed: nothing of ours holds the socket any more."""
        if self._response is not None:
            self._response.close()
        self.connection.close()


def chat_body(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "first", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "seed": 7, **more}


def make_server(engine: Engine, token: str | None = TOKEN, **options: Any) -> ApiServer:
    server = ApiServer(engine, token, **options)
    server.start()
    return server


def until(holds: Callable[[], bool]) -> None:
    """Wait for something of which nobody tells."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.005)


def open_answers(server: ApiServer) -> int:
    return server._rides.open
