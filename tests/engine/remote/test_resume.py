"""Streams of a server that keeps them: cut anywhere, any number of times, and still whole; stopped by their name."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.remote import resume
from engine.remote.remote import RemoteEngine
from engine.types import FinishReason, SamplingParams, TokensEvent
from tests.engine.remote.scripted import CHAT, MODEL, Listener, end_of, text_of

TEXT = "Grüße, 世界: one two three."
PATIENCE = 10.0


def stream_of(text: str) -> bytes:
    def event(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\n\n"

    pieces = [event({"role": "assistant", "content": None}), *(event({"content": letter}) for letter in text), event({}, "stop")]
    return "".join([*pieces, "data: [DONE]\n\n"]).encode()


class Keeping:
    """What llama-server does with a named request, in its own words over HTTP.

    Attributes:
        cuts: after so many bytes of the stream a connection that gives it breaks, one after the other; then none does.
        keeps: it has the pages of kept streams.
        names: of the requests; asked: (name, from) of the rest; stopped: names.
        loading: so many times it says first that it is not ready.
    """

    def __init__(self) -> None:
        self.stream = stream_of(TEXT)
        self.cuts: list[int] = []
        self.keeps = True
        self.loading = 0
        self.names: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        self.url = ""

    def next_cut(self, start: int) -> int:
        return max(start, self.cuts.pop(0)) if self.cuts else len(self.stream)


@contextmanager
def serving(server: Keeping) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def tell(self, status: int, content: Any = None) -> None:
            raw = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def give(self, start: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            stop = server.next_cut(start)
            if part := server.stream[start:stop]:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.flush()
            server.hold.wait(PATIENCE)
            if stop == len(server.stream):
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/v1/models":
                self.tell(200, {"data": [{"id": MODEL}]})
            elif parts.path == "/slots":
                self.tell(200, [{"id": 0, "is_processing": False, "n_ctx": 64}])
            elif parts.path == "/v1/stream" and server.keeps:
                query = parse_qs(parts.query)
                server.asked.append((query["conv_id"][0], int(query["from"][0])))
                if server.loading:
                    server.loading -= 1
                    self.tell(503, {"error": {"message": "Loading model"}})
                else:
                    self.give(int(query["from"][0]))
            else:
                self.tell(404, {"error": {"message": "File Not Found"}})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            server.names.append(self.headers.get("X-Conversation-Id", ""))
            self.give(0)

        def do_DELETE(self) -> None:
            server.stopped.append(parse_qs(urlsplit(self.path).query)["conv_id"][0])
            self.tell(204)

    made = Listener(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    server.url = f"http://127.0.0.1:{made.server_address[1]}/v1"
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), name="keeping", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.hold.set()
        made.shutdown()
        made.server_close()
        thread.join()


@pytest.fixture
def keeping() -> Iterator[Keeping]:
    server = Keeping()
    with serving(server):
        yield server


@pytest.fixture
def engine(keeping: Keeping, make_engine: Callable[..., RemoteEngine]) -> RemoteEngine:
    engine = make_engine(keeping.url)
    seen = threading.Event()
    engine.add_listener(lambda: seen.set() if len(engine.snapshot.seats) == 1 else None)
    assert len(engine.snapshot.seats) == 1 or seen.wait(PATIENCE)  # its slots were told: it is a llama.cpp
    return engine


def ask(engine: RemoteEngine) -> list[Any]:
    handle = engine.submit(CHAT, SamplingParams())
    events: list[Any] = []
    while not handle.ended or not events or isinstance(events[-1], TokensEvent):
        more = handle.wait(PATIENCE)
        assert more
        events += more
    return events


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not come to hold")


def test_cut_after_any_byte_it_is_whole(keeping: Keeping, engine: RemoteEngine) -> None:
    cuts = [cut for cut in range(0, len(keeping.stream), 7) if resume.END not in keeping.stream[:cut]]
    for cut in cuts:
        keeping.cuts = [cut]
        events = ask(engine)
        assert (text_of(events), end_of(events).error) == (TEXT, None), cut
    assert all(name == keeping.names[place] and len(name) > 30 for place, (name, _) in enumerate(keeping.asked))
    assert [start for _, start in keeping.asked] == cuts
    assert len(set(keeping.names)) == len(keeping.names) and not keeping.stopped  # nothing was asked twice


def test_cut_again_and_again(keeping: Keeping, engine: RemoteEngine) -> None:
    keeping.cuts = list(range(1, len(keeping.stream), 40))
    events = ask(engine)
    assert text_of(events) == TEXT and end_of(events).reason is FinishReason.STOP and len(keeping.names) == 1


def test_while_it_comes_up_again_it_is_waited_for(keeping: Keeping, engine: RemoteEngine) -> None:
    keeping.cuts, keeping.loading = [500], 3
    events = ask(engine)
    assert text_of(events) == TEXT and [start for _, start in keeping.asked] == [500] * 4


def test_one_that_makes_no_headway_is_given_up(keeping: Keeping, engine: RemoteEngine) -> None:
    keeping.cuts = [500] * 50
    events = ask(engine)
    error = end_of(events).error
    assert error is not None and error.code == "stream_cut" and 0 < len(text_of(events)) < len(TEXT)
    assert len(keeping.asked) == len(resume.PAUSES_S)
    wait_until(lambda: keeping.stopped == keeping.names)


def test_an_older_server_is_asked_once_and_what_came_is_kept(keeping: Keeping, engine: RemoteEngine) -> None:
    keeping.cuts, keeping.keeps = [500], False
    events = ask(engine)
    error = end_of(events).error
    assert error is not None and error.code == "stream_cut" and TEXT.startswith(text_of(events)) and text_of(events)
    assert len(keeping.names) == 1


def test_a_stop_is_said_by_name(keeping: Keeping, engine: RemoteEngine) -> None:
    """The server would go on for a connection that is merely closed."""
    keeping.hold.clear()
    keeping.cuts = [500]
    handle = engine.submit(CHAT, SamplingParams())
    assert isinstance(handle.wait(PATIENCE)[0], TokensEvent)
    handle.cancel()
    assert handle.result(PATIENCE).reason is FinishReason.CANCELLED
    wait_until(lambda: keeping.stopped == keeping.names)


def test_another_server_gets_no_name(make_engine: Callable[..., RemoteEngine]) -> None:
    from tests.engine.remote.scripted import ScriptedServer
    from tests.engine.remote.scripted import serving as serving_script

    with serving_script(ScriptedServer()) as server:
        ask(make_engine(server.url))
        assert server.requests[0].name == ""
