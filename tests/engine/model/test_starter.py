"""The starter model itself, in f32, by a hand-driven scheduler: 12 mixed requests get transformers' own greedy answers in random company,
in random pieces, and after their blocks were taken away. (Alone, on the engine's own thread, and from cached beginnings:
tests/e2e/test_engine.py.)"""

from __future__ import annotations

import pytest

from engine.model.loading import load_model
from engine.model.runner import make_runner
from engine.types import EngineConfig, Message
from tests.engine.model.tiny import Driver, is_greedy_answer, make_request

pytestmark = [pytest.mark.model, pytest.mark.slow]
LENGTH = 12
TOPICS = ["buses", "the sea at night", "why bread rises", "Ada Lovelace"]
ASKS = ["Tell me about {}.", "Write one line on {}. Be brief, kind and exact, and do not use the letter z anywhere.", "{}?"]


def test_greedy_answers_in_company_chunked_and_recomputed() -> None:
    config = EngineConfig(dtype="float32", seats=8)
    loaded = load_model("starter", config, lambda share, stage: None, lambda: False)
    chats = [[Message("user", ask.format(topic))] for topic in TOPICS for ask in ASKS]
    prompts = [loaded.codec.encode_chat(chat) for chat in chats]
    driver = Driver(make_runner(loaded, config, 100, 16), 6)
    requests = [make_request(prompt, name=f"r{number}") for number, prompt in enumerate(prompts)]
    answers = driver.answer(requests, LENGTH, seats=6, chunk=40, preempt=0.1)
    assert driver.dropped >= 5
    for prompt, answer in zip(prompts, answers, strict=True):
        ends = [place for place, token in enumerate(answer) if token in loaded.codec.eos_ids]
        own = answer[: ends[0] + 1] if ends else answer
        assert is_greedy_answer(loaded.torch_model, prompt, own)
        assert len(own) >= 2
