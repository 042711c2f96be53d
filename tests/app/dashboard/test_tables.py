"""The table twin, the decision log and the strip: the same data as the pictures."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QGuiApplication

from app.dashboard import EngineStrip, wording
from app.dashboard.decision_log import DecisionLog
from app.dashboard.sparkline import BUCKETS, Ring
from app.dashboard.strip import state_words, strip_facts
from app.dashboard.twin import TableTwin
from app.dashboard.twin_rows import queue_sheet, seat_sheet
from app.theme import Theme
from engine import DecisionKind, EngineState, ErrorInfo, ModelView, Phase
from tests.app.dashboard.sim_engine import SimEngine


@pytest.fixture
def engine() -> SimEngine:
    engine = SimEngine(seats=4, blocks=64, block_size=8)
    engine.load(9, 8, long=40)
    engine.step(25)
    return engine


def test_seat_and_queue_rows_are_the_snapshot(engine):
    snapshot = engine.snapshot
    for row, view in zip(seat_sheet(snapshot).rows, snapshot.seats, strict=True):
        if view is None:
            assert row[1] == "empty"
        else:
            assert row[1:6] == (view.title, wording.phase(view.phase), view.prompt_tokens, view.computed_tokens, view.output_tokens)
            assert row[7:9] == (view.blocks, view.tok_s) and row[12] == view.boarded_step
    for row, view in zip(queue_sheet(snapshot).rows, snapshot.queue, strict=True):
        assert row[0] == view.place and row[3] == view.detail and row[6:] == (view.needed_blocks, view.waited_s, view.expected_start_s)


@pytest.fixture
def twin(dressed, qtbot, engine):
    view = TableTwin(Theme.dark())
    qtbot.addWidget(view)
    view.show_snapshot(engine.snapshot, engine.history())
    assert view.model.rowCount() == 0, "a hidden table was filled"
    view.show()
    return view


def test_it_sorts_by_value_and_keeps_the_order(twin, engine):
    twin.show_sheet("steps")
    durations = [record.duration for record in engine.history()]
    twin.table.sortByColumn(7, Qt.SortOrder.AscendingOrder)
    assert [row[7] for row in twin.model.sheet.rows] == sorted(durations)
    engine.step()
    twin.show_snapshot(engine.snapshot, engine.history())
    assert [row[7] for row in twin.model.sheet.rows] == sorted(record.duration for record in engine.history())
    twin.show_sheet("queue")
    twin.table.sortByColumn(8, Qt.SortOrder.DescendingOrder)
    values = [row[8] for row in twin.model.sheet.rows]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=True)
    assert {type(twin.model.data(twin.model.index(0, column))) for column in range(9)} == {str}


def test_a_long_queue_is_listed_whole_but_not_at_every_look(twin, qtbot):
    long = SimEngine(seats=2, blocks=64, block_size=8)
    long.load(90, 8)
    long.step(5)
    twin.show_snapshot(long.snapshot, ())
    twin.show_sheet("queue")
    rows = twin.model.sheet.rows
    assert len(rows) == long.snapshot.waiting > 64 == len(long.snapshot.queue)
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1)) and rows[-1][8] > rows[64][8] > 0
    twin._rest.setInterval(20)
    long.step(1)
    twin.show_snapshot(long.snapshot, ())
    first = [row[7] for row in twin.model.sheet.rows]
    long.step(1)
    twin.show_snapshot(long.snapshot, ())
    assert [row[7] for row in twin.model.sheet.rows] == first, "listed anew at once"
    qtbot.waitUntil(lambda: [row[7] for row in twin.model.sheet.rows] == [view.waited_s for view in long.snapshot.line])


def test_it_copies_as_text(twin, qtbot):
    twin.show_sheet("seats")
    qtbot.keyClick(twin.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert len(lines) == 5 and lines[0].split("\t")[:3] == ["Seat", "Chat", "Phase"]


@pytest.fixture
def log(dressed, qtbot):
    view = DecisionLog(Theme.dark())
    qtbot.addWidget(view)
    view.resize(900, 320)
    view.show()
    return view


def test_every_decision_once_in_order(log, engine):
    log.show_steps(engine.history())
    engine.step(10)
    log.show_steps(engine.history())  # those known already are passed over
    expected = [decision for record in engine.history() for decision in record.decisions]
    assert log.model.shown == expected and log.model.rowCount() == len(expected)
    log.grab()


def test_filters_by_kind_and_chat(log, engine):
    log.show_steps(engine.history())
    log.kind.setCurrentIndex(log.kind.findData(DecisionKind.ADMIT))
    assert log.model.shown and {decision.kind for decision in log.model.shown} == {DecisionKind.ADMIT}
    title = log.model.shown[0].title
    log.kind.setCurrentIndex(0)
    log.chat.setText(f" {title[:7].upper()} ")
    assert log.model.shown and all(title[:7].casefold() in decision.title.casefold() for decision in log.model.shown)
    engine.step(30)
    before = len(log.model.shown)
    log.show_steps(engine.history())
    assert all(title[:7].casefold() in decision.title.casefold() for decision in log.model.shown) and len(log.model.shown) >= before
    log.chat.clear()
    assert log.model.shown == list(log.model.everything)


def test_the_filter_knows_names_and_whole_ids_but_not_pieces_of_ids(log, engine):
    """Ids are random letters and figures that nobody sees: an `a` in one must not bring its chat up."""
    log.show_steps(engine.history())
    decision = next(one for one in log.model.everything if len(one.request_id) > 1)
    pieces = {one.title.casefold() for one in log.model.everything if decision.request_id[:-1] in one.title.casefold()}
    log.chat.setText(decision.request_id[:-1])
    assert {one.title.casefold() for one in log.model.shown} == pieces
    log.chat.setText(decision.request_id)
    assert decision in log.model.shown


def test_a_filter_that_nothing_passes_says_so(log, engine):
    assert not log.table.reason
    log.show_steps(engine.history())
    log.chat.setText("nobody of that name")
    assert log.table.reason == "No decision passes this filter." == log.table.accessibleDescription()
    picture = log.table.viewport().grab().toImage()
    assert len({picture.pixel(x, picture.height() // 2) for x in range(picture.width())}) > 2
    log.chat.clear()
    assert not log.table.reason
    log.clear()
    assert not log.table.reason


@pytest.mark.parametrize("key", ["seats", "queue", "blocks", "steps", "figures"])
def test_what_stands_over_a_column_stands_where_its_cells_do(twin, key):
    twin.show_sheet(key)
    model, role = twin.model, Qt.ItemDataRole.TextAlignmentRole
    for column in range(model.columnCount()):
        over = model.headerData(column, Qt.Orientation.Horizontal, role)
        assert {model.data(model.index(row, column), role) for row in range(model.rowCount())} <= {over}
        words = any(isinstance(row[column], str) for row in model.sheet.rows)
        assert bool(over & Qt.AlignmentFlag.AlignLeft) is words


def test_a_click_selects_the_step_and_enter_opens_the_chat(log, engine):
    log.show_steps(engine.history())
    steps, chats = [], []
    log.step_selected.connect(steps.append)
    log.open_chat.connect(chats.append)
    index = log.model.index(3, 1)
    log.table.clicked.emit(index)
    log.table.activated.emit(index)
    assert steps == [log.model.shown[3].step] and chats == [log.model.shown[3].chat_id]
    log.show_step(log.model.shown[-1].step)
    assert log.table.currentIndex().row() == log.model.row_of(log.model.shown[-1].step)


def test_the_strip_says_what_the_engine_does(dressed, qtbot, engine):
    strip = EngineStrip(engine, Theme.dark())
    qtbot.addWidget(strip)
    strip.resize(900, 26)
    strip.show()
    assert strip.height() == 26 and engine.listeners == 1
    snapshot = engine.snapshot
    assert [cell is not None for cell in strip.cells.seats] == [view is not None for view in snapshot.seats]
    reading = [view is not None and view.phase is Phase.PREFILL for view in snapshot.seats]
    assert [cell is not None and cell.reading for cell in strip.cells.seats] == reading
    assert strip.facts == strip_facts(snapshot) and strip.facts[0] == f"{wording.rate(snapshot.rates.tok_s)} tok/s"
    assert strip.state_words == f"{snapshot.waiting} waiting"
    with qtbot.waitSignal(strip.clicked, timeout=30_000):
        qtbot.mouseClick(strip, Qt.MouseButton.LeftButton)
    for width in (200, 480, 1600):
        strip.resize(width, 26)
        assert not strip.grab().isNull()
    strip.hide()
    assert engine.listeners == 0 and not strip.sampler.running
    strip.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def test_the_strip_tells_loading_and_failure(engine):
    engine.state, engine.model = EngineState.LOADING, ModelView(name="m", progress=0.42, stage="reading weights")
    engine.publish()
    assert state_words(engine.snapshot).startswith("reading weights 42 %")
    engine.state, engine.error = EngineState.FAILED, ErrorInfo("x", "The model file is damaged.")
    engine.publish()
    assert state_words(engine.snapshot) == "The model file is damaged."


def test_a_ring_keeps_sixty_seconds_and_shows_gaps():
    ring = Ring()
    for tick in range(1000):
        ring.push(tick * 0.1, float(tick))
    assert len(ring.values) == BUCKETS == 60 and ring.values[-1] == 999.0 and ring.values[-2] == 989.0
    ring.push(105.2, 1.0)  # a value stands until the next one comes
    assert list(ring.values)[-7:] == [999.0] * 6 + [1.0]
    ring.look_away()
    ring.push(109.2, 2.0)
    assert list(ring.values)[-5:] == [1.0, None, None, None, 2.0]
    for tick in range(BUCKETS + 2):
        ring.push(110.0 + tick, 0.0)
    assert ring.flat and ring.top == 0.0
    ring.push(2.0, 5.0)  # another engine's clock begins anew
    assert ring.values[-1] == 5.0


def test_a_line_that_stays_as_it_is_need_not_be_drawn_again():
    ring = Ring()
    for second in range(BUCKETS + 2):
        ring.push(float(second), 3.0)
    drawn = ring.version
    ring.push(63.0, 3.0)
    assert ring.version == drawn
    ring.push(63.2, 4.0)  # within a bucket the line drawn stands
    assert ring.version == drawn
    ring.push(63.4, 3.0)
    ring.push(64.0, 3.0)  # the same values again, but another line was drawn
    assert ring.version == drawn + 1
    ring.push(65.0, 3.5)
    assert ring.version == drawn + 2
