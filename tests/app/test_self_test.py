"""The self-test: what it finds, what it says, and the document that it writes. The whole of it runs on every bundle."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from PySide6.QtGui import QColor, QImage

from app import self_test
from app.loop import make_loop
from engine import EngineState
from tests.app.fakes import Script


def make_trial(window, engine) -> self_test.Trial:
    return self_test.Trial(window, engine, time.time() - 1.0)


def play(trial: self_test.Trial, qapp) -> None:
    with make_loop(qapp) as loop:
        loop.run_until_complete(asyncio.wait_for(trial.play(), 30))


def test_two_chats_at_once_are_timed(make_window, qapp):
    window, engine = make_window()
    engine.scripts.extend(Script(pieces=["word "] * 12) for _ in range(2))
    engine.start_thread(0.01)
    trial = make_trial(window, engine)
    play(trial, qapp)
    assert trial.problems == []
    assert 1.0 <= trial.window_s <= trial.first_token_s
    assert engine.started and len(engine.submitted) == 2


def test_an_engine_that_fails_is_told(make_window, qapp):
    window, engine = make_window()
    engine.state = EngineState.FAILED
    engine.publish()
    trial = make_trial(window, engine)
    play(trial, qapp)
    assert any("The model file is damaged." in problem for problem in trial.problems)
    assert any("no answer" in problem for problem in trial.problems)


def test_a_picture_of_one_colour_is_blank():
    picture = QImage(200, 100, QImage.Format.Format_RGB32)
    picture.fill(QColor("#101010"))
    assert self_test.is_blank(picture) and self_test.is_blank(QImage())
    for x in range(200):
        for y in range(100):
            picture.setPixelColor(x, y, QColor(x, y, 90))
    assert not self_test.is_blank(picture)


@pytest.mark.skipif(sys.platform != "linux", reason="psutil's own figure elsewhere")
def test_the_start_of_the_process_is_known_to_a_hundredth_of_a_second():
    """psutil's is up to a second too early, never too late."""
    before = time.time()
    child = subprocess.Popen([sys.executable, "-c", "from app import self_test; print(self_test.process_start())"], stdout=subprocess.PIPE)
    forked = time.time()
    out, _ = child.communicate()
    assert before - 0.02 <= float(out) <= forked + 0.02  # the kernel counts in hundredths; importing the module takes far longer
    assert -0.03 <= self_test.process_start() - psutil.Process().create_time() <= 1.03


def test_signals_are_counted(qapp):
    assert self_test.count_signals() == self_test.SIGNALS


def test_the_process_began_before_now():
    assert time.time() - 3600 < self_test.process_start() <= time.time()


@pytest.mark.parametrize("problems", [[], ["a chat got no answer"]])
def test_the_document(make_window, tmp_path: Path, capsys, problems):
    window, engine = make_window()
    trial = make_trial(window, engine)
    trial.problems += problems
    assert self_test.report(trial, str(tmp_path / "s.json")) == len(problems)
    document = json.loads((tmp_path / "s.json").read_text())
    assert set(document) == {"ok", "window_s", "first_token_s", "two_chats_tok_s", "versions"}
    assert document["ok"] is not bool(problems) and document["versions"]["bundle"] == "no"
    said = capsys.readouterr()
    assert ("NOT WELL" in said.out) is bool(problems) and all(problem in said.err for problem in problems)
    assert self_test.report(trial, str(tmp_path / "none" / "s.json")) == 1
