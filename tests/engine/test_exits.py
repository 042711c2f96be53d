"""A program that ends without closing its engine: it ends in order, soon, and with its own exit code."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from engine import EngineState, FinishReason, SamplingParams, exits
from engine.bench.small_models import write_small_model
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine, the_end

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from engine import Engine, EngineConfig, SamplingParams
engine = Engine(EngineConfig(model=sys.argv[1], device="cpu", plain=True, threads=1, seats=4, kv_tokens=2048))
engine.start()
asked = [engine.submit("one two three " * 10, SamplingParams(max_tokens=300, ignore_eos=True)) for _ in range(6)]
assert asked[0].wait(200)  # the thread is inside torch most of the time from now on
sys.exit(7)
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of other tests are left alone."""
    monkeypatch.setattr(exits, "_started", weakref.WeakSet())


def test_a_script_that_ends_in_the_middle_of_a_step_ends_in_order(tmp_path: Path) -> None:
    model = write_small_model(tmp_path / "small", 1)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(model)], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_every_engine_that_was_started_ends_and_so_do_its_requests(alone: None) -> None:
    workshop = Workshop()
    workshop.pace = 0.01
    engines = [make_engine(workshop) for _ in range(2)]
    never = make_engine(workshop, start=False)
    handles = [engine.submit("hello", SamplingParams(max_tokens=150)) for engine in engines]
    assert all(handle.wait(PATIENCE) for handle in handles)
    engines[0].close(PATIENCE)
    exits._end_all()
    assert [engine.snapshot.state for engine in engines] == [EngineState.CLOSED] * 2
    assert the_end(handles[1]).reason is FinishReason.CANCELLED
    assert not any(engine._thread.is_alive() for engine in engines if engine._thread)
    assert never.snapshot.state is EngineState.STARTING
    never.close()


def test_a_call_that_does_not_end_keeps_no_process(alone: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    workshop = Workshop()
    workshop.steps.clear()
    stuck = make_engine(workshop)
    stuck.submit("hello", SamplingParams(max_tokens=5))
    assert workshop.stepping.wait(PATIENCE)
    monkeypatch.setattr(exits, "PATIENCE_S", 0.05)
    exits._end_all()
    assert "although 1 engine(s) did not" in caplog.text
    workshop.steps.set()
    assert stuck.close(PATIENCE)
