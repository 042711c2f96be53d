"""The measurement of the dashboard, on an engine on a stage: what it counts, in which turns, and what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from PySide6.QtWidgets import QApplication

from app.bench import cli, dashboard
from app.bench.document import write_json
from app.dashboard import DashboardPage
from app.theme import Theme, apply_theme
from engine import StagedEngine


@pytest.fixture
def page(qapp: QApplication, no_leftovers: None):
    apply_theme(qapp, Theme.dark())
    engine = StagedEngine(seats=8)
    for number in range(8):
        engine.board(20, 5000, title=f"chat {number}")
    engine.step(10)
    page = DashboardPage(engine, Theme.dark())
    page.resize(900, 700)
    page.engine = engine
    yield page
    page.close()
    page.shut_down()
    page.deleteLater()
    qapp.setStyleSheet("")


class Slowed:
    """An engine of 80 tok/s, or nine tenths of that while the dashboard is open, that publishes a step every 0.3 s."""

    def __init__(self, page: DashboardPage) -> None:
        self.page, self.snapshot = page, page.engine.snapshot
        self.now, self.tokens, self.published = 0.0, 0.0, 0.0

    def spin(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.001)):
            self.now += 0.001
            self.tokens += 0.08 * (0.9 if self.page.isVisible() else 1.0)
            if self.now - self.published >= 0.3:
                self.published = self.now
                counters = self.snapshot.counters._replace(output_tokens=self.tokens)
                self.snapshot = replace(self.snapshot, time=self.now, counters=counters)


def test_turns_are_balanced_and_the_ratio_is_open_over_closed(page, qapp, monkeypatch):
    """Also where a turn is only three steps long."""
    engine, seen = Slowed(page), []
    monkeypatch.setattr(dashboard.time, "monotonic", lambda: engine.now)
    monkeypatch.setattr(dashboard.time, "thread_time", lambda: engine.now / 50 if page.isVisible() else 0.0)
    monkeypatch.setattr(dashboard, "SETTLE_S", 0.3)  # longer than a step

    def spin(seconds: float) -> None:
        engine.spin(seconds)
        seen.append((seconds, page.isVisible()))

    cost = dashboard.watch(engine, page, spin, 2.0, 3)
    assert [shown for seconds, shown in seen if seconds == 2.0] == [False, True, True, False] * 3
    assert len(cost.kept) == 3 and cost.speed_kept == pytest.approx(0.9, abs=0.002)
    assert cost.low <= cost.speed_kept <= cost.high
    assert cost.tok_s == pytest.approx(80, abs=0.2) and cost.cpu_share == pytest.approx(0.02)


def test_each_painted_map_is_new_and_whole(page, qapp):
    page.show()
    page.sampler.sample()
    assert dashboard.paint_ms(page, page.engine.snapshot, paints=3) > 0
    assert len(page.kvmap.cells.codes) * page.kvmap.cells.group == dashboard.BLOCKS
    page.hide()


def test_figures_out(tmp_path, capsys):
    figures = {"cpu_share_8_seats": 0.01}
    assert write_json(str(tmp_path / "f.json"), figures) == 0
    assert json.loads((tmp_path / "f.json").read_text()) == figures
    assert write_json("-", figures) == 0 and json.loads(capsys.readouterr().out) == figures
    assert write_json(None, figures) == 0
    assert write_json(str(tmp_path / "none" / "f.json"), figures) == 1
    assert "could not be written" in capsys.readouterr().err


def test_bench_knows_both_tables(capsys):
    import argparse

    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["bench", "--help"])
    said = capsys.readouterr().out
    assert "dashboard" in said and "scheduler" in said
    assert cli.run(parser.parse_args(["bench", "dashboard", "--seconds", "0"])) == 2
    assert "more than 0" in capsys.readouterr().err
    for name in ("dashboard", "idle"):
        assert cli.run(parser.parse_args(["bench", name, "--seconds", "nan"])) == 2
        assert "more than 0" in capsys.readouterr().err


def test_the_table_needs_no_qt():
    code = "import sys, app.bench.cli, app.bench.dashboard; print([n for n in sys.modules if n.startswith(('PySide6', 'torch', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
