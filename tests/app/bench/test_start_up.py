"""How long a start takes: a process of its own is started, and says itself when it is so far."""

from __future__ import annotations

import pytest

from app.bench import start_up


def test_a_start_until_the_window_is_painted():
    assert 0 < start_up.start_seconds("window", "starter") < start_up.START_S


def test_a_model_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="could not be loaded"):
        start_up.start_seconds("model", str(tmp_path / "none"))


def test_the_first_start_does_not_count(monkeypatch):
    took = iter([9.0, 0.3, 0.1, 0.2])
    monkeypatch.setattr(start_up, "start_seconds", lambda until, model: next(took))
    assert start_up.start_ms("window") == pytest.approx(200)
