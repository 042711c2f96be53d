"""Log-probabilities over HTTP, in each of the forms that clients know."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest

from engine.server.likelihoods import LEAST, LegacyLogprobs, chat_logprobs
from engine.types import TokenLogprob
from tests.engine.made_up_model import answer
from tests.engine.server.made_up_server import Client, chat_body

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def test_a_chat_tells_each_token(client: Client) -> None:
    body = client.chat("hi", logprobs=True, top_logprobs=3).json
    content = body["choices"][0]["logprobs"]["content"]
    assert "".join(item["token"] for item in content) == answer("user:hi;", 7, 8)
    for item in content:
        assert bytes(item["bytes"]).decode() == item["token"] and item["logprob"] == -0.5
        assert [top["logprob"] for top in item["top_logprobs"]] == [-0.5, -1.5, -2.5]
        assert item["top_logprobs"][0]["token"] == item["token"]


def test_without_alternatives_and_without_any(client: Client) -> None:
    content = client.chat(logprobs=True).json["choices"][0]["logprobs"]["content"]
    assert len(content) == 8 and all(item["top_logprobs"] == [] for item in content)
    assert client.chat().json["choices"][0]["logprobs"] is None


def test_a_stream_tells_the_same(client: Client) -> None:
    whole = client.chat(logprobs=True, top_logprobs=1).json["choices"][0]["logprobs"]["content"]
    told: list[Any] = []
    with client.open_stream(**chat_body(logprobs=True, top_logprobs=1, stream=True)) as stream:
        for event in stream.events():
            if event != "[DONE]" and event["choices"][0]["logprobs"]:
                told += event["choices"][0]["logprobs"]["content"]
    assert told == whole


def test_tokens_before_a_stop_string_are_told_although_they_make_no_text(client: Client) -> None:
    whole = answer("user:hi;", 7, 60)
    stop = whole[9]
    with client.open_stream(**chat_body(max_tokens=60, stop=stop, logprobs=True, stream=True)) as stream:
        events = [event for event in stream.events() if event != "[DONE]"]
    told = [item["token"] for event in events for item in (event["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert "".join(told) == whole[: whole.index(stop) + 1]


def test_a_completion_tells_in_the_older_form(client: Client) -> None:
    choice = client.post(COMPLETIONS, prompt="abc", max_tokens=4, seed=3, logprobs=2).json["choices"][0]
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"] and told["text_offset"] == [0, 1, 2, 3]
    assert told["token_logprobs"] == [-0.5] * 4
    assert all(sorted(top.values(), reverse=True) == [-0.5, -1.5] for top in told["top_logprobs"])


@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99]])
def test_echo_says_the_prompt_and_scores_it(client: Client, prompt: Any) -> None:
    choice = client.post(COMPLETIONS, prompt=prompt, max_tokens=2, seed=3, logprobs=1, echo=True).json["choices"][0]
    assert choice["text"] == "abc" + answer("abc", 3, 2)
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"] and told["text_offset"] == [0, 1, 2, 3, 4]
    assert told["token_logprobs"] == [None, -0.5, -0.5, -0.5, -0.5] and told["top_logprobs"][0] is None


def test_a_prompt_is_scored_and_nothing_is_answered(client: Client) -> None:
    """What evaluation harnesses ask: max_tokens 0 with echo."""
    body = client.post(COMPLETIONS, prompt=["abc", "de"], max_tokens=0, logprobs=1, echo=True).json
    assert [choice["text"] for choice in body["choices"]] == ["abc", "de"]
    assert [len(choice["logprobs"]["tokens"]) for choice in body["choices"]] == [3, 2]
    assert body["usage"]["completion_tokens"] == 0 and body["usage"]["prompt_tokens"] == 5
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "length"]


def test_echo_in_a_stream_and_without_logprobs(client: Client) -> None:
    body: dict[str, Any] = {"prompt": "abc", "max_tokens": 3, "seed": 3, "echo": True, "stream": True}
    for more in ({}, {"logprobs": 0}):
        with client.open_stream(COMPLETIONS, **body, **more) as stream:
            choices = [event["choices"][0] for event in stream.events() if event != "[DONE]"]
        assert "".join(choice["text"] for choice in choices) == "abc" + answer("abc", 3, 3)
        told = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
        assert "".join(told) == ("abc" + answer("abc", 3, 3) if more else "")


def test_a_scored_prompt_is_computed_whole_also_when_it_is_cached(client: Client) -> None:
    prompt = "the same long beginning " * 3
    first = client.post(COMPLETIONS, prompt=prompt, max_tokens=1, echo=True, logprobs=0).json
    assert client.post(COMPLETIONS, prompt=prompt, max_tokens=1).json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    again = client.post(COMPLETIONS, prompt=prompt, max_tokens=1, echo=True, logprobs=0).json
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for body in (first, again):
        assert body["choices"][0]["logprobs"]["tokens"][: len(prompt)] == list(prompt)


def test_prompt_logprobs_by_themselves(client: Client) -> None:
    told = client.chat("hi", prompt_logprobs=1).json["prompt_logprobs"]
    assert told[0] is None and "".join(entry["decoded_token"] for item in told[1:] for entry in item.values()) == "ser:hi;"
    choice = client.post(COMPLETIONS, prompt="abc", prompt_logprobs=0).json["choices"][0]
    assert choice["prompt_logprobs"] == [None, *({str(ord(letter)): {"logprob": -0.5, "decoded_token": letter}} for letter in "bc")]


def test_what_is_no_number_in_json_is_told_as_the_least() -> None:
    told = [TokenLogprob(1, float("-inf"), ((2, float("nan")), (1, float("-inf"))))]
    item = chat_logprobs(told, lambda token_id: b"\xff" * token_id)["content"][0]
    assert item["logprob"] == LEAST and item["token"] == "�" and item["bytes"] == [255]
    assert [top["logprob"] for top in item["top_logprobs"]] == [LEAST, LEAST]
    piece = LegacyLogprobs(lambda token_id: b"x").piece(told)
    assert piece["top_logprobs"] == [{"x": LEAST}] and isclose(piece["token_logprobs"][0], LEAST)
