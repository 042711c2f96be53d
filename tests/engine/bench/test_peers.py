"""The peers' adapters over tiny models with random weights, and llama-cpp-python's over a stand-in of its interface."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import pytest

from engine.bench.endpoint import Endpoint
from engine.bench.peers import PEERS, Peer, Setting, engine_config, warm
from engine.bench.player import Contestant, Told, play
from engine.types import EngineError

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant{% endif %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of two layers that knows two hundred words."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made = tmp_path_factory.mktemp("tiny")
    words = {"[UNK]": 0, "[END]": 1, **{f"w{number}": number for number in range(2, 200)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[END]")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(made)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(made)
    return made


def make_setting(folder: Path, **more) -> Setting:
    values = {"model": str(folder), "dtype": "float32", "threads": 1, "seats": 2, "max_len": 256, "kv_tokens": 1024, **more}
    return Setting(**values)


def make_work(*lengths: int, **more) -> dict:
    requests = [
        {"id": f"q{number}", "at": 0.0, "output_tokens": tokens, "messages": [{"role": "user", "content": f"w{number + 5} w7 w9"}]}
        for number, tokens in enumerate(lengths)
    ]
    return {"name": "T", "seats": 2, "max_len": 256, "kv_tokens": 1024, "time_limit_s": 120, "requests": requests, **more}


def compete(peer: Peer, setting: Setting, work: dict, salt: str = "s1"):
    told = Told()
    contestant: Contestant = peer.make(setting, told)
    try:
        warm(contestant, told)
        return play(work, contestant, told, salt)
    finally:
        contestant.close()


@pytest.mark.parametrize("name", ["omnibus", "omnibus-http", "omnibus-undrafted", "omnibus-static", "hf-static", "hf-continuous"])
def test_answers_are_whole_and_the_same_from_everyone(name: str, folder: Path) -> None:
    work = make_work(6, 2, 9, 4, 1)
    outcomes = compete(PEERS[name], make_setting(folder), work)
    assert [(outcome.tokens, outcome.error) for outcome in outcomes] == [(6, ""), (2, ""), (9, ""), (4, ""), (1, "")]
    if name == "omnibus":
        return
    ours = compete(PEERS["omnibus"], make_setting(folder), work)
    assert [outcome.text for outcome in outcomes] == [outcome.text for outcome in ours]


@pytest.mark.parametrize("name", ["omnibus", "omnibus-http", "hf-static"])
def test_a_request_that_cannot_fit_fails_alone(name: str, folder: Path) -> None:
    work = make_work(3, 3)
    work["requests"][0]["messages"][0]["content"] = "w3 " * 300
    first, second = compete(PEERS[name], make_setting(folder), work)
    assert first.error and second.whole


def test_a_server_that_runs_already_takes_part(folder: Path) -> None:
    from engine.engine import Engine
    from engine.server.serving import ApiServer

    with Engine(engine_config(make_setting(folder))) as engine:
        server = ApiServer(engine, "secret-of-twenty-letters", host="127.0.0.1", port=0)
        server.start()
        try:
            setting = make_setting(folder, url=server.url, key="secret-of-twenty-letters")
            engine.wait_ready(60)
            assert [outcome.whole for outcome in compete(PEERS["endpoint"], setting, make_work(3, 5))] == [True, True]
            with pytest.raises(EngineError, match="No list of models"):
                Endpoint(make_setting(folder, url=server.url, key="another"), Told())
        finally:
            server.stop()


@pytest.mark.parametrize("url", ["http://example.com:80/v1", "https://127.0.0.1:1/v1", "ftp://127.0.0.1:1", "127.0.0.1:8000", ""])
def test_only_this_machine_is_asked(url: str, folder: Path) -> None:
    with pytest.raises(EngineError, match="no address on this machine"):
        Endpoint(make_setting(folder, url=url), Told())


def test_static_groups_keep_within_the_cache(folder: Path) -> None:
    told = Told()
    contestant = PEERS["hf-static"].make(make_setting(folder, kv_tokens=100, seats=4), told)
    group = [(f"q{number}", [5] * 20, 10) for number in range(4)] + [("long", [5] * 60, 60)]
    parts = contestant._within_cache(group)
    contestant.close()
    assert [[request_id for request_id, _, _ in part] for part in parts] == [["q0", "q1", "q2"], ["q3"], ["long"]]


class FakeLlama:
    """llama-cpp-python's interface as far as the adapter uses it."""

    def __init__(self, model_path: str, n_ctx: int, n_threads: int, n_threads_batch: int, verbose: bool) -> None:
        assert model_path == "model.gguf" and n_ctx == 256 and not verbose

    def token_eos(self) -> int:
        return 1

    def create_chat_completion(self, messages, max_tokens, temperature, stream, logit_bias):
        assert temperature == 0.0 and stream and logit_bias == {1: -1e9}
        if "w6" in messages[-1]["content"]:
            raise ValueError("it does not like six")
        yield {"choices": [{"delta": {"role": "assistant"}}]}
        for number in range(max_tokens):
            yield {"choices": [{"delta": {"content": f"{number} "}}]}
        yield {"choices": [{"delta": {}, "finish_reason": "length"}]}


def test_llama_cpp_python_answers_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", types.SimpleNamespace(Llama=FakeLlama))
    outcomes = compete(PEERS["llama-cpp"], make_setting(Path("x"), gguf="model.gguf"), make_work(3, 2, 4))
    assert [outcome.whole for outcome in outcomes] == [True, False, True]
    assert outcomes[0].text == "0 1 2 " and "six" in outcomes[1].error


def test_who_is_not_installed_says_so() -> None:
    assert not Peer(PEERS["omnibus"].make, "no_such_package_anywhere", ()).installed()
    assert PEERS["hf-static"].installed()


def test_a_contestant_that_never_answers_is_found_when_warming_up() -> None:
    class Silent:
        def submit(self, request_id: str, messages, tokens: int) -> None:
            pass

        def close(self) -> None:
            pass

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        warm(Silent(), Told(), limit_s=0.05)
    assert time.monotonic() > begun
