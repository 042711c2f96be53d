"""The dashboard's switch between two loaded models, over two engines on a stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from app.dashboard.model_chooser import ModelChooser
from app.dashboard.page import DashboardPage
from app.theme import Theme
from engine import Snapshot, StagedEngine
from tests.app.conftest import settle


class Two:
    """Two engines of which one is shown, as `engine.shown.Shown` has it."""

    def __init__(self) -> None:
        self.engines = {"/a": make_stage("Alpha", "/a"), "/b": make_stage("Beta", "/b")}
        self.there = ["/a", "/b"]
        self.shown = "/a"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engines[self.shown], name)

    @property
    def choices(self) -> tuple[Snapshot, ...]:
        return tuple(self.engines[source].snapshot for source in self.there)

    def pick(self, source: str) -> None:
        self.shown = source


def make_stage(name: str, source: str) -> StagedEngine:
    made = StagedEngine(seats=4)
    made.model = replace(made.model, name=name, source=source)
    made.publish()
    return made


@pytest.fixture
def two() -> Two:
    return Two()


def labels(chooser: ModelChooser) -> list[str]:
    assert chooser.switch is not None
    return [button.text() for button in chooser.switch.buttons.values()]


def test_it_is_there_while_two_are_loaded(qapp: QApplication, two: Two) -> None:
    chooser = ModelChooser(two, Theme.dark())
    two.there = ["/a"]
    chooser.look()
    assert chooser.isHidden() and chooser.switch is None
    two.there = ["/a", "/b"]
    two.engines["/b"].board(20, 20)
    two.engines["/b"].step()
    chooser.look()
    assert not chooser.isHidden() and labels(chooser) == ["Alpha  ·  0 of 4 seats", "Beta  ·  1 of 4 seats"]
    two.there = ["/b"]
    chooser.look()
    assert chooser.isHidden()
    chooser.deleteLater()


def test_an_engine_with_one_model_has_no_switch(qapp: QApplication) -> None:
    chooser = ModelChooser(make_stage("Alpha", "/a"), Theme.dark())
    chooser.look()
    assert chooser.isHidden()
    chooser.deleteLater()


def test_a_look_at_one_model_moves_nothing_and_asks_nothing_twice(qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    class One:
        choices = ()

        @property
        def snapshot(self) -> Snapshot:
            pytest.fail("the snapshot is there already")

    chooser = ModelChooser(One(), Theme.dark())
    monkeypatch.setattr(chooser, "setVisible", lambda visible: pytest.fail("it is hidden already"))
    changes: list[bool] = []
    chooser.changed.connect(lambda: changes.append(True))
    first, second = make_stage("Alpha", "/a").snapshot, make_stage("Beta", "/b").snapshot
    for snapshot in (first, first, second, second):
        chooser.look(snapshot)
    assert changes == [True] and chooser.isHidden()
    chooser.deleteLater()


def test_the_page_begins_anew_with_the_model_that_is_picked(qapp: QApplication, two: Two, no_leftovers: None) -> None:
    for source, steps in (("/a", 3), ("/b", 9)):
        two.engines[source].load(2, long=40)
        two.engines[source].step(steps)
    page = DashboardPage(two, Theme.dark())
    page.show()
    settle()
    page.sampler.sample()
    assert "Alpha" in page.heading.model.text() and page.timeline.grid.end == 3
    assert page.chooser.switch is not None
    page.chooser.switch.buttons["/b"].click()
    page.sampler.sample()
    settle()
    assert "Beta" in page.heading.model.text() and page.timeline.grid.end == 9
    assert page.timeline.grid.records[0].step == 1  # nothing of the other model's steps is left among them
    assert page.chooser.switch.choice == "/b"
    page.hide()
    page.shut_down()
    page.deleteLater()
    settle()
