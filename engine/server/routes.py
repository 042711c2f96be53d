"""The rooms behind the door: what each path answers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from hashlib import blake2b
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from engine.server.answering import Answering
from engine.server.asks import Ask, Prompt, check_model, read_chat, read_completion, read_detokenize, read_tokenize
from engine.server.errors import ApiError, bad_request, from_refusal
from engine.server.fields import Fields, read_object
from engine.server.guard import Guard, Rules
from engine.server.metrics import CONTENT_TYPE, Metrics
from engine.server.openapi import document
from engine.server.replies import Reply, json_reply, to_json
from engine.server.responses import KeptChats, ResponseShape, read_response
from engine.server.rides import Rides, ServedEngine, check_ready, room_of
from engine.server.shapes import ChatShape, CompletionShape, Heading
from engine.types import Chat, EngineState, RequestRefused
from engine.version import __version__

log = logging.getLogger(__name__)

LARGE_BODY = 64 * 1024  # bytes from which parsing would hold up the other clients' streams
ALIASES = ("default",)  # for clients that must name a model and do not care
Value = TypeVar("Value")


class Rooms:
    """The endpoints over one engine."""

    def __init__(
        self, engine: ServedEngine, rides: Rides, metrics: Metrics, executor: Executor, names: Sequence[str], wall: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._rides = rides
        self._metrics = metrics
        self._executor = executor
        self._names = tuple(names)
        self._wall = wall
        self._kept = KeptChats()
        self._since = int(wall())

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
        ]

    # ------------------------------------------------------------------------------------------------------- looking

    async def health(self, request: Request) -> Reply:
        snapshot = self._engine.snapshot
        ready = snapshot.state in (EngineState.READY, EngineState.PAUSED)
        answer: dict[str, object] = {"status": "ok" if ready else str(snapshot.state)}
        if request.state.trusted:
            answer |= {
                "state": str(snapshot.state),
                "model": self._name,
                "seats": len(snapshot.seats),
                "running": snapshot.seated,
                "waiting": snapshot.waiting,
                "version": __version__,
            }
        return json_reply(answer, 200 if ready else 503)

    async def version(self, request: Request) -> Reply:
        return json_reply({"version": __version__})

    async def metrics(self, request: Request) -> Reply:
        return Reply(self._metrics.text(self._engine.snapshot, self._name).encode(), kind=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Reply:
        return json_reply(document())

    async def models(self, request: Request) -> Reply:
        check_ready(self._engine.snapshot)
        return json_reply({"object": "list", "data": [self._card(self._name)]})

    async def model(self, request: Request) -> Reply:
        check_ready(self._engine.snapshot)
        wanted = request.path_params["model"]
        check_model(Fields({"model": wanted}), self._served)
        return json_reply(self._card(wanted))

    # ----------------------------------------------------------------------------------------------------- answering

    async def chat(self, request: Request) -> Answering:
        ask = await self._parse(request, self._chat_ask)
        return Answering(self._rides, self._metrics, ask, ChatShape(self._heading("chatcmpl", ask)), key_of(request))

    async def completions(self, request: Request) -> Answering:
        ask = await self._parse(request, self._completion_ask)
        echoes = [self._spelled(prompt) for prompt in ask.prompts] if ask.echo else []
        return Answering(self._rides, self._metrics, ask, CompletionShape(self._heading("cmpl", ask, echoes)), key_of(request))

    async def tokenize(self, request: Request) -> Reply:
        check_ready(self._engine.snapshot)
        prompt = await self._parse(request, self._tokenize_prompt)
        try:
            tokens = await asyncio.get_running_loop().run_in_executor(self._executor, self._engine.tokenize, prompt)
        except RequestRefused as error:
            raise from_refusal(error) from None
        except Exception:  # a tokenizer or template that fails on this text
            log.exception("a prompt could not be tokenized")
            raise bad_request("The prompt could not be prepared for this model.", "prompt", "bad_prompt") from None
        check_ready(self._engine.snapshot)
        return json_reply({"count": len(tokens or ()), "max_model_len": room_of(self._engine.snapshot), "tokens": tokens or []})

    async def detokenize(self, request: Request) -> Reply:
        check_ready(self._engine.snapshot)
        tokens = await self._parse(request, self._detokenize_ids)
        try:
            text = await asyncio.get_running_loop().run_in_executor(self._executor, self._engine.detokenize, tokens)
        except RequestRefused as error:
            raise from_refusal(error) from None
        return json_reply({"prompt": text or ""})

    async def embeddings(self, request: Request) -> Reply:
        raise ApiError(404, "This server gives no embeddings: its model writes text.", "not_supported")

    async def responses(self, request: Request) -> Answering:
        key = key_of(request)

        def read(fields: Fields) -> tuple[Ask, Fields]:
            check_model(fields, self._served)
            return read_response(fields, self._kept, key), fields

        ask, fields = await self._parse(request, read)
        heading = self._heading("resp", ask, separator="_")
        shape = ResponseShape(heading, fields, lambda messages: self._kept.keep(key, heading.id, messages))
        return Answering(self._rides, self._metrics, ask, shape, key)

    # ------------------------------------------------------------------------------------------------------- reading

    def _chat_ask(self, fields: Fields) -> Ask:
        check_model(fields, self._served)
        return read_chat(fields)

    def _completion_ask(self, fields: Fields) -> Ask:
        check_model(fields, self._served)
        return read_completion(fields)

    def _detokenize_ids(self, fields: Fields) -> tuple[int, ...]:
        check_model(fields, self._served)
        return read_detokenize(fields)

    def _tokenize_prompt(self, fields: Fields) -> Prompt:
        check_model(fields, self._served)
        return read_tokenize(fields)

    def _heading(self, kind: str, ask: Ask, echoes: Sequence[str] = (), separator: str = "-") -> Heading:
        return Heading(
            f"{kind}{separator}{secrets.token_hex(12)}",
            int(self._wall()),
            self._name,
            ask,
            self._engine.token_bytes,
            self._engine.tool_form,
            echoes,
        )

    def _spelled(self, prompt: Prompt) -> str:
        """A prompt of a completion as text."""
        if isinstance(prompt, str):
            return prompt
        ids = [] if isinstance(prompt, Chat) else prompt
        return b"".join(map(self._engine.token_bytes, ids)).decode("utf-8", "replace")

    async def _parse(self, request: Request, reader: Callable[[Fields], Value]) -> Value:
        body: bytes = request.state.body
        if len(body) < LARGE_BODY:
            return reader(read_object(body))
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: reader(read_object(body)))

    @property
    def _name(self) -> str:
        return self._names[0] if self._names else self._engine.snapshot.model.name

    @property
    def _served(self) -> list[str]:
        """Every name that the model answers to, the shown one first."""
        return [self._name, *self._names, self._engine.snapshot.model.name, self._engine.config.model, *ALIASES]

    def _card(self, name: str) -> dict[str, object]:
        room = room_of(self._engine.snapshot)
        return {"id": name, "object": "model", "created": self._since, "owned_by": "omnibus", "max_model_len": room}


def make_app(
    engine: ServedEngine,
    rides: Rides,
    executor: Executor,
    rules: Rules,
    *,
    names: Sequence[str] = (),
    wall: Callable[[], float] = time.time,
) -> Guard:
    """The whole application, behind its door.

    Args:
        names: what the model is called, the shown name first; empty for the name it came with.
        wall: the wall clock, for the `created` of responses; nothing is measured with it.
    """
    metrics = Metrics()
    rooms = Rooms(engine, rides, metrics, executor, names, wall)
    handlers: dict[Any, Any] = {ApiError: _on_api_error, HTTPException: _on_http_error}
    app = Starlette(routes=rooms.routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, rules, metrics.note_response)


async def _on_api_error(request: Request, error: Exception) -> Reply:
    assert isinstance(error, ApiError)
    return Reply(to_json(error.body()), status=error.status, headers=error.headers)


async def _on_http_error(request: Request, error: Exception) -> Reply:
    """What the router finds: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        problem = ApiError(405, f"This path does not take {request.method}.", "method_not_allowed", headers=dict(error.headers or {}))
    else:
        problem = ApiError(error.status_code, "There is nothing at this path.", "unknown_url")
    return await _on_api_error(request, problem)


def key_of(request: Request) -> bytes:
    """Stands for the client's key, which was found to be right: clients of different keys share nothing in the prefix cache."""
    return blake2b(request.headers.get("authorization", "").encode(), digest_size=16).digest()
