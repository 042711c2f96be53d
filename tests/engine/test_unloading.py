"""A model that is let go gives its memory back to the system, measured."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from engine.engine import Engine
from engine.types import EngineConfig, EngineState, SamplingParams
from tests.engine.model.tiny_files import make_folder

BIG = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8}
WEIGHTS = 4 * (4 * 1024**2 + 3 * 1024 * 4096) * 4  # bytes of the layers alone


def resident() -> int:
    """Bytes of this process in main memory."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return int(subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True).stdout) * 1024


def wait_for(engine: Engine, state: EngineState) -> None:
    limit = time.monotonic() + 60
    while engine.snapshot.state is not state:
        assert time.monotonic() < limit and engine.snapshot.state is not EngineState.FAILED, engine.snapshot.error
        time.sleep(0.01)


def test_unloading_gives_the_memory_back(tmp_path: Path, real_heap: None) -> None:
    assert WEIGHTS > 200 << 20
    small, big = make_folder(tmp_path / "small"), make_folder(tmp_path / "big", **BIG)
    asked = SamplingParams(max_tokens=3, temperature=0.0)
    with Engine(EngineConfig(model=str(small), kv_tokens=512, plain=True)) as engine:  # imports and their caches come first
        wait_for(engine, EngineState.READY)
        engine.submit("hello", asked).result()
        engine.unload()
        wait_for(engine, EngineState.EMPTY)
        before = resident()
        engine.load(str(big))
        wait_for(engine, EngineState.READY)
        engine.submit("hello", asked).result()
        loaded = resident()
        engine.unload()
        wait_for(engine, EngineState.EMPTY)
        after = resident()
    assert loaded - before > 0.8 * WEIGHTS, "the test did not load what it thinks"
    assert after - before < 0.1 * WEIGHTS, f"{(after - before) >> 20} MiB of {(loaded - before) >> 20} MiB stayed"
