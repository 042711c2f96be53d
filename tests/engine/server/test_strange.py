"""Fields that the server does not know: ignored, and said to be."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.server import strange
from engine.server.strange import Strange
from tests.engine.made_up_model import answer
from tests.engine.server.made_up_server import Client, ServedWorkshop, chat_body

NAME = "x-omnibus-ignored"


def test_an_unknown_field_is_ignored_and_named(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "engine.server.strange"):
        got = client.chat(temprature=0.1, mirostat=2, min_p=None, truncate=None)
        again = client.chat(temprature=0.3, mirostat=1)
    assert got.status == 200 and got.text == answer("user:hi;", 7, 8)
    assert got.headers[NAME] == again.headers[NAME] == "temprature, mirostat"  # null counts as absent
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["temprature, mirostat"]


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/chat/completions", chat_body()),
        ("/v1/completions", {"prompt": "abc", "max_tokens": 2}),
        ("/v1/responses", {"input": "abc", "max_output_tokens": 2}),
        ("/v1/embeddings", {"input": "abc"}),
        ("/tokenize", {"prompt": "abc"}),
        ("/detokenize", {"tokens": [97]}),
    ],
)
def test_each_path_says_so(client: Client, path: str, body: dict[str, Any]) -> None:
    assert client.call("POST", path, body).headers[NAME] is None
    got = client.call("POST", path, {**body, "no_such_field": 1})
    assert (got.status, got.headers[NAME]) == (200, "no_such_field")


def test_a_stream_says_so_in_its_header(client: Client) -> None:
    with client.open_stream(**chat_body(stream=True, no_such_field=1)) as stream:
        assert stream.response.headers[NAME] == "no_such_field"
        assert list(stream.events())[-1] == "[DONE]"


def test_what_is_known_is_not_named(client: Client) -> None:
    """Whether it is looked at, waits for another field, or is OpenAI's own business."""
    known = {
        **{"temperature": 0.5, "user": "me", "session_id": "s", "add_generation_prompt": True, "chat_template_kwargs": {"a": 1}},
        **{"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "stream_options": {"include_usage": True}},
        **{"tool_choice": "none", "tools": [], "parallel_tool_calls": True, "modalities": ["text"], "cache_salt": "x", "ignore_eos": True},
        **{"function_call": "none", "functions": [], "logprobs": False, "top_logprobs": 0, "return_token_ids": False, "priority": 0},
    }
    got = client.chat(**known)
    assert (got.status, got.headers[NAME]) == (200, None)
    told = {"instructions": "Be brief.", "metadata": {}, "include": ["reasoning.encrypted_content"], "top_logprobs": 1, "text": {}}
    got = client.post("/v1/responses", input="hi", max_output_tokens=2, truncation="auto", **told)
    assert (got.status, got.headers[NAME]) == (200, "truncation")
    got = client.post("/v1/completions", prompt="hi", max_tokens=1, suffix="", best_of=1, echo=False)
    assert (got.status, got.headers[NAME]) == (200, None)


def test_a_name_cannot_become_a_header_or_a_line_of_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "engine.server.strange"):
        got = client.chat(**{"a\r\nset-cookie: b": 1, "größe, weite": 2, "\ud800": 3, "x" * 1000: 4})
    assert got.headers["set-cookie"] is None
    names = got.headers[NAME].split(", ")
    assert names == ["a%0D%0Aset-cookie%3A%20b", "gr%C3%B6%C3%9Fe%2C%20weite", "%3F", "x" * 64]
    assert "\n" not in caplog.records[0].getMessage()


def test_a_name_may_be_empty(client: Client) -> None:
    """An end or a beginning of white space would be no header."""
    for names in ([""], ["a", ""], [" ", "\t"]):
        got = client.chat(**dict.fromkeys(names, 1))
        assert got.status == 200 and got.headers[NAME] == ", ".join(
            {"": "(empty)", " ": "%20", "\t": "%09"}.get(name, name) for name in names
        )


def test_the_log_does_not_grow_with_made_up_names(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strange, "MOST_NOTED", 3)
    noting = Strange()
    with caplog.at_level(logging.WARNING, "engine.server.strange"):
        told = [noting.note([f"field{number}"] * 40) for number in range(9)]
    assert len(caplog.records) == 3 and told[8] == ", ".join(["field8"] * 16)


def test_also_where_the_body_is_large(client: Client, workshop: ServedWorkshop) -> None:
    got = client.post("/tokenize", prompt="a" * 70_000, no_such_field=1)
    assert (got.status, got.headers[NAME]) == (200, "no_such_field")
