"""The engine's own thread over the starter model: what a program that uses it relies on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from engine import (
    Engine,
    EngineConfig,
    FinishReason,
    Grammar,
    GrammarKind,
    Message,
    Policy,
    RequestRefused,
    SamplingParams,
    TokensEvent,
)
from tests.e2e.conftest import make_engine
from tests.engine.model.tiny import is_greedy_answer

pytestmark = [pytest.mark.model, pytest.mark.slow]

GREEDY = {"temperature": 0.0, "top_p": 1.0}


def ask(words: str) -> list[Message]:
    return [Message("user", words)]


@pytest.fixture
def exact() -> Iterator[Engine]:
    """In float32, in which transformers computes the answers that are expected."""
    yield from make_engine("float32")


def test_24_requests_are_the_same_alone_in_company_and_after_a_prefix_hit(exact: Engine) -> None:
    """Each token is the first choice of transformers' own model, from the same files, after those before it: its greedy answer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.catalog.starter import ensure_starter

    folder = str(ensure_starter(lambda share, stage: None))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    nouns = ("rain", "bread", "a lighthouse", "gravity", "the number seven", "an old bus", "Zürich", "猫")
    questions = [f"{verb} {noun}." for noun in nouns for verb in ("Explain", "Write a line about", "List two facts about")]
    lengths = [6 + number % 11 for number in range(24)]
    rounds = []
    for policy in (Policy.STATIC, Policy.IN_FLIGHT):  # the second round finds the beginnings cached
        exact.configure(policy=policy, chunk=16)
        handles = [exact.submit(ask(q), SamplingParams(max_tokens=n, **GREEDY)) for q, n in zip(questions, lengths, strict=True)]
        rounds.append([handle.result(250).token_ids for handle in handles])
    expected = rounds[0]
    assert rounds == [expected] * 2
    for question, length, answer in zip(questions, lengths, expected, strict=True):
        text = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert is_greedy_answer(model, prompt, list(answer))
        ends = [token in (0, 2) for token in answer]
        assert not any(ends[:-1]) and (ends[-1] or len(answer) == length)
    del model
    exact.configure(policy=Policy.IN_FLIGHT, chunk=128)
    assert exact.snapshot.counters.cached_tokens > 0
    for number in range(0, 24, 6):
        exact.clear_cache()
        alone = exact.submit(ask(questions[number]), SamplingParams(max_tokens=lengths[number], **GREEDY)).result(250)
        assert alone.token_ids == expected[number]


def test_a_seed_gives_the_same_answer_in_any_company(engine: Engine) -> None:
    params = SamplingParams(max_tokens=12, temperature=1.0, top_p=0.9, top_k=40, seed=7)
    alone = engine.submit(ask("Tell me about bread."), params).result(120)
    company = [engine.submit(ask(f"Count from {n}."), SamplingParams(max_tokens=20, temperature=1.0)) for n in range(5)]
    again = engine.submit(ask("Tell me about bread."), params).result(120)
    other = engine.submit(ask("Tell me about bread."), SamplingParams(max_tokens=12, temperature=1.0, top_p=0.9, top_k=40, seed=8)).result(
        120
    )
    for handle in company:
        handle.result(120)
    assert again.token_ids == alone.token_ids
    assert other.token_ids != alone.token_ids


def test_an_answer_of_a_given_form(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "large"]}},
        "required": ["city", "size"],
        "additionalProperties": False,
    }
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    asked = [engine.submit(ask("Name a city."), SamplingParams(max_tokens=80, temperature=1.0, seed=s, grammar=grammar)) for s in range(3)]
    beside = engine.submit(ask("Say hello."), SamplingParams(max_tokens=8, **GREEDY))
    for handle in asked:
        result = handle.result(120)
        assert result.reason is FinishReason.STOP, result
        value = json.loads(result.text)
        assert value.keys() == {"city", "size"} and value["size"] in ("small", "large")
    assert beside.result(120).text
    with pytest.raises(RequestRefused, match="form"):
        engine.submit(ask("x"), SamplingParams(grammar=Grammar(GrammarKind.REGEX, "((")))


def test_stop_strings_and_limits(engine: Engine) -> None:
    whole = engine.submit(ask("Count from one to ten."), SamplingParams(max_tokens=30, **GREEDY)).result(120).text
    mark = whole[10:13]
    cut = engine.submit(ask("Count from one to ten."), SamplingParams(max_tokens=30, stop=(mark,), **GREEDY)).result(120)
    assert cut.text == whole[: whole.index(mark)] and cut.reason is FinishReason.STOP
    exact = engine.submit(ask("Hi"), SamplingParams(max_tokens=25, min_tokens=25, ignore_eos=True, **GREEDY)).result(120)
    assert exact.usage.completion_tokens == 25 and exact.reason is FinishReason.LENGTH
    assert sum((exact.time.waited, exact.time.prefill, exact.time.decode, exact.time.preempted)) == pytest.approx(exact.time.total)


def test_refusals_change_nothing(engine: Engine) -> None:
    before = engine.snapshot
    for prompt, params, code in (
        ("word " * 9000, SamplingParams(), "prompt_too_long"),
        ([], SamplingParams(), "empty_prompt"),
        ("hi", SamplingParams(max_tokens=0), "bad_parameter"),
        ("hi", SamplingParams(top_p=0.0), "bad_parameter"),
    ):
        with pytest.raises(RequestRefused) as caught:
            engine.submit(prompt, params)
        assert caught.value.code == code
        if code == "prompt_too_long":
            assert any(character.isdigit() for character in caught.value.message)
    assert engine.snapshot.counters.submitted == before.counters.submitted
    assert engine.submit(ask("Say hi."), SamplingParams(max_tokens=3, **GREEDY)).result(60).text


def test_a_coroutine_reads_and_stops_a_stream(engine: Engine) -> None:
    async def read() -> tuple[str, FinishReason]:
        handle = engine.submit(ask("Write a very long story."), SamplingParams(max_tokens=300, **GREEDY))
        text = ""
        async for event in handle:
            if isinstance(event, TokensEvent):
                text += event.text
                if len(text) > 20:
                    handle.cancel()
            else:
                return text, event.reason
        raise AssertionError("the stream ended without an end")

    text, reason = asyncio.run(read())
    assert reason is FinishReason.CANCELLED and len(text) > 20


@pytest.mark.parametrize("dtype", ["auto", "8-bit", "4-bit"])
def test_the_starter_loads_and_answers_in_company_in_every_class_of_weights(dtype: str) -> None:
    """With nothing but the precision chosen, as a person's window opens it; "auto" is what everybody gets."""
    with Engine(EngineConfig(dtype=dtype, kv_tokens=1024)) as engine:
        engine.wait_ready(120)
        params = SamplingParams(max_tokens=12, min_tokens=12, **GREEDY)
        handles = [engine.submit(ask(words), params) for words in ("What is rain?", "Name a colour.", "Why is the sky blue?")]
        answers = [handle.result(120) for handle in handles]
    assert [answer.reason for answer in answers] == [FinishReason.LENGTH] * 3
    assert all(answer.text.strip() and "\ufffd" not in answer.text for answer in answers)
