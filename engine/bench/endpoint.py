"""Contestants behind an OpenAI-compatible address: any server that already runs, and our own through its HTTP API.

Owns the client: one connection and one thread a request, as a program that waits for one answer has. A piece of an answer is counted as
the tokens that its text was made of, one where the server does not tell. Only this machine's addresses are asked.
"""

from __future__ import annotations

import http.client
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.bench.player import Messages, Told
from engine.types import EngineError

if TYPE_CHECKING:
    from engine.bench.peers import Setting

HERE = ("127.0.0.1", "localhost", "::1")
PATIENCE_S = 600


class Endpoint:
    """A server at `setting.url`. The answer's exact length is asked for by max_tokens, min_tokens and ignore_eos."""

    def __init__(self, setting: Setting, told: Told) -> None:
        parts = urlsplit(setting.url)
        if parts.scheme != "http" or parts.hostname not in HERE or parts.port is None:
            raise EngineError("bad_url", f"{setting.url!r} is no address on this machine.", "Give one like http://127.0.0.1:8000/v1.")
        self._address, self._path = (parts.hostname, parts.port), parts.path.rstrip("/")
        self._key, self._told, self._closing = setting.key, told, False
        self._model = self._first_model()

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        threading.Thread(target=self._ask, args=(request_id, messages, tokens), name=f"bench-{request_id}", daemon=True).start()

    def close(self) -> None:
        self._closing = True

    # ------------------------------------------------------------------------------------------------------------ client

    def _ask(self, request_id: str, messages: Messages, tokens: int) -> None:
        body = {
            "model": self._model,
            "messages": messages,
            "stream": True,
            "temperature": 0.0,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
        try:
            text = self._stream(request_id, body, tokens)
        except (OSError, ValueError, http.client.HTTPException, EngineError) as error:
            if not self._closing:
                self._told.failed(request_id, getattr(error, "message", None) or f"{type(error).__name__}: {error}")
        else:
            self._told.done(request_id, text)

    def _stream(self, request_id: str, body: dict[str, Any], tokens: int) -> str:
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE_S)
        try:
            connection.request("POST", f"{self._path}/chat/completions", json.dumps(body), self._headers())
            response = connection.getresponse()
            if response.status != 200:
                raise EngineError("refused", f"HTTP {response.status}: {response.read(500).decode(errors='replace')}")
            said: list[str] = []
            counted = 0
            for line in response:
                if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                    continue
                piece = json.loads(line[5:])
                if "error" in piece:
                    raise EngineError("refused", str(piece["error"]))
                text = "".join(choice.get("delta", {}).get("content") or "" for choice in piece.get("choices") or ())
                if text:
                    said.append(text)
                    counted += 1
                    self._told.tokens(request_id)
                if usage := piece.get("usage"):
                    rest = int(usage["completion_tokens"]) - counted  # tokens that came without a text of their own
                    if rest > 0:
                        self._told.tokens(request_id, rest)
            return "".join(said)
        finally:
            connection.close()

    def _first_model(self) -> str:
        connection = http.client.HTTPConnection(*self._address, timeout=10)
        try:
            connection.request("GET", f"{self._path}/models", headers=self._headers())
            response = connection.getresponse()
            listed = json.loads(response.read())
            return str(listed["data"][0]["id"])
        except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
            raise EngineError("no_server", f"No list of models could be had from the server: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})


class OmnibusServer:
    """Our engine behind its own HTTP server, both in this process: what the API costs beside `omnibus`."""

    def __init__(self, setting: Setting, told: Told) -> None:
        from dataclasses import replace

        from engine.bench.peers import engine_config
        from engine.engine import Engine
        from engine.server.serving import ApiServer

        self._engine = Engine(engine_config(setting))
        self._server = ApiServer(self._engine, None, host="127.0.0.1", port=0)
        self._server.start()
        self._engine.start()
        self._engine.wait_ready(300)
        self._client = Endpoint(replace(setting, url=f"{self._server.url}", key=""), told)
        self.submit = self._client.submit

    def close(self) -> None:
        self._client.close()
        self._server.stop()
        self._engine.close()
