"""Servers that send too much, the wrong thing, or callers elsewhere: a clear end, little memory, and the key goes nowhere else."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.remote import reading, wire
from engine.remote.remote import RemoteEngine
from engine.types import EngineError, ErrorInfo, FinishReason, SamplingParams
from tests.engine.made_up_model import read, wait_for
from tests.engine.remote.scripted import CHAT, Pauses, Request, ScriptedServer, end_of, serving, text_of

# Made for this test, of use to nobody: a certificate for localhost that it signed itself.
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUF1cT8Rl6Eti5g69N9Hq0Sd6ukqcwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDAwMzQyNFoYDzIxMjYxMTA2
MDAzNDI0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQMG3NRTJbJoO5iWCcHJ+jNoCDHay8Uvdwz55wZX4mKZES866VsOlvT
XCd//EOVWgLfSS7PXwMhA52Rbgnp2DBuo28wbTAdBgNVHQ4EFgQUPU911m/DGgd3
LfjQ2ytkHnoHr6YwHwYDVR0jBBgwFoAUPU911m/DGgd3LfjQ2ytkHnoHr6YwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgKlppp0w4qncG2fYjMhFqqCq6GPly5EFcXo7JDbvWl5sCIELB
TSuwQv0+KZi8fJ8L12LINdi7EBXiMicZl3zOPSdN
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjWAPCjyRrVkV4N1t
f6Su1ISP//4Bpfsehy2wrCPYZRChRANCAAQMG3NRTJbJoO5iWCcHJ+jNoCDHay8U
vdwz55wZX4mKZES866VsOlvTXCd//EOVWgLfSS7PXwMhA52Rbgnp2DBu
-----END PRIVATE KEY-----
"""


def error_of(engine: RemoteEngine) -> ErrorInfo:
    end = end_of(read(engine.submit(CHAT)))
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.message and end.error.hint
    return end.error


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LINE", 20_000)
    monkeypatch.setattr(reading, "MOST_ANSWER", 100_000)
    monkeypatch.setattr(reading, "MOST_BODY", 50_000)


class Endless:
    """Sends one text for as long as somebody reads it."""

    def __init__(self, text: str, first: str = "") -> None:
        self.text, self.first = text, first
        self.sent = 0
        self.left = threading.Event()

    def __call__(self, request: Request) -> None:
        request.begin()
        try:
            request.raw(self.first)
            while True:
                request.raw(self.text)
                self.sent += len(self.text)
        except OSError:
            self.left.set()
            raise


@pytest.mark.parametrize(
    "text",
    ["data: " + "x" * 4000, "x" * 4000, ": comment\n" * 400, "data: x\ndata: y\n" * 300, 'data: {"choices": []}\n\n' * 200],
    ids=["a line", "no field", "comments", "an event", "events"],
)
def test_a_stream_without_an_end(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], small: None, text: str) -> None:
    endless = Endless(text)
    server.scripts = [endless]
    assert error_of(make_engine(server.url)).code == "remote_nonsense"
    assert endless.left.wait(60), "nobody reads on"


def test_what_arrived_before_it_went_wrong_is_kept(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], small: None) -> None:
    piece = 'data: {"choices": [{"index": 0, "delta": {"content": "Hello"}}]}\n\n'
    server.scripts = [Endless("x" * 4000, piece)]
    events = read(make_engine(server.url).submit(CHAT))
    assert text_of(events) == "Hello" and end_of(events).reason is FinishReason.ERROR


def test_a_list_of_models_without_an_end(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], small: None) -> None:
    server.models = {"data": [{"id": "x" * 60_000}]}
    with pytest.raises(EngineError) as caught:
        make_engine(server.url)
    assert caught.value.code == "remote_nonsense" and len(caught.value.message) < 400


def test_a_bomb_of_compressed_text(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], small: None) -> None:
    raw = gzip.compress(b"x" * 5_000_000)

    def script(request: Request) -> None:
        assert request._handler.headers["Accept-Encoding"] == "identity"
        handler = request._handler
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    server.scripts = [script]
    assert error_of(make_engine(server.url)).code == "remote_nonsense"


@pytest.mark.parametrize(
    "event",
    [
        "[1, 2]",
        '"text"',
        "7",
        "null",
        "[" * 5000,
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": [{"delta": {"content": ["x"]}}]}',
        '{"choices": [{"delta": {"reasoning_content": {"x": 1}}}]}',
    ],
)
def test_events_that_are_none(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], event: str) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.raw(f"data: {event}\n\n")

    server.scripts = [script]
    assert error_of(make_engine(server.url)).code == "remote_nonsense"


@pytest.mark.parametrize(
    "event",
    [
        '{"choices": null}',
        '{"choices": 7}',
        '{"choices": ["x"]}',
        '{"choices": [{"delta": null}]}',
        '{"choices": [{"delta": "x", "finish_reason": null}]}',
        '{"choices": [], "usage": {"prompt_tokens": -7, "completion_tokens": true}}',
        '{"choices": [], "usage": "much"}',
        '{"unheard": {"of": []}}',
    ],
)
def test_events_that_say_nothing_change_nothing(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], event: str) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.piece("Hello")
        request.raw(f"data: {event}\n\n")
        request.piece(finish="stop")

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    end = end_of(events)
    assert (text_of(events), end.reason, end.usage.completion_tokens) == ("Hello", FinishReason.STOP, 1)


def test_a_million_choices_are_one(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    def script(request: Request) -> None:
        request.begin()
        one = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
        request.event({"choices": [one] * 5000})

    server.scripts = [script]
    assert text_of(read(make_engine(server.url).submit(CHAT))) == "a"


def test_lines_may_end_in_any_way_and_characters_be_cut_anywhere(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    first = 'data: {"choices": [{"delta": {"content": "é€"}}]}\r\n\r\n'
    whole = first + 'data:{"choices": [{"delta": {"content": "😀"},\rdata: "finish_reason": "stop"}]}\r\r'

    def script(request: Request) -> None:
        request.begin()
        for byte in whole.encode():
            request._handler.wfile.write(bytes([byte]))
            request._handler.wfile.flush()

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    assert (text_of(events), end_of(events).reason) == ("é€😀", FinishReason.STOP)


def test_a_redirect_is_not_followed(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    with serving(ScriptedServer()) as other:
        server.scripts = [lambda request: request.refuse(307, "", Location=f"{other.url}/chat/completions")]
        error = error_of(make_engine(server.url, key="secret"))
        assert error.code == "remote_moved" and "307" in error.message
        server.models_status = 301
        with pytest.raises(EngineError) as caught:
            make_engine(server.url, key="secret")
        assert caught.value.code == "remote_moved"
        assert other.requests == [] and other.asked == []


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("9", 9.0),
        (" 9 ", 9.0),
        ("0", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("٣", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:30 GMT", 0.0),
        ("", 0.0),
    ],
)
def test_how_long_a_server_asks_to_wait(retry_after: str, seconds: float) -> None:
    assert wire.seconds_of(retry_after, "Wed, 21 Oct 2026 07:28:00 GMT") == seconds


def test_nobody_waits_for_ever(server: ScriptedServer, make_engine: Callable[..., RemoteEngine], pauses: Pauses) -> None:
    server.scripts = [lambda request: request.refuse(429, "", Retry_After="86400")]
    assert text_of(read(make_engine(server.url).submit(CHAT))) == "Hello" and pauses.seconds == [60.0]


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("prompt length (9000) should not exceed max_num_tokens (8192)", {}),  # TensorRT-LLM
        ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", {}),  # SGLang
        ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", {}),  # vLLM
        ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", {}),  # llama-server
        ("no words for it", {"type": "exceed_context_size_error"}),
        ("no words for it", {"code": "context_length_exceeded"}),
    ],
)
def test_a_chat_that_is_too_long_for_any_of_them(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], message: str, more: dict[str, Any]
) -> None:
    server.scripts = [lambda request: request.refuse(400, {"error": {"message": message, **more}})]
    assert error_of(make_engine(server.url)).code == "prompt_too_long"


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A socket that does one thing to everybody who connects."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.05)
        over = threading.Event()

        def run() -> None:
            while not over.is_set():
                with suppress(OSError):
                    guest, _ = door.accept()
                    with guest:
                        guest.settimeout(5)
                        answer(guest)

        thread = threading.Thread(target=run, name="door")
        thread.start()
        try:
            yield f"127.0.0.1:{door.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def test_a_certificate_that_nobody_vouches_for(make_engine: Callable[..., RemoteEngine], tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text(CERTIFICATE, "ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")

    def answer(guest: socket.socket) -> None:
        with context.wrap_socket(guest, server_side=True) as wrapped:
            wrapped.recv(1)

    with listening(answer) as host, pytest.raises(EngineError) as caught:
        make_engine(f"https://{host}/v1", key="secret")
    assert caught.value.code == "remote_tls" and "certificate" in caught.value.message and "secret" not in caught.value.message


def test_a_door_that_is_shut_at_once(make_engine: Callable[..., RemoteEngine]) -> None:
    with listening(lambda guest: None) as host:
        engine = make_engine(f"http://{host}/v1", ready=False)
        wait_for(engine, lambda: engine.snapshot.error is not None)  # type: ignore[arg-type]
        assert engine.snapshot.error is not None and engine.snapshot.error.code in ("remote_cut", "remote_unreachable")


def test_something_that_speaks_another_language(make_engine: Callable[..., RemoteEngine]) -> None:
    with listening(lambda guest: guest.sendall(b"220 mail.example ESMTP\r\n")) as host:
        engine = make_engine(f"http://{host}/v1", ready=False)
        wait_for(engine, lambda: engine.snapshot.error is not None)  # type: ignore[arg-type]
        assert engine.snapshot.error is not None and engine.snapshot.error.message


def test_a_lost_cancellation_does_not_keep_it_from_closing(
    make_engine: Callable[..., RemoteEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11's asyncio.wait_for drops one that comes at the moment of what it waits for."""
    engine = make_engine("http://127.0.0.1:9/v1", ready=False)
    wait_for(engine, lambda: engine.snapshot.error is not None)  # type: ignore[arg-type]
    monkeypatch.setattr(engine, "_stop_all", lambda: engine._again.set())  # type: ignore[union-attr]
    assert engine.close(60)


def test_many_streams_die_together_and_each_is_told(make_engine: Callable[..., RemoteEngine]) -> None:
    """The machine behind goes away while thirty answers are on their way."""
    script, begun = ScriptedServer(), threading.Semaphore(0)
    handlers: list[Any] = []

    def usual(request: Request) -> None:
        request.begin()
        request.piece("so far")
        handlers.append(request._handler.connection)
        begun.release()
        threading.Event().wait(0.5)

    script.usual = usual
    with serving(script):
        engine = make_engine(script.url)
        handles = [engine.submit(CHAT, SamplingParams(max_tokens=9)) for _ in range(30)]
        for _ in handles:
            assert begun.acquire(timeout=20)
        for connection in handlers:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for handle in handles:
            events = read(handle)
            end = end_of(events)
            assert text_of(events) == "so far" and end.error is not None and end.error.code == "stream_cut"
    assert len(script.requests) == 30, "nothing was asked twice"
