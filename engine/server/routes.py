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
from engine.server.asks import Ask, read_chat, read_completion, read_detokenize, read_tokenize
from engine.server.embedding import Embedding, Wish, read_embeddings
from engine.server.errors import ApiError, bad_request, from_refusal
from engine.server.fields import Fields, read_object
from engine.server.guard import Guard, Rules
from engine.server.metrics import CONTENT_TYPE, Metrics
from engine.server.openapi import document, known_at
from engine.server.replies import Reply, json_reply, to_json
from engine.server.responses import KeptChats, ResponseShape, read_response
from engine.server.rides import Rides, ServedEngine, ServedModels, check_ready, room_of, salt_of
from engine.server.served import Served
from engine.server.shapes import ChatShape, CompletionShape, Heading
from engine.server.strange import Strange
from engine.types import EngineState, RequestRefused
from engine.version import __version__

log = logging.getLogger(__name__)

LARGE_BODY = 64 * 1024  # bytes from which parsing would hold up the other clients' streams
Value = TypeVar("Value")


class Rooms:
    """The endpoints over the loaded models."""

    def __init__(self, served: Served, rides: Rides, metrics: Metrics, executor: Executor, wall: Callable[[], float]) -> None:
        self._served = served
        self._rides = rides
        self._metrics = metrics
        self._executor = executor
        self._wall = wall
        self._kept = KeptChats()
        self._strange = Strange()
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
        snapshot = self._served.first.snapshot
        ready = snapshot.state in (EngineState.READY, EngineState.PAUSED)
        answer: dict[str, object] = {"status": "ok" if ready else str(snapshot.state)}
        if request.state.trusted:
            answer |= {
                "state": str(snapshot.state),
                "model": self._served.name_of(self._served.first),
                "seats": len(snapshot.seats),
                "running": snapshot.seated,
                "waiting": snapshot.waiting,
                "version": __version__,
            }
        return json_reply(answer, 200 if ready else 503)

    async def version(self, request: Request) -> Reply:
        return json_reply({"version": __version__})

    async def metrics(self, request: Request) -> Reply:
        models = [(engine.snapshot, self._served.name_of(engine)) for engine in self._served.engines]
        return Reply(self._metrics.text(models).encode(), kind=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Reply:
        return json_reply(document())

    async def models(self, request: Request) -> Reply:
        cards = [self._card(engine, self._served.name_of(engine)) for engine in self._served.ready]
        return json_reply({"object": "list", "data": cards})

    async def model(self, request: Request) -> Reply:
        check_ready(self._served.first.snapshot)
        wanted = request.path_params["model"]
        if not wanted:  # the list, asked for with a slash at its end
            return await self.models(request)
        engine = self._served.asked(Fields({"model": wanted}))
        check_ready(engine.snapshot)
        return json_reply(self._card(engine, wanted))

    # ----------------------------------------------------------------------------------------------------- answering

    async def chat(self, request: Request) -> Answering:
        engine, ask = await self._parse(request, self._asking(read_chat))
        return Answering(engine, self._rides, self._metrics, ask, ChatShape(self._heading(engine, "chatcmpl", ask)), key_of(request))

    async def completions(self, request: Request) -> Answering:
        engine, ask = await self._parse(request, self._asking(read_completion))
        shape = CompletionShape(self._heading(engine, "cmpl", ask))
        return Answering(engine, self._rides, self._metrics, ask, shape, key_of(request))

    async def tokenize(self, request: Request) -> Reply:
        engine, prompt = await self._parse(request, self._asking(read_tokenize))
        check_ready(engine.snapshot)
        try:
            tokens = await asyncio.get_running_loop().run_in_executor(self._executor, engine.tokenize, prompt, salt_of(key_of(request)))
        except RequestRefused as error:
            raise from_refusal(error) from None
        except Exception:  # a tokenizer or template that fails on this text
            log.exception("a prompt could not be tokenized")
            raise bad_request("The prompt could not be prepared for this model.", "prompt", "bad_prompt") from None
        check_ready(engine.snapshot)
        return json_reply({"count": len(tokens or ()), "max_model_len": room_of(engine.snapshot), "tokens": tokens or []})

    async def detokenize(self, request: Request) -> Reply:
        engine, tokens = await self._parse(request, self._asking(read_detokenize))
        check_ready(engine.snapshot)
        try:
            text = await asyncio.get_running_loop().run_in_executor(self._executor, engine.detokenize, tokens)
        except RequestRefused as error:
            raise from_refusal(error) from None
        return json_reply({"prompt": text or ""})

    async def embeddings(self, request: Request) -> Embedding:
        def read(fields: Fields) -> tuple[ServedEngine, Wish]:
            engine = self._served.asked(fields)
            return engine, read_embeddings(fields, engine)

        engine, wish = await self._parse(request, read)
        return Embedding(engine, self._rides, self._metrics, wish, self._served.name_of(engine), key_of(request))

    async def responses(self, request: Request) -> Answering:
        key = key_of(request)

        def read(fields: Fields) -> tuple[Ask, Fields]:
            return read_response(fields, self._kept, key), fields

        engine, (ask, fields) = await self._parse(request, self._asking(read))
        heading = self._heading(engine, "resp", ask, separator="_")
        shape = ResponseShape(heading, fields, lambda messages: self._kept.keep(key, heading.id, messages))
        return Answering(engine, self._rides, self._metrics, ask, shape, key)

    # ------------------------------------------------------------------------------------------------------- reading

    def _asking(self, read: Callable[[Fields], Value]) -> Callable[[Fields], tuple[ServedEngine, Value]]:
        """A reader that looks first whose model is meant."""
        return lambda fields: (self._served.asked(fields), read(fields))

    def _heading(self, engine: ServedEngine, kind: str, ask: Ask, separator: str = "-") -> Heading:
        return Heading(
            f"{kind}{separator}{secrets.token_hex(12)}",
            int(self._wall()),
            self._served.name_of(engine),
            ask,
            engine.token_bytes,
            engine.tool_form,
        )

    async def _parse(self, request: Request, reader: Callable[[Fields], Value]) -> Value:
        """Read the body. What nobody here knows is ignored, and the response says so."""
        body: bytes = request.state.body

        def read() -> tuple[Value, list[str]]:
            fields = read_object(body)
            return reader(fields), fields.unread(known_at(request.url.path))

        loop = asyncio.get_running_loop()
        value, unknown = read() if len(body) < LARGE_BODY else await loop.run_in_executor(self._executor, read)
        if unknown:
            request.state.ignored = self._strange.note(unknown)
        return value

    def _card(self, engine: ServedEngine, name: str) -> dict[str, object]:
        room = room_of(engine.snapshot)
        return {"id": name, "object": "model", "created": self._since, "owned_by": "omnibus", "max_model_len": room}


def make_app(
    served: ServedModels,
    rides: Rides,
    executor: Executor,
    rules: Rules,
    *,
    names: Sequence[str] = (),
    wall: Callable[[], float] = time.time,
) -> Guard:
    """The whole application, behind its door.

    Args:
        names: what the first model is called, the shown name first; empty for the name it came with.
        wall: the wall clock, for the `created` of responses; nothing is measured with it.
    """
    metrics = Metrics()
    rooms = Rooms(Served(served, names), rides, metrics, executor, wall)
    handlers: dict[Any, Any] = {ApiError: _on_api_error, HTTPException: _on_http_error, Exception: _on_fault}
    app = Starlette(routes=rooms.routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, rules, metrics.note_response)


async def _on_api_error(request: Request, error: Exception) -> Reply:
    assert isinstance(error, ApiError)
    return Reply(to_json(error.body()), status=error.status, headers=error.headers)


async def _on_fault(request: Request, error: Exception) -> Reply:
    """What nobody expected. Starlette raises it once more afterwards, and the guard writes it into the log."""
    return await _on_api_error(request, ApiError(500, "The server failed; its log has the details.", "internal_error"))


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
