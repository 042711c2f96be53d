"""The door: who may come in, before anything of a request is read further than its headers.

Wraps the whole application, so that a new route cannot be forgotten. In order: size (431), Host (421), Origin (403), token (401), and
for bodies their type (415) and size (413). What the rooms behind it do wrong ends here too, as a 500 that says nothing of the inside.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from engine.server.access import TokenCheck
from engine.server.errors import ApiError
from engine.server.replies import ClientGone, send_error
from engine.server.strange import HEADER

log = logging.getLogger(__name__)

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_PATHS = frozenset({"/health"})  # what it tells a stranger is whether somebody is in
MOST_HEADER_BYTES = 32 * 1024
MOST_BODY = 8 * 1024 * 1024  # bytes
BODY_PATIENCE_S = 30.0  # to receive a whole body
DRAINED = 4 * MOST_BODY  # of a body that is refused, so that its sender gets to read why
DRAIN_PATIENCE_S = 5.0
_SOUND_ID = re.compile(rb"[!-~]{1,128}")


@dataclass(frozen=True)
class Rules:
    """Who may come in.

    Attributes:
        token: None lets everyone on this machine in; then `loopback` must hold.
        loopback: the address is this machine's own. Else hosts may also be named by IP address, which no rebound name can do.
        hosts: further host names that clients may use.
        origins: web origins whose pages may use the API ("https://chat.example").
    """

    token: str | None
    loopback: bool = True
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    most_body: int = MOST_BODY
    body_patience_s: float = BODY_PATIENCE_S
    check: TokenCheck | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", TokenCheck(self.token) if self.token is not None else None)


class Guard:
    """The ASGI application that is served. `scope["state"]` gets `body` (bytes) and `trusted` (the token was right, or none is asked)."""

    def __init__(self, app: Starlette, rules: Rules, note_response: Callable[[int], None] = lambda status: None) -> None:
        self._app = app
        self._rules = rules
        self._note_response = note_response

    @property
    def routes(self) -> list[BaseRoute]:
        return self._app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False
        request_id = _request_id(scope["headers"])

        async def sender(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._note_response(message["status"])
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id), *_ignored(scope)]}
            await send(message)

        try:
            await self._enter(scope, receive, sender)
        except ApiError as error:
            await send_error(error, sender)
        except ClientGone:
            log.info("a client stopped reading")
        except Exception:
            log.exception("a request failed")
            if not started:
                await send_error(ApiError(500, "The server failed; its log has the details.", "internal_error"), sender)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _Headers(scope["headers"])
        origin = None
        try:
            if headers.size + len(scope["raw_path"]) + len(scope["query_string"]) > MOST_HEADER_BYTES:
                close = {"Connection": "close"}
                raise ApiError(431, f"The headers are larger than {MOST_HEADER_BYTES:,} bytes.", "headers_too_large", headers=close)
            if headers.one(b"transfer-encoding") is not None and headers.all(b"content-length"):
                close = {"Connection": "close"}  # readers on the way may disagree where it ends, and take the rest for another request
                raise ApiError(400, "The body's length was given in two ways.", "bad_http", headers=close)
            self._check_host(headers)
            origin = self._check_origin(headers)
            if origin and scope["method"] == "OPTIONS" and headers.one(b"access-control-request-method"):
                return await _preflight(origin, send)
            trusted = self._rules.check is None or self._rules.check.accepts(headers.all(b"authorization"))
            if not trusted and scope["path"] not in OPEN_PATHS:
                challenge = {"WWW-Authenticate": 'Bearer realm="omnibus"'}
                raise ApiError(401, "The bearer token is missing or wrong.", "invalid_api_key", headers=challenge)
            self._check_body_headers(scope, headers)
        except ApiError as error:
            if headers.has_body:
                await _drain(receive, headers)
                error.headers = {**error.headers, "Connection": "close"}
            raise
        state = scope.setdefault("state", {})
        state["trusted"] = trusted
        state["body"] = await self._read_body(receive, headers) if headers.has_body or scope["method"] == "POST" else b""
        await self._app(scope, receive, _with_origin(send, origin) if origin else send)

    def _check_host(self, headers: _Headers) -> None:
        values = headers.all(b"host")
        name = _host_name(values[0]) if len(values) == 1 else None
        rules = self._rules
        if name is None or not (name in LOOPBACK_NAMES or name in rules.hosts or (not rules.loopback and _is_address(name))):
            raise ApiError(421, "This server does not go by that host name.", "wrong_host")

    def _check_origin(self, headers: _Headers) -> str | None:
        """The listed origin that the request comes from; None for a client that is no web page."""
        origins = headers.all(b"origin")
        origin = origins[0].decode("latin-1") if len(origins) == 1 else ""
        if origin and origin in self._rules.origins:
            return origin
        # Pages fetch images and scripts without an Origin header; browsers then still say where the page is from.
        foreign = headers.one(b"sec-fetch-site") in (b"cross-site", b"same-site")
        if origins or foreign:
            raise ApiError(403, "Web pages of this origin may not use this server.", "origin_not_allowed")
        return None

    def _check_body_headers(self, scope: Scope, headers: _Headers) -> None:
        if not headers.has_body and scope["method"] != "POST":
            return
        if headers.one(b"content-encoding") not in (None, b"identity"):
            raise ApiError(415, "Compressed bodies are not taken.", "unsupported_encoding")
        kind = (headers.one(b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(415, "The body must be JSON, sent as Content-Type: application/json.", "unsupported_media_type")
        if headers.length > self._rules.most_body:
            raise self._too_large()

    def _too_large(self) -> ApiError:
        return ApiError(413, f"The body is larger than {self._rules.most_body:,} bytes.", "body_too_large")

    async def _read_body(self, receive: Receive, headers: _Headers) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._rules.body_patience_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "The body ended early.", "incomplete_body")
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > self._rules.most_body:
                        await _drain(receive, headers)
                        error = self._too_large()
                        error.headers = {"Connection": "close"}
                        raise error
                    if not message.get("more_body"):
                        return b"".join(chunks)
        except TimeoutError:
            raise ApiError(408, "The body did not arrive in time.", "body_timeout", headers={"Connection": "close"}) from None


def _ignored(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The header that names the fields of the request which were ignored."""
    names: str = scope.get("state", {}).get("ignored", "")
    return [(HEADER, names.encode("ascii"))] if names else []


def _request_id(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The client's own name for its request, told again; one is made up for a client that gives none, or nothing sound."""
    given = [value for key, value in headers if key == b"x-request-id"]
    return given[0] if len(given) == 1 and _SOUND_ID.fullmatch(given[0]) else f"req_{secrets.token_hex(12)}".encode()


class _Headers:
    """A request's headers by lower-case name."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self._raw if key == name]

    def one(self, name: bytes) -> bytes | None:
        values = self.all(name)
        return b", ".join(values).strip() if values else None

    @property
    def size(self) -> int:
        return sum(len(name) + len(value) for name, value in self._raw)

    @property
    def length(self) -> int:
        value = self.one(b"content-length") or b"0"
        return int(value) if value.isdigit() else 0

    @property
    def has_body(self) -> bool:
        return self.length > 0 or self.one(b"transfer-encoding") is not None


def _host_name(value: bytes) -> str | None:
    """The name or address in a Host header, without port, brackets and a final dot; None when it is not well formed."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        name, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if not rest or rest.startswith(":") else "x"
        if not closed:
            return None
    else:
        name, colon, port = text.partition(":")
        if colon and not port:
            return None
    if port and not (port.isascii() and port.isdigit()):
        return None
    return name.removesuffix(".") or None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _drain(receive: Receive, headers: _Headers) -> None:
    """Read and forget a refused body: closing a connection with unread bytes would take the answer away from its sender."""
    if headers.one(b"expect") is not None or headers.length > DRAINED:
        return
    left = DRAINED
    try:
        async with asyncio.timeout(DRAIN_PATIENCE_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]


async def _preflight(origin: str, send: Send) -> None:
    headers = [
        *_cors(origin),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_origin(send: Send, origin: str) -> Any:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_cors(origin)]}
        await send(message)

    return sender
