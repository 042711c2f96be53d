"""The whole page: true to the snapshot, steering the engine, silent when hidden."""

from __future__ import annotations

import random

import pytest
from PySide6.QtCore import QCoreApplication, QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.dashboard import DashboardPage, wording
from app.dashboard.cards import figures, roomy
from app.dashboard.riders import bus_cells
from app.theme import Theme
from engine import Counters, EngineState, ErrorInfo, Playback, Policy, Priority, Rates, Snapshot
from tests.app.dashboard.sim_engine import SimEngine


def assert_shows(page: DashboardPage, snapshot: Snapshot) -> None:
    """Every seat, queue place, block, counter and rate on the page is the snapshot's."""
    assert page.bus.cells == bus_cells(snapshot)
    assert page.kvmap.cells.codes.tolist() == list(memoryview(snapshot.kv.owners).cast("H"))
    assert [entry.blocks for entry in page.kvmap.legend()[1]][1:] == [snapshot.kv.cached, snapshot.kv.free]
    assert tuple(card.figure for card in page.cards.cards) == figures(snapshot)
    assert page.controls.policy.choice == snapshot.policy
    assert (page.controls.seats.value(), page.controls.budget.value()) == (len(snapshot.seats), snapshot.token_budget)
    page.twin.show_sheet("figures")
    shown = dict(page.twin.model.sheet.rows)
    for part, kind in (("counters", Counters), ("rates", Rates)):
        for field in kind._fields:
            assert shown[f"{part}.{field}"] == getattr(getattr(snapshot, part), field)


def test_each_number_of_a_random_run(make_page, tick):
    """Live, and again when its recording is replayed, wherever one looks."""
    dice = random.Random(1)
    engine = SimEngine(seats=4, blocks=60, block_size=8)
    page = make_page(engine)
    page._show_below("twin")
    page.deck.toggle_record()
    QCoreApplication.processEvents()
    published = []
    for _ in range(120):
        if dice.random() < 0.2 and engine.snapshot.waiting < 7:
            engine.board(dice.randint(1, 90), dice.randint(1, 50))
        if dice.random() < 0.03:
            engine.configure(policy=dice.choice(list(Policy)), seats=dice.randint(2, 6), token_budget=dice.choice((64, 256)))
        before = engine.snapshot.step
        tick(page, engine)
        assert_shows(page, engine.snapshot)
        if engine.snapshot.step > before:
            published.append(engine.snapshot)
    records = engine.history()
    assert tuple(page.timeline.grid.records) == records
    assert list(page.log.model.everything) == [decision for record in records for decision in record.decisions]

    page.deck.toggle_record()
    QCoreApplication.processEvents()
    page._change_source(Playback(page.deck.tape))
    assert len(page._playback) == len(published) > 100
    for position in (0, *(dice.randrange(len(published)) for _ in range(25)), len(published) - 1):
        page._playback.move(position)
        page._look(jumped=True)
        assert_shows(page, published[position])
        assert tuple(page.timeline.grid.records) == records[: position + 1]
        assert [d.step for d in page.log.model.everything] == [d.step for r in records[: position + 1] for d in r.decisions]
    page._change_source(None)
    assert_shows(page, engine.snapshot)
    assert tuple(page.timeline.grid.records) == records


def test_cards_say_what_was_measured():
    engine = SimEngine(seats=3)
    speed, ttft, seats, blocks = figures(engine.snapshot)
    assert (speed.value, ttft.value, seats.value, blocks.value) == ("0.0", wording.DASH, "0", "0")
    engine.load(5, 1)
    engine.step(40)
    snapshot = engine.snapshot
    speed, ttft, seats, blocks = figures(snapshot)
    assert speed.value == wording.rate(snapshot.rates.tok_s) and speed.points == (snapshot.rates.tok_s,)
    assert ttft.points == (snapshot.rates.ttft_p50_s, snapshot.rates.ttft_p95_s) and ttft.note.endswith(
        wording.seconds(snapshot.rates.ttft_p95_s)
    )
    assert (seats.value, seats.unit, seats.ceiling) == (str(snapshot.seated), "of 3", 3.0)
    assert blocks.value == str(snapshot.kv.referenced) and blocks.note == f"{snapshot.kv.cached} cached, {snapshot.kv.free} free"


def test_a_scale_has_room_for_its_highest_and_stays_for_a_while():
    assert [roomy(top) for top in (0.0, 39.2, 40.0, 198.3, 1.0)] == [0.0, 40.0, 40.0, 200.0, 1.0]
    assert roomy(0.4312) == pytest.approx(0.44) and all(top <= roomy(top) <= 1.1 * top for top in (1e-4, 0.0311, 7.77, 12345.6))


def test_controls_ask_the_engine_and_show_what_it_did(make_page, tick, qtbot):
    engine = SimEngine(seats=4)
    engine.load(6)
    page = make_page(engine)
    tick(page, engine, 3)
    page.controls.policy.buttons["static"].click()
    page.controls.seats.setValue(6)
    page.controls.budget.setValue(128)
    assert engine.calls == [
        ("configure", {"policy": Policy.STATIC}),
        ("configure", {"seats": 6}),
        ("configure", {"token_budget": 128}),
    ]
    assert page.controls.policy.choice == "in_flight", "the switch turned before the engine did"
    tick(page, engine)
    assert page.controls.policy.choice == "static" and page.controls.policy.buttons["static"].isChecked()
    assert len(page.bus.cells.seats) == 6 and not page.controls.seats.pending
    page.controls.hold.click()
    tick(page, engine)
    assert engine.snapshot.state is EngineState.PAUSED and page.controls.hold.text() == "Resume"
    page.controls.hold.click()
    tick(page, engine)
    assert page.controls.hold.text() == "Pause"
    engine.step(400)
    tick(page, engine)
    assert engine.snapshot.kv.cached > 0
    page.controls.clear.click()
    tick(page, engine)
    assert engine.snapshot.kv.cached == 0 and not page.controls.clear.isEnabled()
    assert [call[0] for call in engine.calls[3:]] == ["pause", "resume", "clear_cache"]


def test_a_number_asked_for_but_not_there_yet_says_so(make_page, tick, monkeypatch):
    engine = SimEngine(seats=4)
    page = make_page(engine)
    monkeypatch.setattr(engine, "configure", lambda **_: None)  # an engine that takes its time
    page.controls.seats.setValue(7)
    tick(page, engine)
    assert page.controls.seats.pending and "now 4" in page.controls.seats.text()
    monkeypatch.undo()
    engine.configure(seats=7)
    tick(page, engine)
    assert not page.controls.seats.pending and page.controls.seats.text() == "7"


def test_a_refusal_is_said_and_undone(make_page, tick):
    engine = SimEngine(seats=4)
    page = make_page(engine)
    page.controls.seats.setRange(0, 9)
    page.controls.seats.setValue(0)
    assert "seats is 0" in page.controls.message.text() and page.controls.message.isVisible()
    assert page.controls.seats.value() == 4
    page.controls.seats.setValue(5)
    assert not page.controls.message.isVisible()


def test_priority_and_cancel_reach_the_engine(make_page, tick):
    engine = SimEngine(seats=2)
    names = [engine.board(10, 30) for _ in range(4)]
    page = make_page(engine)
    tick(page, engine, 2)
    page.bus.set_priority.emit(names[3], Priority.FOREGROUND)
    page.bus.cancel.emit(names[0])
    assert engine.calls == [("set_priority", names[3], Priority.FOREGROUND), ("cancel", names[0])]
    tick(page, engine)
    assert names[0] not in page.bus.cells.people
    assert names[3] in page.bus.cells.people[:2], "the foreground request did not board first"


def test_empty_says_what_why_and_offers_the_demo(make_page, tick, qtbot):
    engine = SimEngine()
    page = make_page(engine)
    assert page.empty.isVisible() and not page.timeline_panel.isVisible()
    assert "no chat is being answered" in page.empty.words.text()
    with qtbot.waitSignal(page.run_demo, timeout=30_000):
        page.empty.demo.click()
    with qtbot.waitSignal(page.run_demo, timeout=30_000):
        page.controls.demo.click()
    engine.load(2)
    tick(page, engine, 2)
    assert not page.empty.isVisible() and page.timeline_panel.isVisible() and page.kv_panel.isVisible()


def test_a_stopped_engine_says_why_and_restarts(make_page, tick):
    engine = SimEngine()
    page = make_page(engine)
    engine.state, engine.error = EngineState.FAILED, ErrorInfo("x", "The model file is damaged.", "Download it again.")
    engine.publish()
    tick(page, engine)
    assert page.heading.trouble.text() == "The model file is damaged. Download it again." and page.heading.trouble.isVisible()
    assert not page.controls.demo.isEnabled() and not page.empty.demo.isVisible()
    page.heading.again.click()
    assert engine.calls == [("restart",)]
    tick(page, engine)
    assert not page.heading.again.isVisible() and page.controls.demo.isEnabled()


def test_who_gets_on_is_seen_at_once_and_figures_wait_for_their_time(make_page, clock):
    engine = SimEngine(seats=3)
    engine.board(30, 400, title="Alps")
    engine.step(5)
    page = make_page(engine)
    clock.now += 1.0
    engine.step(1)
    page.sampler.sample()
    shown = page.timeline.grid.last_step
    engine.board(30, 400, title="Beaches")
    engine.step(2)
    clock.now += 0.1
    page.sampler.sample()
    assert page.bus.cells.taken == 2 and page.timeline.grid.last_step == shown
    clock.now += 0.5
    engine.step(1)
    page.sampler.sample()
    assert page.timeline.grid.last_step == engine.snapshot.step


def test_hidden_it_does_nothing(make_page, tick):
    engine = SimEngine()
    engine.load(4)
    page = make_page(engine)
    tick(page, engine, 5)
    assert page.sampler.running and engine.listeners == 1
    page.hide()
    assert not page.sampler.running and engine.listeners == 0
    shown = page.bus.cells
    engine.step(5)
    assert page.bus.cells is shown
    page.show()
    assert page.bus.cells == bus_cells(engine.snapshot)
    assert page.timeline.grid.last_step == engine.snapshot.step, "steps of the hidden time are missing"


def test_a_new_engine_run_starts_the_pictures_anew(make_page, tick):
    engine = SimEngine()
    engine.load(4)
    page = make_page(engine)
    tick(page, engine, 30)
    other = SimEngine()
    other.load(3)
    other.step(4)
    engine.sim, engine._builder = other.sim, other._builder
    engine.publish()
    tick(page, engine)
    assert page.timeline.grid.last_step == 5 and page.log.model.shown[-1].step <= 5


def test_chats_open_from_everywhere_and_views_point_at_each_other(make_page, tick, qtbot):
    engine = SimEngine()
    engine.load(4)
    page = make_page(engine)
    tick(page, engine, 5)
    opened = []
    page.open_chat.connect(opened.append)
    for view in (page.bus, page.kvmap, page.timeline, page.log):
        view.open_chat.emit("c")
    assert opened == ["c"] * 4
    page.bus.seat_hovered.emit(2)
    assert (page.bus._marked, page.kvmap._marked, page.timeline._marked) == (-1, 2, 2)
    page.timeline.step_selected.emit(1)
    assert page.log.table.currentIndex().isValid()
    page.log.step_selected.emit(4)
    assert page.timeline.held and page.follow.text() == "Follow"


@pytest.mark.parametrize("width", [520, 640, 900, 1400])
def test_it_fits_beside_the_chat_and_alone(make_page, tick, width):
    engine = SimEngine()
    engine.load(12)
    page = make_page(engine, width=width)
    tick(page, engine, 5)
    assert not page.grab().isNull()
    content = page.scroller.widget()
    assert content.minimumSizeHint().width() <= width and content.width() <= width
    columns = {card.x() for card in page.cards.cards}
    assert len(columns) == (4 if width >= 900 else 2)


def test_everything_has_a_name_and_can_be_reached(make_page, tick, qtbot):
    engine = SimEngine()
    engine.load(12)
    page = make_page(engine)
    tick(page, engine, 5)
    for view in (page.bus, page.kvmap, page.timeline, *page.cards.cards, page.log.table, page.twin.table):
        assert view.accessibleName(), view
    for button in page.findChildren(QAbstractButton):
        assert button.text() or button.accessibleName() or button.objectName().startswith("qt_"), button
    for view in (page.bus, page.kvmap, page.timeline, page.log.table):
        assert view.focusPolicy() & Qt.FocusPolicy.TabFocus
    page.activateWindow()
    page.setFocus()
    reached: list[QWidget] = []
    widget = page.nextInFocusChain()
    while widget is not page and len(reached) < 500:
        reached.append(widget)
        widget = widget.nextInFocusChain()
    order = [reached.index(view) for view in (page.bus, page.kvmap, page.timeline, page.log.table)]
    assert order == sorted(order)
    page.bus.setFocus()
    qtbot.waitUntil(page.bus.hasFocus, timeout=30_000)
    assert "8 of 8 seats taken" in page.bus.accessibleDescription()


def test_tab_goes_through_the_page_as_one_reads_it(make_page, tick):
    engine = SimEngine()
    engine.load(12)
    page = make_page(engine, height=1400)
    tick(page, engine, 5)

    def after(first: QWidget, count: int) -> list[QWidget]:
        found, widget = [], first
        while len(found) < count:
            if widget.isVisible() and widget.isEnabled() and widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.focusProxy() is None:
                found.append(widget)
            widget = widget.nextInFocusChain()
        return found

    rules = page.controls
    (fewer, more), (smaller, larger) = rules.seats.steppers, rules.budget.steppers
    row = (*rules.policy.buttons.values(), rules.demo, rules.hold, rules.clear, fewer, rules.seats, more, smaller, rules.budget, larger)
    controls = after(row[0], sum(widget.isEnabled() for widget in row))
    assert controls == [widget for widget in row if widget.isEnabled()]
    places = [widget.mapTo(page, QPoint(0, widget.height() // 2)) for widget in controls]
    assert [(round(place.y() / 20), place.x()) for place in places] == sorted((round(place.y() / 20), place.x()) for place in places)
    assert after(page.timeline, 5) == [page.timeline, *page.below.buttons.values(), page.log.chat, page.log.kind]


def test_the_theme_can_change_while_it_runs(make_page, tick):
    engine = SimEngine()
    engine.load(12)
    page = make_page(engine)
    tick(page, engine, 5)
    dark = page.bus.grab().toImage().pixelColor(page.bus.width() // 2, 20)
    page.set_theme(Theme.light())
    light = page.bus.grab().toImage().pixelColor(page.bus.width() // 2, 20)
    assert dark.lightnessF() < 0.3 < 0.8 < light.lightnessF()


def test_export_says_when_it_cannot(make_page, tick, tmp_path):
    engine = SimEngine()
    engine.load(2)
    page = make_page(engine)
    tick(page, engine, 5)
    page.export(str(tmp_path / "missing" / "t.json"))
    assert "Could not write" in page.controls.message.text() and "Errno" not in page.controls.message.text()
    page.export(str(tmp_path / "t.json"))
    assert (tmp_path / "t.json").exists()
