"""The timeline: what is painted is the grid, and it can be held, scrubbed, zoomed and read."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent

from app.dashboard.export import export_timeline
from app.dashboard.step_image import pixel
from app.dashboard.steps import DECODE, WASTED
from app.dashboard.timeline import Timeline
from app.dashboard.timeline_frame import GUTTER, rows_top
from app.dashboard.timeline_marks import tick_distance
from app.theme import Theme
from engine import Policy
from tests.app.dashboard.sim_engine import SimEngine


@pytest.fixture
def timeline(dressed, qtbot):
    view = Timeline(Theme.dark())
    qtbot.addWidget(view)
    view.resize(630, 300)
    view.show()
    return view


def make_run(timeline: Timeline, steps: int = 80, seats: int = 3, policy: Policy = Policy.STATIC) -> SimEngine:
    engine = SimEngine(seats=seats, policy=policy)
    engine.load(9, 5, long=30)
    engine.step(steps)
    timeline.show_steps(engine.history(), seats)
    return engine


def test_the_colours_of_every_seat_step(timeline):
    make_run(timeline)
    timeline.zoom(2)
    sheet, x = timeline.sheet()
    start, stop = timeline.span
    states, _, shades = timeline.grid.view(start, stop)
    unit, row = int(timeline.unit), int(timeline.row)
    for seat in range(3):
        for column in range(stop - start):
            state, shade = int(states[seat, column]), int(shades[seat, column])
            color = int(sheet[seat * row + row // 2, x + column * unit + unit // 2])
            allowed = {
                int(timeline._sheet.colors.base[seat, state * 2 + shade]),
                int(timeline._sheet.colors.stripe[seat, state * 2 + shade]),
            }
            assert color in allowed
    assert (states == WASTED).any() and (states == DECODE).any()
    assert int(timeline._sheet.colors.base[1, DECODE * 2]) == pixel(Theme.dark().seat_color(1))


def test_adding_steps_paints_the_same_as_painting_all(timeline):
    dice = random.Random(2)
    engine = SimEngine(seats=3)
    for round_ in range(120):
        if dice.random() < 0.3 and engine.snapshot.waiting < 5:
            engine.board(dice.randint(1, 60), dice.randint(1, 20))
        if dice.random() < 0.05:
            timeline.zoom(dice.choice((-1, 1)))
        if dice.random() < 0.1:
            timeline.scrub(dice.randint(-40, 20))
        if dice.random() < 0.2:
            timeline.hold(False)
        engine.step(dice.randint(0, 9))
        timeline.show_steps(engine.history(timeline.grid.last_step), 3)
        start, stop = timeline.span
        if stop == start:
            continue
        width = (stop - start) * int(timeline.unit)
        sheet, x = timeline.sheet()
        grown = sheet[:, x : x + width].copy()
        timeline._sheet = None
        sheet, x = timeline.sheet()
        assert np.array_equal(grown, sheet[:, x : x + width]), round_


def test_it_follows_until_it_is_held(timeline, qtbot):
    engine = make_run(timeline, steps=200, policy=Policy.IN_FLIGHT)
    engine.load(20, 6, long=60)
    engine.step(100)
    timeline.show_steps(engine.history(timeline.grid.last_step), 3)
    assert timeline.span[1] == timeline.grid.end
    held = []
    timeline.hold_changed.connect(held.append)
    qtbot.keyClick(timeline, Qt.Key.Key_Space)
    window = timeline.span
    engine.step(5)
    timeline.show_steps(engine.history(timeline.grid.last_step), 3)
    assert timeline.span == window and timeline.held and held == [True]
    timeline.scrub(-20)
    assert timeline.span == (window[0] - 20, window[1] - 20)
    timeline.scrub(-10_000)
    assert timeline.span[0] == timeline.grid.first
    qtbot.keyClick(timeline, Qt.Key.Key_End)
    assert not timeline.held and timeline.span[1] == timeline.grid.end


def test_a_click_selects_a_step_and_a_double_click_opens_its_chat(timeline, qtbot):
    engine = make_run(timeline)
    steps, chats = [], []
    timeline.step_selected.connect(steps.append)
    timeline.open_chat.connect(chats.append)
    column = timeline.grid.first + 20
    row = next(row for row in timeline.grid.record(column).rows)
    point = QPoint(int(GUTTER + 20.5 * timeline.unit), int(rows_top(timeline.width()) + (row.seat + 0.5) * timeline.row))
    assert (timeline.column_at(point), timeline.seat_at(point)) == (column, row.seat)
    qtbot.mouseClick(timeline, Qt.MouseButton.LeftButton, pos=point)
    assert steps == [engine.history()[20].step] and timeline.held
    qtbot.mouseDClick(timeline, Qt.MouseButton.LeftButton, pos=point)
    assert chats == [row.chat_id]
    assert timeline.words_for(column).startswith("Step 21: ")


def wheel(timeline: Timeline, up: bool, keys: Qt.KeyboardModifier) -> QWheelEvent:
    at = QPointF(200, 80)
    turn = QPoint(0, 120 if up else -120)
    event = QWheelEvent(at, timeline.mapToGlobal(at), QPoint(), turn, Qt.MouseButton.NoButton, keys, Qt.ScrollPhase.NoScrollPhase, False)
    timeline.wheelEvent(event)
    return event


def test_the_wheel_zooms_only_when_meant_and_keeps_the_step_under_it(timeline):
    engine = make_run(timeline, steps=60, policy=Policy.STATIC)
    engine.load(20, 3)
    engine.step(300)
    timeline.show_steps(engine.history(60), 3)
    timeline.clearFocus()
    pitch = timeline.pitch
    assert not wheel(timeline, True, Qt.KeyboardModifier.NoModifier).isAccepted() and timeline.pitch == pitch
    timeline.scrub(-60)
    under = timeline.column_at(QPoint(200, 80))
    assert wheel(timeline, True, Qt.KeyboardModifier.ControlModifier).isAccepted()
    assert timeline.pitch > pitch and timeline.column_at(QPoint(200, 80)) == under
    for _ in range(30):
        timeline.zoom(-1)
    assert timeline.pitch == 1
    timeline.repaint()


def test_export_in_three_formats(timeline, tmp_path):
    make_run(timeline)
    for ending, head in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".json", b"{")):
        path = tmp_path / f"t{ending}"
        export_timeline(timeline, path)
        assert path.read_bytes().startswith(head)
    document = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    start, stop = timeline.span
    waste = timeline.grid.waste(start, stop)
    assert (len(document["steps"]), document["idle_seat_steps"], document["idle_while_waiting"]) == (
        stop - start,
        waste.empty,
        waste.wasted,
    )
    assert any(step["decisions"] for step in document["steps"])
    with pytest.raises(ValueError, match="must end in"):
        export_timeline(timeline, tmp_path / "t.gif")


def test_many_seats_and_ticks(timeline):
    make_run(timeline, steps=40, seats=64, policy=Policy.IN_FLIGHT)
    timeline.repaint()
    assert timeline.height() < 500
    assert [tick_distance(least) for least in (0.5, 2, 3, 14, 70)] == [1, 2, 5, 20, 100]
