"""What clients of OpenAI's API send and expect, answer by answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine import Engine, GrammarKind, Message, Priority, SamplingParams
from engine.server.asks import read_chat
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.guard import OPEN_PATHS
from engine.server.serving import ApiServer
from engine.server.shapes import ChatShape, Heading, Said
from engine.types import FinishedEvent, FinishReason, TimeSplit, Usage
from engine.version import __version__
from tests.engine.made_up_model import PATIENCE, answer
from tests.engine.server.made_up_server import TOKEN, Client, ServedWorkshop, chat_body, make_server


def test_a_chat_is_answered(client: Client) -> None:
    got = client.chat("hi", max_tokens=12)
    assert got.status == 200 and got.headers["Content-Type"] == "application/json"
    assert got.text == answer("user:hi;", 7, 12)
    body = got.json
    assert body["object"] == "chat.completion" and body["model"] == "first" and body["id"].startswith("chatcmpl-")
    assert body["choices"][0]["message"]["role"] == "assistant" and body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 12,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_the_answer_is_the_engines_own(client: Client, engine: Engine) -> None:
    params = SamplingParams(max_tokens=30, seed=11, temperature=1.0, top_p=1.0)
    own = engine.submit([Message("system", "be kind"), Message("user", "hi")], params).result(PATIENCE)
    messages = [{"role": "developer", "content": "be kind"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert client.chat(messages=messages, max_tokens=None, max_completion_tokens=30, seed=11).text == own.text


def test_content_takes_its_several_forms(client: Client) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}, {"role": "user", "content": "x"}]
    assert client.chat(messages=messages).text == answer("user:one\ntwo;assistant:;user:x;", 7, 8)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("abc", ["abc"]),
        (["abc", "de"], ["abc", "de"]),
        ([97, 98, 99], ["abc"]),
        ([[97, 98, 99], [100]], ["abc", "d"]),
    ],
)
def test_a_completion_takes_texts_and_ids(client: Client, prompt: Any, texts: list[str]) -> None:
    body = client.post("/v1/completions", prompt=prompt, max_tokens=6, seed=3).json
    assert [choice["text"] for choice in body["choices"]] == [answer(text, 3, 6) for text in texts]
    assert [choice["index"] for choice in body["choices"]] == list(range(len(texts)))
    assert body["object"] == "text_completion" and body["usage"]["prompt_tokens"] == sum(map(len, texts))


def test_a_completion_is_short_unless_told(client: Client) -> None:
    assert client.post("/v1/completions", prompt="abc").json["usage"]["completion_tokens"] == 16


def test_several_choices_count_their_prompt_once_and_have_seeds_of_their_own(client: Client) -> None:
    body = client.chat("hi", n=3, seed=40).json
    assert [choice["message"]["content"] for choice in body["choices"]] == [answer("user:hi;", 40 + i, 8) for i in range(3)]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (8, 24)


def test_choices_of_several_prompts_stand_in_order(client: Client) -> None:
    body = client.post("/v1/completions", prompt=["ab", "cd"], n=2, seed=5, max_tokens=4).json
    wanted = [answer(prompt, seed, 4) for prompt in ("ab", "cd") for seed in (5, 6)]
    assert [choice["text"] for choice in body["choices"]] == wanted


def test_a_seed_gives_the_same_again_and_none_another(client: Client) -> None:
    assert client.chat(seed=9, max_tokens=30).text == client.chat(seed=9, max_tokens=30).text
    assert client.chat(seed=-9, max_tokens=30).status == 200
    assert len({client.chat(seed=None, max_tokens=30).text for _ in range(4)}) == 4


@pytest.mark.parametrize("listed", [False, True])
def test_it_ends_before_a_stop_string(client: Client, listed: bool) -> None:
    whole = answer("user:hi;", 7, 60)
    letter = whole[9]
    got = client.chat(max_tokens=60, stop=[letter] if listed else letter)
    assert got.text == whole[: whole.index(letter)]
    assert got.json["choices"][0]["finish_reason"] == "stop"


def test_every_field_reaches_the_engine() -> None:
    params = read_chat(
        Fields(
            chat_body(
                max_tokens=50,
                max_completion_tokens=40,
                min_tokens=3,
                temperature=0,
                top_p=0.5,
                top_k=-1,
                min_p=0.1,
                repetition_penalty=1.1,
                presence_penalty=1,
                frequency_penalty=-1,
                seed=5,
                stop="x",
                stop_token_ids=[4],
                ignore_eos=True,
                logit_bias={"5": -100},
            )
        )
    ).params
    assert params == SamplingParams(
        max_tokens=40,
        min_tokens=3,
        temperature=0.0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        seed=5,
        stop=("x",),
        stop_token_ids=(4,),
        ignore_eos=True,
        logit_bias=((5, -100.0),),
    )
    params.check()


def test_what_is_not_said_is_as_openai_has_it() -> None:
    params = read_chat(Fields({"messages": [{"role": "user", "content": "hi"}]})).params
    assert params == SamplingParams(max_tokens=None, temperature=1.0, top_p=1.0)


def test_a_form_is_asked_of_the_engine(client: Client, workshop: ServedWorkshop) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert client.chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}).status == 200
    assert client.chat(response_format={"type": "json_object"}).status == 200
    assert client.chat(response_format={"type": "text"}).status == 200
    assert [form.kind for form in workshop.forms] == [GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT]
    assert '"integer"' in workshop.forms[0].source
    refused = client.chat(response_format={"type": "json_schema", "json_schema": {"schema": {"title": "unusable"}}})
    assert (refused.status, refused.json["error"]["code"]) == (400, "bad_grammar")


def test_it_rides_in_the_api_class_under_the_clients_session(client: Client, engine: Engine) -> None:
    """What a session is called outside must not name a chat of the window."""
    for user in ("c1", "c1", "c2", None):
        assert client.chat("hi", user=user).status == 200
    chats = []
    for record in engine.history():
        chats += [row.chat_id for row in record.rows if row.chat_id not in chats]
    assert len(chats) == 3 and all(chat.startswith("api-") and "c1" not in chat for chat in chats)
    seats: list[Any] = []
    remove = engine.add_listener(lambda: seats.extend(seat for seat in engine.snapshot.seats if seat))
    assert client.chat("hello there").status == 200
    remove()
    assert seats and {(seat.priority, seat.title) for seat in seats} == {(Priority.API, "hello there")}


def test_the_last_message_can_be_continued(client: Client) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "well"}]
    assert client.chat(messages=messages, continue_final_message=True, add_generation_prompt=False).status == 200


def test_thinking_stands_apart() -> None:
    end = FinishedEvent("r1", FinishReason.STOP, Usage(1, 1), TimeSplit(0, 0, 0, 0))
    heading = Heading("id", 0, "m", read_chat(Fields(chat_body())))
    shape = ChatShape(heading)
    shape.begin(0, False, ())
    message = shape.whole([Said("<think>hm</think>\nyes")], {0: end}, {})["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    shape = ChatShape(heading)
    shape.begin(0, False, ())
    chunks = [chunk for text in ("<thi", "nk>h", "m</think>", "yes") for chunk in shape.pieces(0, Said(text), text == "yes")]
    events = [json.loads(chunk.removeprefix(b"data: ")) if isinstance(chunk, bytes) else chunk for chunk in chunks]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert "".join(delta.get("content", "") for delta in deltas) == "yes"


def test_models(client: Client) -> None:
    listed = client.get("/v1/models").json
    assert client.get("/v1/models/").json == listed  # as some clients write it, and no model without a name
    assert listed["object"] == "list" and [card["id"] for card in listed["data"]] == ["first"]
    assert listed["data"][0]["max_model_len"] == 8000
    assert client.get("/v1/models/first").json == listed["data"][0]
    assert client.get("/v1/models/other/../x").status == 404
    assert client.chat(model="default").status == client.chat(model=None).status == 200
    refused = client.chat(model="gpt-99")
    assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")


def test_tokenize(client: Client) -> None:
    assert client.post("/tokenize", prompt="ab").json == {"count": 2, "max_model_len": 8000, "tokens": [97, 98]}
    assert client.post("/tokenize", messages=[{"role": "user", "content": "x"}]).json["count"] == len("user:x;")
    assert client.post("/tokenize", prompt=7).status == 400


def test_a_requests_own_name_is_told_again(client: Client) -> None:
    assert client.call("GET", "/version", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    first, second = (client.post("/v1/completions", prompt=5).headers["X-Request-ID"] for _ in range(2))
    assert first.startswith("req_") and first != second
    assert client.call("GET", "/version", headers={"X-Request-ID": "x" * 200}).headers["X-Request-ID"].startswith("req_")


def test_the_document_tells_of_every_path(client: Client, server: ApiServer) -> None:
    told = client.get("/openapi.json").json
    paths = {(path, method) for path, item in told["paths"].items() for method in item}
    there = {
        (route.path.replace("{model:path}", "{model}"), method.lower())  # type: ignore[attr-defined]
        for route in server.app.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert paths == there
    assert {path for path, item in told["paths"].items() if any(said.get("security") == [] for said in item.values())} == OPEN_PATHS
    chat = told["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat["properties"]["n"]["maximum"] == 16 and chat["required"] == ["messages"]
    schemas = told["components"]["schemas"]
    referred = re.findall(r"#/components/schemas/(\w+)", json.dumps(told))
    assert set(referred) == set(schemas)


def test_health_and_version(client: Client) -> None:
    assert client.get("/health").json["model"] == "first"
    assert client.get("/version").json == {"version": __version__}
    assert client.call("HEAD", "/metrics").status == 200


def test_detokenize(client: Client) -> None:
    assert client.post("/detokenize", tokens=[104, 105]).json == {"prompt": "hi"}
    assert client.post("/detokenize", tokens=[]).json == {"prompt": ""}
    for tokens in (None, "hi", [2_000_000]):
        assert client.post("/detokenize", tokens=tokens).status == 400


def test_clients_of_other_keys_find_nothing_in_the_prefix_cache(engine: Engine, client: Client, server: ApiServer) -> None:
    """Their time to the first token must not tell what others have asked."""
    long = "the same long question " * 4

    def cached(client: Client, **more: Any) -> int:
        return int(client.chat(long, **more).json["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached(client) == 0 and cached(client) > 0
    assert cached(client, cache_salt="mine") == 0 and cached(client, cache_salt="mine") > 0
    other = make_server(engine, TOKEN + "-another")
    try:
        assert cached(Client(other, TOKEN + "-another")) == 0
    finally:
        assert other.stop(PATIENCE)
    own = engine.submit([Message("user", long)], SamplingParams(max_tokens=2)).result(PATIENCE)
    assert own.usage.cached_tokens == 0


def test_before_the_model_is_there(workshop: ServedWorkshop, engine: Engine, client: Client) -> None:
    workshop.gate.clear()
    engine.restart()
    assert workshop.loading.wait(PATIENCE)
    for got in (client.chat(), client.get("/v1/models"), client.post("/tokenize", prompt="a")):
        assert (got.status, got.json["error"]["code"]) == (503, "model_loading") and int(got.headers["Retry-After"]) > 0
    assert (client.get("/health").status, client.get("/health").json["status"]) == (503, "loading")
    workshop.gate.set()
    engine.wait_ready(PATIENCE)
    assert client.chat().status == 200


def test_a_choice_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(ApiError) as caught:
        read_chat(Fields(chat_body(n=17)))
    assert caught.value.param == "n"


def test_nothing_of_a_client_is_encoded_where_others_find_it(client: Client, workshop: ServedWorkshop) -> None:
    """Also where its tokens are only counted: how long that takes must not tell what others wrote."""
    assert client.chat().status == 200
    assert client.post("/tokenize", messages=[{"role": "user", "content": "hi"}]).status == 200
    assert client.chat(max_tokens=7_998).json["error"]["code"] == "context_length_exceeded"
    first, *others = workshop.salts
    assert first and others == [first] * 2
