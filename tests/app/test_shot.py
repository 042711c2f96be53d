"""The pictures: every state named, each scene at the moment it promises, and a sentence for what cannot be done."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from app import scenes, shot
from app.chats.model import AnswerState
from app.dashboard import DashboardPage
from app.window.main_window import MainWindow
from engine import Policy


@pytest.fixture(autouse=True)
def undressed(qapp: QApplication, no_leftovers: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QT_SCALE_FACTOR", "1")
    yield
    qapp.setStyleSheet("")


def seen(name: str, qapp: QApplication, check) -> None:
    """Play one scene and look at its widget."""
    looked = []

    def save(widget) -> None:
        check(widget)
        looked.append(widget)

    scenes.picture_of(name, qapp, save)
    assert looked


def test_each_state_is_there():
    wanted = {"empty", "city-bus", "tour-bus", "pressure", "replay", "compare"}
    assert {f"dashboard-{name}" for name in wanted} <= scenes.SCENES.keys()
    assert {f"chat-{name}" for name in ("empty", "streaming", "long", "light", "dark")} <= scenes.SCENES.keys()


def test_the_two_buses_at_the_same_moment(qapp):
    steps = {}

    def check(page: DashboardPage) -> None:
        waste = page.timeline.grid.waste(0, page.timeline.grid.end)
        steps[page.bus.policy] = (page.timeline.grid.end, waste.wasted, page.bus.cells.waiting)

    seen("dashboard-city-bus", qapp, check)
    seen("dashboard-tour-bus", qapp, check)
    city, tour = steps[Policy.IN_FLIGHT], steps[Policy.STATIC]
    assert city[0] == tour[0]
    assert tour[1] > 10 * city[1] and tour[2] > city[2], "the lesson is not in the picture"


def test_pressure_shows_who_stepped_aside(qapp):
    def check(page: DashboardPage) -> None:
        snapshot = page.sampler.latest
        assert snapshot.counters.preemptions >= 2 and snapshot.kv.free < 4 and snapshot.waiting
        assert any("gives back" in decision.detail for decision in page.log.model.everything)

    seen("dashboard-pressure", qapp, check)


def test_replay_and_compare(qapp):
    def check_replay(page: DashboardPage) -> None:
        assert page.deck.replaying and 0 < page.deck.player.playback.position < len(page.deck.player.playback) - 1
        assert page.bus.cells.taken

    seen("dashboard-replay", qapp, check_replay)
    seen("dashboard-compare", qapp, lambda page: page.deck.panel.isVisible() or pytest.fail("no comparison"))


def test_an_answer_on_its_way(qapp):
    def check(window: MainWindow) -> None:
        message = window.book[window.current_chat].last
        assert message.state is AnswerState.RUNNING and "```python" in message.text
        assert scenes.STREAMED.startswith(message.text) and len(message.text) < len(scenes.STREAMED)
        assert len(window.open_chats) == 4
        assert window.parts.strip.sampler.latest.seated == 3 and window.parts.strip.sampler.latest.waiting == 1

    seen("chat-streaming", qapp, check)


def test_files_in_both_themes(qapp, tmp_path: Path, capsys):
    names = ["chat-dark", "chat-light", "chat-long", "dashboard-empty"]
    assert shot.run(argparse.Namespace(dir=tmp_path / "new", only=names, scale=1.0, language="en")) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "new" / f"{name}.png") for name in names]
    corner = {name: QImage(str(tmp_path / "new" / f"{name}.png")).pixelColor(4, 4).lightnessF() for name in names}
    assert corner["chat-dark"] < 0.2 and corner["chat-light"] > 0.8


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({"scale": 3.0}, 2, "from 1 to 2"),
        ({"only": ["chat-upside-down"]}, 2, "'chat-upside-down'"),
        ({"blocked": True}, 1, "cannot be made"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(qapp, tmp_path: Path, capsys, values, status, words):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "x" if values.pop("blocked", False) else tmp_path
    assert shot.run(argparse.Namespace(**{"dir": folder, "only": [], "scale": 1.0, "language": "en", **values})) == status
    assert words in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(qapp, tmp_path: Path, capsys):
    (tmp_path / "chat-empty.png").mkdir()
    assert shot.run(argparse.Namespace(dir=tmp_path, only=["chat-empty"], scale=1.0, language="en")) == 1
    assert "could not be written" in capsys.readouterr().err
