"""`omnibus bench ui` on a small library: every figure is there, measured, and nothing is left behind."""

from __future__ import annotations

import json

import pytest

from app import cli
from app.bench import crowd
from app.bench.growth import GROWTHS
from app.chats.reader import ChatReader
from app.chats.schema import FILE

KEYS = {
    "token_us_at_1k_chars",
    "token_us_at_50k_chars",
    "frame_ms_p99_32_tabs",
    "open_5000_messages_ms",
    "window_10000_chats_ms",
    "search_first_hit_ms",
}


def test_every_figure_is_measured(tmp_path, no_leftovers, monkeypatch, capsys):
    monkeypatch.setattr("app.bench.growth.TOKENS", 3)
    monkeypatch.setattr("app.bench.ui.LONG", 3000)
    target = tmp_path / "ui.json"
    assert cli.main(["bench", "ui", "--json", str(target), "--chats", "20", "--messages", "80", "--frames", "4"]) == 0
    figures = json.loads(target.read_text())
    assert set(figures) == KEYS and all(value > 0 for value in figures.values())
    assert "search_first_hit_ms" in capsys.readouterr().out


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
