"""The real thing: the starter model, the engine's own thread, and where wanted a real window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Engine, EngineConfig


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One engine with eight seats for a module's tests, on the starter model as everybody gets it. Where our own kernels do not run, in
    float32: a row's company then changes no answer there either. (That this is transformers' own answer: test_engine.py.)"""
    from engine.model.native import library

    yield from make_engine("auto" if library.fault() is None else "float32")


def make_engine(dtype: str) -> Iterator[Engine]:
    engine = Engine(EngineConfig(model="starter", device="cpu", dtype=dtype, seats=8, kv_tokens=8192))
    engine.start()
    engine.wait_ready(300)
    yield engine
    assert engine.close(60)
