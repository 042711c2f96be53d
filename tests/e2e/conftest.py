"""The real thing: the starter model, the engine's own thread, and where wanted a real window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Engine, EngineConfig


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One engine with eight seats for a module's tests, on the starter model in float32."""
    engine = Engine(EngineConfig(model="starter", device="cpu", dtype="float32", seats=8, kv_tokens=8192))
    engine.start()
    engine.wait_ready(300)
    yield engine
    assert engine.close(60)
