"""The quick way of a streamed piece: the same bytes as the long way, and no news lost on its way to the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from engine.server.asks import Ask, read_chat, read_completion
from engine.server.fields import Fields
from engine.server.replies import Template, to_event, to_json
from engine.server.rides import Bell
from engine.server.serving import ApiServer
from engine.server.shapes import ChatShape, CompletionShape, Heading, Said, Shape
from engine.types import FinishReason
from tests.engine.made_up_model import PATIENCE, answer
from tests.engine.server import test_raw_sockets as raw
from tests.engine.server.made_up_server import chat_body

TEXTS = ("a", "", '"quoted"\n\\', "größer 🙂", "\u2028", "\ud83d", "\x00\x1f\x7f", "<think>", "{}", "0123456789abcdef")


@pytest.mark.parametrize("text", TEXTS)
def test_a_filled_template_is_what_json_makes(text: str) -> None:
    def make(text: str) -> dict[str, Any]:
        return {"id": 'a "model"', "choices": [{"delta": {"content": text}, "logprobs": None}], "usage": None}

    assert Template(make).fill(text) == to_event(make(text))


def test_values_are_written_as_before() -> None:
    value = {"a": [1, 2.5, None, True], "b": {"ü": "\u2028"}}
    assert to_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    with pytest.raises(ValueError):
        to_json(float("nan"))


def make_shape(path: str, **more: Any) -> Shape:
    def heading(ask: Ask) -> Heading:
        return Heading("x-1", 7, "a model", ask)

    if path == "chat":
        shape: Shape = ChatShape(heading(read_chat(Fields(chat_body(stream=True, n=2, **more)))))
    else:
        shape = CompletionShape(heading(read_completion(Fields({"prompt": "prompt", "stream": True, "n": 2, **more}))))
    for choice in range(2):
        shape.begin(choice, False, [1, 2])
    return shape


@pytest.mark.parametrize(
    "path, more",
    [
        ("chat", {}),
        ("chat", {"stream_options": {"include_usage": True}}),
        ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("completion", {}),
        ("completion", {"echo": True}),
        ("completion", {"stream_options": {"include_usage": True}}),
    ],
)
def test_a_stream_is_the_same_by_either_way(path: str, more: dict[str, Any]) -> None:
    def told(quick: bool) -> bytes:
        shape = make_shape(path, **more)
        assert shape._plain  # type: ignore[attr-defined]
        shape._plain = quick  # type: ignore[attr-defined]
        chunks = [*shape.opening(0), *shape.opening(1)]
        for number, text in enumerate(TEXTS):
            chunks += shape.pieces(number % 2, Said(text, [number]), False)
        for choice in range(2):
            chunks += [*shape.pieces(choice, Said(), True), *shape.closing(choice, FinishReason.STOP)]
        assert quick == any(isinstance(chunk, bytes) for chunk in chunks)
        return b"".join(chunk if isinstance(chunk, bytes) else to_event(chunk) for chunk in chunks)

    assert told(True) == told(False)


@pytest.mark.parametrize("more", [{"logprobs": True}, {"return_token_ids": True}])
def test_what_tells_of_tokens_goes_the_long_way(more: dict[str, Any]) -> None:
    assert all(isinstance(chunk, dict) for chunk in make_shape("chat", **more).pieces(0, Said("abc", [1]), False))


def test_chunks_are_well_formed_to_the_byte(server: ApiServer) -> None:
    body = json.dumps(chat_body(stream=True, max_tokens=40)).encode()
    told = raw.talk(server, raw.head(more=raw.HOST + raw.KEY + raw.JSON + b"Connection: close\r\n") + _length(body), close=False)
    head, _, rest = told.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    text = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size, 16)
        text, ending, rest = text + rest[:count], rest[count : count + 2], rest[count + 2 :]
        assert ending == b"\r\n"
        if not count:
            break
    assert rest == b"" and text.endswith(b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in text.split(b"\n\n")[:-2]]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == answer("user:hi;", 7, 40)


def _length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def test_no_ring_is_lost_and_many_are_one_call() -> None:
    """Several engines ring at once, while the loop answers."""
    heard: list[tuple[int, int]] = []
    calls = 0

    class Ride:
        def __init__(self, number: int) -> None:
            self.number = number

        def note(self, choice: int, handle: object) -> None:
            heard.append((self.number, choice))

    class CountingLoop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return super().call_soon_threadsafe(callback, *args, **more)

    loop = CountingLoop()
    bell = Bell(loop)

    def ring(number: int) -> None:
        for choice in range(2000):
            bell.ring(Ride(number), choice, None)  # type: ignore[arg-type]

    threads = [threading.Thread(target=ring, args=(number,), name=f"ringing-{number}") for number in range(3)]
    try:
        ring(9)
        assert calls == 1 and not heard  # nobody has listened yet
        for thread in threads:
            thread.start()
        until = loop.time() + PATIENCE
        while len(heard) < 8000 and loop.time() < until:
            loop.run_until_complete(asyncio.sleep(0))
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        loop.close()
    for number in (0, 1, 2, 9):
        assert [choice for who, choice in heard if who == number] == list(range(2000))
    bell.ring(Ride(1), 0, None)  # type: ignore[arg-type]  # after the loop has closed: not an error
