"""`omnibus demo` with the real model, as a person calls it: the design's riders, step for step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from engine.version import __version__

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {"A": 8, "B": 2, "C": 6, "D": 8, "E": 2, "F": 6}

pytestmark = [pytest.mark.model, pytest.mark.slow]


def omnibus(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "app", *words], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("demo") / "riders.json"
    done = omnibus("demo", "--riders", "--threads", "1", "--json", str(path))  # beside other tests two would wait for one another
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


def test_the_tour_bus_makes_everyone_wait_eight_steps(document: dict) -> None:
    static = document["policies"]["static"]
    assert static["boarded_step"] == {"A": 1, "B": 1, "C": 1, "D": 9, "E": 9, "F": 9}
    assert static["finished_step"] == {"A": 8, "B": 2, "C": 6, "D": 16, "E": 10, "F": 14}
    assert (static["steps"], static["idle_seat_steps"]) == (16, 16)


def test_the_city_bus_takes_d_aboard_at_the_step_after_b_got_off(document: dict) -> None:
    in_flight = document["policies"]["in_flight"]
    assert in_flight["boarded_step"] == {"A": 1, "B": 1, "C": 1, "D": 3, "E": 7, "F": 9}
    assert in_flight["finished_step"] == {"A": 8, "B": 2, "C": 6, "D": 10, "E": 8, "F": 14}
    assert (in_flight["steps"], in_flight["idle_seat_steps"]) == (14, 10)


def test_the_answers_are_the_same_and_they_are_words(document: dict) -> None:
    static, in_flight = document["policies"]["static"], document["policies"]["in_flight"]
    assert static["text"] == in_flight["text"]
    assert set(static["text"]) == set(TOKENS) and all(text.strip() for text in static["text"].values())
    assert "Paris" in static["text"]["B"]
    assert document["omnibus"] == __version__


def test_the_figures_hang_together(document: dict) -> None:
    for figures in document["policies"].values():
        assert figures["tok_s"] * figures["makespan_s"] == pytest.approx(sum(TOKENS.values()), rel=0.02)
        assert 0 < figures["ttft_p50_s"] <= figures["ttft_p95_s"] <= figures["makespan_s"]


def test_a_missing_model_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--riders", "--model", "/no/such/model"]) == 1
    said = capsys.readouterr().err
    assert "/no/such/model" in said and "Traceback" not in said
