"""`omnibus bench ui` on a small library: every figure is there, measured, and nothing is left behind."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from app import cli
from app.bench import crowd, tabs, ui
from app.bench.growth import GROWTHS
from app.chats.book import ChatBook
from app.chats.reader import ChatReader
from app.chats.schema import FILE
from app.theme import Theme
from app.window.main_window import MainWindow
from engine import StagedEngine
from tests.app.conftest import settle

KEYS = {
    "token_us_at_1k_chars",
    "token_us_at_50k_chars",
    "frame_ms_p99_32_tabs",
    "open_5000_messages_ms",
    "window_10000_chats_ms",
    "search_first_hit_ms",
}


REAL = {"start_up_window_ms", "start_up_model_ms", "frame_ms_p50_8_tabs_real", "frame_ms_p99_8_tabs_real"}


@contextmanager
def staged(model):
    """In place of the real engine."""
    yield StagedEngine(seats=8, blocks=800)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("app.bench.growth.TOKENS", 3)
    monkeypatch.setattr("app.bench.ui.LONG", 3000)
    monkeypatch.setattr("app.bench.ui.start_ms", lambda until, model="starter": {"window": 300.0, "model": 2000.0}[until])


def measured(target, *arguments):
    assert cli.main(["bench", "ui", "--json", str(target), "--chats", "20", "--messages", "80", "--frames", "4", *arguments]) == 0
    return json.loads(target.read_text())


def test_every_figure_is_measured(tmp_path, no_leftovers, small, capsys):
    figures = measured(tmp_path / "ui.json")
    assert set(figures) == KEYS and all(value > 0 for value in figures.values())
    said = capsys.readouterr().out
    assert "search_first_hit_ms" in said and "start_up_window_ms" in said


def test_the_real_engines_figures_come_only_when_they_are_asked_for(tmp_path, no_leftovers, small, monkeypatch):
    monkeypatch.setattr(ui, "real_engine", staged)
    monkeypatch.setattr(ui, "real_frames", lambda window, settle, frames: [0.002] * (frames - 1) + [0.009])
    figures = measured(tmp_path / "ui.json", "--real")
    assert set(figures) == KEYS | REAL and all(value > 0 for value in figures.values())
    assert figures["frame_ms_p50_8_tabs_real"] == 2.0 and figures["frame_ms_p99_8_tabs_real"] >= 9.0


def test_frames_that_bring_text_are_timed_and_an_answer_that_ends_is_asked_for_again(qapp, no_leftovers):
    engine = StagedEngine(seats=8, blocks=800, token_budget=4096)
    engine.texts.extend(f"Words of answer {number}." for number in range(80))
    window = MainWindow(engine, ChatBook(), Theme.dark())
    window.show()
    turns = []

    def turn():
        turns.append(len(turns))
        if len(turns) % 2:
            engine.step()
        settle()

    costs = tabs.real_frames(window, turn, 40)
    assert len(costs) == 40 < len(turns) and min(costs) > 0
    assert len(window.open_chats) == 9 and max(len(window.book[chat].messages) for chat in window.open_chats) > 2
    engine.step()
    settle()
    assert not window.answering.active_chats
    window.shut_down()
    window.deleteLater()


def test_a_token_of_every_kind_of_block_is_measured(no_leftovers, monkeypatch, capsys):
    monkeypatch.setattr("app.bench.growth.TOKENS", 2)
    monkeypatch.setattr("app.bench.ui.SHORT", 60)
    monkeypatch.setattr("app.bench.ui.LONG", 3000)
    assert cli.main(["bench", "ui", "--blocks", "--json", "-"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {f"{name}, {length} characters" for name in GROWTHS for length in ("60", "3,000")}
    assert all(value > 0 for value in figures.values())


def test_nonsense_is_refused(capsys):
    assert cli.main(["bench", "ui", "--chats", "0"]) == 2
    assert "more than 0" in capsys.readouterr().err


def test_the_crowd_is_what_it_says(tmp_path):
    long = crowd.fill_store(tmp_path, 6, 30)
    with ChatReader(tmp_path / FILE) as reader:
        assert len(reader.chats()) == 7 and len(reader.messages(long)) == 30
        assert set(reader.counts().values()) == {10, 30}
        assert all(reader.search(words) for words in crowd.SEARCHES)


@pytest.mark.parametrize("words", ["zeppelin", "飞艇"])
def test_rare_words_stand_in_one_message(tmp_path, words):
    crowd.fill_store(tmp_path, 6, 4)
    with ChatReader(tmp_path / FILE) as reader:
        assert len(reader.search(words)) == 1
