"""What is told beside the text: usage as it grows, tokens of reasoning, ids, and the class that a request rides in."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Engine, EngineError, Priority
from engine.server.parts import Parts
from engine.server.tooling import Tooling
from engine.text.tools import ToolForm
from tests.engine.made_up_model import answer
from tests.engine.server.made_up_server import Client, chat_body


@pytest.mark.parametrize(
    ("path", "asked", "prompt"), [("/v1/chat/completions", {}, "user:hi;"), ("/v1/completions", {"prompt": "user:hi;"}, "user:hi;")]
)
def test_usage_with_every_piece(client: Client, path: str, asked: dict[str, Any], prompt: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    with client.open_stream(path, **{**chat_body(stream=True, n=2, max_tokens=30, stream_options=options), **asked}) as stream:
        *events, total, done = stream.events()
    assert done == "[DONE]" and total["choices"] == [] and total["usage"]["completion_tokens"] == 60
    for choice in (0, 1):
        mine = [event for event in events if event["choices"][0]["index"] == choice]
        usages = [event["usage"] for event in mine]
        assert {usage["prompt_tokens"] for usage in usages} == {len(prompt)}
        assert all(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
        said = ""
        for event in mine:  # one character a token here
            said += (event["choices"][0].get("delta") or {}).get("content", "") or event["choices"][0].get("text", "")
            assert event["usage"]["completion_tokens"] == len(said)
        assert len(said) == 30


def test_usage_with_every_piece_is_a_part_of_usage(client: Client) -> None:
    """As in vLLM: by itself it asks for nothing."""
    with client.open_stream(**chat_body(stream=True, stream_options={"continuous_usage_stats": True})) as stream:
        *events, _ = stream.events()
    assert all("usage" not in event for event in events)


def test_token_ids_on_demand(client: Client) -> None:
    ids, said = list(b"user:hi;"), [ord(letter) - 97 for letter in answer("user:hi;", 7, 30)]
    with client.open_stream(**chat_body(stream=True, max_tokens=30, return_token_ids=True)) as stream:
        *events, _ = stream.events()
    assert events[0]["prompt_token_ids"] == ids and all("prompt_token_ids" not in event for event in events[1:])
    assert sum((event["choices"][0]["token_ids"] for event in events), []) == said
    whole = client.chat(max_tokens=30, return_token_ids=True).json
    assert (whole["prompt_token_ids"], whole["choices"][0]["token_ids"]) == (ids, said)
    body = {"prompt": ["user:hi;", "x"], "max_tokens": 30, "seed": 7, "return_token_ids": True}
    first, second = client.post("/v1/completions", **body).json["choices"]
    assert (first["prompt_token_ids"], first["token_ids"], second["prompt_token_ids"]) == (ids, said, [ord("x")])
    with client.open_stream("/v1/completions", **{**body, "stream": True, "prompt": "user:hi;"}) as stream:
        *events, _ = stream.events()
    choices = [event["choices"][0] for event in events]
    assert choices[0]["prompt_token_ids"] == ids and sum((choice["token_ids"] for choice in choices), []) == said


class SpelledParts:
    """Parts of an answer whose tokens are pieces of text; fed in as few or as many of them at a time."""

    def __init__(self, *texts: str, thinking: bool = False) -> None:
        self.texts = texts
        self.parts = Parts(Tooling(), ToolForm.NONE, thinking, False, lambda token_id: texts[token_id].encode())

    def feed(self, at_once: int) -> int:
        for first in range(0, len(self.texts), at_once):
            ids = range(first, min(first + at_once, len(self.texts)))
            list(self.parts.push("".join(self.texts[place] for place in ids), ids[-1] == len(self.texts) - 1, ids))
        return self.parts.thought


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("texts", "thinking", "wanted"),
    [
        (("<think>", "hm", ", well", "</think>", "\n\n", "yes", "."), False, 4),
        (("<thi", "nk>", "hm", "</th", "ink>yes", "."), False, 5),
        (("hm", "</think>", "yes"), True, 2),
        (("hm", " and", " so", " on"), True, 4),
        (("<think>", "hm"), False, 2),
        (("yes", "<think>", "no"), False, 0),
        (("  ", "<th", "ree"), False, 0),
        (("<think>", "é", "</think>", "ü"), False, 3),
    ],
)
def test_tokens_of_the_reasoning_are_counted(texts: tuple[str, ...], thinking: bool, wanted: int, at_once: int) -> None:
    assert SpelledParts(*texts, thinking=thinking).feed(at_once) == wanted


def test_tokens_of_the_reasoning_are_told(client: Client) -> None:
    thinking = [{"role": "user", "content": "<think>"}]  # the made-up template leaves the mark open
    assert client.chat(messages=thinking, max_tokens=9).json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 9}
    assert client.chat(max_tokens=9).json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    with client.open_stream(**chat_body(messages=thinking, stream=True, stream_options={"include_usage": True})) as stream:
        *_, usage, _ = stream.events()
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 8}
    response = client.post("/v1/responses", input=thinking, max_output_tokens=9).json
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 9}


def test_one_that_gives_way_rides_in_the_last_class(engine: Engine, client: Client) -> None:
    seats: list[Any] = []
    remove = engine.add_listener(lambda: seats.extend(seat for seat in engine.snapshot.seats if seat))
    assert client.chat(priority=3).status == 200 and {seat.priority for seat in seats} == {Priority.IDLE}
    seats.clear()
    assert client.chat(priority=-5).status == 200 and {seat.priority for seat in seats} == {Priority.API}, "nobody passes the tabs"
    remove()


def test_a_reproducible_answer_is_promised_or_refused(engine: Engine, client: Client) -> None:
    """The promise is the engine's; a request may insist on it. Made-up models ride alone for it."""
    refused = client.chat(reproducible=True, seed=1)
    assert (
        refused.status == 400
        and refused.json["error"]["code"] == "not_reproducible"
        and "--reproducible" in refused.json["error"]["message"]
    )
    engine.configure(reproducible=True)
    assert client.chat(reproducible=True, temperature=1.0, seed=None).json["error"]["param"] == "reproducible", (
        "without a seed there is nothing to repeat"
    )
    for wish in ({"seed": 1}, {"temperature": 0.0}):
        assert client.chat(reproducible=True, max_tokens=3, **wish).status == 200
    assert engine.snapshot.alone and len(engine.snapshot.seats) == 1
    with pytest.raises(EngineError, match="one seat"):
        engine.configure(seats=3)
    engine.configure(reproducible=False)
    engine.configure(seats=3)
    assert client.chat(max_tokens=3).status == 200 and not engine.snapshot.alone
