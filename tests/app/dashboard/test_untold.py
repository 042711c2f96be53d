"""A server elsewhere: what its metrics give is shown, and what they cannot is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.dashboard.untold import untold
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SHARED, EngineState, KvView
from tests.app.dashboard.sim_engine import SimEngine


@pytest.fixture
def engine() -> SimEngine:
    engine = SimEngine(seats=2, blocks=40)
    engine.load(4)
    engine.step(12)
    return engine


def test_our_own_engine_tells_everything(engine):
    assert untold(engine.snapshot) == ""
    assert untold(SimEngine().snapshot) == ""


def test_each_gap_is_named(engine):
    snapshot = engine.snapshot
    counts_only = replace(snapshot, kv=replace(snapshot.kv, owners=b""))
    assert "not tell which block is whose." in untold(counts_only)
    bare = replace(snapshot, step=0, queue=(), waiting=3, kv=KvView(0, 0, 0, 0, 0, b""))
    words = untold(bare)
    assert "how full its KV cache is, who waits, and why and what its steps do" in words
    assert "which block" not in words
    assert untold(replace(bare, state=EngineState.LOADING)) == ""


def test_the_page_says_it_and_draws_the_counts(make_page, tick, engine):
    page = make_page(engine)
    tick(page, engine)
    assert page.heading.note.isHidden()
    kv = KvView(40, 10, 5, 25, 16, b"", 1 << 16)
    for shown in (kv, replace(kv, free=4, referenced=31)):
        engine.snapshot = replace(engine.snapshot, kv=shown)
        page.sampler.sample()
        page._show(engine.snapshot, 0.0)
        assert "which block is whose" in page.heading.note.text() and not page.heading.note.isHidden()
        cells = page.kvmap.cells
        assert [cells.count(code) for code in (OWNER_SHARED, OWNER_CACHED, OWNER_FREE)] == [shown.referenced, shown.cached, shown.free]
        seats, rest = page.kvmap.legend()
        assert seats == () and rest[0].words(True) == f"in use {shown.referenced}"
        assert page.kvmap.words_for(0) == "Block 1: in use, by whom is not told"
        assert not page.kvmap.grab().isNull()
    engine.step()
    page.sampler.sample()
    page._show(engine.snapshot, 0.0)
    assert page.heading.note.isHidden() and page.kvmap.legend()[1][0].words(True).startswith("shared")
