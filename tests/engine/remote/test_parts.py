"""Addresses, keys and metrics pages."""

from __future__ import annotations

from typing import Any

import pytest

from engine.remote import keys
from engine.remote.metrics import MOST, Told, read_metrics
from engine.remote.presets import PRESETS, clean_metrics, clean_url, origin
from engine.remote.slots import Slot, of_others, read_slots
from engine.types import EngineError


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("https://api.example.org/v1/", "https://api.example.org/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        (" http://[::1]:8000/openai/v1 ", "http://[::1]:8000/openai/v1"),
    ],
)
def test_addresses(given: str, wanted: str) -> None:
    assert clean_url(given) == wanted


@pytest.mark.parametrize("bad", ["", "ftp://x", "http://", "http://a b", "http://user:key@host/v1", "http://h:99999"])
def test_what_is_no_address(bad: str) -> None:
    with pytest.raises(EngineError) as caught:
        clean_url(bad)
    assert caught.value.code == "bad_url"


def test_presets_are_addresses() -> None:
    assert all(clean_url(preset.url) == preset.url and preset.hint for preset in PRESETS)
    assert origin("https://a:1/b/c") == "https://a:1"


class Ring:
    """A keyring in memory; broken on demand."""

    def __init__(self, broken: bool = False) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = broken

    def _use(self) -> None:
        if self.broken:
            raise RuntimeError("no backend")

    def get_password(self, service: str, name: str) -> str | None:
        self._use()
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, key: str) -> None:
        self._use()
        self.kept[service, name] = key

    def delete_password(self, service: str, name: str) -> None:
        self._use()
        del self.kept[service, name]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    made = Ring()
    monkeypatch.setitem(__import__("sys").modules, "keyring", made)
    monkeypatch.delenv(keys.VARIABLE, raising=False)
    monkeypatch.setattr(keys, "_session", {})
    return made


def test_a_key_is_kept_in_the_keyring(ring: Ring) -> None:
    assert keys.find("u") is None
    assert "keyring" in keys.keep("u", "secret") and keys.find("u") == "secret"
    keys.keep("u", "")
    assert keys.find("u") is None and ring.kept == {}


def test_without_a_keyring_it_is_kept_for_the_session_and_said(ring: Ring) -> None:
    ring.broken = True
    assert "until the program ends" in keys.keep("u", "secret")
    assert keys.find("u") == "secret" and keys.find("v") is None


def test_the_environment_goes_first(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.keep("u", "kept")
    monkeypatch.setenv(keys.VARIABLE, "given")
    assert keys.find("u") == "given"


def test_pages_of_other_servers() -> None:
    sglang = read_metrics(
        'sglang:num_running_reqs{model="m"} 4\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n'
        "sglang:max_total_num_tokens 20000\nsglang:gen_throughput 99.5\n"
    )
    assert sglang == Told("SGLang", running=4, waiting=2, usage=0.5, tok_s=99.5, most_tokens=20000)
    llama = read_metrics("llamacpp:requests_processing 1\nllamacpp:requests_deferred 3\nllamacpp:tokens_predicted_total 77\n")
    assert llama == Told("llama.cpp", running=1, waiting=3, output_tokens=77)


def test_pages_that_are_nonsense_tell_nothing() -> None:
    assert read_metrics("<html>") == Told()
    assert read_metrics("go_goroutines 7\nvllm:num_requests_running NaN\n") == Told("vLLM")
    assert read_metrics("vllm:num_requests_running x\n" + "y" * (2 * MOST) + "\nvllm:num_requests_running 1\n").running is None


SLOTS = [
    {"id": 0, "n_ctx": 4096, "is_processing": True, "id_task": 7, "n_prompt_tokens": 120, "n_prompt_tokens_processed": 20,
     "n_prompt_tokens_cache": 80, "next_token": [{"n_decoded": 20, "n_remain": 44}]},
    {"id": 1, "n_ctx": 4096, "is_processing": True, "n_prompt_tokens": 300, "next_token": {"n_decoded": 0, "n_remain": -1}},
    {"id": 2, "n_ctx": 4096, "is_processing": False, "n_prompt_tokens": 50, "next_token": [{"n_decoded": 9}]},
    {"id": 3, "n_ctx": 4096, "is_processing": False},
]  # fmt: skip


def test_slots() -> None:
    slots = read_slots(SLOTS)
    assert slots == (Slot(True, 4096, 120, 80, 20, 44), Slot(True, 4096, 300), Slot(False, 4096, 50, 0, 9), Slot(False, 4096))
    told = Told("llama.cpp", waiting=3).with_slots(slots)
    assert (told.running, told.waiting, told.seats, told.most_tokens) == (2, 3, 4, 4 * 4096)
    assert told.usage == (120 + 300) / (4 * 4096)
    assert of_others(slots, []) == [slots[0], slots[1]]
    assert of_others(slots, [19]) == [slots[1]] and of_others(slots, [1]) == [slots[0]] and of_others(slots, [5, 5, 5]) == []


@pytest.mark.parametrize("content", [None, {}, [], ["x"], [{"id": 0}], [{"is_processing": True}, 7], {"error": "no"}])
def test_what_are_no_slots(content: Any) -> None:
    assert read_slots(content) is None


def test_slots_with_nonsense_in_them() -> None:
    odd = {"is_processing": "yes", "n_ctx": -4, "n_prompt_tokens": True, "next_token": [], "n_prompt_tokens_cache": 1.5}
    assert read_slots([odd]) == (Slot(False),)


def test_vllm_through_ray_and_tensorrt_llm_are_read() -> None:
    labels = '{ReplicaId="a",model_name="m"}'
    ray = read_metrics(
        f"ray_vllm_num_requests_running{labels} 2\nray_vllm_num_requests_waiting{labels} 1\nray_vllm_kv_cache_usage_perc{labels} 0.5\n"
        f"ray_vllm_generation_tokens{labels} 7\nray_vllm_generation_tokens_total{labels} 7\nray_serve_num_requests 99\n"
    )
    assert ray == Told("vLLM", running=2.0, waiting=1.0, usage=0.5, output_tokens=7.0)
    assert read_metrics("ray_vllm:num_requests_running 3\n") == Told("vLLM", running=3.0)
    tensorrt = read_metrics("trtllm_num_requests_running 4\ntrtllm_num_requests_waiting 5\ntrtllm_kv_cache_utilization 0.25\n")
    assert tensorrt == Told("TensorRT-LLM", running=4.0, waiting=5.0, usage=0.25)


@pytest.mark.parametrize(
    "text, address",
    [
        ("", ""),
        ("  ", ""),
        ("head:8080", "http://head:8080/metrics"),
        ("https://head/", "https://head/metrics"),
        ("http://head:8000/prometheus/metrics", "http://head:8000/prometheus/metrics"),
        ("http://head/m?engine=0#part", "http://head/m?engine=0"),
    ],
)
def test_an_address_of_metrics_is_made_whole(text: str, address: str) -> None:
    assert clean_metrics(text) == address


@pytest.mark.parametrize("text", ["not an address", "ftp://head/metrics", "http://me:secret@head/metrics", "http://:8080"])
def test_what_is_no_address_of_metrics_is_said(text: str) -> None:
    with pytest.raises(EngineError, match="no address") as refused:
        clean_metrics(text)
    assert "metrics" in refused.value.hint
