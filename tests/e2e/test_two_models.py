"""The starter and a tiny model in one process, each with its pool and its thread: what one does is nothing to the other's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.engines import Engines
from tests.engine.model.tiny_files import make_folder

pytestmark = [pytest.mark.model, pytest.mark.slow]

PROMPTS = ("The capital of France is", "Once upon a time there was", "def fibonacci(n):")
PARAMS = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def answers(engines: Engines, *sources: str) -> dict[str, list[tuple[int, ...]]]:
    """All prompts to all these models at once: the ids of their answers, by model."""
    handles = {source: [engines.submit(prompt, PARAMS, model=source) for prompt in PROMPTS] for source in sources}
    return {source: [tuple(handle.result(120).token_ids) for handle in asked] for source, asked in handles.items()}


def test_both_at_once_answer_as_each_alone_and_one_can_go(tmp_path: Path) -> None:
    tiny = str(make_folder(tmp_path / "a tiny one"))
    engines = Engines(Engine(EngineConfig(model="starter", device="cpu", seats=4, context=64, kv_tokens=256)))
    engines.start()
    try:
        engines.wait_ready(120)
        alone = answers(engines, "starter")
        engines.load(tiny)
        engines.wait_ready(120)
        assert [snapshot.model.source for snapshot in engines.loaded] == ["starter", tiny]
        alone |= answers(engines, tiny)
        assert all(len(ids) == PARAMS.max_tokens for each in alone.values() for ids in each)
        assert answers(engines, "starter", tiny) == alone == answers(engines, tiny, "starter")
        engines.unload(tiny)
        assert answers(engines, "starter") == {"starter": alone["starter"]}
    finally:
        assert engines.close(60)
