"""What comes is written as it comes, past the tasks: whole, in order, no more than a client takes, and with nobody else held up."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import pytest

from engine import Engine, RequestHandle
from engine.server import answering, serving
from engine.server.fields import Fields
from engine.server.items import Items
from engine.server.replies import NumberedTemplate, to_event
from engine.server.responses import KeptChats, ResponseShape, read_response
from engine.server.serving import ApiServer
from engine.server.shapes import ChatShape, Heading
from engine.types import FinishedEvent, FinishReason, TimeSplit, TokenLogprob, TokensEvent, Usage
from tests.engine.made_up_model import PATIENCE
from tests.engine.server.made_up_server import Client, Stream, chat_body, open_answers, until
from tests.engine.server.test_raw_sockets import whole
from tests.engine.server.test_streaming import content

PLAIN = {"tool_choice": "none"}
TOO_MUCH = 64 * 2**20  # bytes, which no system keeps for a connection that nobody reads


class Puppet:
    """An engine whose answers are said by the test, to clients of `server`.

    Attributes:
        handles: of what was asked, in order.
        cancelled: the ids of those that were.
    """

    def __init__(self, engine: Engine, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        self.handles: list[RequestHandle] = []
        self.cancelled: list[str] = []
        monkeypatch.setattr(engine, "submit", self._submit)

    def say(self, handle: RequestHandle, text: str, *ids: int, logprobs: tuple[TokenLogprob, ...] = ()) -> None:
        """When all that was said before is told, and every task waits for more."""
        until(lambda: not handle._unread and all(ride._waiter is not None for ride in list(self._server._rides._rides)))
        say(handle, text, *ids, logprobs=logprobs)

    def _submit(self, prompt: Any, params: Any, *, on_ready: Any, chat_id: str, **options: Any) -> RequestHandle:
        handle = RequestHandle(f"p{len(self.handles)}", chat_id, self._cancel, on_ready)
        handle.prompt_ids = (1, 2, 3)
        self.handles.append(handle)
        return handle

    def _cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        end(self.handles[int(request_id[1:])], reason=FinishReason.CANCELLED)


def say(handle: RequestHandle, text: str, *ids: int, logprobs: tuple[TokenLogprob, ...] = ()) -> None:
    handle.put(TokensEvent(handle.id, text, ids or (7,), logprobs))


def end(handle: RequestHandle, tokens: int = 1, reason: FinishReason = FinishReason.STOP) -> None:
    handle.put(FinishedEvent(handle.id, reason, Usage(3, tokens), TimeSplit(0.0, 0.0, 0.0, 0.0)))


@pytest.fixture
def puppet(engine: Engine, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Puppet:
    return Puppet(engine, server, monkeypatch)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were told at once, each time."""
    counts: list[int] = []
    tell = answering._Telling.tell

    def counted(telling: Any, events: Any) -> Any:
        left = tell(telling, events)
        counts.append(len(events) - len(left))
        return left

    monkeypatch.setattr(answering._Telling, "tell", counted)
    return counts


def text_of(event: Any) -> str:
    """Of a piece of either kind of stream."""
    return "".join(one.get("text") or one.get("delta", {}).get("content") or "" for one in event["choices"])


def open_chat(client: Client, puppet: Puppet, **more: Any) -> tuple[Stream, Iterator[Any], RequestHandle]:
    """A stream that has begun: its role and "<" are read, so that the rest can go out at once."""
    before = len(puppet.handles)
    stream = client.open_stream(**chat_body(stream=True, **PLAIN, **more))
    until(lambda: len(puppet.handles) > before)
    say(puppet.handles[before], ".")
    events = stream.events()
    next(events)
    assert content([next(events)]) == "."
    return stream, events, puppet.handles[before]


# ------------------------------------------------------------------------------------------------------- several tokens


def test_several_tokens_in_one_event_are_one_piece(client: Client, puppet: Puppet, told: list[int]) -> None:
    stream, events, handle = open_chat(client, puppet, stream_options={"include_usage": True, "continuous_usage_stats": True})
    with stream:
        puppet.say(handle, "one two three", 1, 2, 3)
        piece = next(events)
        assert content([piece]) == "one two three" and piece["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        end(handle, 4)
        *_, usage, done = events
    assert done == "[DONE]" and usage["usage"]["completion_tokens"] == 4
    assert told[0] == 1 and sum(told) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_step_that_gave_several_tokens_is_told_a_token_a_piece(client: Client, puppet: Puppet, path: str) -> None:
    """Clients count pieces for tokens. One that does not keep up gets what came meanwhile in one."""
    body = chat_body(stream=True, **PLAIN) if path.endswith("chat/completions") else {"prompt": "x", "stream": True}
    with client.open_stream(path, **body) as stream:
        until(lambda: bool(puppet.handles))
        (handle,) = puppet.handles
        say(handle, "first")
        events = stream.events()
        while "first" not in text_of(next(events)):
            pass
        until(lambda: all(ride._waiter is not None for ride in list(puppet._server._rides._rides)))
        handle.put(TokensEvent(handle.id, "one two", (1, 2, 3), pieces=("one", "", " two")))
        assert [text_of(next(events)), text_of(next(events))] == ["one", " two"]
        end(handle, 4)
        assert [event for event in events][-1] == "[DONE]"


def test_their_ids_and_likelihoods_are_all_told(client: Client, puppet: Puppet, told: list[int]) -> None:
    stream, events, handle = open_chat(client, puppet, return_token_ids=True, logprobs=True)
    with stream:
        puppet.say(handle, "", 1, logprobs=(TokenLogprob(1, -0.5),))  # a token that shows nothing yet is told with the next that does
        puppet.say(handle, "bcd", 1, 2, 3, logprobs=tuple(TokenLogprob(number, -0.5) for number in (1, 2, 3)))
        (choice,) = next(events)["choices"]
        assert choice["token_ids"] == [1, 1, 2, 3] and [one["token"] for one in choice["logprobs"]["content"]] == ["b", "b", "c", "d"]
        puppet.say(handle, "ef", 4, 5)  # drafted ones come without
        (choice,) = next(events)["choices"]
        assert choice["token_ids"] == [4, 5] and choice["logprobs"] is None and choice["delta"] == {"content": "ef"}
        end(handle)
        assert list(events)[-1] == "[DONE]"
    assert sum(told) == 3


@pytest.mark.parametrize("path, field", [("/v1/completions", "prompt"), ("/v1/responses", "input")])
def test_the_other_ways_to_ask(path: str, field: str, client: Client, puppet: Puppet, told: list[int]) -> None:
    with client.open_stream(path, stream=True, **{field: "hi"}) as stream:
        until(lambda: len(puppet.handles) == 1)
        (handle,) = puppet.handles
        lines = stream.lines()
        said = ""
        for text in ("a", "b c d", '"\n', "größer"):
            puppet.say(handle, text, 1, 2, 3)
            while not said.endswith(text):
                event = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
                said += event["choices"][0]["text"] if "choices" in event else event.get("delta", "")
        end(handle, 12)
        rest = list(lines)
    assert said == 'ab c d"\ngrößer' and sum(told) == 3  # the first one brings the header, and takes the long way
    assert (
        (rest[-1] == "data: [DONE]") if path == "/v1/completions" else json.loads(rest[-1][6:])["response"]["usage"]["output_tokens"] == 12
    )


# -------------------------------------------------------------------------------------------------------------- order


def test_every_stream_has_its_own_in_order(client: Client, puppet: Puppet, told: list[int]) -> None:
    """Three engines talk at once, in bursts, to streams of one choice and of several, and end without a pause."""
    pieces = [[f"{number}:{place} " for place in range(150)] for number in range(12)]
    streams = [client.open_stream(**chat_body(stream=True, n=n, **PLAIN)) for n in (1, 1, 1, 1, 3, 1, 1, 3)]
    until(lambda: len(puppet.handles) == 12)
    place_of = {handle: number for number, handle in enumerate(puppet.handles)}

    def talk(mine: list[RequestHandle], seed: int) -> None:
        chance = random.Random(seed)
        left = {handle: list(pieces[place_of[handle]]) for handle in mine}
        pause = threading.Event()
        while left:
            for handle in list(left):
                for _ in range(chance.randrange(3)):
                    if left[handle]:
                        say(handle, left[handle].pop(0))
                if not left[handle]:
                    end(handle)
                    del left[handle]
            pause.wait(chance.choice((0, 0, 0.001)))

    threads = [threading.Thread(target=talk, args=(puppet.handles[number::3], number), name=f"talks-{number}") for number in range(3)]
    for thread in threads:
        thread.start()
    got = []
    for stream, n in zip(streams, (1, 1, 1, 1, 3, 1, 1, 3), strict=True):
        with stream:
            *events, done = stream.events()
        assert done == "[DONE]"
        got += [content(events, choice) for choice in range(n)]
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(got) == sorted("".join(mine) for mine in pieces)
    assert sum(told) > 12


def test_silence_is_counted_from_the_last_piece(client: Client, puppet: Puppet, told: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "STILL_HERE_S", 0.05)
    stream, events, handle = open_chat(client, puppet)
    with stream:
        for number in range(5):
            puppet.say(handle, str(number))
            assert content([next(events)]) == str(number)
            assert ": still here" in stream.lines()  # reads on to the first such line
        end(handle)
        assert list(events)[-1] == "[DONE]"
    assert sum(told) > 0  # some may have come when the task was at it for the silence before


# ------------------------------------------------------------------------------------------------------ clients, engines


def connection_of(server: ApiServer) -> Any:
    """The one that is open."""
    assert server._server is not None
    (connection,) = server._server.server_state.connections
    return connection


def stall(server: ApiServer, handle: RequestHandle) -> str:
    """Talk to a client that does not read until no more goes out. Returns what was said."""
    flow, text, said = connection_of(server).flow, "x" * 50_000, 0
    while not flow.write_paused:
        say(handle, text)
        said += len(text)
        assert said < TOO_MUCH
        until(lambda: flow.write_paused or not handle._unread)
    return "x" * said


def test_a_client_that_does_not_read_is_not_written_to(client: Client, server: ApiServer, puppet: Puppet, told: list[int]) -> None:
    stream, events, handle = open_chat(client, puppet)
    with stream:
        said = stall(server, handle)
        transport, times = connection_of(server).transport, len(told)
        before = transport.get_write_buffer_size()
        assert before < 64 * 1024 + 2 * 50_000
        for number in range(500):
            say(handle, f"{number},")
        assert client.get("/health").status == 200  # the loop has been round
        assert transport.get_write_buffer_size() <= before and len(told) - times <= 1
        said += "".join(f"{number}," for number in range(500))
        end(handle)
        *rest, done = events
    assert done == "[DONE]" and content(rest) == said


@pytest.mark.parametrize("stalled", [False, True])
def test_a_client_that_goes_frees_its_seat(stalled: bool, client: Client, server: ApiServer, puppet: Puppet) -> None:
    stream, _, handle = open_chat(client, puppet)
    if stalled:
        stall(server, handle)
    say(handle, "more")
    stream.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # as if it were killed
    stream.close()
    until(lambda: open_answers(server) == 0)
    assert puppet.cancelled == [handle.id]
    say(handle, "nobody hears it")
    assert client.get("/health").status == 200


@pytest.mark.parametrize("where", ["in its shape", "in its connection"])
def test_a_fault_in_one_stream_is_its_own(
    where: str, client: Client, puppet: Puppet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pieces, write = ChatShape.pieces, serving._Body.write

    def made_up(shape: ChatShape, choice: int, said: Any, last: bool) -> Any:
        if said.text == "broken" and where == "in its shape":
            raise ValueError("made-up fault")
        return pieces(shape, choice, said, last)

    def written(body: serving._Body, piece: bytes) -> None:
        if b"broken" in piece:
            raise OSError("made-up fault")
        write(body, piece)

    monkeypatch.setattr(ChatShape, "pieces", made_up)
    monkeypatch.setattr(serving._Body, "write", written)
    first, first_events, one = open_chat(client, puppet)
    second, second_events, other = open_chat(client, puppet)
    with first, second:
        say(one, "broken")
        say(other, "whole")
        assert content([next(second_events)]) == "whole"
        until(lambda: puppet.cancelled == [one.id])
        assert list(first_events) == [], "cut off, which no client takes for an end"
        end(other)
        assert list(second_events)[-1] == "[DONE]"
    assert "made-up fault" in caplog.text


def test_streams_one_behind_the_other_on_one_connection(server: ApiServer, puppet: Puppet, told: list[int]) -> None:
    """Asked for in one piece, with nonsense behind them: each is whole, and begins when the one before has ended."""
    words = [f" {place}" for place in range(20)]
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock, sock.makefile("rb") as file:
        sock.sendall(whole(json.dumps(chat_body(stream=True, **PLAIN)).encode()) * 3 + b"\0\r\n\r\n")
        for number in range(3):
            until(lambda number=number: len(puppet.handles) > number)  # type: ignore[misc]
            for word in words:
                puppet.say(puppet.handles[number], f"{number}{word}")
            assert len(puppet.handles) == number + 1
            end(puppet.handles[number])
            *events, done, rest = read_chunked(file).split(b"\n\n")
            assert (done, rest) == (b"data: [DONE]", b"")
            assert content([json.loads(event[6:]) for event in events]) == "".join(f"{number}{word}" for word in words)
        assert file.read().startswith(b"HTTP/1.1 400 ")
    assert sum(told) == 3 * 19


def read_chunked(file: BinaryIO) -> bytes:
    """The body of one response."""
    while file.readline() != b"\r\n":
        pass
    body = b""
    while count := int(file.readline(), 16):
        body += file.read(count)
        assert file.read(2) == b"\r\n"
    assert file.read(2) == b"\r\n"
    return body


# ------------------------------------------------------------------------------------------------------------ templates


@pytest.mark.parametrize("text", ["a", '"quoted"\n\\', "größer 🙂", "\ud83d", "7", "{}"])
def test_a_numbered_template_is_what_json_makes(text: str) -> None:
    def make(text: str, number: int) -> dict[str, Any]:
        return {"type": "a.delta", "item_id": "x_7", "delta": text, "logprobs": [], "sequence_number": number}

    assert NumberedTemplate(make).fill(text, 7) == to_event(make(text, 7))


def test_a_response_is_the_same_by_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.server.items._new_id", lambda kind: f"{kind}_1")

    def told() -> tuple[bytes, bool]:
        fields = Fields({"input": "hi", "stream": True})
        kept = KeptChats()
        shape = ResponseShape(Heading("x-1", 7, "a model", read_response(fields, kept, b"")), fields, partial(kept.keep, b"", "x-1"))
        shape.begin(0, False, [1])
        chunks: list[Any] = list(shape.opening(0))
        for text in ("<think>", "well", " then", "</think>", "\n", "Good", " day", '"', " to", "", "\ud83d"):
            chunks += shape.pieces(0, TokensEvent("r1", text, (1, 2)), False)
        quick = any(isinstance(chunk, bytes) for chunk in chunks)
        chunks += shape.ending({0: _ended()}, {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "prompt_tokens_details": {}})
        return b"".join(chunk if isinstance(chunk, bytes) else to_event(chunk) for chunk in chunks), quick

    quickly = told()
    monkeypatch.setattr(Items, "extend", lambda items, part: "")
    slowly = told()
    assert quickly[0] == slowly[0] and quickly[1] and not slowly[1]


def _ended() -> FinishedEvent:
    return FinishedEvent("r1", FinishReason.STOP, Usage(1, 2), TimeSplit(0.0, 0.0, 0.0, 0.0))
