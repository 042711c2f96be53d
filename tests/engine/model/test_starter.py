"""The starter model itself, in f32: 12 mixed requests get transformers' own greedy answers, alone, in company, chunked and recomputed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.loading import load_model
from engine.model.runner import TorchRunner, make_runner
from engine.types import EngineConfig, Message
from tests.conftest import THREADS
from tests.engine.model.tiny import Driver, make_request, reference_answer

pytestmark = [pytest.mark.model, pytest.mark.slow]
LENGTH = 12
TOPICS = ["buses", "the sea at night", "why bread rises", "Ada Lovelace"]
ASKS = ["Tell me about {}.", "Write one line on {}. Be brief, kind and exact, and do not use the letter z anywhere.", "{}?"]


@pytest.fixture(scope="module")
def case() -> tuple[TorchRunner, list[list[int]], list[list[int]]]:
    torch.set_num_threads(THREADS)
    config = EngineConfig(dtype="float32", seats=8)
    loaded = load_model("starter", config, lambda share, stage: None, lambda: False)
    chats = [[Message("user", ask.format(topic))] for topic in TOPICS for ask in ASKS]
    prompts = [loaded.codec.encode_chat(chat) for chat in chats]
    expected = [reference_answer(loaded.torch_model, prompt, LENGTH) for prompt in prompts]
    return make_runner(loaded, config, 100, 16), prompts, expected


def make_requests(prompts: list[list[int]]) -> list[Any]:
    return [make_request(prompt, name=f"r{number}") for number, prompt in enumerate(prompts)]


@pytest.mark.parametrize(
    ("seats", "chunk", "preempt"),
    [(1, None, 0.0), (8, None, 0.0), (8, 24, 0.0), (6, 40, 0.05)],
    ids=["alone", "in company", "chunked", "recomputed"],
)
def test_greedy_answers(case: tuple[TorchRunner, list[list[int]], list[list[int]]], seats: int, chunk: int | None, preempt: float) -> None:
    runner, prompts, expected = case
    answers = Driver(runner, seats).answer(make_requests(prompts), LENGTH, seats=seats, chunk=chunk, preempt=preempt)
    assert [answer[: len(own)] for answer, own in zip(answers, expected, strict=True)] == expected  # generate stops at the end-of-text
    assert sum(map(len, expected)) > LENGTH * len(expected) * 0.8
