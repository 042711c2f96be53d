"""Answers that are not streamed: what is asked of the server, and what becomes of every kind of reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.engines import _open_remote
from engine.remote import wire
from engine.remote.presets import Source
from engine.remote.remote import RemoteConfig, RemoteEngine
from engine.types import FinishedEvent, FinishReason, Message, SamplingParams, TokensEvent
from tests.engine.made_up_model import PATIENCE, read, said
from tests.engine.remote.scripted import Request, ScriptedServer, serving

CHAT = [Message("user", "hello")]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(ScriptedServer()) as made:
        made.usual = lambda request: request.answer_whole("Hello there.")
        yield made


@pytest.fixture
def engine(server: ScriptedServer) -> Iterator[RemoteEngine]:
    made = RemoteEngine(RemoteConfig(server.url, whole=True, seats=1))
    made.start()
    made.wait_ready(PATIENCE)
    yield made
    assert made.close(PATIENCE)


def ask(engine: RemoteEngine) -> tuple[list[TokensEvent], FinishedEvent]:
    *pieces, end = read(engine.submit(CHAT, SamplingParams()))  # type: ignore[arg-type]
    assert isinstance(end, FinishedEvent)
    return pieces, end  # type: ignore[return-value]


def test_the_answer_comes_in_one_piece(engine: RemoteEngine, server: ScriptedServer) -> None:
    pieces, end = ask(engine)
    assert [piece.text for piece in pieces] == ["Hello there."] and end.reason is FinishReason.STOP
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (7, 3)
    body = server.requests[-1].body
    assert body["stream"] is False and "stream_options" not in body


def test_thoughts_come_between_their_marks(engine: RemoteEngine, server: ScriptedServer) -> None:
    server.scripts += [
        lambda request: request.answer_whole("Yes.", reasoning_content="Hm."),
        lambda request: request.answer_whole("", "length", reasoning_content="Hm"),
    ]
    pieces, _ = ask(engine)
    assert said(pieces) == "<think>\nHm.\n</think>\n\nYes."
    pieces, end = ask(engine)
    assert said(pieces) == "<think>\nHm\n</think>\n\n" and end.reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    "reply, code",
    [
        ("no JSON", "remote_nonsense"),
        ({"choices": []}, "remote_nonsense"),
        ({"choices": [{"message": None}]}, "remote_nonsense"),
        ({"choices": [{"message": {"content": 5}}]}, "remote_nonsense"),
        ({"error": {"message": "too hot", "code": 500}}, "remote_failed"),
    ],
)
def test_a_reply_that_is_none_ends_that_request_alone(server: ScriptedServer, reply: Any, code: str) -> None:
    engine = RemoteEngine(RemoteConfig(server.url, whole=True))
    engine.start()
    try:
        engine.wait_ready(PATIENCE)
        server.scripts.append(lambda request: request.refuse(200, reply))
        pieces, end = ask(engine)
        assert not pieces and end.error is not None and end.error.code == code
    finally:
        assert engine.close(PATIENCE)


def test_an_endless_reply_is_cut(engine: RemoteEngine, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_WHOLE", 1000)
    server.scripts.append(lambda request: request.answer_whole("x" * 5000))
    _, end = ask(engine)
    assert end.error is not None and end.error.code == "remote_nonsense"


def test_a_refusal_is_said_in_the_servers_words(engine: RemoteEngine, server: ScriptedServer) -> None:
    server.scripts.append(lambda request: request.refuse(400, {"error": {"message": "no such parameter"}}))
    _, end = ask(engine)
    assert end.error is not None and "no such parameter" in end.error.message


def test_a_cancelled_one_ends_at_once(engine: RemoteEngine, server: ScriptedServer) -> None:
    import threading

    arrived, go_on = threading.Event(), threading.Event()

    def waits(request: Request) -> None:
        arrived.set()
        go_on.wait(PATIENCE)
        request.answer_whole("too late")

    server.scripts.append(waits)
    handle = engine.submit(CHAT, SamplingParams())
    assert arrived.wait(PATIENCE)
    handle.cancel()
    events = read(handle)  # type: ignore[arg-type]
    go_on.set()
    assert isinstance(events[-1], FinishedEvent) and events[-1].reason is FinishReason.CANCELLED and len(events) == 1


@pytest.mark.parametrize(
    "text, source",
    [
        ("http://h/v1", Source("http://h/v1")),
        ("http://h/v1#org/m:8b", Source("http://h/v1", "org/m:8b")),
        ("http://h/v1#m#whole", Source("http://h/v1", "m", True)),
        ("http://h/v1##whole", Source("http://h/v1", "", True)),
        ("http://h/v1###http://h:9/metrics", Source("http://h/v1", "", False, "http://h:9/metrics")),
        ("http://h/v1#m#whole#http://h:9/m?a=b", Source("http://h/v1", "m", True, "http://h:9/m?a=b")),
    ],
)
def test_how_answers_come_and_where_metrics_lie_is_kept_with_the_address(text: str, source: Source) -> None:
    assert str(source) == text and Source.read(text) == source
    engine: Any = _open_remote(text)
    kept: Callable[[], RemoteConfig] = lambda: engine._remote  # noqa: E731
    assert (kept().model, kept().whole, kept().metrics_url) == (source.model, source.whole, source.metrics)
