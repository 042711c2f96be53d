"""The comparison of precision classes, on a toy model: what it counts, and what it says of classes that cannot be had."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from engine.bench import accuracy
from engine.types import EngineError

PROMPTS = [[3, 5, 8], [9, 2, 7, 11, 4], [6]]


def make_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=96,
        initializer_range=0.3,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def test_float32_is_exact_and_coarser_classes_lose_little() -> None:
    results = accuracy.measure(make_model, PROMPTS, frozenset(), ["f32", "16-bit", "8-bit"])
    assert list(results) == ["f32", "16-bit", "8-bit"]
    assert abs(results["f32"].mean_kl) < 1e-6
    assert results["f32"].top1 == 1.0
    assert results["f32"].positions == len(PROMPTS) * accuracy.ANSWER
    assert 0 <= results["16-bit"].mean_kl < 1e-3
    assert results["16-bit"].mean_kl <= results["16-bit"].p99_kl < 1e-2
    assert 0 < results["8-bit"].mean_kl < 0.05


def test_keys_and_values_in_8_bits_have_a_row_of_their_own() -> None:
    results = accuracy.measure(make_model, PROMPTS, frozenset(), [accuracy.EIGHT])
    (found,) = results.values()
    assert list(results) == ["8-bit-kv"] and found.precision == "f32"
    assert 1e-9 < found.mean_kl < 0.01 and found.top1 > 0.9


def test_a_class_that_is_refused_is_left_out_and_told() -> None:
    heard: list[tuple[str, object]] = []
    results = accuracy.measure(make_model, PROMPTS, frozenset(), ["4-bit"], lambda name, result: heard.append((name, result)))
    assert results == {}
    assert heard[0] == ("4-bit", None)
    assert isinstance(heard[1][1], EngineError)


def test_a_model_that_answers_otherwise_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter(range(10))

    def load() -> Any:
        model = make_model()
        if next(made):  # every model but the first, which gives the reference
            model.lm_head.weight.copy_(model.lm_head.weight.roll(1, 0))
        return model

    result = accuracy.measure(load, PROMPTS, frozenset(), ["f32"])["f32"]
    assert result.mean_kl > 0.5
    assert result.top1 < 0.2


def test_answers_end_with_the_end_of_text_as_if_alone() -> None:
    model = make_model()
    with torch.inference_mode():
        free = accuracy._answers(model, PROMPTS, frozenset())
        end = free[0][5]
        cut = accuracy._answers(model, PROMPTS, frozenset({end}))
    for whole, part in zip(free, cut, strict=True):
        length = whole.index(end) + 1 if end in whole else len(whole)
        assert part == whole[:length]


def test_the_document_has_the_figures_of_each_class(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    figures = accuracy.Accuracy(0.001, 0.01, 0.99, 120, "16-bit", {"fbgemm-fp16": 9})
    monkeypatch.setattr(accuracy, "_measure_model", lambda source, classes, stream: {"16-bit": figures})
    parser = argparse.ArgumentParser()
    accuracy.add_parser(parser.add_subparsers())
    args = parser.parse_args(["accuracy", "--json", str(tmp_path / "out.json")])
    assert args.run(args) == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["omnibus"]
    assert document["classes"]["16-bit"]["mean_kl"] == 0.001
    assert document["classes"]["16-bit"]["top1"] == 0.99
