"""Search and file lists through huggingface_hub, against a server that plays the hub."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from engine.catalog import hub_words
from engine.catalog.hub import Hub, HubModel, refused
from engine.types import ModelError
from tests.engine.catalog.made_up_hub import REVISION, MadeUpHub, serving

CONFIG = {"config.json": b"{}", "tokenizer.json": b"{}", "README.md": b"words"}


@pytest.fixture
def made() -> Iterator[MadeUpHub]:
    hub = MadeUpHub()
    ggufs = {f"Tiny.{kind}.gguf": bytes(100 + place) for place, kind in enumerate(("Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q8_0", "F16"))}
    hub.repositories["acme/Tiny-1.7B-GGUF"] = ggufs | {"Big-00001-of-00002.gguf": b"x", "mmproj-F16.gguf": b"y", "README.md": b"words"}
    hub.repositories["acme/Tiny-1.7B"] = CONFIG | {
        "model-1.safetensors": bytes(10),
        "model-2.safetensors": bytes(9),
        "pytorch_model.bin": b"!",
    }
    hub.repositories["acme/Tiny-Pickle"] = {"config.json": b"{}", "pytorch_model.bin": b"!"}
    hub.gated.add("acme/Tiny-1.7B")
    with serving(hub):
        yield hub


def code_of(action: object, *args: object) -> str:
    with pytest.raises(ModelError) as caught:
        action(*args)  # type: ignore[operator]
    assert caught.value.message.endswith(".") and caught.value.hint
    return caught.value.code


def test_a_search_in_human_words(made: MadeUpHub) -> None:
    found = Hub(made.url).search("tiny-1.7b")
    assert found == [
        HubModel("acme/Tiny-1.7B-GGUF", 1234, 5, "1.7 B", "free, also for business (Apache 2.0)", gated=False, gguf=True),
        HubModel("acme/Tiny-1.7B", 1234, 5, "1.7 B", "free, also for business (MIT)", gated=True, gguf=False),
    ]
    assert Hub(made.url).search("no such thing") == []
    assert constants.HF_HUB_OFFLINE is True  # only a search goes out


def test_one_offer_of_each_quality(made: MadeUpHub) -> None:
    offers = Hub(made.url).offers("acme/Tiny-1.7B-GGUF")
    assert [(offer.word, offer.kind, offer.size) for offer in offers] == [
        ("Small", "Q3_K_M", 101),
        ("Balanced", "Q4_K_M", 103),
        ("Best", "Q8_0", 104),
    ]
    assert {offer.revision for offer in offers} == {REVISION}


def test_a_folder_is_offered_without_its_pickles(made: MadeUpHub) -> None:
    (offer,) = Hub(made.url).offers("acme/Tiny-1.7B")
    assert (offer.word, offer.kind, offer.gated) == ("Best", "safetensors", True)
    assert [file.name for file in offer.files] == ["config.json", "tokenizer.json", "model-1.safetensors", "model-2.safetensors"]
    assert all(file.sha256 or file.blob for file in offer.files)


def test_what_cannot_be_had_is_said(made: MadeUpHub) -> None:
    assert code_of(Hub(made.url).offers, "acme/Tiny-Pickle") == "nothing_to_load"
    assert code_of(Hub(made.url).offers, "acme/Nowhere") == "not_on_hub"
    for name in ("", "a/b/c", "no model/name"):
        assert code_of(Hub(made.url).offers, name) == "not_on_hub"
    made.search_status = 418
    assert code_of(Hub(made.url).search, "tiny") == "hub_failed"
    assert refused(429, made.url, "").code == "hub_busy"


def test_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told soon: huggingface_hub would try for 23 seconds."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert code_of(Hub(f"http://127.0.0.1:{port}").search, "tiny") == "no_network"
    assert sum(waits) <= 1


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("Qwen3-4B-Instruct.Q4_K_M.gguf", "Q4_K_M", "Balanced"),
        ("gemma-3-270m-q4_k_m.gguf", "Q4_K_M", "Balanced"),
        ("model-IQ3_XXS.gguf", "IQ3_XXS", "Small"),
        ("model-fp16.gguf", "F16", "Best"),
        ("model.gguf", "", ""),
        ("Q8_0/model-Q8_0.gguf", "Q8_0", "Best"),
    ],
)
def test_words_for_quantisations(name: str, kind: str, word: str) -> None:
    assert hub_words.quantisation(name) == kind
    assert hub_words.quality(kind) == word


def test_words_for_licences_and_sizes() -> None:
    assert hub_words.licence(None) == "licence not stated"
    assert hub_words.licence("llama3.2") == "Meta's community licence (llama3.2)"
    assert hub_words.licence("wtfpl") == "wtfpl"
    assert [hub_words.parameters(count) for count in (None, 135_000_000, 7_000_000_000, 1_540_000_000)] == ["", "135 M", "7 B", "1.5 B"]
