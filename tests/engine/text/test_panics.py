"""A panic of the tokenizers library, real ones all, is an error of the one text or model that it met; what ends a thread passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers

from engine import Engine, EngineConfig, EngineState, FinishedEvent, FinishReason, Message, OpenModel, RequestRefused, SamplingParams
from engine.text.codec import Codec, CodecParts
from engine.text.panics import Panic, faults_told, panics_caught
from tests.engine.made_up_model import PATIENCE, Workshop, read, said
from tests.engine.text.test_codec import make_small_tokenizer

FATAL = "Q!b"  # a text that the tokenizer below panics at
TEMPLATE = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"


def make_panicking(last_letter: str = "") -> Any:
    """A tokenizer that panics at prompts, and at answers with a token `last_letter`."""
    tokenizer = make_small_tokenizer()
    tokenizer.normalizer = normalizers.Replace(Regex("^(?=Q)"), "zz")  # nothing becomes something: places are counted wrong
    if last_letter:
        tokenizer.decoder = decoders.Strip(last_letter, 0, 3)  # looks for the third letter from the end of a token of one
    return tokenizer


def broken_json() -> str:
    """A tokenizer.json that the library panics at, as it is read."""
    content = json.loads(make_small_tokenizer().to_str())
    return json.dumps({**content, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}})


def refusal(call: Callable[[], object]) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("prompt", [FATAL, f"{FATAL} <|im_end|>"])
def test_a_text_that_the_library_panics_at_is_refused(prompt: str) -> None:
    """With the tokenizer itself, and with the copy that takes control tokens for plain text."""
    codec = Codec(make_panicking(), chat_template=TEMPLATE)
    before = codec.encode("hello"), codec.encode_chat([Message("user", "hello")])
    for call in (lambda: codec.encode(prompt), lambda: codec.encode_chat([Message("user", prompt)])):
        told = refusal(call)
        assert told.code == "tokenizer_failed" and "index out of bounds" in told.message
    assert (codec.encode("hello"), codec.encode_chat([Message("user", "hello")])) == before


def test_tokens_that_the_library_panics_at_are_refused() -> None:
    codec = Codec(make_panicking("b"))
    (letter,) = codec.encode("b")
    assert refusal(lambda: codec.decode([letter])).code == refusal(lambda: codec.token_bytes(letter)).code == "tokenizer_failed"
    assert codec.decode(codec.encode("ac")) == "ac"


def test_a_tokenizer_that_panics_as_it_is_read() -> None:
    with pytest.raises(Panic, match="precompiled_charsmap"):
        Codec.again(CodecParts(broken_json(), {}, (), None))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_to_end_a_thread_passes(kind: type[BaseException]) -> None:
    for guard in (panics_caught, faults_told):
        with pytest.raises(kind), guard():
            raise kind


def test_a_library_s_other_errors_are_refusals_too() -> None:
    with pytest.raises(RequestRefused, match="Missing"), faults_told():
        raise Exception("WordLevel error: Missing [UNK] token\nand the whole text")


class Panicking(Workshop):
    """Its model's tokenizer panics at some prompts and answers; of the model "broken", as it is read."""

    letter = ""

    def open(self, config: EngineConfig, progress: Callable[[float, str], None], cancelled: Callable[[], bool]) -> OpenModel:
        opened = super().open(config, progress, cancelled)
        if config.model == "broken":
            Tokenizer.from_str(broken_json())
        return replace(opened, codec=Codec(make_panicking(self.letter)))


def make_engine(workshop: Workshop) -> Engine:
    engine = Engine(EngineConfig(model="first", debug_audit=True, seats=4), opener=workshop.open)
    engine.start()
    return engine


def params(seed: int) -> SamplingParams:
    return SamplingParams(max_tokens=20, seed=seed)


def test_the_engine_lives_on_after_a_prompt_that_panics() -> None:
    """Encoded on its own thread: the prompts came before the model."""
    workshop = Panicking()
    workshop.gate.clear()
    engine = make_engine(workshop)
    fatal, other = engine.submit(FATAL, params(1)), engine.submit("hello", params(2))
    workshop.gate.set()
    end = read(fatal)[-1]
    assert isinstance(end, FinishedEvent) and end.error is not None and end.error.code == "tokenizer_failed"
    assert len(said(read(other))) == 20
    assert refusal(lambda: engine.submit(FATAL, params(1))).code == refusal(lambda: engine.tokenize(FATAL)).code == "tokenizer_failed"
    assert engine.close(PATIENCE)


def test_the_engine_lives_on_after_an_answer_that_panics() -> None:
    workshop = Panicking()
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    texts = {seed: said(read(engine.submit("hello", params(seed)))) for seed in range(12)}
    assert engine.close(PATIENCE)

    workshop.letter = letter = texts[0][7]
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    engine.pause()
    handles = {seed: engine.submit("hello", params(seed)) for seed in texts}
    engine.resume()
    ends = {seed: read(handle) for seed, handle in handles.items()}
    assert engine.close(PATIENCE)
    for seed, text in texts.items():
        end = ends[seed][-1]
        assert isinstance(end, FinishedEvent)
        if letter in text:
            assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "text_failed"
            assert said(ends[seed]) == text[: text.index(letter)]
        else:
            assert said(ends[seed]) == text
    assert any(letter not in text for text in texts.values())


def test_a_model_that_panics_as_it_is_loaded_leaves_the_engine_whole() -> None:
    engine = make_engine(Panicking())
    engine.wait_ready(PATIENCE)
    end = read(engine.submit("hello", params(1), model="broken"))[-1]
    assert isinstance(end, FinishedEvent) and end.error is not None and end.error.code == "load_failed"
    assert engine.snapshot.state is EngineState.FAILED
    assert len(said(read(engine.submit("hello", params(1), model="first")))) == 20
    assert engine.close(PATIENCE)
