"""Record, save, open, replay and compare on the page: what is shown, what is asked of the engine, and a word on all that fails."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import Future

import pytest
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import QFileDialog

from app.dashboard import DashboardPage
from app.dashboard.compare_panel import export_comparison
from app.dashboard.comparison import ORDER, Comparison
from app.dashboard.comparison_drawing import legend_rows, plan, tick_seconds
from app.dashboard.ink import Ink
from app.dashboard.jobs import Jobs
from app.dashboard.lesson import QUIET
from app.dashboard.riders import bus_cells
from app.dashboard.rides import rides
from app.dashboard.sparkline import BUCKET_S
from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED
from app.theme import Theme
from engine import EngineError, EngineState, Phase, Playback, Policy, Trace, compare_policies, rush_hour
from engine.trace.recorder import Recorder
from tests.app.dashboard.sim_engine import SimEngine


@pytest.fixture
def engine() -> SimEngine:
    return SimEngine(seats=3)


@pytest.fixture
def page(make_page, engine) -> DashboardPage:
    return make_page(engine)


def press_record(page: DashboardPage) -> None:
    """Press, and let the engine's answer arrive."""
    page.deck.record.click()
    QCoreApplication.processEvents()


def record(page: DashboardPage, engine: SimEngine, tick, steps: int = 60, riders: int = 8) -> None:
    press_record(page)
    engine.load(riders, 2, long=40)
    tick(page, engine, steps)
    press_record(page)


def wait(page: DashboardPage, qtbot, name: str) -> None:
    """Until the job of that name has come back."""
    with qtbot.waitSignal(page.deck.jobs.done, timeout=20_000, check_params_cb=lambda done, _: done == name):
        pass


def replay(page: DashboardPage, qtbot) -> Playback:
    page.deck.watch.click()
    wait(page, qtbot, "replay")
    assert page.deck.player.playback is not None
    return page.deck.player.playback


def make_trace(steps: int = 400) -> Trace:
    engine = SimEngine(seats=3)
    recorder = Recorder(engine.sim.core, "sim")
    engine.load(9, 5, long=40)
    engine.step(steps)
    return recorder.stop()


def test_record_counts_steps_and_keeps_the_recording(page, engine, tick):
    deck = page.deck
    assert not deck.watch.isEnabled() and not deck.keep.isEnabled()
    tick(page, engine, 2)
    engine.load(4)
    engine.step(5)
    press_record(page)
    assert deck.recording and deck.record.isChecked() and deck.record.text() == "Stop · 0 steps"
    tick(page, engine, 7)
    assert deck.record.text() == "Stop · 7 steps" and deck.record.width() >= deck.record.sizeHint().width()
    press_record(page)
    assert not deck.recording and not deck.record.isChecked() and deck.record.text() == "Record"
    assert deck.tape.steps == 7 and "7 steps of 4 requests" in deck.note.text()
    assert deck.watch.isEnabled() and deck.keep.isEnabled()
    assert [call[0] for call in engine.calls] == ["start_recording", "stop_recording"]


def test_a_recording_that_was_full_says_so(page):
    trace = make_trace(40)
    page.deck._on_stopped(trace)
    assert "recording is full" not in page.deck.note.text()
    trace.cut = True
    page.deck._on_stopped(trace)
    assert "recording is full" in page.deck.note.text()


def test_save_open_and_back_to_live(page, engine, tick, qtbot, tmp_path):
    record(page, engine, tick)
    deck, path = page.deck, tmp_path / "afternoon.omnibus-trace"
    deck.save(str(path))
    wait(page, qtbot, "save")
    assert Trace.load(path) == deck.tape and "Saved as afternoon" in deck.note.text()
    deck.open(str(path))
    wait(page, qtbot, "open")
    player = deck.player
    assert player.isVisible() and player.title.text() == "Replaying afternoon.omnibus-trace"
    assert page.heading.state.text() == "replay"
    assert page.timeline.grid.last_step == 1 and player.place.text().startswith("step 1 of 60 ")
    for widget in (page.controls.policy, page.controls.seats, page.controls.demo, page.controls.hold, page.controls.clear):
        assert not widget.isEnabled()
    asked = list(engine.calls)
    for number in (page.controls.seats, page.controls.budget):
        for stepper in number.steppers:
            stepper.click()
    page.bus.cancel.emit("r1")
    assert engine.calls == asked and "This is a recording" in page.controls.message.text()
    engine.step(3)  # meanwhile the engine goes on, and nothing of it is shown
    page.sampler.sample()
    assert page.timeline.grid.last_step == 1
    player.back.click()
    assert not player.isVisible() and not deck.replaying
    assert page.timeline.grid.last_step == engine.snapshot.step and page.controls.demo.isEnabled()
    assert page.heading.state.text() != "replay" and not page.controls.message.isVisible()


def test_the_slider_and_the_steps(page, engine, tick, qtbot):
    record(page, engine, tick)
    playback = replay(page, qtbot)
    player = page.deck.player
    assert not player.before.isEnabled() and player.after.isEnabled()
    player.slider.setValue(40)
    assert playback.position == 40 and page.timeline.grid.last_step == 41 and player.place.text().startswith("step 41 of 60 ")
    player.before.click()
    player.before.click()
    assert playback.position == 38 == player.slider.value() and page.timeline.grid.last_step == 39
    player.after.click()
    assert playback.position == 39
    qtbot.keyClick(player.slider, Qt.Key.Key_Right)
    assert playback.position == 40
    player.slider.setSliderDown(True)  # while it is dragged only the bus follows at once
    for position in (55, 50, 30):
        player.slider.setValue(position)
        assert page.bus.cells == bus_cells(playback.snapshots[position])
    assert page.timeline.grid.last_step == 41
    player.slider.setSliderDown(False)
    assert page.timeline.grid.last_step == 31
    player.slider.setValue(59)
    assert not player.after.isEnabled() and page.timeline.grid.last_step == 60


def test_the_sparklines_are_those_of_the_minute_before(page, engine, tick, qtbot):
    record(page, engine, tick, steps=200, riders=14)
    playback = replay(page, qtbot)
    page.deck.player.slider.setValue(150)
    shown = [value for value in page.cards.cards[3].rings[0].values if value is not None]
    last: dict[int, float] = {}
    for snapshot in playback.snapshots[:151]:
        last[int(snapshot.time / BUCKET_S)] = float(snapshot.kv.referenced)
    assert shown == list(last.values()) and len(shown) > 5
    page.deck.player.slider.setValue(20)
    assert len([value for value in page.cards.cards[3].rings[0].values if value is not None]) < len(shown)


def test_it_plays_at_the_recorded_speed_and_stops_at_the_end(page, engine, tick, qtbot, clock):
    record(page, engine, tick)
    playback = replay(page, qtbot)
    player = page.deck.player
    player.play.click()
    assert player.playing and player.play.text() == "Hold"
    clock.now += 1.5
    player.advance()
    assert playback.position == playback.at(1.5) and 0 < playback.position < 59
    player.slider.setValue(5)  # it goes on from there
    clock.now += 0.5
    player.advance()
    assert playback.position == playback.at(playback.elapsed(5) + 0.5)
    clock.now += 1e6
    player.advance()
    assert playback.position == 59 and not player.playing
    player.play.click()
    assert playback.position == 0 and player.playing
    page.hide()
    assert not player.playing
    page.show()


def test_compare_shows_both_and_exports_three_formats(page, engine, tick, qtbot, tmp_path):
    engine.configure(policy=Policy.STATIC)
    record(page, engine, tick, steps=500, riders=12)
    page.deck.judge.click()
    wait(page, qtbot, "compare")
    panel = page.deck.panel
    assert panel.isVisible()
    results = compare_policies(page.deck.tape)
    shown = panel.view.comparison
    assert shown.results == tuple(results[policy] for policy in ORDER)
    for line, name in zip(shown.lines(), ("tok_s", "ttft_p50_s", "ttft_p95_s", "makespan_s", "idle_seat_steps"), strict=True):
        assert line.values == tuple(getattr(results[policy], name) for policy in ORDER)
        assert all(words in panel.view.accessibleDescription() for words in line.words)
    assert [line.better for line in shown.lines() if line.label == "Empty seat-steps"] == [0]
    page._show_below("twin")
    page.twin.show_sheet("compare")
    assert page.twin.model.sheet.rows[:5] == tuple((line.label, *line.values) for line in shown.lines())
    assert page.twin.model.sheet.rows[5][1:] == tuple(results[policy].steps for policy in ORDER)
    assert page.twin.model.sheet.columns[1:] == ("City bus", "Tour bus")
    for width in (480, 560, 1320):
        page.resize(width, 900)
        assert not panel.view.grab().isNull()
        assert panel.view.height() == plan(shown, panel.view.width()).height
        assert page.scroller.widget().minimumSizeHint().width() <= width
    for ending, head in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("json", b"{")):
        page.deck.export(str(tmp_path / f"c.{ending}"))
        assert (tmp_path / f"c.{ending}").read_bytes().startswith(head)
    told = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["policies"]
    assert told["in_flight"]["tok_s"] == results[Policy.IN_FLIGHT].tok_s
    assert len(told["static"]["history"]) == results[Policy.STATIC].steps
    page.deck.export(str(tmp_path / "c.gif"))
    assert "must end in" in page.deck.message.text()
    page.deck.export(str(tmp_path / "missing" / "c.png"))
    assert "Could not write" in page.deck.message.text() and "Errno" not in page.deck.message.text()
    page.set_theme(Theme.light())
    panel.away.click()
    assert "Nothing is compared yet" in page.twin.model.sheet.rows[0][0] and len(page.twin.model.sheet.rows) == 1
    page.deck.judge.click()
    wait(page, qtbot, "compare")
    assert page.twin.model.sheet.rows[0][1] == results[Policy.IN_FLIGHT].tok_s
    assert panel.view.grab().toImage().pixelColor(2, panel.view.height() - 2).lightnessF() > 0.9
    panel.away.click()
    assert not panel.isVisible() and panel.view.comparison is None


def test_compare_ends_a_recording_under_way(page, engine, tick, qtbot):
    press_record(page)
    engine.load(5)
    tick(page, engine, 30)
    page.deck.judge.click()
    wait(page, qtbot, "compare")
    assert not page.deck.recording and page.deck.panel.isVisible() and page.deck.tape.steps == 30


def test_nothing_recorded_is_a_sentence(page, engine, tick, qtbot):
    deck = page.deck
    deck.judge.click()
    assert "Nothing is recorded yet" in deck.message.text() and deck.message.isVisible()
    press_record(page)
    assert not deck.message.isVisible()
    press_record(page)
    assert "no step was made" in deck.message.text() and deck.tape is None
    deck.stop_recording()
    QCoreApplication.processEvents()
    assert "Nothing is being recorded" in deck.message.text()
    deck.tape, deck.name = make_trace(1), "short"  # one step: nobody had said anything
    deck.tape.entries[:] = [entry for entry in deck.tape.entries if entry["k"] != "step"]
    deck.compare()
    wait(page, qtbot, "compare")
    assert "no answer was recorded" in deck.message.text() and not deck.panel.isVisible()


def test_an_engine_without_a_model_says_so(page, engine, monkeypatch):
    future: Future[None] = Future()
    monkeypatch.setattr(engine, "start_recording", lambda: future)
    press_record(page)
    press_record(page)  # it has been asked already
    assert not page.deck.recording and not page.deck.record.isChecked()
    future.set_exception(EngineError("no_model", "There is nothing to record.", "Wait."))
    QCoreApplication.processEvents()
    assert page.deck.message.text() == "There is nothing to record. Wait." and not page.deck.record.isChecked()


@pytest.mark.parametrize("data", [b"", b"no trace at all", gzip.compress(b"{}", mtime=0), gzip.compress(b"x" * 90, mtime=0)[:-9]])
def test_a_damaged_file_is_a_sentence(page, qtbot, tmp_path, data):
    (tmp_path / "bad.omnibus-trace").write_bytes(data)
    page.deck.open(str(tmp_path / "bad.omnibus-trace"))
    with qtbot.waitSignal(page.deck.jobs.failed, timeout=20_000):
        pass
    assert "bad.omnibus-trace is not a scheduling trace" in page.deck.message.text() and page.deck.message.isVisible()
    assert not page.deck.replaying and page.deck.tape is None


def test_files_that_cannot_be_had_and_recordings_that_cannot_be_played(page, engine, tick, qtbot, tmp_path):
    deck = page.deck

    def failing(command) -> str:
        with qtbot.waitSignal(deck.jobs.failed, timeout=20_000):
            command()
        return deck.message.text()

    assert "could not be read" in failing(lambda: deck.open(str(tmp_path / "none.omnibus-trace")))
    record(page, engine, tick)
    assert "could not be read or written" in failing(lambda: deck.save(str(tmp_path / "missing" / "x.omnibus-trace")))
    deck.tape.entries[:] = [entry for entry in deck.tape.entries if entry["k"] != "submit"]
    assert "cannot be played" in failing(deck.replay)
    assert "cannot be used" in failing(deck.compare)
    assert not deck.replaying and not deck.panel.isVisible()


def test_dialogs_open_without_blocking(page, engine, tick, qtbot, tmp_path):
    record(page, engine, tick)
    for button, save in ((page.deck.keep, True), (page.deck.fetch, False)):
        button.click()
        dialog = page.deck.findChildren(QFileDialog)[-1]
        assert dialog.isVisible()
        assert (dialog.acceptMode() is QFileDialog.AcceptMode.AcceptSave) is save
        if save:
            with qtbot.waitSignal(page.deck.jobs.done, timeout=20_000):
                dialog.fileSelected.emit(str(tmp_path / "x.omnibus-trace"))
            assert (tmp_path / "x.omnibus-trace").exists()
        dialog.close()
        qtbot.waitUntil(lambda: not page.deck.findChildren(QFileDialog), timeout=30_000)


def test_a_newer_job_replaces_the_older_and_the_thread_ends(qtbot):
    jobs, held, results = Jobs(), threading.Event(), []
    jobs.done.connect(lambda name, value: results.append((name, value)))
    names = []

    def work(cancelled) -> str:
        names.append(threading.current_thread().name)
        held.wait(60)
        return "old"

    jobs.start("first", work)
    with qtbot.waitSignal(jobs.done, timeout=20_000):
        jobs.start("second", lambda cancelled: "new")
        held.set()
    assert results == [("second", "new")] and names[0].startswith("omnibus-recordings")
    jobs.start("third", lambda cancelled: [None for _ in iter(cancelled, True)])  # works until it is called off
    jobs.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("omnibus-recordings")]
    qtbot.wait(20)
    assert len(results) == 1


@pytest.mark.parametrize("policy", list(Policy))
def test_rides_are_the_seat_steps(policy):
    result = compare_policies(make_trace())[policy]
    found = rides(result.history)
    steps = {state: sum(ride.steps for ride in found if ride.state == state) for state in (EMPTY, WASTED, HELD, PREFILL, DECODE)}
    rows = [row for record in result.history for row in record.rows]
    assert steps[EMPTY] + steps[WASTED] == result.idle_seat_steps > 0
    assert steps[PREFILL] == sum(row.phase is Phase.PREFILL for row in rows)
    assert steps[DECODE] == sum(row.phase is Phase.DECODE for row in rows)
    assert steps[HELD] == sum(len(record.held) for record in result.history)
    assert max(ride.stop for ride in found) == pytest.approx(result.makespan_s)
    assert all(ride.title for ride in found if ride.state == DECODE)
    for seat in range(3):  # one after another, without holes while the engine was busy
        mine = sorted((ride for ride in found if ride.seat == seat), key=lambda ride: ride.start)
        assert mine[0].start == 0.0
        assert all(a.stop == pytest.approx(b.start) for a, b in zip(mine, mine[1:], strict=False))


def test_the_drawing_tells_the_longer_from_the_shorter(dressed, tmp_path):
    comparison = Comparison.of(compare_policies(make_trace()), "load")
    city, tour = comparison.results
    assert city.makespan_s < tour.makespan_s == comparison.span_s
    assert comparison.verdict().startswith("City bus against tour bus: ") and "instead of" in comparison.verdict()
    export_comparison(comparison, Ink(Theme.dark()), tmp_path / "c.svg")
    drawing = (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert comparison.verdict() in drawing and drawing.count("<rect") + drawing.count("<path") > len(comparison.rides[0])
    assert [tick_seconds(least) for least in (0.0004, 0.3, 1.2, 30)] == [0.001, 0.5, 2, 50]
    assert sum(shown for _, shown in legend_rows(400)) == 4 and len(legend_rows(400)) > 1 == len(legend_rows(1000))


def begin_lesson(page: DashboardPage) -> list[str]:
    """Ask for the comparison, and take the offer; tells of each time that the demo was asked for."""
    asked: list[str] = []
    page.run_demo.connect(lambda: asked.append("demo"))
    page.deck.judge.click()
    assert page.deck.lesson.isVisible()
    page.deck.lesson.click()
    QCoreApplication.processEvents()
    return asked


def test_one_click_records_the_demo_and_compares(page, engine, tick, qtbot):
    deck = page.deck
    assert begin_lesson(page) == ["demo"]
    assert deck.recording and deck.lesson.running and not deck.lesson.isVisible() and "Recording the demo" in deck.note.text()
    crowd = len(rush_hour().requests)
    engine.load(crowd - 1, 3, long=20)
    while engine.snapshot.seated or engine.snapshot.waiting:
        tick(page, engine, 1)
        deck.lesson.look()
    assert deck.recording and deck.lesson.running, "one is still to come"
    engine.board(8, 8)
    tick(page, engine, 1)
    deck.lesson.look()
    assert deck.recording
    tick(page, engine, 40)
    deck.lesson.look()
    wait(page, qtbot, "compare")
    assert not deck.recording and not deck.lesson.running and deck.panel.isVisible()
    assert deck.tape.requests == crowd


def test_a_crowd_that_stays_away_does_not_record_for_ever(page, engine, tick, qtbot):
    begin_lesson(page)
    engine.load(2, long=20)
    tick(page, engine, 60)
    assert not engine.snapshot.seated
    engine.state = EngineState.LOADING  # whoever waits for a model is not gone
    engine.publish()
    for _ in range(2 * QUIET):
        page.deck.lesson.look()
    assert page.deck.recording
    engine.state = EngineState.READY
    engine.publish()
    for _ in range(QUIET):
        page.deck.lesson.look()
    wait(page, qtbot, "compare")
    assert not page.deck.recording and page.deck.panel.isVisible()


def test_who_ends_the_recording_ends_the_lesson(page, engine, tick):
    begin_lesson(page)
    engine.load(2)
    tick(page, engine, 5)
    press_record(page)
    assert not page.deck.recording and not page.deck.lesson.running and page.deck.tape.steps == 5
    assert not page.deck.panel.isVisible()


def test_a_recording_that_cannot_begin_calls_no_crowd(page, engine, monkeypatch):
    def refuse():
        raise EngineError("remote", "This engine cannot record.")

    monkeypatch.setattr(engine, "start_recording", refuse)
    asked = begin_lesson(page)
    assert asked == [] and not page.deck.lesson.running and "cannot record" in page.deck.message.text()
