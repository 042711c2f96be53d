"""A server on this machine that plays a model hub's HTTP interface: search, file lists, redirects to a file store, ranges, and faults."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REVISION = "c0ffee" * 6 + "beef"


class MadeUpHub:
    """Attributes a test sets:

    repositories: name to {file name: bytes}.
    gated: repositories that answer 403; private: those that answer 401 without `token`.
    ranges: serve parts of files; without, every answer is the whole file.
    faults: called for every request of a file with its name and how often it was asked; returns what goes wrong, or "".
    asked: (path, Range header) of each file request, in order.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.token = "hf_right"
        self.ranges = True
        self.damaged: set[str] = set()
        self.search_status = 200
        self.faults: Callable[[str, int], str] = lambda name, times: ""
        self.asked: list[tuple[str, str]] = []
        self.tokens_at_the_store: list[str] = []
        self.times: Counter[str] = Counter()
        self.counting = threading.Lock()  # requests come side by side; each has its own number
        self.gate = threading.Event()  # what a file's second half waits for when the fault is "slow"
        self.url = ""


@contextmanager
def serving(made: MadeUpHub, context: ssl.SSLContext | None = None) -> Iterator[MadeUpHub]:
    """The hub answers until the block is left; with a `context` over HTTPS only."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            _answer(made, self)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)  # else one client blocks all
    made.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="made-up-hub", daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(made: MadeUpHub, request: Any) -> None:
    parts = urlsplit(request.path)
    path, query = unquote(parts.path), parse_qs(parts.query)
    if path == "/api/models":
        found = [name for name in made.repositories if query.get("search", [""])[0].lower() in name.lower()]
        _json(request, made.search_status, [_about(made, name) for name in found] if made.search_status == 200 else {"error": "no"})
    elif path.startswith("/api/models/"):
        name = path.removeprefix("/api/models/").partition("/revision/")[0]
        if name in made.repositories:
            _json(request, 200, _about(made, name) | {"siblings": _siblings(made.repositories[name])})
        else:
            _json(request, 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
    elif "/resolve/" in path:
        repository, _, rest = path.lstrip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        given = request.headers.get("Authorization", "")
        if repository in made.gated:
            _json(request, 403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif repository in made.private and given != f"Bearer {made.token}":
            _json(request, 401, {"error": "who are you"})
        elif name not in made.repositories.get(repository, {}):
            _json(request, 404, {"error": "no such file"})
        else:  # to the store, which goes by another name
            place = made.url.replace("127.0.0.1", "localhost")
            _send(request, 302, b"", {"Location": f"{place}/store/{repository}/{name}"})
    elif path.startswith("/store/"):
        owner, model, name = path.removeprefix("/store/").split("/", 2)
        made.tokens_at_the_store.append(request.headers.get("Authorization", ""))
        _file(made, request, name, made.repositories[f"{owner}/{model}"][name])
    else:
        _json(request, 404, {"error": path})


def _file(made: MadeUpHub, request: Any, name: str, data: bytes) -> None:
    wanted = request.headers.get("Range", "")
    with made.counting:
        made.asked.append((name, wanted))
        made.times[name] += 1
        fault = made.faults(name, made.times[name])
    if name in made.damaged:
        data = bytes(len(data))
    if fault.isdigit():
        _json(request, int(fault), {"error": "busy"}, {"Retry-After": "7"} if fault == "429" else {})
        return
    status = 200
    if wanted and made.ranges:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        data, status = data[int(first) : int(last) + 1], 206
    request.send_response(status)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    half = len(data) // 2
    request.wfile.write(data[:half])
    request.wfile.flush()
    if fault == "cut":
        request.close_connection = True
        request.connection.close()
        return
    if fault == "slow":
        made.gate.wait(60)
    try:
        request.wfile.write(data[half:])
    except OSError:
        request.close_connection = True


def _about(made: MadeUpHub, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "_id": name,
        "sha": REVISION,
        "downloads": 1234,
        "likes": 5,
        "gated": "manual" if name in made.gated else False,
        "tags": ["gguf", "license:apache-2.0"] if any(file.endswith(".gguf") for file in made.repositories[name]) else ["license:mit"],
        "safetensors": {"parameters": {"BF16": 1_700_000_000}, "total": 1_700_000_000},
    }


def _siblings(files: dict[str, bytes]) -> list[dict[str, Any]]:
    found = []
    for name, data in files.items():
        entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
        entry["blobId"] = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
        if name.endswith((".gguf", ".safetensors")):
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        found.append(entry)
    return found


def _json(request: Any, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    _send(request, status, json.dumps(content).encode(), {"Content-Type": "application/json"} | (headers or {}))


def _send(request: Any, status: int, data: bytes, headers: dict[str, str]) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)
