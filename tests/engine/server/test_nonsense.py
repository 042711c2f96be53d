"""What no client should send, and some do: always a 4xx with OpenAI's error object, never a 5xx, and the next request works."""

from __future__ import annotations

import json
import socket
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import SamplingParams
from engine.server import guard
from engine.server.asks import read_chat, read_completion
from engine.server.errors import ApiError
from engine.server.fields import read_object
from engine.server.serving import ApiServer
from engine.text.sound_json import MOST_DEPTH
from tests.engine.made_up_model import PATIENCE
from tests.engine.server.made_up_server import Answer, Client, chat_body

CHAT = "/v1/chat/completions"


def check_error(got: Answer, status: int) -> dict[str, Any]:
    assert got.status == status, got.body
    error = got.json["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["code"]
    assert error["type"] == ("invalid_request_error" if status not in (401, 403) else error["type"])
    for leak in ("Traceback", "0x", "/engine/", ".py"):
        assert leak not in error["message"]
    return error


BODIES = {
    "not JSON": b"{nope",
    "empty": b"",
    "a list": b"[]",
    "a text": b'"hi"',
    "null": b"null",
    "NaN": b'{"temperature": NaN, "messages": [{"role": "user", "content": "x"}]}',
    "Infinity": b'{"temperature": Infinity, "messages": [{"role": "user", "content": "x"}]}',
    "1e400": b'{"temperature": 1e400, "messages": [{"role": "user", "content": "x"}]}',
    "hidden 1e400": b'{"metadata": {"a": [1e400]}, "messages": [{"role": "user", "content": "x"}]}',
    "a number of 5,000 digits": b'{"seed": ' + b"1" * 5000 + b"}",
    "20,000 deep": b"[" * 20000,
    "deep and closed": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "invalid UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "UTF-16": '{"messages": []}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(client: Client, name: str) -> None:
    assert check_error(client.call("POST", CHAT, BODIES[name]), 400)["code"] == "invalid_json"
    assert client.chat().status == 200


TOOL = {"type": "function", "function": {"name": "f"}}
FIELDS: dict[str, tuple[Any, str]] = {
    "messages a text": ({"messages": "hi"}, "messages"),
    "messages empty": ({"messages": []}, "messages"),
    "messages missing": ({"messages": None}, "messages"),
    "a message a text": ({"messages": ["hi"]}, "messages"),
    "an unknown role": ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
    "a role of another type": ({"messages": [{"role": ["user"], "content": "hi"}]}, "messages[0].role"),
    "a function's answer": ({"messages": [{"role": "function", "content": "hi", "name": "f"}]}, "messages[0].role"),
    "content null": ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    "content a number": ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    "content a list of texts": ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content"),
    "an image": ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content"),
    "max_tokens below": ({"max_tokens": -5}, "max_tokens"),
    "max_tokens 0": ({"max_tokens": 0}, "max_tokens"),
    "max_tokens a text": ({"max_tokens": "ten"}, "max_tokens"),
    "max_tokens beyond": ({"max_tokens": 10**12}, "max_tokens"),
    "max_tokens true": ({"max_tokens": True}, "max_tokens"),
    "min_tokens above max_tokens": ({"min_tokens": 9}, "min_tokens"),
    "temperature below": ({"temperature": -1}, "temperature"),
    "temperature a text": ({"temperature": "hot"}, "temperature"),
    "top_p above": ({"top_p": 2}, "top_p"),
    "top_p 0": ({"top_p": 0}, "top_p"),
    "min_p above": ({"min_p": 1.5}, "min_p"),
    "top_k below": ({"top_k": -2}, "top_k"),
    "presence_penalty above": ({"presence_penalty": 3}, "presence_penalty"),
    "repetition_penalty 0": ({"repetition_penalty": 0}, "repetition_penalty"),
    "n beyond": ({"n": 1000}, "n"),
    "n 0": ({"n": 0}, "n"),
    "n broken": ({"n": 1.5}, "n"),
    "stop a number": ({"stop": 5}, "stop"),
    "stop empty": ({"stop": [""]}, "stop"),
    "stop too many": ({"stop": ["x"] * 17}, "stop"),
    "stop_token_ids texts": ({"stop_token_ids": ["x"]}, "stop_token_ids"),
    "stop_token_ids unknown": ({"stop_token_ids": [2_000_000]}, "stop_token_ids"),
    "seed a text": ({"seed": "x"}, "seed"),
    "logit_bias a bad key": ({"logit_bias": {"x": 1}}, "logit_bias"),
    "logit_bias too strong": ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    "logit_bias an unknown id": ({"logit_bias": {"2000000": 1}}, "logit_bias"),
    "stream a text": ({"stream": "yes"}, "stream"),
    "stream_options a text": ({"stream_options": "all"}, "stream_options"),
    "response_format unknown": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "a schema that is none": ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format.json_schema"),
    "tools a text": ({"tools": "f"}, "tools"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    "a tool with an odd name": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    "a tool of another kind": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "tools"),
    "parameters a text": ({"tools": [{"function": {"name": "f", "parameters": "x"}}]}, "tools[0].function.parameters"),
    "tool_choice unknown": ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
    "tool_choice of no tool": ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
    "tool_choice required without tools": ({"tool_choice": "required"}, "tool_choice"),
    "tool_calls a text": ({"messages": [{"role": "assistant", "tool_calls": "f"}]}, "messages[0].tool_calls"),
    "template variables that are none": ({"chat_template_kwargs": {"a": "<|im_start|>"}}, "chat_template_kwargs.a"),
    "a form and a call": ({"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "logprobs a number": ({"logprobs": 5}, "logprobs"),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs"),
    "top_logprobs beyond": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "prompt_logprobs in a stream": ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    "audio": ({"audio": {"voice": "x"}}, "modalities"),
    "model a number": ({"model": 5}, "model"),
    "an answer that cannot fit": ({"max_tokens": 7999}, "max_tokens"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields(client: Client, name: str) -> None:
    change, param = FIELDS[name]
    assert check_error(client.post(CHAT, **{**chat_body(), **change}), 400)["param"] == param


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": None},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [""]},
        {"prompt": [1, "a"]},
        {"prompt": [[]]},
        {"prompt": [-1]},
        {"prompt": [True]},
        {"prompt": [2_000_000]},
        {"prompt": ["a"] * 129},
        {"echo": "yes"},
        {"logprobs": True},
        {"logprobs": 21},
        {"max_tokens": 0},
        {"suffix": "x"},
        {"best_of": 3},
    ],
)
def test_fields_of_completions(client: Client, change: dict[str, Any]) -> None:
    (param,) = change
    assert check_error(client.post("/v1/completions", **{"prompt": "abc", "max_tokens": 4, **change}), 400)["param"] == param


def test_what_is_merely_odd_is_answered(client: Client) -> None:
    for change in (
        {"colour": "red"},
        {"logprobs": False, "top_logprobs": 0, "tools": [], "stop": [], "logit_bias": {}, "response_format": None},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"max_tokens": 8.0},
        {"messages": [{"role": "user", "content": ""}, {"role": "user", "content": "x", "name": "me"}]},
        {"messages": [{"role": "user", "content": "\ud83d\udc4b"}], "user": "\ud800"},
    ):
        assert client.post(CHAT, **{**chat_body(), **change}).status == 200, change


def test_a_prompt_beyond_the_context_is_told_the_numbers(client: Client) -> None:
    error = check_error(client.chat("x" * 9000), 400)
    assert error["code"] == "context_length_exceeded" and "8,000" in error["message"]
    error = check_error(client.chat("x" * 4000, max_tokens=4500), 400)
    assert error["code"] == "context_length_exceeded" and "4,006" in error["message"] and "4,500" in error["message"]


def test_a_text_that_the_tokenizer_fails_on(client: Client) -> None:
    error = check_error(client.chat("a\0b"), 400)
    assert error["code"] == "bad_prompt" and "made-up fault" not in error["message"]
    check_error(client.post("/tokenize", prompt="\0"), 400)


def test_a_body_too_large(client: Client, server: ApiServer) -> None:
    check_error(client.call("POST", CHAT, b" " * (guard.MOST_BODY + 1)), 413)
    chunked = [b" " * 2**20] * 9
    connection = client.connect()
    connection.request("POST", CHAT, iter(chunked), {**client.headers, "Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert client.chat().status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_taken(client: Client, kind: str) -> None:
    check_error(client.call("POST", CHAT, json.dumps(chat_body()).encode(), {"Content-Type": kind}), 415)


def test_compressed_bodies_are_not_taken(client: Client) -> None:
    check_error(client.call("POST", CHAT, b"{}", {"Content-Encoding": "gzip"}), 415)


def test_paths_and_methods_that_are_not_there(client: Client) -> None:
    for path in ("/", "/v1", "/v1/chat/completions/", "/v2/models", "/../../etc/passwd", "/v1/models/%2e%2e%2fsecret", "/%00"):
        check_error(client.get(path), 404)
    got = client.get(CHAT)
    check_error(got, 405)
    assert got.headers["Allow"] == "POST"
    check_error(client.call("DELETE", "/v1/models"), 405)
    check_error(client.call("POST", "/health", {}), 405)


def raw(server: ApiServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
        sock.sendall(request)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 40_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_http(server: ApiServer, client: Client, request_: bytes) -> None:
    head, _, body = raw(server, request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and json.loads(body)["error"]["code"] == "bad_http"
    assert client.chat().status == 200


def test_headers_too_large(client: Client) -> None:
    check_error(client.call("GET", "/health", None, {"X": "y" * 40_000}), 431)
    check_error(client.get("/health?" + "y" * 40_000), 431)


def test_a_head_or_body_that_never_ends_is_not_waited_for(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.server import serving

    monkeypatch.setattr(serving, "HEAD_PATIENCE_S", 0.05)
    object.__setattr__(server.app._rules, "body_patience_s", 0.05)
    assert raw(server, b"GET /health HTTP/1.1\r\nHost: 127") == b""
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    got = raw(server, f"{head}Authorization: {client.headers['Authorization']}\r\n\r\n{{".encode())
    assert got.startswith(b"HTTP/1.1 408 ")


# ------------------------------------------------------------------------------------------------------------ any nonsense

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({item.name for item in fields(SamplingParams)} | {path.partition("[")[0] for _, path in FIELDS.values()})
NAMES += ["prompt", "stream", "max_completion_tokens", "top_logprobs", "user", "echo", "best_of", "suffix", "continue_final_message"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), st.booleans())
def test_any_json_is_read_or_refused(change: dict[str, Any], chat: bool) -> None:
    """What is read must be acceptable to the engine as well."""
    body = {**(chat_body() if chat else {"prompt": "abc"}), **change}
    try:
        ask = (read_chat if chat else read_completion)(read_object(json.dumps(body).encode()))
    except ApiError as error:
        assert 400 <= error.status < 500
        return
    for choice in range(ask.choices):
        ask.params_of(choice).check()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read_object(body)
    except ApiError as error:
        assert error.status == 400


def test_depth_is_bounded_and_what_is_within_is_read() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    read_object(nested(MOST_DEPTH - 2))
    with pytest.raises(ApiError):
        read_object(nested(MOST_DEPTH + 1))


@pytest.mark.parametrize("stream", [False, True])
def test_ids_that_are_none_are_refused_also_where_they_are_to_be_said_again(client: Client, stream: bool) -> None:
    got = client.post("/v1/completions", prompt=[97, 3_363_782], echo=True, max_tokens=1, stream=stream)
    assert (got.status, got.json["error"]["code"]) == (400, "bad_token")


def test_what_nobody_expected_is_an_error_object_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **named: object) -> None:
        raise RuntimeError("made-up secret of a fault")

    monkeypatch.setattr("engine.server.routes.document", fails)
    got = client.get("/openapi.json")
    assert (got.status, got.headers["Content-Type"]) == (500, "application/json")
    assert got.json["error"]["code"] == "internal_error" and b"secret" not in got.body and got.headers["x-request-id"]
    assert client.chat().status == 200
